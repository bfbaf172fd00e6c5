"""What attention on the target shows: means over heads and samples, beside chance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headscope.measure import bootstrap_mean

__all__ = ["GROUPS", "describe"]

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
) -> list[dict[str, Any]]:
    """One entry a condition, for arrays (n, L, W) of `reading.target_shares` by condition.

    Args:
        shares: attention on the target as a share of that on all candidates.
        masses: attention on all candidates.
        uniform: for each sample the share of even attention, by condition.
        kept: bool (L, W), the heads in the mask.
        seed: of the random sets.

    Returns:
        For each condition `heads` (`all`, `in`, `out`: mean share over heads and samples with its
        interval over samples, mean `attention` on all candidates, heads counted), `uniform`,
        `above_uniform` (paired, all heads), `in_minus_out` (paired), `random` (the mean share of
        random sets of as many heads, its central 95 %, and p, two-sided, that such a set lies as
        far from their mean as the mask's heads do), and `undefined`, the share of heads and
        samples without any attention on candidates.
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
) -> dict[str, Any]:
    there = ~np.isnan(mass[0])
    members = {"all": there, "in": there & kept, "out": there & ~kept}
    by_sample = {group: _over_heads(share[:, heads]) for group, heads in members.items()}
    even = np.asarray(uniform, dtype=np.float64)
    return {
        "condition": name,
        "heads": {
            group: {
                **_mean(by_sample[group]),
                "attention": float(np.mean(mass[:, heads], dtype=np.float64)),
                "count": int(heads.sum()),
            }
            for group, heads in members.items()
            if heads.any()
        },
        "uniform": _mean(even),
        "above_uniform": _mean(by_sample["all"] - even),
        "in_minus_out": _mean(by_sample["in"] - by_sample["out"]),
        "random": _random(share[:, there], kept[there], seed),
        "undefined": float(np.isnan(share[:, there]).mean()),
    }


def _over_heads(values: Floats) -> Floats:
    """The mean of each sample over the heads where it is defined; NaN where it is nowhere."""
    defined = ~np.isnan(values)
    count = defined.sum(axis=1)
    total = np.where(defined, values, 0.0).sum(axis=1)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def _mean(values: Floats) -> dict[str, float | None]:
    """Mean and interval over the samples where it is defined."""
    return bootstrap_mean(values[~np.isnan(values)]).record("mean")


def _random(share: Floats, kept: NDArray[np.bool_], seed: int) -> dict[str, float]:
    """Random sets of as many of the heads (n, heads) as are kept, by their mean share."""
    means = _over_heads(share.T)
    known = np.flatnonzero(~np.isnan(means))
    inside = kept[known]
    own = float(means[known][inside].mean()) if inside.any() else float("nan")
    random = np.random.default_rng([seed, len(known)])
    drawn = np.array(
        [
            means[random.choice(known, int(inside.sum()), replace=False)].mean()
            for _ in range(_SETS if inside.any() else 0)
        ]
    )
    if not drawn.size:
        return {}
    middle = float(drawn.mean())
    # Equal sums may differ in their last bits: a tie counts as at least as far.
    as_far = np.abs(drawn - middle) >= abs(own - middle) - 1e-12
    low, high = np.quantile(drawn, [0.025, 0.975])
    return {
        "sets": len(drawn),
        "mean": middle,
        "low": float(low),
        "high": float(high),
        "p_value": float((1 + as_far.sum()) / (1 + len(drawn))),
    }
