"""Overlap of head sets against chance, and tests of the effect of a removal."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import comb
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from headscope.errors import InputError
from headscope.measure.intervals import BLOCK, FromStatistics, paired_statistics

Alternative = Literal["lower", "two-sided"]


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
    set_a, set_b = set(a), set(b)
    size_a, size_b, common = len(set_a), len(set_b), len(set_a & set_b)
    if len(set_a | set_b) > total:
        raise InputError(
            f"the two sets hold {len(set_a | set_b)} different heads, more than the {total} of the "
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
    shape, or (draws, sentences, features). Lists of such arrays are language pairs: the score is
    the plain mean over pairs, and swaps stay within a pair. Pairs of equal length are swapped
    alike: if they are of the same sentences they are no independent evidence, and if not, it makes
    no difference.

    In each trial every sentence's statistics are swapped with those of the control with probability
    1/2 (of one of the draws, taken at random for the trial) and both corpus scores are computed
    again. The p-value is (1 + trials whose difference is at least the observed one, that to the
    mean score of the draws) / (1 + trials). `lower` asks whether the condition scores lower than
    the control; `two-sided` takes absolute differences.

    It is a test over sentences, of these heads and these draws: read it beside `p_draws`, which
    asks whether random heads would do the same.
    """
    if alternative not in ("lower", "two-sided"):
        raise InputError(f"alternative is 'lower' or 'two-sided', not {alternative!r}")
    pairs = paired_statistics(condition, control)
    if all((treated == controls).all() for treated, controls in pairs):
        return 1.0  # nothing differs, as with what never happens
    draws = len(pairs[0][1])
    drawn = np.random.default_rng(seed).integers(draws, size=trials)
    observed = 0.0
    differences = np.zeros(trials)
    for treated, controls in pairs:
        observed += float(score(controls.sum(axis=1)).mean() - score(treated.sum(axis=0)))
        step = max(1, BLOCK // len(treated))
        random = np.random.default_rng([seed, len(treated)])
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
    is the probability of so low a score if the condition were one more random draw. The draws are
    different sets: one that is drawn again proves nothing more (see `least_p`).
    """
    scores = np.asarray(draws, dtype=np.float64)
    if scores.ndim != 1 or not scores.size:
        raise InputError("a comparison with random draws needs at least one draw; use --draws 1")
    return float((1 + (scores <= condition).sum()) / (1 + scores.size))


def least_p(draws: int) -> float:
    """The lowest value `p_draws` can have with so many different sets."""
    return 1 / (1 + draws)


def holm(p_values: Sequence[float]) -> list[float]:
    """The p-values of one family of tests after Holm's correction, in the same order.

    Holm 1979, "A simple sequentially rejective multiple test procedure": the i-th smallest of m is
    multiplied by m - i + 1, none may be below one before it, and none is above 1. All of those at
    most 0.05 may be called true with a chance of 0.05 that any of them is not.
    """
    order = sorted(range(len(p_values)), key=lambda at: p_values[at])
    corrected = [0.0] * len(p_values)
    largest = 0.0
    for place, at in enumerate(order):
        largest = max(largest, min(1.0, (len(order) - place) * p_values[at]))
        corrected[at] = largest
    return corrected


def counted(values: ArrayLike) -> NDArray[np.float64]:
    """Numbers of sentences (..., S) as statistics (..., S, 2), whose score is `counted_mean`."""
    numbers = np.asarray(values, dtype=np.float64)
    return np.stack([numbers, np.ones_like(numbers)], axis=-1)


def counted_mean(sums: NDArray[Any]) -> NDArray[np.float64]:
    """The mean of what `counted` made, from sums over sentences."""
    return np.asarray(sums[..., 0] / sums[..., 1], dtype=np.float64)
