"""What a comparison gives: a value with its interval, a range over random draws, tests.

They know nothing else, so that results and reports hold the very values that are computed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isnan, nan
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
#: What differs by no more is equal but for rounding.
CONSTANT = 1e-12
#: Of a field that is not part of the JSON.
UNWRITTEN = {"written": False}
#: Among the counts of a `Baseline`: whether the model does the task behind other shots.
OTHER_SHOTS = "works_behind_other_shots"


@dataclass(frozen=True)
class Estimate:
    """A value with the bounds of its 95 % interval; NaN where it is not known."""

    value: float = nan
    low: float = nan
    high: float = nan

    @classmethod
    def of(cls, value: float, estimates: Floats, level: float = 0.95) -> Estimate:
        """A value with the percentiles of what it was in resamples, (draws,).

        Where it was always the same, resamples tell nothing of others, and there is no interval.
        """
        if np.ptp(estimates) <= CONSTANT * max(1.0, abs(value)):
            return cls(float(value))
        tail = (1 - level) / 2
        with np.errstate(invalid="ignore"):  # a perplexity may be beyond all floats
            low, high = np.quantile(estimates, [tail, 1 - tail])
        return cls(float(value), float(low), float(high))

    @property
    def known(self) -> bool:
        """Whether there is a value."""
        return not isnan(self.value)

    @property
    def bounded(self) -> bool:
        """Whether there is an interval."""
        return not isnan(self.low) and not isnan(self.high)

    def record(self, value: str = "value") -> dict[str, float | None]:
        """As JSON: `value` under that name, `low` and `high`; None for what is not known."""
        return {value: known(self.value), "low": known(self.low), "high": known(self.high)}


def known(number: float) -> float | None:
    """A number as JSON has it: None for NaN."""
    return None if isnan(number) else float(number)


@dataclass(frozen=True)
class Mean:
    """A mean with the bounds of its 95 % interval; NaN where it is not known."""

    mean: float = nan
    low: float = nan
    high: float = nan


@dataclass(frozen=True)
class Draws:
    """Scores under random draws: their mean, the lowest and the highest, and each of them.

    `low` and `high` are a range, no interval. NaN where there is no draw, or one is not known.
    JSON has no `each`.
    """

    mean: float = nan
    low: float = nan
    high: float = nan
    each: tuple[float, ...] = field(default=(), metadata=UNWRITTEN)

    @classmethod
    def of(cls, scores: Sequence[float] | Floats) -> Draws:
        """Of the scores of single draws."""
        each = tuple(map(float, scores))
        if not each or np.isnan(each).any():
            return cls(np.nan, np.nan, np.nan, each)
        return cls(float(np.mean(each)), min(each), max(each), each)


@dataclass(frozen=True)
class Against:
    """What a condition has over random draws of one kind.

    Attributes:
        difference: its score minus the mean of the draws', with the interval over examples.
        p_examples: by randomised examples, against the mean of the draws (see `p_sentences`); None
            where the score does not follow from examples, or is not known.
        p_draws: by its rank among the distinct draws; None where a score is not known.
        distinct: how many of the draws are different sets. Draws repeat in runs from before, and
            a set drawn again proves nothing more.
        least_p: the lowest that `p_draws` can be.
        as_far: of each distinct draw, in order, whether it lies at least as far on the side that
            is claimed; None where a score is not known.
    """

    difference: Estimate
    p_examples: float | None
    p_draws: float | None
    distinct: int
    least_p: float | None = None
    as_far: tuple[bool, ...] | None = None


@dataclass(frozen=True)
class Example:
    """An input, the reference output and what the model wrote."""

    input: str
    reference: str
    output: str


@dataclass(frozen=True)
class Baseline:
    """What a model made of a few examples of one direction or task as it is.

    Attributes:
        works: whether it does the task; None where that cannot be told.
        examples: how many were looked at.
        reasons: what speaks against it, or why it cannot be told, each a clause such as "12 of 16
            outputs are empty".
        counts: the numbers that were judged.
        shown: up to three examples.
    """

    works: bool | None
    examples: int
    reasons: tuple[str, ...] = ()
    counts: Mapping[str, Any] = field(default_factory=dict)
    shown: tuple[Example, ...] = ()

    @property
    def swayed(self) -> bool:
        """Whether it does the task behind some shots, and not behind others."""
        return self.works is None and bool(self.counts.get(OTHER_SHOTS))

    @property
    def near_zero(self) -> bool:
        """Whether it fails by one reason alone: it may write more than copies, or may not."""
        gain = self.counts.get("gain") or {}
        low, high = gain.get("low"), gain.get("high")
        if self.works is not False or len(self.reasons) > 1 or low is None or high is None:
            return False
        return bool(low <= 0 < high)


@dataclass(frozen=True)
class PlannedPart:
    """A part of the work: the draws of every kind and the conditions that are measured, and the
    seconds that these take here; each at least, where draws decide early, and at most."""

    title: str
    draws: tuple[int, int]
    conditions: tuple[int, int]
    seconds: tuple[float, float]
    words: str
