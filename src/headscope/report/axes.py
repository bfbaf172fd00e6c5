"""Where values lie on an axis, and the round numbers written along it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, floor, log10

from headscope.shown.words import fixed, number

MOST = 8
"""The most words along an axis."""


@dataclass(frozen=True)
class Tick:
    """Words at a place on the axis, a share of its length."""

    share: float
    words: str


@dataclass(frozen=True)
class Scale:
    """An axis: `share` says where a value lies, from 0 at its beginning to 1 at its end."""

    low: float
    high: float
    log: bool = False
    zero: bool = False
    """Whether a logarithmic axis has a place for 0, at its beginning."""
    ticks: tuple[Tick, ...] = ()
    labels: Mapping[float, str] | None = None

    def share(self, value: float) -> float:
        """The place of `value`, held within the axis."""
        if self.log:
            value = log10(value) if value else self.low
        width = self.high - self.low
        return min(1.0, max(0.0, (value - self.low) / width)) if width else 0.5

    def words(self, value: float) -> str:
        """What is written for `value`."""
        return (self.labels or {}).get(value) or number(value)


def scale(
    values: Sequence[float],
    log: bool = False,
    from_zero: bool = False,
    labels: Mapping[float, str] | None = None,
) -> Scale:
    """An axis that covers finite `values`.

    `from_zero` begins it at 0 where no value is negative and ends it at a round number, a
    logarithmic one at 1, 2 or 5 times powers of ten; else it ends where the values do. ValueError
    for a negative value on a logarithmic axis.
    """
    if log and any(value < 0 for value in values):
        raise ValueError("a logarithmic axis has no place for negative values")
    if log and from_zero and values:
        values = [*values, *_around([value for value in values if value > 0] or [1.0])]
    bare = _logarithmic(values) if log else _linear(values, from_zero)
    if labels:
        chosen = sorted(labels)[:: ceil(len(labels) / MOST)]
    elif log:
        chosen = _powers(bare, sorted({value for value in values if value > 0}), from_zero)
    else:
        chosen = rounds(bare.low, bare.high)
        if not from_zero and all(float(value).is_integer() for value in values):  # such as layers
            chosen = [value for value in chosen if float(value).is_integer()]
    ticks = tuple(
        Tick(bare.share(value), (labels or {}).get(value) or words)
        for value, words in zip(chosen, _said(chosen), strict=True)
    )
    return Scale(bare.low, bare.high, log, bare.zero, ticks, labels)


def _said(values: Sequence[float]) -> list[str]:
    """Each number in words; with as many digits as separate those that lie close together."""
    words = [number(value) for value in values]
    if len(set(words)) == len(words):
        return words
    digits = max(0, ceil(-log10(min(b - a for a, b in pairwise(values)))))
    return [fixed(value, digits) for value in values]


def rounds(low: float, high: float, most: int = 6) -> list[float]:
    """At most about `most` round numbers from `low` to `high`, steps of 1, 2 or 5."""
    if not high > low:
        return [low]
    raw = (high - low) / most
    unit = 10.0 ** floor(log10(raw))
    step = next(unit * many for many in (1, 2, 5, 10) if unit * many >= raw * 0.999)
    first = ceil(low / step - 1e-9)
    last = floor(high / step + 1e-9)
    return [round(place * step, 12) for place in range(first, last + 1)]


def _linear(values: Sequence[float], from_zero: bool) -> Scale:
    low, high = min(values, default=0.0), max(values, default=1.0)
    if from_zero:
        low = min(low, 0.0)
        if low == high:
            high = 1.0
        steps = rounds(low, high)
        step = steps[1] - steps[0] if len(steps) > 1 else high - low
        low, high = step * floor(low / step + 1e-9), step * ceil(high / step - 1e-9)
    return Scale(low, high)


def _logarithmic(values: Sequence[float]) -> Scale:
    known = [log10(value) for value in values if value > 0] or [0.0]
    low, high = min(known), max(known)
    if 0 not in values:
        return Scale(low, high, log=True)
    zero = low - max(0.3, (high - low) / 8)
    return Scale(zero, high, log=True, zero=True)


def _around(values: Sequence[float]) -> tuple[float, float]:
    """The numbers 1, 2 or 5 times a power of ten next to the values, two different ones."""
    steps = _steps(log10(min(values)), log10(max(values)) + 1)
    low = max(step for step in steps if step <= min(values) * (1 + 1e-9))
    return low, min(step for step in steps if step >= max(max(values), low * 1.5) * (1 - 1e-9))


def _steps(low: float, high: float) -> list[float]:
    """1, 2 and 5 times the powers of ten between two exponents."""
    powers = range(floor(low), ceil(high) + 1)
    return [many * 10.0**power for power in powers for many in (1, 2, 5)]


def _powers(axis: Scale, known: Sequence[float], rounded: bool) -> list[float]:
    """Powers of ten, and 0 if it is there; where there are few of them, with 2 and 5 times them,
    or all the `known` values."""
    low = log10(known[0]) if known else 0.0
    steps = [s for s in _steps(low, axis.high) if low - 1e-9 <= log10(s) <= axis.high + 1e-9]
    powers = [step for step in steps if round(log10(step), 9).is_integer()]
    few = len(powers) < 3 and (rounded or len(known) <= MOST)
    chosen = powers if not few else steps if rounded else known
    return [0.0, *chosen] if axis.zero else list(chosen)
