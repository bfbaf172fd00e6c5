"""The atlas of a model: the scores of its heads, and their causal check."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headscope.results.common import ComparedResult, DataRead
from headscope.results.overlap import PairOverlap
from headscope.results.removal import RemovalDetails
from headscope.results.translation_score import TranslationScores
from headscope.runs import Record


@dataclass(frozen=True)
class AtlasOverlap(Record):
    """How far the top `k` heads of every two directions are the same."""

    k: int
    pairs: tuple[PairOverlap, ...]


@dataclass(frozen=True)
class AtlasData(DataRead):
    """The same of a direction: how many pairs heads were found on, and how many verified on."""

    found_on: int = 0
    verified_on: int = 0


@dataclass(frozen=True, kw_only=True)
class AtlasResult(TranslationScores, ComparedResult):
    """The scores of the only direction, or the mean over several, and of each of them; and the
    removal of the best heads.

    `data` has for each direction what heads were found and checked on, `report` is the page.
    """

    details: RemovalDetails = field(default_factory=RemovalDetails)

    config: Mapping[str, Any] = field(default_factory=dict)
    data: Mapping[str, AtlasData] = field(default_factory=dict)
    directions: Mapping[str, TranslationScores]
    overlap: AtlasOverlap
    report: str | None = None
