"""Counting hits: peaks of one sentence against its word links, and against other sentences'.

A sentence is reduced to the pairs of target token and key token that are a hit, each one number;
every count for all heads at once is then one look-up of the peaks among them. So a sentence takes
memory as it has tokens, not as their square.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from headscope.answers import answer_span
from headscope.data.align import Alignment, AlignWords, Linker, align_file
from headscope.data.pairs import Links, PairFile, SentencePair
from headscope.data.words import Word, belonging, within
from headscope.evidence.runner import prompts_of
from headscope.find.capture import Captured, capture_greedy, capture_reference
from headscope.find.scoring import RunPart
from headscope.lm.tokens import Encoded, Spans, encode_output
from headscope.progress import Steps

if TYPE_CHECKING:
    from headscope.find.translation_score_config import TranslationScore
    from headscope.lm import LanguageModel

#: Pairs of two kinds of things by their numbers, such as tokens and words.
Pairs = tuple[NDArray[np.intp], NDArray[np.intp]]
#: Pairs of target token and key as single numbers, see `hits_at`; each once, ascending.
Hits = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Sentence:
    """One pair as tokens and words.

    `target`: which target token belongs to which target word; `source`: which token of the whole
    sequence belongs to which source word. `links` holds (source word, target word); `identical`
    those of them whose words have the same surface form. `text` is the target, and `spans` (n, 2)
    are the characters of its tokens. `lengths`: number of source words and target words.
    """

    target: Pairs
    source: Pairs
    links: Links
    identical: Links
    text: str
    spans: Spans
    lengths: tuple[int, int]


@dataclass(frozen=True, eq=False)
class Counts:
    """What one sentence contributes. Arrays over heads have the shape (L, W).

    `hits` / `total`: all linked target tokens; `identical_hits` / `identical_total`: those with a
    linked source word of the same surface form. `chance` is the expected score (macro) or the sum
    of hits (micro) under other sentences' links, with `chance_total` the number of draws or the
    sum of their denominators.
    """

    hits: NDArray[np.int32]
    total: int
    identical_hits: NDArray[np.int32]
    identical_total: int
    chance: NDArray[np.float64]
    chance_total: float


def identical_links(links: Links, source: Sequence[Word], target: Sequence[Word]) -> Links:
    """The links between words of the same surface form."""
    return frozenset((i, j) for i, j in links if source[i].text == target[j].text)


def counted_hits(sentence: Sentence, skip_identical: bool) -> Hits:
    """Which keys count as a hit for which target token."""
    allowed, identical = _allowed(sentence, [sentence.links, sentence.identical])
    return _without(allowed, identical >> 32) if skip_identical else allowed


def hits_at(peaks: NDArray[np.integer]) -> Hits:
    """The peak (n, ...) of each target token as a pair of token and key; -1 is no key of any."""
    tokens = np.arange(len(peaks)).reshape(-1, *[1] * (peaks.ndim - 1))
    return np.asarray(tokens << 32 | peaks.astype(np.int64) & 0xFFFFFFFF)


def by_second(pairs: Pairs) -> dict[int, list[int]]:
    """What is paired with each second thing, in order."""
    firsts: dict[int, list[int]] = {}
    for first, second in zip(*(side.tolist() for side in pairs), strict=True):
        firsts.setdefault(second, []).append(first)
    return firsts


def _allowed(sentence: Sentence, several: Sequence[Links]) -> list[Hits]:
    """Which keys are a hit for which target token under each of several links.

    Links that fall outside the sentence's words are dropped.
    """
    target, source = by_second(sentence.target), by_second(sentence.source)
    return [
        np.unique(
            np.array(
                [
                    token << 32 | key
                    for i, j in links
                    for token in target.get(j, ())
                    for key in source.get(i, ())
                ],
                dtype=np.int64,
            )
        )
        for links in several
    ]


def _without(hits: Hits, tokens: NDArray[np.int64]) -> Hits:
    return hits[np.isin(hits >> 32, tokens, invert=True)]


def count_hits(
    sentence: Sentence,
    peaks: NDArray[np.integer],
    others: Sequence[Links],
    average: str,
    skip_identical: bool,
) -> Counts:
    """Score one sentence by its `peaks` (n, L, W): for each target token and head the token with
    the largest weight, an index into the whole sequence, -1 for none.

    `others` are links of other sentences, for chance, which `average` says how to sum.
    `skip_identical` leaves out target tokens with a linked word of the same surface form, also for
    chance.
    """
    linked, same, *chances = _allowed(sentence, [sentence.links, sentence.identical, *others])
    tokens = np.intersect1d(same >> 32, linked >> 32)
    if skip_identical:
        linked, *chances = (_without(hits, tokens) for hits in (linked, *chances))
        tokens = tokens[:0]
    sizes = np.array([len(np.unique(hits >> 32)) for hits in chances], dtype=np.int64)
    weights = 1 / np.maximum(sizes, 1) if average == "macro" else np.ones(len(sizes))
    of_draw = np.repeat(weights, [len(hits) for hits in chances])
    drawn, place = np.unique(np.concatenate([*chances, linked[:0]]), return_inverse=True)
    at = hits_at(peaks)
    return Counts(
        _summed(at, linked).astype(np.int32),
        len(np.unique(linked >> 32)),
        _summed(at, linked[np.isin(linked >> 32, tokens)]).astype(np.int32),
        len(tokens),
        _summed(at, drawn, np.bincount(place, of_draw, len(drawn))),
        float((sizes > 0).sum() if average == "macro" else sizes.sum()),
    )


def _summed(at: Hits, hits: Hits, weights: NDArray[Any] | float = 1.0) -> NDArray[np.float64]:
    """The sum over target tokens of what `hits` at the peaks weigh."""
    weights = np.broadcast_to(weights, hits.shape)
    place = np.searchsorted(hits, at)
    found = np.append(hits, -1)[place] == at
    return np.asarray(np.append(weights, 0.0)[np.where(found, place, -1)].sum(axis=0))


def similar_sentences(
    lengths: Sequence[tuple[int, int]], draws: int, seed: int, pool: int = 3
) -> list[list[int]]:
    """For each sentence, `draws` others of similar lengths, by number of words on both sides.

    Drawn without replacement from the `pool` × `draws` nearest; fewer where there are fewer.
    """
    sizes = np.array(lengths, dtype=np.int64).reshape(-1, 2)
    chosen = []
    for index in range(len(sizes)):
        distance = np.abs(sizes - sizes[index]).sum(axis=1)
        distance[index] = np.iinfo(np.int64).max
        nearest = np.argsort(distance, kind="stable")[: min(pool * draws, len(sizes) - 1)]
        rng = random.Random(f"{seed} {index}")
        chosen.append(rng.sample(nearest.tolist(), min(draws, len(nearest))))
    return chosen


@dataclass(frozen=True, eq=False)
class Given:
    """A pair with its reference translation as one text.

    `ids` are all its tokens, `rows` the places of the target's, `source` (T,) marks those of the
    source; `words` are its words and links.
    """

    ids: tuple[int, ...]
    rows: NDArray[np.intp]
    source: NDArray[np.bool_]
    words: Sentence


def given_texts(
    lm: LanguageModel,
    pairs: PairFile,
    config: TranslationScore,
    part: RunPart,
    linker: Linker | None = None,
) -> tuple[list[Given], Alignment]:
    """Prompt and reference translation of every pair as one string, with its word links."""
    alignment = _alignment(lm, part, pairs, config, pairs.pairs, linker)
    fulls = [
        prompt.with_target(pair.target)
        for prompt, pair in zip(
            prompts_of(lm, pairs, config.template, config.chat), pairs.pairs, strict=True
        )
    ]
    texts = [lm.encoded(full.text, full.special) for full in fulls]
    _check_lengths(texts, lm.context_length, pairs)
    given = []
    for pair, text, full, words in zip(pairs.pairs, texts, fulls, _words(alignment), strict=True):
        row = np.flatnonzero(within(text.spans, *full.target_span))
        source = _source(text.spans, full.source_span, words)
        sentence = _sentence(text.spans[row] - full.target_start, source, words, pair.target)
        given.append(Given(text.ids, row, within(text.spans, *full.source_span), sentence))
    return given, alignment


def decoded(
    lm: LanguageModel,
    pairs: PairFile,
    config: TranslationScore,
    part: RunPart,
    progress: Steps | None = None,
    linker: Linker | None = None,
) -> tuple[list[Sentence], list[Captured], Alignment]:
    """Every pair with its words and links, its peaks, and how its words were aligned.

    Of reference translations, one forward pass a batch; or of the model's greedy outputs, captured
    while they are generated and then aligned. `linker` is what the aligner `heads` asks.
    """
    if config.decode == "reference":
        given, alignment = given_texts(lm, pairs, config, part, linker)
        scope = [text.source for text in given] if config.scope == "source" else None
        ids, rows = [text.ids for text in given], [text.rows for text in given]
        captured = capture_reference(lm, ids, rows, scope, config, part, progress)
        return [text.words for text in given], captured, alignment
    prompts = prompts_of(lm, pairs, config.template, config.chat)
    texts = [lm.encoded(prompt.text, prompt.special) for prompt in prompts]
    # At least one token must fit behind the prompt.
    _check_lengths(texts, lm.context_length - 1, pairs)
    keys = [
        within(text.spans, *prompt.source_span) for text, prompt in zip(texts, prompts, strict=True)
    ]
    scope = keys if config.scope == "source" else None
    only = bool(config.answer_only)
    captured = capture_greedy(lm, prompts, keys, scope, config, part, progress, only)
    outputs = [encode_output(lm.tokenizer, output.output_ids) for output in captured]
    one_line = bool(prompts) and prompts[0].special
    own = [
        _own_text(p, text, one_line, config)
        for p, (text, _) in zip(pairs.pairs, outputs, strict=True)
    ]
    spoken = [
        SentencePair(pair.id, pair.source, text, None, pair.line)
        for pair, (_, text) in zip(pairs.pairs, own, strict=True)
    ]
    alignment = _alignment(lm, part, pairs, config, spoken, linker)
    sentences = []
    for index, words in enumerate(_words(alignment)):
        _, spans = outputs[index]
        # Words were found in what is left of the output.
        target = spans[: len(captured[index].peaks)] - own[index][0]
        # A head may also look at what has been generated, where no source word is.
        places = np.concatenate([texts[index].spans, np.zeros_like(spans)])
        source = _source(places, prompts[index].source_span, words)
        sentences.append(_sentence(target, source, words, spoken[index].target))
    return sentences, captured, alignment


def _check_lengths(texts: Sequence[Encoded], most: int, pairs: PairFile) -> None:
    for number, text in enumerate(texts):
        if len(text.ids) > most:
            raise pairs.too_long(number, len(text.ids), most)


def _alignment(
    lm: LanguageModel,
    part: RunPart,
    pairs: PairFile,
    config: TranslationScore,
    outputs: Sequence[SentencePair],
    linker: Linker | None,
) -> Alignment:
    """The word links, computed once a run: statistical aligners have no seed.

    The annotator links the model's own tokens (Token Alignment Heads, section 2.1).
    """
    kept = part.record("alignment")
    if kept is not None:
        return Alignment.from_dict(kept)
    aligner = config.aligner
    extra: Sequence[SentencePair] = ()
    if config.decode == "greedy":
        aligner = aligner or "eflomal"
        extra = [pair.unlinked for pair in pairs.pairs]
    spoken = [pair for pair in outputs if pair.target.strip()]
    tokens = partial(_tokens, lm) if aligner == "llm" else None
    options = AlignWords(aligner=aligner, llm=config.llm, tokens=tokens, linker=linker)
    alignment = align_file(pairs, options, spoken, extra)
    alignment = _with_silent(alignment, outputs)
    part.keep_record("alignment", alignment.as_dict())
    return alignment


def _tokens(lm: LanguageModel, text: str) -> list[Word]:
    """The model's own tokens of a sentence, as units; tokens of one character are one unit."""
    # With a space in front, as the sentence has it in the prompt.
    spans = (lm.encoded(f" {text}").spans - 1).tolist()
    places = dict.fromkeys((start, end) for start, end in spans if start < end)
    return [Word(text[start:end], start, end) for start, end in places]


def _with_silent(alignment: Alignment, outputs: Sequence[SentencePair]) -> Alignment:
    """Put back the pairs with an empty output: no target words, no links."""
    if all(pair.target.strip() for pair in outputs):
        return alignment
    rows = zip(alignment.source_words, alignment.target_words, alignment.links, strict=True)
    full = [next(rows) if pair.target.strip() else ((), (), None) for pair in outputs]
    sources, targets, links = zip(*full, strict=True)
    return replace(alignment, source_words=sources, target_words=targets, links=links)


def _own_text(
    pair: SentencePair, written: str, one_line: bool, config: TranslationScore
) -> tuple[int, str]:
    """Where the model's own text, or its first line, or its answer, begins in an output; and it."""
    if config.answer_only:
        start, end = answer_span(written, pair.source)
        return start, written[start:end]
    text = written.strip()
    if one_line:
        text = text.split("\n", 1)[0].rstrip()
    return len(written) - len(written.lstrip()), text


Words = tuple[tuple[Word, ...], tuple[Word, ...], frozenset[tuple[int, int]]]


def _words(alignment: Alignment) -> list[Words]:
    rows = zip(alignment.source_words, alignment.target_words, alignment.links, strict=True)
    return [(source, target, links or frozenset()) for source, target, links in rows]


def _source(spans: NDArray[np.int64], place: tuple[int, int], words: Words) -> Pairs:
    """Which token belongs to which source word; tokens outside the source belong to none."""
    tokens, of_word = belonging(spans, words[0], place[0])
    inside = within(spans[tokens], *place)
    return tokens[inside], of_word[inside]


def _sentence(spans: Spans, source: Pairs, words: Words, text: str) -> Sentence:
    """`spans` are the characters of the target's tokens; some may lie beyond its text."""
    identical, sizes = identical_links(words[2], words[0], words[1]), (len(words[0]), len(words[1]))
    target = belonging(spans, words[1])
    return Sentence(target, source, words[2], identical, text, spans.clip(0, len(text)), sizes)
