"""How well a ranking finds what is looked for: the area under the ROC curve, and precision."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from headscope.errors import InputError
from headscope.measure.intervals import percentiles

Floats = NDArray[np.float64]


class Ranking(NamedTuple):
    """AUC and precision of one score, each with the bounds of its interval."""

    auc: float
    auc_low: float
    auc_high: float
    precision: float
    precision_low: float
    precision_high: float


def auc(found: ArrayLike, others: ArrayLike) -> float:
    """The chance that something looked for scores above something else, ties counting half.

    `found` (n,) are the scores of what is looked for, `others` (m,) those of the rest. This is the
    area under the ROC curve, and the statistic of Mann and Whitney (1947) over n × m.
    """
    high, low = _scores(found, others)
    ordered = np.sort(low)
    below = np.searchsorted(ordered, high, side="left")
    not_above = np.searchsorted(ordered, high, side="right")
    return float((below + not_above).mean() / (2 * len(low)))


def precision_at(found: ArrayLike, others: ArrayLike, share: float) -> float:
    """The share of what is looked for among the top `share` of all scores.

    The top holds round(share × (n + m)) scores, at least one. Where it ends amid equal scores,
    each of these is in it with the same chance, and the expected share is given.
    """
    high, low = _scores(found, others)
    if not 0 < share <= 1:
        raise InputError(f"a share of {share} is no top of a ranking; give one above 0, at most 1")
    every = np.concatenate([high, low])
    size = max(1, round(share * len(every)))
    cut = np.sort(every)[-size]
    above, equal = int((every > cut).sum()), int((every == cut).sum())
    hits = (high > cut).sum() + (high == cut).sum() * (size - above) / equal
    return float(hits / size)


def ranking(
    found: ArrayLike,
    others: ArrayLike,
    share: float,
    draws: int = 1000,
    seed: int = 0,
    level: float = 0.95,
) -> Ranking:
    """`auc` and `precision_at` with their percentile bootstrap (Efron 1979).

    Every draw takes as many of either kind as there are, with replacement, so that the share of
    what is looked for stays. Equal sizes and seeds draw alike: rankers of the same documents are
    compared on the same draws.
    """
    high, low = _scores(found, others)
    if draws < 1:
        raise InputError(f"{draws} draws give no interval; take at least one")
    random = np.random.default_rng(seed)
    estimates = np.empty((draws, 2))
    for number in range(draws):
        some = high[random.integers(len(high), size=len(high))]
        rest = low[random.integers(len(low), size=len(low))]
        estimates[number] = auc(some, rest), precision_at(some, rest, share)
    (auc_low, precision_low), (auc_high, precision_high) = percentiles(estimates, level)
    return Ranking(
        auc(high, low),
        float(auc_low),
        float(auc_high),
        precision_at(high, low, share),
        float(precision_low),
        float(precision_high),
    )


def _scores(found: ArrayLike, others: ArrayLike) -> tuple[Floats, Floats]:
    high, low = np.asarray(found, dtype=np.float64), np.asarray(others, dtype=np.float64)
    if high.ndim != 1 or low.ndim != 1 or not high.size or not low.size:
        raise InputError(
            f"{high.size} scores of what is looked for and {low.size} of the rest cannot be "
            "ranked; give lists with at least one each"
        )
    if np.isnan(high).any() or np.isnan(low).any():
        raise InputError("a score is NaN and has no place in a ranking; leave its document out")
    return high, low
