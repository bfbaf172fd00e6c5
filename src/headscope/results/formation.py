"""What `compare formation` returns: heads and translations over the checkpoints of a training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headscope.estimates import Estimate
from headscope.results.classes import Classes
from headscope.results.common import ModelResult, Ranking, ScoredHead
from headscope.runs import Record, entry


@dataclass(frozen=True, kw_only=True)
class Quality(Record):
    """chrF++ of translations (0 to 100), the mean over directions."""

    chrf: Estimate = entry(flat="", names={"value": "chrf", "low": "chrf_low", "high": "chrf_high"})


@dataclass(frozen=True, kw_only=True)
class CheckpointRow(Quality):
    """One checkpoint, compared with the last. Of scores from files it has no classes and no chrF++.

    Attributes:
        name, model, revision, digest: what was loaded.
        step, stage: of the training, None where the name has none.
        shares, above_chance: of all heads, the latter by score − chance, None where chance is not
            known at every head; `counts` and `counts_above_chance` are their numbers, in
            `counted_over` directions the mean.
        above_threshold: of scores from files, the share of heads above the threshold.
        mean_score: over all heads; `highest` is the first of them.
        overlap_with_last: the share of the last checkpoint's heads above the threshold (token
            alignment heads) that are here too, None if that has none; with what a random set of
            this size would hold. `top_…`: of the top heads likewise.
        p_value: of as large an overlap under random sets.
        rank_correlation_with_last: Spearman's over all heads.
        heads: those above the threshold, `LAYER.HEAD`.
        directions: chrF++ of each direction.
    """

    name: str
    model: str = ""
    revision: str | None = None
    step: int | None
    stage: int | None = None
    digest: str = ""
    shares: Classes = entry(flat="")
    counted_over: int = 1
    counts: Classes
    above_chance: Classes | None
    counts_above_chance: Classes | None = None
    above_threshold: float | None = entry(absent=True)
    mean_score: float
    highest: ScoredHead
    overlap_with_last: float | None
    overlap_with_last_expected: float | None = None
    top_overlap_with_last: float | None
    top_overlap_with_last_expected: float
    p_value: float | None = None
    rank_correlation_with_last: float | None = None
    heads: tuple[str, ...] = ()
    directions: Mapping[str, Quality] = field(default_factory=dict)


@dataclass(frozen=True)
class Skipped:
    """A checkpoint that could not be read."""

    name: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class SeriesData(Record):
    """The sentences of a direction: numbers, files and what they hold."""

    path: str = ""
    digest: str = ""
    found_on: int
    verified_on: int
    verified_path: str = ""


@dataclass(frozen=True, kw_only=True)
class FormationResult(Ranking, ModelResult):
    """The checkpoints in training order; `last` is the one that others are compared with.

    `method` is that of scores from files, None where the checkpoints were scored.
    """

    geometry: Mapping[str, Any]
    threshold: float
    inactive: float = 0.0
    method: str | None = entry(absent=True)
    k: int
    last: str = ""
    checkpoints: tuple[CheckpointRow, ...]
    skipped: tuple[Skipped, ...]
    same_tokenizer: bool
    data: Mapping[str, SeriesData]
