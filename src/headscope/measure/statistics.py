"""Intervals, overlap of head sets against chance, and tests of the effect of a removal."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from math import comb
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from headscope.errors import InputError

__all__ = [
    "Interval",
    "Overlap",
    "bootstrap_interval",
    "bootstrap_score",
    "overlap",
    "p_draws",
    "p_sentences",
]

Floats = NDArray[np.float64]
Average = Literal["macro", "micro"]
Alternative = Literal["lower", "two-sided"]
FromStatistics = Callable[[NDArray[Any]], Floats]

# Working arrays hold at most about this many numbers (64 MB of float64).
BLOCK = 8_000_000


class Interval(NamedTuple):
    """The lower and upper bounds of an interval, arrays of the shape of what they bound."""

    low: Floats
    high: Floats


def bootstrap_interval(
    hits: ArrayLike,
    totals: ArrayLike,
    average: Average = "macro",
    draws: int = 1000,
    seed: int = 0,
    level: float = 0.95,
) -> Interval:
    """Percentile bootstrap over sentences (Efron 1979) of hit rates, for all heads at once.

    `hits` (sentences, ...) counts the hits of every head in every sentence, `totals` (sentences,)
    the tokens that could be hit; sentences with a total of 0 are left out. `macro` is the mean of
    hits / total over sentences, `micro` all hits over all totals. Every draw takes as many
    sentences as there are, with replacement, the same ones for all heads.
    """
    counts, sizes = np.asarray(hits), np.asarray(totals)
    if sizes.ndim != 1 or counts.shape[:1] != sizes.shape:
        raise InputError(
            f"hits of shape {counts.shape} and totals of shape {sizes.shape} do not belong "
            "together; give both for the same sentences"
        )
    if average not in ("macro", "micro"):
        raise InputError(f"average is 'macro' or 'micro', not {average!r}")
    kept = sizes > 0
    if not kept.any():
        raise InputError("no sentence has a token that could be hit; give sentences with links")
    counts, sizes = counts[kept], sizes[kept].astype(np.float64)
    shape = counts.shape[1:]
    counts = counts.reshape(len(sizes), -1)
    width = max(1, BLOCK // len(sizes))
    estimates = np.empty((draws, counts.shape[1]))
    for rows, weights in _resamples(len(sizes), draws, seed):
        below = weights @ sizes if average == "micro" else np.full(len(weights), len(sizes))
        for start in range(0, counts.shape[1], width):
            columns = slice(start, start + width)
            block = counts[:, columns].astype(np.float64)
            if average == "macro":
                block /= sizes[:, None]
            estimates[rows, columns] = weights @ block / below[:, None]
    return _interval(estimates, level, shape)


def bootstrap_score(
    statistics: ArrayLike,
    score: FromStatistics,
    draws: int = 1000,
    seed: int = 0,
    level: float = 0.95,
) -> Interval:
    """Percentile bootstrap over sentences of a corpus score, such as chrF++.

    `statistics` (sentences, features) is that of a `Score`; `score` computes scores from sums of
    it, such as `chrf_from_statistics`.
    """
    counts = np.asarray(statistics, dtype=np.float64)
    estimates = np.empty(draws)
    for rows, weights in _resamples(len(counts), draws, seed):
        estimates[rows] = score(weights @ counts)
    return _interval(estimates, level, ())


@dataclass(frozen=True)
class Overlap:
    """How far two sets of heads agree, against two random sets of their sizes among N heads.

    `jaccard` = |A ∩ B| / |A ∪ B|. `expected` = e / (|A| + |B| − e) with e = |A||B| / N, the ratio
    used in the papers. `expected_exact` is the mean of the Jaccard index itself when the size of
    the intersection follows the hypergeometric distribution, and `p_value` the probability of an
    intersection at least as large. Two empty sets are equal: their Jaccard index is 1.
    """

    jaccard: float
    expected: float
    expected_exact: float
    p_value: float
    intersection: int


def overlap(a: Collection[Any], b: Collection[Any], total: int) -> Overlap:
    """The overlap of two sets of heads of a model with `total` heads (see `Overlap`)."""
    one, other = set(a), set(b)
    size_a, size_b, common = len(one), len(other), len(one & other)
    if len(one | other) > total:
        raise InputError(
            f"the two sets hold {len(one | other)} different heads, more than the {total} of the "
            "model; give the number of heads of the model the sets belong to"
        )

    def jaccard(shared: float) -> float:
        union = size_a + size_b - shared
        return shared / union if union else 1.0

    # Whole numbers throughout: each quotient below is exact to the last bit of a float.
    first = max(0, size_a + size_b - total)
    ways = {first: comb(size_a, first) * comb(total - size_a, size_b - first)}
    for i in range(first, min(size_a, size_b)):
        more, fewer = (size_a - i) * (size_b - i), (i + 1) * (total - size_a - size_b + i + 1)
        ways[i + 1] = ways[i] * more // fewer
    every = comb(total, size_b)
    return Overlap(
        jaccard=jaccard(common),
        expected=jaccard(size_a * size_b / total),
        expected_exact=sum(count / every * jaccard(i) for i, count in ways.items()),
        p_value=sum(count for i, count in ways.items() if i >= common) / every,
        intersection=common,
    )


def p_sentences(
    condition: ArrayLike | Sequence[ArrayLike],
    control: ArrayLike | Sequence[ArrayLike],
    score: FromStatistics,
    trials: int = 9999,
    seed: int = 0,
    alternative: Alternative = "lower",
) -> float:
    """Approximate randomisation test (Noreen 1989) of a condition against a random control.

    `condition` holds the statistics per sentence of the outputs under a removal, (sentences,
    features); `control` those of the same sentences under the removal of random heads, of the same
    shape, or (draws, sentences, features) for several draws. Lists of such arrays are language
    pairs: the score is the plain mean over pairs, and swaps stay within a pair.

    In each trial every sentence's statistics are swapped with those of the control with
    probability 1/2 (of one of the draws, taken at random for the trial) and both corpus scores are
    computed again. The p-value is (1 + trials whose difference is at least the observed one) /
    (1 + trials). The observed difference is that to the mean score of the draws. `lower` asks
    whether the condition scores lower than the control; `two-sided` takes absolute differences.
    """
    if alternative not in ("lower", "two-sided"):
        raise InputError(f"alternative is 'lower' or 'two-sided', not {alternative!r}")
    pairs = _paired(condition, control)
    random = np.random.default_rng(seed)
    draws = len(pairs[0][1])
    drawn = random.integers(draws, size=trials)
    observed = 0.0
    differences = np.zeros(trials)
    for treated, controls in pairs:
        observed += float(score(controls.sum(axis=1)).mean() - score(treated.sum(axis=0)))
        step = max(1, BLOCK // len(treated))
        for start in range(0, trials, step):
            chosen = drawn[start : start + step]
            swaps = random.integers(2, size=(len(chosen), len(treated)), dtype=np.int8)
            for draw in np.unique(chosen):
                at = np.flatnonzero(chosen == draw)
                moved = swaps[at].astype(np.float64) @ (controls[draw] - treated)
                lower = score(treated.sum(axis=0) + moved)
                upper = score(controls[draw].sum(axis=0) - moved)
                differences[start + at] += upper - lower
    if alternative == "two-sided":
        observed, differences = abs(observed), np.abs(differences)
    # Equal sums may differ in their last bits: a tie counts as at least as large.
    tie = 1e-9 * max(1.0, abs(observed))
    return float((1 + (differences >= observed - tie).sum()) / (1 + trials))


def p_draws(condition: float, draws: ArrayLike) -> float:
    """(1 + draws that score at most as high as the condition) / (1 + draws).

    `draws` holds the scores under the removal of random heads, of which there is at least one; it
    is the probability of so low a score if the condition were one more random draw.
    """
    scores = np.asarray(draws, dtype=np.float64)
    if scores.ndim != 1 or not scores.size:
        raise InputError("a comparison with random draws needs at least one draw; use --draws 1")
    return float((1 + (scores <= condition).sum()) / (1 + scores.size))


def _resamples(sentences: int, draws: int, seed: int) -> Iterator[tuple[slice, Floats]]:
    """Blocks of draws: how often each sentence is taken, (block, sentences)."""
    if not sentences:
        raise InputError("there are no sentences to draw from; give at least one")
    random = np.random.default_rng(seed)
    step = max(1, BLOCK // sentences)
    even = np.full(sentences, 1 / sentences)
    for start in range(0, draws, step):
        size = min(step, draws - start)
        yield slice(start, start + size), random.multinomial(sentences, even, size).astype(float)


def _interval(estimates: Floats, level: float, shape: tuple[int, ...]) -> Interval:
    if not 0 < level < 1:
        raise InputError(f"the level of an interval lies between 0 and 1, not {level}")
    tail = (1 - level) / 2
    low, high = np.quantile(estimates, [tail, 1 - tail], axis=0)
    return Interval(np.asarray(low).reshape(shape), np.asarray(high).reshape(shape))


def _paired(
    condition: ArrayLike | Sequence[ArrayLike], control: ArrayLike | Sequence[ArrayLike]
) -> list[tuple[Floats, Floats]]:
    """Per language pair the condition (S, F) and its controls (draws, S, F)."""
    treated = _several(condition, 2)
    controls = [c[None] if c.ndim == 2 else c for c in _several(control, 2, 3)]
    if len(treated) != len(controls) or len({len(c) for c in controls}) != 1:
        raise InputError("the condition and the control must be of the same pairs and draws")
    for one, other in zip(treated, controls, strict=True):
        if other.shape[1:] != one.shape or not one.size or not len(other):
            raise InputError(
                f"statistics of shape {one.shape} and controls of shape {other.shape} are not of "
                "the same sentences"
            )
    return list(zip(treated, controls, strict=True))


def _several(value: Any, *dimensions: int) -> list[Floats]:
    parts = list(value) if isinstance(value, (list, tuple)) else [value]
    arrays = [np.asarray(part, dtype=np.float64) for part in parts]
    if any(array.ndim not in dimensions for array in arrays):
        raise InputError(
            "statistics are arrays (sentences, features), or a list of them, one a pair"
        )
    return arrays
