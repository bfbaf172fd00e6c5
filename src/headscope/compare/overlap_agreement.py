"""Whether halves of the data, or two importance scores of the same documents, agree on heads."""

from __future__ import annotations

from collections.abc import Callable
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headscope.errors import InputError
from headscope.heads import HeadScores, HeadSet
from headscope.measure.intervals import resamples
from headscope.measure.ranking import halves, rank_correlations
from headscope.measure.statistics import overlap
from headscope.results.overlap import Halves

Floats = NDArray[np.float64]
#: Resamples of the documents, and splits of examples into halves.
RESAMPLES, SPLITS = 1000, 100


def half_agreement(
    scores: HeadScores, choose: Callable[[HeadScores], HeadSet], seed: int = 0
) -> Halves | None:
    """How far the heads agree that are chosen by scores of either half of the examples.

    The mean over 100 random splits. None for scores that do not follow from what is kept of each
    example, such as means over directions, and where a half has nothing that counts.
    """
    geometry, number = scores.geometry, max(map(len, scores.statistics.values()), default=0)
    mask = geometry.mask()
    weights = np.ones((1 + 2 * SPLITS, number))  # all examples, then two halves a split
    for row, weight in enumerate(weights[1:]):
        weight[halves(number, row // 2, seed)[1 - row % 2]] = 0
    made = _of_examples(scores, weights) if number > 1 else None
    if made is None or not np.isfinite(made[0]).all():
        return None
    if not np.allclose(made[0][0], scores.values[mask], rtol=1e-5, atol=1e-7):
        return None
    sets = []
    for row in range(1, len(weights)):
        arrays = np.full((len(made), *geometry.shape), np.nan)
        arrays[:, mask] = [part[row] for part in made]
        extra = dict(zip(("chance",), arrays[1:], strict=False))
        sets.append(set(choose(HeadScores(geometry, arrays[0], scores.method, extra=extra))))
    pairs = [overlap(a, b, geometry.total) for a, b in zip(sets[::2], sets[1::2], strict=True)]
    return Halves(
        number, fmean(pair.jaccard for pair in pairs), fmean(pair.expected_exact for pair in pairs)
    )


def _of_examples(scores: HeadScores, weights: Floats) -> tuple[Floats, ...] | None:
    """Scores of examples that count as often as `weights` (B, S) says and, where it is kept by
    example, chance, (B, N) each; None where examples do not tell."""
    kept, mask = scores.statistics, scores.geometry.mask()

    def of_heads(name: str) -> Floats:
        return np.asarray(kept[name][:, mask], dtype=np.float64)

    number = weights.sum(axis=1, keepdims=True)
    if "products" in kept and scores.method in ("lahis", "first-order"):
        products = of_heads("products")
        lowering = weights @ (products < 0) / number if scores.method == "lahis" else 1.0
        return (weights @ np.abs(products) / number * lowering,)
    if not {"hits", "totals"} <= kept.keys():
        return None
    parts = {"hits": kept["totals"].astype(np.float64)}
    if {"chance", "chance_totals"} <= kept.keys():
        parts["chance"] = np.where(parts["hits"] > 0, kept["chance_totals"], 0.0)
    made = []
    for name, totals in parts.items():
        # A sentence counts once (macro) or by its tokens (micro).
        ones = (totals > 0).astype(np.float64)
        counts = totals if scores.config.get("average") == "micro" else ones
        shares = np.divide(counts, totals, where=totals > 0, out=np.zeros_like(totals))
        with np.errstate(invalid="ignore", divide="ignore"):
            made.append((weights * shares) @ of_heads(name) / (weights @ counts)[:, None])
    return tuple(made)


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
    chosen = [set(np.nonzero(scores > np.quantile(scores, share))[0].tolist()) for scores in values]
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
