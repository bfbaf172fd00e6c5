"""Whether two importance scores of the same documents find the same heads."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from headscope.errors import InputError
from headscope.heads import HeadScores
from headscope.measure.intervals import resamples
from headscope.measure.ranking import rank_correlations
from headscope.measure.statistics import overlap

#: Resamples of the documents.
RESAMPLES = 1000


def importance_agreement(
    first: HeadScores, other: HeadScores, share: float, seed: int = 0
) -> dict[str, Any]:
    """Overlap of the important heads of two importance scores, and rank correlation of all heads.

    The scores are of LAHIS on the same documents, whose `statistics` hold `products`; heads above
    the quantile `share` of their scores are important. Gives `important` (numbers of heads),
    `shared`, `jaccard`, its mean over random sets of these sizes `expected_exact` and the
    hypergeometric `p_value`; and as `rank_correlations` gives them `all`, `within_layers` and
    `p_within_layers`, with documents drawn anew alike for both. Raises `InputError` if the scores
    are not of the same number of documents.
    """
    mask = first.geometry.mask()
    both = [score.statistics["products"][:, mask] for score in (first, other)]
    if both[0].shape != both[1].shape:
        raise InputError(
            f"one score is of {len(both[0])} documents and the other of {len(both[1])}; score both "
            "on the same"
        )
    values = [score.values[mask] for score in (first, other)]
    chosen = [set(np.nonzero(each > np.quantile(each, share))[0].tolist()) for each in values]
    common = overlap(chosen[0], chosen[1], first.geometry.total)
    return {
        "important": [len(heads) for heads in chosen],
        "shared": common.intersection,
        "jaccard": common.jaccard,
        "expected_exact": common.expected_exact,
        "p_value": common.p_value,
        **rank_correlations(
            values[0],
            values[1],
            np.nonzero(mask)[0],
            _resampled(both[0], seed),
            seed=seed,
            resampled_others=_resampled(both[1], seed),
        ),
    }


def _resampled(products: NDArray[Any], seed: int) -> NDArray[np.float64]:
    """(RESAMPLES, heads): mean |product| × share of products below 0, of documents drawn anew."""
    size, below = np.abs(products).astype(np.float64), (products < 0).astype(np.float64)
    drawn = np.empty((RESAMPLES, products.shape[1]))
    random = np.random.default_rng([seed, len(products)])
    for at, weights in resamples(len(products), RESAMPLES, random, products.shape[1]):
        drawn[at] = (weights @ size) * (weights @ below) / len(products) ** 2
    return drawn
