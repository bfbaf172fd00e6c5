"""Translation Score: how often a head looks at the right source word while translating.

Token Alignment Heads (ICLR 2026), section 2.2, equation 1: for every target token that has an
aligned source token, a head scores a hit if its largest attention weight, at the step that
predicts the token, falls on the aligned source token. The score of a sentence is hits over such
tokens; a head's score is the mean over sentences.

Beside it the attention mass: the softmax weights on the tokens of the aligned source word, summed.
A head that spreads its attention around the right word has much mass and few peaks; one whose small
weights happen to be largest there has many peaks and little mass.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from headscope.data.align import Alignment
from headscope.data.pairs import PairFile
from headscope.errors import InputError
from headscope.find.scoring import RunPart, rate, scored
from headscope.find.translation_config import TranslationScore, check_aligner
from headscope.heads import HeadScores
from headscope.progress import Steps

if TYPE_CHECKING:
    from headscope.find.alignment import Counts, Given, Sentence
    from headscope.lm import LanguageModel
    from headscope.runs import Run

Floats = NDArray[np.float64]
#: Padded tokens of a batch of weights, at most: they are kept for rows × heads × source tokens.
MOST_TOKENS = 4096


def translation_score(
    lm: LanguageModel,
    pairs: PairFile,
    config: TranslationScore = TranslationScore(),
    run: Run | None = None,
    progress: Steps | None = None,
    links: str = "alignment",
) -> HeadScores:
    """Score every head on sentence pairs of one direction, with or without word links.

    `links` is the name under which the run keeps the word links: reference translations that one
    run scores by several links are read by the model once. Raises `InputError` if no sentence has
    an aligned target token, or a prompt exceeds the context.

    Returns:
        Scores in [0, 1] with bounds. `extra`: `chance`, and `identical` and `different`,
            the score on target tokens whose aligned word has the same or another surface form (NaN
            without such tokens). `statistics`, by sentence: `hits`, `totals`, `identical_hits`,
            `identical_totals`, `chance`, `chance_totals`; from them every figure follows again
            without the model. `config` also tells `examples` (sentences scored), `left_out`
            (without an aligned token), `tokens`, `units`, `aligner`, `links_digest` and, where
            eflomal linked the words, `fitted_on`, the number of sentence pairs it was fitted on.
    """
    from headscope.find.alignment import count_hits, decoded, similar_sentences
    from headscope.find.best_sentences import keep_sentences
    from headscope.find.capture import keep_peaks

    if not pairs.pairs:
        raise InputError(f"{pairs.path} holds no sentence pairs")
    check_aligner(pairs, config)
    part = RunPart(run, f"{pairs.source_language}-{pairs.target_language}", links)
    sentences, captured, alignment = decoded(lm, pairs, config, part, progress)
    drawn = similar_sentences([s.lengths for s in sentences], config.chance_draws, config.seed)
    counts = [
        count_hits(
            sentence,
            capture.peaks,
            [sentences[other].links for other in others],
            config.average,
            config.skip_identical,
        )
        for sentence, capture, others in zip(sentences, captured, drawn, strict=True)
    ]
    statistics = _statistics(counts)
    hits, totals = statistics["hits"], statistics["totals"]
    if not totals.any():
        raise InputError(
            f"no target token of {pairs.path} has an aligned source word; check the links, the "
            "languages and the template"
        )
    same, same_totals = statistics["identical_hits"], statistics["identical_totals"]
    # Chance is over the sentences that count.
    drawn_totals = np.where(totals > 0, statistics["chance_totals"], 0)
    scores = scored(
        lm,
        "translation-score",
        config,
        run,
        hits,
        totals,
        {
            "chance": rate(statistics["chance"], drawn_totals, config.average),
            "identical": rate(same, same_totals, config.average),
            "different": rate(hits - same, totals - same_totals, config.average),
        },
        statistics,
        _about(part, alignment, totals),
        config.average,
    )
    scores = _signed(scores, alignment)
    if not config.keep_peaks:
        keep_peaks(part, captured, scores, config.seed)
    keep_sentences(part, pairs.pairs, sentences, captured, alignment, scores, config.skip_identical)
    return scores


def _statistics(counts: Sequence[Counts]) -> dict[str, NDArray[Any]]:
    return {
        "hits": np.stack([count.hits for count in counts]).astype(np.uint16),
        "totals": np.array([count.total for count in counts], dtype=np.int32),
        "identical_hits": np.stack([count.identical_hits for count in counts]).astype(np.uint16),
        "identical_totals": np.array([count.identical_total for count in counts], dtype=np.int32),
        "chance": np.stack([count.chance for count in counts]).astype(np.float32),
        "chance_totals": np.array([count.chance_total for count in counts], dtype=np.float64),
    }


def _about(part: RunPart, alignment: Alignment, totals: NDArray[Any]) -> dict[str, Any]:
    """What was counted: the linked target tokens of each sentence, and how they were linked."""
    return {
        "pair": part.name,
        "examples": int((totals > 0).sum()),
        "left_out": int((totals == 0).sum()),
        "tokens": int(totals.sum()),
        "units": alignment.units,
        "aligner": alignment.aligner,
        "links_digest": alignment.digest,
        **{name: number for name, number in alignment.stats.items() if name == "fitted_on"},
    }


def _signed(scores: HeadScores, alignment: Alignment) -> HeadScores:
    """With the links in the signature: a statistical aligner gives others every time."""
    if not scores.signature:
        return scores
    digest = hashlib.sha256(alignment.digest.encode()).hexdigest()[:12]
    return replace(scores, signature=f"{scores.signature}|links:{digest}")


def attention_mass(
    lm: LanguageModel,
    pairs: PairFile,
    config: TranslationScore = TranslationScore(),
    run: Run | None = None,
    progress: Steps | None = None,
) -> HeadScores:
    """Attention on the aligned source word, of every head, on one direction's references.

    The weights at the step that predicts a target token, summed over the tokens of the aligned
    word; the mean over such tokens of a sentence, then over sentences. `config` is as for
    `translation_score`, with `decode="reference"` and `average="macro"`; `scope` has no meaning
    here, since weights are those over all keys. Raises `InputError` for another `decode` or
    `average`, if no sentence has an aligned target token, or as `attention_weights`.

    Returns:
        Scores in [0, 1] with bootstrap bounds over sentences. `extra`: `chance`, the same under the
            links of other pairs of similar lengths. `statistics`: `mass` and `chance`, (S, L, W),
            of the sentences that have an aligned target token.
    """
    from headscope.find.alignment import given_texts, similar_sentences

    if config.decode != "reference" or config.average != "macro":
        raise InputError("attention mass is of reference translations, as a mean over sentences")
    part = RunPart(run, f"{pairs.source_language}-{pairs.target_language}")
    given, alignment = given_texts(lm, pairs, config, part)
    words = [text.words for text in given]
    drawn = similar_sentences([text.lengths for text in words], config.chance_draws, config.seed)
    tables = [
        _tables(own, [words[at] for at in others]) for own, others in zip(words, drawn, strict=True)
    ]
    linked = np.array([own.any(axis=1).sum() for own, _ in tables])
    kept = np.flatnonzero(linked).tolist()
    if not kept:
        raise InputError(f"no target token of {pairs.path} has an aligned source word")
    masses: dict[int, tuple[Floats, Floats]] = {}
    tokens = min(config.batch_tokens, MOST_TOKENS)
    shift = 1 if config.query == "predict" else 0

    def work(places: list[int]) -> dict[int, tuple[Floats, Floats]]:
        some = [kept[place] for place in places]
        made = _masses(lm, [given[at] for at in some], [tables[at] for at in some], shift)
        return dict(zip(some, made, strict=True))

    for _, batch in lm.in_batches([len(given[at].ids) for at in kept], tokens, work):
        masses |= batch
        if progress:
            progress(len(masses), len(kept))
    mass, chance = (np.stack([masses[at][number] for at in kept]) for number in (0, 1))
    known = np.isfinite(chance[:, lm.geometry.mask()]).all(axis=1)
    scores = scored(
        lm,
        "attention-mass",
        config,
        run,
        mass,
        np.ones(len(kept)),
        {"chance": rate(chance, known.astype(float))},
        {"mass": mass, "chance": chance},
        _about(part, alignment, linked),
        counts=False,
    )
    return _signed(scores, alignment)


def _tables(sentence: Sentence, others: Sequence[Sentence]) -> tuple[Floats, Floats]:
    """What a weight on each key counts for each target token, (n, T): own links, and others'.

    Both sum to a mean over target tokens; the second is NaN where no other links fit.
    """
    from headscope.find.alignment import allowed_keys

    tables = [allowed_keys(sentence, other.links) for other in (sentence, *others)]
    means = [table / max(1, table.any(axis=1).sum()) for table in tables]
    fitting = [mean for mean, table in zip(means[1:], tables[1:], strict=True) if table.any()]
    return means[0], np.mean(fitting, axis=0) if fitting else np.full(means[0].shape, np.nan)


def _masses(
    lm: LanguageModel,
    given: Sequence[Given],
    tables: Sequence[tuple[Floats, Floats]],
    shift: int,
) -> list[tuple[Floats, Floats]]:
    """The mass of each head, (L, W), by own links and by others', from one pass."""
    import torch

    from headscope.find.capture import rows_before
    from headscope.lm.attention.weights import WeightRequest, weights_in

    batch = lm.collate([text.ids for text in given])
    places = [np.flatnonzero(text.source) for text in given]
    keys = torch.full((len(given), max(map(len, places))), -1, dtype=torch.int64)
    for row, (own, before) in enumerate(zip(places, batch.padding, strict=True)):
        keys[row, : len(own)] = torch.from_numpy(own + before)
    request = WeightRequest(keys, rows=rows_before(batch, [text.rows for text in given], shift))
    attended = weights_in(lm, batch, request)
    of_row, weights = attended.rows[:, 0].numpy(), attended.weights.cpu().double().numpy()
    mask, made = lm.geometry.mask(), []
    for row, (pair, of_keys) in enumerate(zip(tables, places, strict=True)):
        seen = weights[of_row == row][..., : len(of_keys)]
        masses = np.full((2, *lm.geometry.shape), np.nan)
        for at, table in enumerate(pair):
            masses[at, mask] = np.einsum("nhk,nk->h", seen, table[:, of_keys])
        made.append((masses[0], masses[1]))
    return made
