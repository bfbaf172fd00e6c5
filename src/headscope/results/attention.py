"""The result of `verify attention`: what heads in and out of a mask pay to the right word."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headscope.estimates import Mean
from headscope.results.common import Bounds, Checked, Leakage, ModelResult
from headscope.results.states import KeptHeads
from headscope.runs import Record, entry


@dataclass(frozen=True, kw_only=True)
class GroupShare(Record):
    """The share of `count` heads' attention on candidates that goes to the right one.

    The mean over heads and samples, None where it is not defined, with its interval over samples;
    of shuffled masks the mean over `draws`. `attention` is the mean attention on all candidates.
    """

    mean: float | None = None
    bounds: Bounds | None = entry(flat="")
    draws: tuple[float | None, ...] | None = entry(absent=True)
    attention: float
    count: int


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


@dataclass(frozen=True, kw_only=True)
class AttendedCondition(Record):
    """All heads, those in the mask and those out of it, under one condition.

    `uniform` is the share of even attention, `above_uniform` and `in_minus_out` are paired
    differences, `undefined` is the share of heads and samples without attention on candidates.
    Of shuffled masks there are means alone.
    """

    condition: str
    heads: Mapping[str, GroupShare]
    uniform: Mean
    above_uniform: Mean | None = entry(absent=True)
    in_minus_out: Mean | None = entry(absent=True)
    random: RandomSets | None = entry(absent=True)
    undefined: float | None = entry(absent=True)


@dataclass(frozen=True, kw_only=True)
class AttendedTask(Record):
    """One task: its file, the mask tested on it, and the conditions."""

    examples: int
    path: str
    digest: str
    leakage: Leakage
    mask: KeptHeads
    conditions: tuple[AttendedCondition, ...]

    @property
    def by_name(self) -> dict[str, AttendedCondition]:
        """The conditions by their names."""
        return {row.condition: row for row in self.conditions}


@dataclass(frozen=True)
class MeanShares(Record):
    """Plain means over tasks under one condition."""

    condition: str
    heads: Mapping[str, float | None]
    uniform: float


@dataclass(frozen=True, kw_only=True)
class AttentionResult(ModelResult, Checked):
    """The result of `verify attention`."""

    tasks: Mapping[str, AttendedTask]
    conditions: tuple[MeanShares, ...]
    draws: int
