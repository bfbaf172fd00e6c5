"""The sentences of a direction with their peaks, for given and for generated translations."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from headscope.data.align import Alignment, AlignWords, align_words
from headscope.data.pairs import PairFile, SentencePair
from headscope.data.prompts import Prompt, translation_prompts
from headscope.data.words import Word, membership, within
from headscope.find.capture import Captured, Part, Progress, capture_greedy, capture_reference
from headscope.find.hits import Sentence, identical_links
from headscope.lm.prompting import chat_writer
from headscope.lm.tokens import Encoded, encode, encode_output

if TYPE_CHECKING:
    from headscope.find.translation_config import TranslationScore
    from headscope.lm import LanguageModel


@dataclass(frozen=True, eq=False)
class Decoded:
    """Every pair with its words and links, its peaks, and how its words were aligned."""

    sentences: list[Sentence]
    captured: list[Captured]
    alignment: Alignment


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
    lm: LanguageModel, pairs: PairFile, config: TranslationScore, part: Part
) -> tuple[list[Given], Alignment]:
    """Prompt and reference translation of every pair as one string, with its word links."""
    alignment = _alignment(lm, part, pairs, config, pairs.pairs)
    fulls = [
        prompt.with_target(pair.target)
        for prompt, pair in zip(prompts_of(lm, pairs, config), pairs.pairs, strict=True)
    ]
    texts = [encode(lm.tokenizer, full.text, full.special) for full in fulls]
    _check_lengths(texts, lm.context_length, pairs)
    given = []
    for text, full, words in zip(texts, fulls, _words(alignment), strict=True):
        row = np.flatnonzero(within(text.spans, *full.target_span))
        target = membership(text.spans[row], words[1], full.target_start)
        sentence = _sentence(target, _source(text.spans, full.source_span, words), words)
        given.append(Given(text.ids, row, within(text.spans, *full.source_span), sentence))
    return given, alignment


def given_translations(
    lm: LanguageModel,
    pairs: PairFile,
    config: TranslationScore,
    part: Part,
    progress: Progress | None,
) -> Decoded:
    """Prompt and reference translation as one string, one forward pass a batch."""
    given, alignment = given_texts(lm, pairs, config, part)
    scope = [one.source for one in given] if config.scope == "source" else None
    ids, rows = [one.ids for one in given], [one.rows for one in given]
    captured = capture_reference(lm, ids, rows, scope, config, part, progress)
    return Decoded([one.words for one in given], captured, alignment)


def own_translations(
    lm: LanguageModel,
    pairs: PairFile,
    config: TranslationScore,
    part: Part,
    progress: Progress | None,
) -> Decoded:
    """The model's greedy outputs, captured while they are generated, then aligned."""
    prompts = prompts_of(lm, pairs, config)
    texts = [encode(lm.tokenizer, prompt.text, prompt.special) for prompt in prompts]
    # At least one token must fit behind the prompt.
    _check_lengths(texts, lm.context_length - 1, pairs)
    keys = [
        within(text.spans, *prompt.source_span) for text, prompt in zip(texts, prompts, strict=True)
    ]
    scope = keys if config.scope == "source" else None
    captured = capture_greedy(lm, prompts, keys, scope, config, part, progress)
    outputs = [encode_output(lm.tokenizer, one.output_ids) for one in captured]
    one_line = bool(prompts) and prompts[0].special
    said = _own_pairs(pairs.pairs, [text for text, _ in outputs], one_line)
    alignment = _alignment(lm, part, pairs, config, said)
    sentences = []
    for index, words in enumerate(_words(alignment)):
        text, spans = outputs[index]
        # Words were found in the output without the white space in front of it.
        shift = len(text) - len(text.lstrip())
        target = membership(spans, words[1], shift)[: len(captured[index].peaks)]
        # A head may also look at what has been generated, where no source word is.
        places = np.concatenate([texts[index].spans, np.zeros_like(spans)])
        source = _source(places, prompts[index].source_span, words)
        sentences.append(_sentence(target, source, words))
    return Decoded(sentences, captured, alignment)


def prompts_of(lm: LanguageModel, pairs: PairFile, config: TranslationScore) -> list[Prompt]:
    """The prompt of every pair, up to where the target begins."""
    writer = chat_writer(lm, config.chat, config.template.text)
    return translation_prompts(pairs, config.template, writer, lm.tokenizer.bos_token or "")


def _check_lengths(texts: Sequence[Encoded], most: int, pairs: PairFile) -> None:
    for number, text in enumerate(texts):
        if len(text.ids) > most:
            raise pairs.too_long(number, len(text.ids), most)


def _alignment(
    lm: LanguageModel,
    part: Part,
    pairs: PairFile,
    config: TranslationScore,
    said: Sequence[SentencePair],
) -> Alignment:
    """The word links, computed once a run: statistical aligners have no seed.

    The annotator links the model's own tokens (Token Alignment Heads, section 2.1).
    """
    kept = part.record(part.links)
    if kept is not None:
        return Alignment.from_dict(kept)
    aligner = config.aligner
    extra: Sequence[SentencePair] = ()
    if config.decode == "greedy":
        aligner = aligner or "eflomal"
        extra = [dataclasses.replace(pair, links=None) for pair in pairs.pairs]
    spoken = [pair for pair in said if pair.target.strip()]
    tokens = partial(_tokens, lm) if aligner == "llm" else None
    options = AlignWords(aligner=aligner, llm=config.llm, tokens=tokens)
    alignment = align_words(spoken, options, pairs.source_language, pairs.target_language, extra)
    alignment = _with_silent(alignment, said)
    part.keep_record(part.links, alignment.as_dict())
    return alignment


def _tokens(lm: LanguageModel, text: str) -> list[Word]:
    """The model's own tokens of a sentence, as units; tokens of one character are one unit."""
    # With a space in front, as the sentence has it in the prompt.
    spans = (encode(lm.tokenizer, f" {text}").spans - 1).tolist()
    places = dict.fromkeys((start, end) for start, end in spans if start < end)
    return [Word(text[start:end], start, end) for start, end in places]


def _with_silent(alignment: Alignment, said: Sequence[SentencePair]) -> Alignment:
    """Put back the pairs with an empty output: no target words, no links."""
    if all(pair.target.strip() for pair in said):
        return alignment
    rows = zip(alignment.source_words, alignment.target_words, alignment.links, strict=True)
    full = [next(rows) if pair.target.strip() else ((), (), None) for pair in said]
    sources, targets, links = zip(*full, strict=True)
    return dataclasses.replace(alignment, source_words=sources, target_words=targets, links=links)


def _own_pairs(
    pairs: Sequence[SentencePair], outputs: Sequence[str], one_line: bool
) -> list[SentencePair]:
    """The pairs with the model's own text, or its first line, as the target, and no links."""
    texts = [text.strip() for text in outputs]
    if one_line:
        texts = [text.split("\n", 1)[0].rstrip() for text in texts]
    return [
        SentencePair(pair.id, pair.source, text, None, pair.line)
        for pair, text in zip(pairs, texts, strict=True)
    ]


Words = tuple[tuple[Word, ...], tuple[Word, ...], frozenset[tuple[int, int]]]


def _words(alignment: Alignment) -> list[Words]:
    rows = zip(alignment.source_words, alignment.target_words, alignment.links, strict=True)
    return [(source, target, links or frozenset()) for source, target, links in rows]


def _source(spans: NDArray[np.int64], place: tuple[int, int], words: Words) -> NDArray[np.bool_]:
    """Which token belongs to which source word; tokens outside the source belong to none."""
    return membership(spans, words[0], place[0]) & within(spans, *place)[:, None]


def _sentence(target: NDArray[np.bool_], source: NDArray[np.bool_], words: Words) -> Sentence:
    return Sentence(target, source, words[2], identical_links(words[2], words[0], words[1]))
