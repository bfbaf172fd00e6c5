"""The result of `verify attention`: what heads in and out of a mask pay to the right word."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headscope.results.common import ComparedDetails, ComparedResult, Leakage
from headscope.results.states import KeptHeads
from headscope.runs import Record, entry


@dataclass(frozen=True)
class RandomSets(Record):
    """The mean share of random sets of as many heads, their central 95 %, and the mask's p.

    Without values where no head in the mask has a share.
    """

    sets: int | None = entry(absent=True)
    mean: float | None = entry(absent=True)
    low: float | None = entry(absent=True)
    high: float | None = entry(absent=True)
    p_value: float | None = entry(absent=True)

    @property
    def as_far(self) -> str:
        """How many sets lie as far from their mean as the mask's heads: `3 of 199`."""
        if self.p_value is None or self.sets is None:
            return ""
        return f"{round(self.p_value * (1 + self.sets)) - 1} of {self.sets}"


@dataclass(frozen=True, kw_only=True)
class AttendedTask(Record):
    """One task: its file, the mask tested on it, and random sets of heads by condition.

    `heads` are those of every condition by id, where tasks have masks of their own.
    """

    examples: int
    path: str
    digest: str
    leakage: Leakage
    mask: KeptHeads
    random: Mapping[str, RandomSets]
    heads: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class AttentionDetails(ComparedDetails):
    """The tasks of `verify attention`; `draws` random masks of each kind were requested.

    `pooled`: shares are those of attention summed over heads.
    """

    tasks: Mapping[str, AttendedTask]
    pooled: bool | None = entry(absent=True)


@dataclass(frozen=True, kw_only=True)
class AttentionResult(ComparedResult):
    """The result of `verify attention`; statistics are shares of attention by group of heads."""

    details: AttentionDetails
