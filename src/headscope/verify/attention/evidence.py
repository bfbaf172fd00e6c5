"""What attention on the target shows: means over heads and samples, beside chance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headscope.estimates import Mean, known
from headscope.measure import bootstrap_mean
from headscope.results.attention import AttendedCondition, Bounds, GroupShare, RandomSets

Floats = NDArray[np.floating[Any]]

GROUPS = ("all", "in", "out")
"""All heads, those in the mask, and those out of it."""

#: Random sets of as many heads as the mask keeps, against which its heads are held.
_SETS = 999


def describe(
    shares: Mapping[str, Floats],
    masses: Mapping[str, Floats],
    uniform: Mapping[str, Sequence[float]],
    kept: NDArray[np.bool_],
    seed: int = 0,
) -> list[AttendedCondition]:
    """One entry a condition, for arrays (n, L, W) of `reading.target_shares` by condition.

    Args:
        shares: attention on the target as a share of that on all candidates.
        masses: attention on all candidates.
        uniform: for each sample the share of even attention, by condition.
        kept: bool (L, W), the heads in the mask.
        seed: of the random sets.
    """
    return [
        _condition(name, shares[name].astype(np.float64), masses[name], uniform[name], kept, seed)
        for name in shares
    ]


def _condition(
    name: str,
    share: Floats,
    mass: Floats,
    uniform: Sequence[float],
    kept: NDArray[np.bool_],
    seed: int,
) -> AttendedCondition:
    there = ~np.isnan(mass[0])
    members = {"all": there, "in": there & kept, "out": there & ~kept}
    by_sample = {group: _over_heads(share[:, heads]) for group, heads in members.items()}
    groups = {}
    for group, heads in members.items():
        if heads.any():
            own = _mean(by_sample[group])
            groups[group] = GroupShare(
                mean=known(own.mean),
                bounds=Bounds(own.low, own.high),
                attention=float(np.mean(mass[:, heads], dtype=np.float64)),
                count=int(heads.sum()),
            )
    even = np.asarray(uniform, dtype=np.float64)
    return AttendedCondition(
        condition=name,
        heads=groups,
        uniform=_mean(even),
        above_uniform=_mean(by_sample["all"] - even),
        in_minus_out=_mean(by_sample["in"] - by_sample["out"]),
        random=_random(share[:, there], kept[there], seed),
        undefined=float(np.isnan(share[:, there]).mean()),
    )


def _over_heads(values: Floats) -> Floats:
    """The mean of each sample over the heads where it is defined; NaN where it is nowhere."""
    defined = ~np.isnan(values)
    count = defined.sum(axis=1)
    total = np.where(defined, values, 0.0).sum(axis=1)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def _mean(values: Floats) -> Mean:
    """Mean and interval over the samples where it is defined."""
    found = bootstrap_mean(values[~np.isnan(values)])
    return Mean(found.value, found.low, found.high)


def _random(share: Floats, kept: NDArray[np.bool_], seed: int) -> RandomSets:
    """Random sets of as many of the heads (n, heads) as are kept, by their mean share.

    p is two-sided: that such a set lies as far from their mean as the mask's heads do.
    """
    means = _over_heads(share.T)
    defined = np.flatnonzero(~np.isnan(means))
    inside = kept[defined]
    own = float(means[defined][inside].mean()) if inside.any() else float("nan")
    random = np.random.default_rng([seed, len(defined)])
    drawn = np.array(
        [
            means[random.choice(defined, int(inside.sum()), replace=False)].mean()
            for _ in range(_SETS if inside.any() else 0)
        ]
    )
    if not drawn.size:
        return RandomSets()
    middle = float(drawn.mean())
    # Equal sums may differ in their last bits: a tie counts as at least as far.
    as_far = np.abs(drawn - middle) >= abs(own - middle) - 1e-12
    low, high = np.quantile(drawn, [0.025, 0.975])
    p_value = float((1 + as_far.sum()) / (1 + len(drawn)))
    return RandomSets(len(drawn), middle, float(low), float(high), p_value)
