"""Translation Score: how often a head looks at the right source word while translating.

Token Alignment Heads (ICLR 2026), section 2.2, equation 1: for every target token that has an
aligned source token, a head scores a hit if its largest attention weight, at the step that
predicts the token, falls on the aligned source token. The score of a sentence is hits over such
tokens; a head's score is the mean over sentences.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from headscope.data.align import Alignment, choose_aligner
from headscope.data.pairs import PairFile
from headscope.errors import InputError
from headscope.find.hits import Counts, Sentence, count_hits, similar_sentences
from headscope.find.translation_config import TranslationScore
from headscope.heads import HeadScores
from headscope.measure.intervals import bootstrap_interval
from headscope.runs.plain import plain

if TYPE_CHECKING:
    from headscope.find.capture import Captured, Progress
    from headscope.lm import LanguageModel
    from headscope.runs import Run

DEFAULT = TranslationScore()


def translation_score(
    lm: LanguageModel,
    pairs: PairFile,
    config: TranslationScore = DEFAULT,
    run: Run | None = None,
    progress: Progress | None = None,
    links: str = "alignment",
) -> HeadScores:
    """Score every head of `lm` on sentence pairs of one direction.

    Args:
        lm: the model.
        pairs: sentences and translations, with or without word links.
        config: how to score.
        run: a run folder; batches, outputs and links are kept there, and a run that was stopped
            goes on with what is there. See `TranslationScore.keep_peaks` for what stays at the end.
        progress: called with (sentences done, sentences in all).
        links: the name under which the run keeps the word links. Reference translations that one
            run scores by several links are read by the model once.

    Returns:
        Scores in [0, 1] with bootstrap bounds. `extra`: `chance`, and `identical` and
        `different`, the score on target tokens whose aligned word has the same or another
        surface form (NaN without such tokens). `statistics`, by sentence: `hits`, `totals`,
        `identical_hits`, `identical_totals`, `chance`, `chance_totals`; from them every figure
        follows again without the model. `config` also tells `examples` (sentences scored),
        `left_out` (without an aligned token), `tokens`, `units`, `aligner` and `links_digest`.

    Raises:
        InputError: if no sentence has an aligned target token, or a prompt exceeds the context.
    """
    from headscope.find.capture import Part, keep_peaks
    from headscope.find.decoding import given_translations, own_translations

    if not pairs.pairs:
        raise InputError(f"{pairs.path} holds no sentence pairs")
    check_aligner(pairs, config)
    part = Part(run, f"{pairs.source_language}-{pairs.target_language}", links)
    decode = given_translations if config.decode == "reference" else own_translations
    decoded = decode(lm, pairs, config, part, progress)
    counts = _count(decoded.sentences, decoded.captured, config)
    scores = _scores(lm, pairs, config, decoded.alignment, counts, run)
    if not config.keep_peaks:
        keep_peaks(part, decoded.captured, scores, config.seed)
    return scores


def check_aligner(pairs: PairFile, config: TranslationScore) -> None:
    """Raise `InputError` if these pairs cannot be aligned as the configuration asks.

    `MissingExtra` if it asks for an aligner that is not installed.
    """
    if config.decode == "greedy":
        if config.aligner == "links":
            raise InputError(
                "greedy decoding scores the model's own output, which the data's links do not "
                "cover; use --aligner eflomal or llm, or --decode reference"
            )
        if config.aligner is None:
            choose_aligner((), "eflomal")
    else:
        choose_aligner(pairs.pairs, config.aligner)


def _count(
    sentences: Sequence[Sentence], captured: Sequence[Captured], config: TranslationScore
) -> list[Counts]:
    drawn = similar_sentences([s.lengths for s in sentences], config.chance_draws, config.seed)
    return [
        count_hits(
            sentence,
            one.peaks,
            [sentences[other].links for other in others],
            config.average,
            config.skip_identical,
        )
        for sentence, one, others in zip(sentences, captured, drawn, strict=True)
    ]


def _scores(
    lm: LanguageModel,
    pairs: PairFile,
    config: TranslationScore,
    alignment: Alignment,
    counts: Sequence[Counts],
    run: Run | None,
) -> HeadScores:
    statistics: dict[str, NDArray[Any]] = {
        "hits": np.stack([one.hits for one in counts]).astype(np.uint16),
        "totals": np.array([one.total for one in counts], dtype=np.int32),
        "identical_hits": np.stack([one.identical_hits for one in counts]).astype(np.uint16),
        "identical_totals": np.array([one.identical_total for one in counts], dtype=np.int32),
        "chance": np.stack([one.chance for one in counts]).astype(np.float32),
        "chance_totals": np.array([one.chance_total for one in counts], dtype=np.float64),
    }
    totals = statistics["totals"]
    if not totals.any():
        raise InputError(
            f"no target token of {pairs.path} has an aligned source word; check the links, the "
            "languages and the template"
        )
    same, same_totals = statistics["identical_hits"], statistics["identical_totals"]
    hits = statistics["hits"]
    low, high = bootstrap_interval(
        hits, totals, config.average, config.bootstrap_draws, config.seed, config.level
    )
    digest = hashlib.sha256(alignment.digest.encode()).hexdigest()[:12]
    signature = f"{run.signature}|links:{digest}" if run is not None else ""
    return HeadScores(
        lm.geometry,
        rate(hits, totals, config.average),
        "translation-score",
        low,
        high,
        extra={
            "chance": _chance(statistics, config.average),
            "identical": rate(same, same_totals, config.average),
            "different": rate(hits - same, totals - same_totals, config.average),
        },
        statistics=statistics,
        config={
            **plain(config),
            "pair": f"{pairs.source_language}-{pairs.target_language}",
            "examples": int((totals > 0).sum()),
            "left_out": int((totals == 0).sum()),
            "tokens": int(totals.sum()),
            "units": alignment.units,
            "aligner": alignment.aligner,
            "links_digest": alignment.digest,
        },
        provenance=dict(run.provenance) if run is not None else {},
        signature=signature,
    )


def rate(hits: NDArray[Any], totals: NDArray[Any], average: str) -> NDArray[np.float64]:
    """Hits (S, ...) over totals (S,) by the chosen average; NaN if every total is 0."""
    kept = totals > 0
    if not kept.any():
        return np.full(hits.shape[1:], np.nan)
    chosen, sizes = hits[kept].astype(np.float64), totals[kept].astype(np.float64)
    if average == "micro":
        return np.asarray(chosen.sum(axis=0) / sizes.sum())
    return np.asarray((chosen / sizes.reshape(-1, *[1] * (hits.ndim - 1))).mean(axis=0))


def _chance(statistics: dict[str, NDArray[Any]], average: str) -> NDArray[np.float64]:
    """Score expected under other sentences' links, over the sentences that count."""
    weights = np.where(statistics["totals"] > 0, statistics["chance_totals"], 0)
    return rate(statistics["chance"], weights, average)
