"""How far two runs that scored heads by gradients of documents agree, with intervals over these."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from headscope.errors import InputError
from headscope.heads import HeadScores
from headscope.measure.correlation import rank_correlations
from headscope.measure.intervals import resamples
from headscope.measure.statistics import overlap

#: Resamples of documents behind the interval of a rank correlation.
RESAMPLES = 1000


def importance_agreement(
    one: HeadScores, other: HeadScores, share: float, seed: int = 0
) -> dict[str, Any]:
    """Overlap of the important heads of two importance scores, and rank correlation of all heads.

    Args:
        one, other: scores of LAHIS on the same documents, whose `statistics` hold `products`.
        share: heads above this quantile of their scores are important, such as 0.96.
        seed: of resamples and permutations.

    Returns:
        `important` (numbers of heads), `shared`, `jaccard`, its mean over random sets of these
        sizes `expected_exact` and the hypergeometric `p_value`; and as `rank_correlations` gives
        them `all`, `within_layers` and `p_within_layers`, with documents drawn anew alike for both.

    Raises:
        InputError: if the scores are not of the same number of documents.
    """
    mask = one.geometry.mask()
    both = [score.statistics["products"][:, mask] for score in (one, other)]
    if both[0].shape != both[1].shape:
        raise InputError(
            f"one score is of {len(both[0])} documents and the other of {len(both[1])}; score both "
            "on the same"
        )
    values = [score.values[mask] for score in (one, other)]
    chosen = [set(np.nonzero(each > np.quantile(each, share))[0].tolist()) for each in values]
    found = overlap(chosen[0], chosen[1], one.geometry.total)
    return {
        "important": [len(heads) for heads in chosen],
        "shared": found.intersection,
        "jaccard": found.jaccard,
        "expected_exact": found.expected_exact,
        "p_value": found.p_value,
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
