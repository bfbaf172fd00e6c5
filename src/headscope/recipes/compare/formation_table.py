"""The table of a series of checkpoints, from their scores and translations; no model is needed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np

from headscope.compare.artifacts import Artifact
from headscope.compare.classes import class_shares
from headscope.compare.overlap import overlaps
from headscope.data.pairs import PairFile
from headscope.find.translation_config import TranslationScore
from headscope.heads import Amount, Geometry, HeadScores, Rank, about_rank
from headscope.measure import bootstrap_difference, chrf, chrf_from_statistics
from headscope.recipes.compare.checkpoints import Checkpoint

if TYPE_CHECKING:
    from headscope.recipes.compare.formation import Formation

__all__ = ["Measured", "Opened", "quality", "series", "translations"]


@dataclass(frozen=True)
class Opened:
    """What a checkpoint told when it was opened: everything but the model itself."""

    checkpoint: Checkpoint
    geometry: Geometry
    inputs: Mapping[str, str]
    dtype: str


@dataclass(frozen=True, eq=False)
class Measured:
    """A checkpoint with the result of its run, its scores and its translations by direction."""

    opened: Opened
    result: Mapping[str, Any]
    scores: Mapping[str, HeadScores]
    outputs: Sequence[Sequence[str]]

    @property
    def mean(self) -> HeadScores:
        """The mean over directions, or the scores of the only one."""
        return self.scores["mean"]


def series(
    measured: Sequence[Measured],
    checked_on: Mapping[str, PairFile],
    k: Amount,
    config: Formation,
) -> dict[str, Any]:
    """`checkpoints`, one row each beside the last one, and what their top sets are ranked by."""
    threshold, score = config.threshold, config.score
    # All by the same: a set by score says little beside one by score minus chance.
    ranking = about_rank(*(one.mean.top(k, config.rank) for one in measured))
    rank: Rank = "score" if ranking["rank_note"] else config.rank
    tops = [one.mean.top(k, rank) for one in measured]
    last = measured[-1]
    final, final_top = last.mean.select(threshold), tops[-1]
    rows = []
    for one, top in zip(measured, tops, strict=True):
        name = one.opened.checkpoint.name
        shares = class_shares(
            Artifact(name, name, one.mean.geometry, one.mean), threshold, config.inactive
        )
        aligned = one.mean.select(threshold)
        (near,) = overlaps({"a": aligned, "b": final}, {"a": one.mean, "b": last.mean})
        (near_top,) = overlaps({"a": top, "b": final_top})
        directions = {
            pair: quality([pairs], [made], score)
            for (pair, pairs), made in zip(checked_on.items(), one.outputs, strict=True)
        }
        rows.append(
            {
                "name": name,
                "model": one.opened.checkpoint.label,
                "revision": one.opened.checkpoint.model.revision,
                "step": one.opened.checkpoint.step,
                "stage": one.opened.checkpoint.stage,
                "digest": one.opened.inputs["model"],
                **asdict(shares.shares),
                "counted_over": shares.counted_over,
                "counts": shares.counts,
                "above_chance": shares.shares_above_chance and asdict(shares.shares_above_chance),
                "counts_above_chance": shares.counts_above_chance,
                "mean_score": shares.mean_score,
                "highest": shares.highest,
                "overlap_with_last": near.recall,
                "overlap_with_last_expected": len(aligned) / shares.total,
                "top_overlap_with_last": near_top.recall,
                "top_overlap_with_last_expected": len(top) / shares.total,
                "p_value": near.p_value,
                "rank_correlation_with_last": near.rank_correlation,
                "heads": [str(head) for head in aligned],
                **quality(list(checked_on.values()), one.outputs, score),
                "directions": directions,
            }
        )
    return {**ranking, "rank": rank, "checkpoints": rows}


def quality(
    directions: Sequence[PairFile], outputs: Sequence[Sequence[str]], score: TranslationScore
) -> dict[str, Any]:
    """chrF++ of the outputs, the plain mean over directions, with its bootstrap interval.

    Sentences are resampled within directions, those of equal length alike, as in removals (see
    `bootstrap_difference`): the interval is that of the difference to nothing, which has 0.
    """
    counted = [
        chrf(made, [pair.target for pair in pairs.pairs])
        for pairs, made in zip(directions, outputs, strict=True)
    ]
    parts = [one.statistics for one in counted]
    _, low, high = bootstrap_difference(
        parts,
        [np.zeros_like(part) for part in parts],
        chrf_from_statistics,
        score.bootstrap_draws,
        score.seed,
        score.level,
    )
    value = fmean(one.value for one in counted)
    return {"chrf": value, "chrf_low": low, "chrf_high": high}


def translations(
    checked_on: Mapping[str, PairFile], measured: Sequence[Measured]
) -> Iterator[dict[str, str]]:
    """Every translation of every checkpoint."""
    for one in measured:
        for (pair, pairs), texts in zip(checked_on.items(), one.outputs, strict=True):
            for sentence, text in zip(pairs.pairs, texts, strict=True):
                yield {
                    "direction": pair,
                    "checkpoint": one.opened.checkpoint.name,
                    "id": sentence.id,
                    "source": sentence.source,
                    "reference": sentence.target,
                    "output": text,
                }
