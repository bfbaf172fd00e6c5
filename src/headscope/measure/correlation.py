"""Rank correlation of two scores of the same heads, over all of them and within layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headscope.errors import InputError

Floats = NDArray[np.float64]


def mid_ranks(values: Floats) -> Floats:
    """Ranks from 1; equal values share the mean of their ranks."""
    _, group, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return np.asarray((last - (counts - 1) / 2)[group], dtype=np.float64)


def rank_correlations(
    scores: Floats,
    others: Floats,
    layers: NDArray[Any],
    resampled: Floats,
    permutations: int = 9999,
    seed: int = 0,
    level: float = 0.95,
    resampled_others: Floats | None = None,
) -> dict[str, Any]:
    """Spearman's rank correlation over all heads, and within layers.

    Within layers the ranks are centred in each layer, so that what depth alone explains is left
    out. The test permutes `others` inside layers: (1 + permutations that correlate within layers at
    least as strongly, in either direction) / (1 + permutations).

    Args:
        scores: (N,), a score of each head.
        others: (N,), another one.
        layers: (N,), the layer of each head.
        resampled: (B, N), `scores` of resampled examples, for the intervals: their spread, about
            the value.
        permutations, seed: of the test.
        level: of the intervals.
        resampled_others: (B, N), `others` of the same resampled examples, where they rest on them
            too; None: `others` are taken as they are.

    Returns:
        `all` and `within_layers`, each `value`, `low` and `high`, and `p_within_layers`; None where
        one of the scores has no ranking. JSON.
    """
    if not len(scores) == len(others) == len(layers) or not (
        resampled.shape[1:] == scores.shape
        and (resampled_others is None or resampled_others.shape == resampled.shape)
    ):
        raise InputError("the scores, their layers and the resampled scores are of other heads")
    one, other = mid_ranks(scores), mid_ranks(others)
    drawn = np.stack([mid_ranks(row) for row in resampled])
    drawn_others = (
        other
        if resampled_others is None
        else np.stack([mid_ranks(row) for row in resampled_others])
    )
    found: dict[str, Any] = {}
    for name, centre in (("all", centred), ("within_layers", _within(layers))):
        value = correlation(centre(one), centre(other))
        estimates = correlation(centre(drawn), centre(drawn_others))
        tail = (1 - level) / 2
        low, high = np.quantile(estimates, [tail, 1 - tail])
        # Resampling adds the noise of the examples a second time and so pulls every estimate
        # towards 0; the interval is moved back by their mean distance from the value.
        low, high = np.clip(np.array([low, high]) + value - estimates.mean(), -1, 1)
        numbers = {"value": float(value), "low": float(low), "high": float(high)}
        found[name] = {key: None if np.isnan(x) else x for key, x in numbers.items()}
    if found["within_layers"]["value"] is None:
        return {**found, "p_within_layers": None}
    random = np.random.default_rng(seed)
    # Sorted by layer and a random number, heads of a layer change places among themselves.
    keys = np.broadcast_to(layers, (permutations, len(layers)))
    order = np.lexsort((random.random(keys.shape), keys))
    moved = np.empty((permutations, len(layers)))
    moved[:, np.argsort(layers, kind="stable")] = other[order]
    centre = _within(layers)
    observed = abs(float(correlation(centre(one), centre(other))))
    strong = np.abs(correlation(centre(moved), centre(one))) >= observed - 1e-12
    return {**found, "p_within_layers": float((1 + strong.sum()) / (1 + permutations))}


def centred(ranks: Floats) -> Floats:
    """Ranks (..., N) less their mean."""
    return np.asarray(ranks - ranks.mean(axis=-1, keepdims=True))


def _within(layers: NDArray[Any]) -> Callable[[Floats], Floats]:
    """What takes the mean rank of its layer from each rank."""
    member = (layers[:, None] == np.unique(layers)).astype(np.float64)
    return lambda ranks: np.asarray(ranks - (ranks @ member / member.sum(axis=0)) @ member.T)


def correlation(ranks: Floats, other: Floats) -> Floats:
    """Of centred ranks (..., N) and (N,) or (..., N); NaN where either does not vary."""
    spread = np.sqrt((ranks**2).sum(axis=-1) * (other**2).sum(axis=-1))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.where(spread > 1e-9, (ranks * other).sum(axis=-1) / spread, np.nan))
