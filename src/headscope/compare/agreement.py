"""How stable a choice of heads is: under other sentences, directions, thresholds, sizes and links.

Everything follows from the scores of single sentences that runs keep; no model takes part. Over
several directions the plain mean of their scores counts, and directions of equal length are
resampled alike, as in `headscope.measure.intervals`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headscope.errors import InputError
from headscope.heads import Amount, HeadScores, HeadSet, count_of
from headscope.measure.intervals import bootstrap_difference, resamples
from headscope.measure.ranking import halves, rank_correlations
from headscope.measure.statistics import counted, counted_mean, overlap
from headscope.results.overlap import Halves

Floats = NDArray[np.float64]
#: Resamples of the sentences or documents, and splits of sentences into halves.
RESAMPLES, SPLITS = 1000, 100
#: The share of resamples in which a head has to be chosen to count as firmly chosen.
FIRM = 0.95
#: 1 - 0.95 is more than 0.05 in binary.
ROUNDING = 1e-9


@dataclass(frozen=True)
class Choice:
    """Which heads are chosen: those that score above `threshold`, or the `k` best by score."""

    threshold: float | None = None
    k: Amount | None = None

    def of(self, values: Floats) -> NDArray[np.bool_]:
        """The heads chosen by values (..., N); of equal ones the first, as in `HeadScores.top`."""
        if self.k is None:
            return np.asarray(values > (self.threshold or 0.0))
        order = np.argsort(-values, axis=-1, kind="stable")
        chosen = np.zeros(values.shape, dtype=np.bool_)
        np.put_along_axis(chosen, order[..., : count_of(self.k, values.shape[-1])], True, axis=-1)
        return chosen


def sentence_scores(scores: HeadScores) -> Floats:
    """The score of every head on every sentence, (S, N); NaN where a sentence has none.

    Raises `InputError` for scores that keep no statistics by sentence.
    """
    mask, kept = scores.geometry.mask(), scores.statistics
    if "mass" in kept:
        return np.asarray(kept["mass"][:, mask], dtype=np.float64)
    if "hits" not in kept:
        raise InputError(f"these scores ({scores.method}) keep no sentences")
    totals = kept["totals"].astype(np.float64)[:, None]
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.where(totals > 0, kept["hits"][:, mask] / totals, np.nan))


def resampled_scores(parts: Sequence[HeadScores], seed: int = 0) -> Floats:
    """Mean scores of resampled sentences, (1000, N)."""
    drawn = np.zeros(())
    for part in parts:
        rows = _known(part)
        random = np.random.default_rng([seed, len(rows)])
        means = np.empty((RESAMPLES, rows.shape[1]))
        for at, weights in resamples(len(rows), RESAMPLES, random, rows.shape[1]):
            means[at] = weights @ rows / len(rows)
        drawn = drawn + means / len(parts)
    return np.asarray(drawn)


def stability(parts: Sequence[HeadScores], choice: Choice, seed: int = 0) -> dict[str, Any]:
    """How stable the heads chosen from scores of one or several directions are.

    Returns:
        `heads`: how many are chosen by the mean score; `firm`: how many of these are chosen in at
        least 95 % of 1,000 resamples of the sentences, `loose`: how many others are in at least
        5 %. `halves`: the mean Jaccard index of the heads chosen by either half of the sentences,
        over 100 random splits, and `directions`: that of the heads of every two directions (None
        for one); each with `expected`, the mean for random sets of these sizes.
    """
    rows = [_known(part) for part in parts]
    means = np.stack([part.mean(axis=0) for part in rows])
    chosen = choice.of(means.mean(axis=0))
    often = choice.of(resampled_scores(parts, seed)).mean(axis=0)
    splits = []
    for split in range(SPLITS):
        sides = np.zeros((2, means.shape[1]))
        for part in rows:
            for side, chosen_rows in zip(sides, halves(len(part), split, seed), strict=True):
                side += part[chosen_rows].mean(axis=0)
        splits.append(tuple(choice.of(sides / len(rows))))
    ways = list(combinations(choice.of(means), 2))
    return {
        "heads": int(chosen.sum()),
        "firm": int((chosen & (often >= FIRM - ROUNDING)).sum()),
        "loose": int((~chosen & (often >= 1 - FIRM - ROUNDING)).sum()),
        "halves": _mean_overlap(splits),
        "directions": _mean_overlap(ways) if ways else None,
    }


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
    if "mass" in kept:
        return (weights @ of_heads("mass") / number,)
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


def links_agreement(
    own: Mapping[str, HeadScores], others: Mapping[str, Mapping[str, HeadScores]],
    threshold: float, k: Amount, seed: int = 0,
) -> dict[str, Any]:  # fmt: skip
    """Scores by some links beside those by others, of the same sentences by direction.

    Returns:
        `links`: by name the `heads` above `threshold`; the overlap of these with `own` ones
        (`above`) and of the `k` best (`best`), each `jaccard`, `expected` and `p_value`
        (hypergeometric); `furthest`, the largest distance of a head's mean score; and
        `difference`, the mean score of k heads minus that by own links: the best by own links on
        every other sentence are measured on the sentences between, and the other way round, so
        that no heads are measured where they were chosen; the mean of both halves, with an
        interval over the sentences that both score, None where a half has none. `spread`: over
        the fits of eflomal among `others`, the largest range of one head's mean score, and
        `spread_direction` in any one direction.
    """
    first = next(iter(own.values()))
    mask = first.geometry.mask()
    above, best = Choice(threshold), Choice(k=k)
    rows = {way: sentence_scores(part) for way, part in own.items()}
    chosen = [best.of(_half_mean(rows.values(), half)) for half in (0, 1)]

    def mean(scores: Mapping[str, HeadScores]) -> Floats:
        return np.asarray(np.mean([part.values[mask] for part in scores.values()], axis=0))

    base = mean(own)
    by_links = {}
    for name, scores in others.items():
        values = mean(scores)
        theirs = {way: sentence_scores(scores[way]) for way in own}
        by_links[name] = {
            "heads": int(above.of(values).sum()),
            "above": _overlap(above.of(base), above.of(values)),
            "best": _overlap(best.of(base), best.of(values)),
            "furthest": float(np.abs(values - base).max()),
            "difference": _difference(rows, theirs, chosen, seed),
        }
    fits = [fit for fit in others.values()
            if next(iter(fit.values())).config.get("aligner") == "eflomal"]  # fmt: skip
    ranges = [
        np.ptp([fit[way].values[mask] for fit in fits], axis=0).max() if fits else 0.0
        for way in own
    ]
    return {
        "heads": int(above.of(base).sum()),
        "links": by_links,
        "spread": float(np.ptp([mean(fit) for fit in fits], axis=0).max()) if fits else 0.0,
        "spread_direction": float(max(ranges)),
    }


def scores_agreement(
    first: Mapping[str, HeadScores], other: Mapping[str, HeadScores], k: Amount, seed: int = 0
) -> dict[str, Any]:
    """Two scores of the same heads, of one or several directions each.

    Returns:
        The overlap of their `k` best heads by score (`size`, `shared`, `jaccard`, `expected`,
        `p_value`), and the rank correlation over all heads and within layers (see
        `rank_correlations`), with intervals over the sentences of `first`.
    """
    mask = next(iter(first.values())).geometry.mask()
    values = [np.mean([part.values[mask] for part in side.values()], axis=0)
              for side in (first, other)]  # fmt: skip
    best = [Choice(k=k).of(value) for value in values]
    layers, drawn = np.nonzero(mask)[0], resampled_scores(list(first.values()), seed)
    return {
        "size": int(best[0].sum()),
        "shared": int((best[0] & best[1]).sum()),
        **_overlap(*best),
        **rank_correlations(values[0], values[1], layers, drawn, seed=seed),
    }


def _known(scores: HeadScores) -> Floats:
    rows = sentence_scores(scores)
    return rows[np.isfinite(rows).all(axis=1)]


def _half_mean(rows: Iterable[Floats], half: int) -> Floats:
    """Mean scores on every other sentence from `half` on, as a plain mean over directions, (N,)."""
    known = [part[half::2][np.isfinite(part[half::2]).all(axis=1)] for part in rows]
    return np.asarray(np.mean([part.sum(axis=0) / max(1, len(part)) for part in known], axis=0))


def _difference(
    own: Mapping[str, Floats], other: Mapping[str, Floats],
    chosen: Sequence[NDArray[np.bool_]], seed: int,
) -> dict[str, float | None] | None:  # fmt: skip
    """Other links' score minus own links', of the heads chosen on the half not looked at."""
    parts = []
    for way, half in product(own, (0, 1)):
        sides = [side[way][half::2][:, chosen[1 - half]].mean(axis=1) for side in (other, own)]
        known = np.isfinite(sides).all(axis=0)
        parts.append([counted(side[known]) for side in sides])
    if not all(len(side) for side, _ in parts):
        return None
    theirs, ours = map(list, zip(*parts, strict=True))
    return bootstrap_difference(theirs, ours, counted_mean, seed=seed).record()


def _overlap(a: NDArray[np.bool_], b: NDArray[np.bool_]) -> dict[str, float]:
    common = overlap(np.flatnonzero(a).tolist(), np.flatnonzero(b).tolist(), len(a))
    return {
        "jaccard": common.jaccard, "expected": common.expected_exact, "p_value": common.p_value
    }  # fmt: skip


def _mean_overlap(pairs: Sequence[tuple[NDArray[np.bool_], ...]]) -> dict[str, float]:
    overlaps = [_overlap(a, b) for a, b in pairs]
    return {name: fmean(each[name] for each in overlaps) for name in ("jaccard", "expected")}


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
