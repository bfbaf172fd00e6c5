"""Rankings: how well one finds what is looked for, and how far two of the same heads agree."""

from __future__ import annotations

from collections.abc import Callable
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from headscope.errors import InputError
from headscope.measure.intervals import percentiles, wilson_bounds

Floats = NDArray[np.float64]


class Ranking(NamedTuple):
    """AUC and precision of one score, each with the bounds of its interval."""

    auc: float
    auc_low: float
    auc_high: float
    precision: float
    precision_low: float
    precision_high: float


def auc(selected: ArrayLike, others: ArrayLike) -> float:
    """The chance that something looked for scores above something else, ties counting half.

    `selected` (n,) are scores of what is looked for, `others` (m,) those of the rest. This is the
    area under the ROC curve, and the statistic of Mann and Whitney (1947) over n × m.
    """
    high, low = _scores(selected, others)
    ordered = np.sort(low)
    below = np.searchsorted(ordered, high, side="left")
    not_above = np.searchsorted(ordered, high, side="right")
    return float((below + not_above).mean() / (2 * len(low)))


def precision_at(selected: ArrayLike, others: ArrayLike, share: float) -> float:
    """The share of what is looked for among the top `share` of all scores.

    The top holds round(share × (n + m)) scores, at least one. Where it ends amid equal scores,
    each of these is in it with the same chance, and the expected share is given.
    """
    high, low = _scores(selected, others)
    if not 0 < share <= 1:
        raise InputError(f"a share of {share} is no top of a ranking; give one above 0, at most 1")
    every = np.concatenate([high, low])
    size = max(1, round(share * len(every)))
    cut = np.sort(every)[-size]
    above, equal = int((every > cut).sum()), int((every == cut).sum())
    hits = (high > cut).sum() + (high == cut).sum() * (size - above) / equal
    return float(hits / size)


def ranking(
    selected: ArrayLike,
    others: ArrayLike,
    share: float,
    draws: int = 1000,
    seed: int = 0,
    level: float = 0.95,
) -> Ranking:
    """`auc` and `precision_at` with their percentile bootstrap (Efron 1979).

    Every draw takes as many of either kind as there are, with replacement, so that the share of
    what is looked for stays. Equal sizes and seeds draw alike: rankers of the same documents are
    compared on the same draws. Where all draws give the same, such as an AUC of 1, the interval is
    Wilson's, of as many cases as the fewer of both kinds or the top has.
    """
    high, low = _scores(selected, others)
    if draws < 1:
        raise InputError(f"{draws} draws give no interval; take at least one")
    random = np.random.default_rng(seed)
    estimates = np.empty((draws, 2))
    for number in range(draws):
        some = high[random.integers(len(high), size=len(high))]
        rest = low[random.integers(len(low), size=len(low))]
        estimates[number] = auc(some, rest), precision_at(some, rest, share)
    if min(len(high), len(low)) == 1:  # its draws would be itself
        estimates[:] = np.nan
    values = auc(high, low), precision_at(high, low, share)
    cases = min(len(high), len(low)), max(1, round(share * (len(high) + len(low))))
    bounds = []
    for value, drawn_estimates, number in zip(values, estimates.T, cases, strict=True):
        ends = percentiles(drawn_estimates, level)
        if np.isnan(ends.low) and not np.isnan(drawn_estimates).any() and number > 1:
            ends = wilson_bounds(value, number, NormalDist().inv_cdf((1 + level) / 2))
        bounds.append((value, float(ends.low), float(ends.high)))
    return Ranking(*bounds[0], *bounds[1])


def _scores(selected: ArrayLike, others: ArrayLike) -> tuple[Floats, Floats]:
    high, low = np.asarray(selected, dtype=np.float64), np.asarray(others, dtype=np.float64)
    if high.ndim != 1 or low.ndim != 1 or not high.size or not low.size:
        raise InputError(
            f"{high.size} scores of what is looked for and {low.size} of the rest cannot be "
            "ranked; give lists with at least one each"
        )
    if np.isnan(high).any() or np.isnan(low).any():
        raise InputError("a score is NaN and has no place in a ranking; leave its document out")
    return high, low


def halves(examples: int, split: int, seed: int = 0) -> tuple[NDArray[Any], NDArray[Any]]:
    """The places of examples in either half of a random split; a single one is both halves."""
    order = np.random.default_rng([seed, examples, split]).permutation(examples)
    half = examples // 2
    return (order[:half] if half else order), order[half:]


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
    least as strongly, in either direction) / (1 + permutations). Gives `all` and `within_layers`,
    each `value`, `low` and `high`, and `p_within_layers`; None where one of the scores has no
    ranking. JSON.

    Args:
        scores, others, layers: (N,), two scores of each head, and its layer.
        resampled: (B, N), `scores` of resampled examples, for the intervals: their spread, about
            the value.
        resampled_others: (B, N), `others` of the same resampled examples, where they rest on them
            too; None: `others` are taken as they are.
    """
    if not len(scores) == len(others) == len(layers) or not (
        resampled.shape[1:] == scores.shape
        and (resampled_others is None or resampled_others.shape == resampled.shape)
    ):
        raise InputError("the scores, their layers and the resampled scores are of other heads")
    first, other = mid_ranks(scores), mid_ranks(others)
    drawn = np.stack([mid_ranks(row) for row in resampled])
    drawn_others = (
        other
        if resampled_others is None
        else np.stack([mid_ranks(row) for row in resampled_others])
    )
    results: dict[str, Any] = {}
    for name, centre in (("all", centred), ("within_layers", _within(layers))):
        value = correlation(centre(first), centre(other))
        estimates = correlation(centre(drawn), centre(drawn_others))
        tail = (1 - level) / 2
        if not np.ptp(resampled, axis=0).any():  # draws of a single example are all itself
            estimates = np.full(len(resampled), np.nan)
        low, high = np.quantile(estimates, [tail, 1 - tail])
        # Resampling adds the noise of the examples a second time and so pulls every estimate
        # towards 0; the interval is moved back by their mean distance from the value.
        low, high = np.clip(np.array([low, high]) + value - estimates.mean(), -1, 1)
        numbers = {"value": float(value), "low": float(low), "high": float(high)}
        results[name] = {key: None if np.isnan(x) else x for key, x in numbers.items()}
    if results["within_layers"]["value"] is None:
        return {**results, "p_within_layers": None}
    random = np.random.default_rng(seed)
    # Sorted by layer and a random number, heads of a layer change places among themselves.
    keys = np.broadcast_to(layers, (permutations, len(layers)))
    order = np.lexsort((random.random(keys.shape), keys))
    moved = np.empty((permutations, len(layers)))
    moved[:, np.argsort(layers, kind="stable")] = other[order]
    centre = _within(layers)
    observed = abs(float(correlation(centre(first), centre(other))))
    strong = np.abs(correlation(centre(moved), centre(first))) >= observed - 1e-12
    return {**results, "p_within_layers": float((1 + strong.sum()) / (1 + permutations))}


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
