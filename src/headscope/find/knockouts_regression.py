"""Knockouts: a ridge regression of a statistic on which heads were removed at random.

The statistic under gate i is regressed on 1 - g_i over random gates: the coefficient of a head is
what its removal changes, beside others that are removed with it.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headscope.errors import InputError
from headscope.estimates import Floats
from headscope.evidence.rows import Statistic
from headscope.heads import Amount, Geometry, Head, count_of
from headscope.heads.draws import sets_within
from headscope.heads.geometry import read_amount
from headscope.measure.intervals import percentiles, resampled_scores
from headscope.measure.statistics import counted_mean

METHOD = "knockouts"
#: Penalties that are tried, as shares of the mean squared singular value.
PENALTIES = 10.0 ** np.arange(-9, 4.25, 0.25)


def random_gates(
    geometry: Geometry, gates: int, remove: Amount, seed: int
) -> list[tuple[Head, ...]]:
    """The heads that each gate removes; gate i follows from the seed and i.

    A share removes every head by itself with that probability, a number exactly so many; of these
    sets there may be fewer than asked for. Raises `InputError` where too few of them differ.
    """
    every, size = [*geometry.heads()], count_of(remove, geometry.total)
    amount, name = read_amount(remove), f"knockouts {seed}"
    if amount is not None and amount[1]:
        streams = (random.Random(f"{name} {place}") for place in range(gates))
        share = float(amount[0])
        drawn = [tuple(h for h in every if draw.random() < share) for draw in streams]
    else:
        drawn = [tuple(heads) for heads in sets_within([every], (size,), geometry, gates, name)]
    if len({*drawn}) < 3:
        raise InputError(
            f"{remove} of {geometry.total} heads gives fewer than 3 different gates, which tell no "
            "heads apart; give --remove another number, or more --random-gates"
        )
    return drawn


def told_apart(removed: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which heads (N,) the gates (R, N) tell from all others: some of them remove it, not all, and
    none always with the same other head."""
    _, kind, alike = np.unique(removed, axis=1, return_inverse=True, return_counts=True)
    return np.asarray((alike[kind.ravel()] == 1) & (np.ptp(removed.view(np.int8), axis=0) > 0))


def ridge(features: Floats, numbers: Floats) -> tuple[Floats, Floats]:
    """The ridge regression of numbers (R,) on features (R, N), with a constant.

    The penalty is that of `PENALTIES` whose errors at rows left out are least (Allen 1974).

    Returns:
        What gives the coefficients of any numbers of these rows, (N, R); and each number minus what
        the other rows predict for it, (R,).
    """
    rows, centred = len(numbers), numbers - numbers.mean()
    u, s, v = np.linalg.svd(features - features.mean(axis=0), full_matrices=False)
    there = s > 1e-9 * s[0]
    u, s, v = u[:, there], s[there], v[there]
    v[:, np.ptp(features, axis=0) == 0] = 0.0  # and not what a processor's rounding leaves
    fits = []
    for penalty in PENALTIES * np.mean(s**2):
        share = s**2 / (s**2 + penalty)
        # Row i of the hat matrix, of the constant and the shrunk directions, predicts number i.
        own = np.minimum(1 / rows + u**2 @ share, 1 - 1e-12)
        fits.append((penalty, (centred - u @ (share * (u.T @ centred))) / (1 - own)))
    penalty, errors = min(fits, key=lambda fit: float(fit[1] @ fit[1]))
    return v.T * (s / (s**2 + penalty)) @ u.T, errors


def fitted(
    removed: NDArray[np.bool_],
    counted: Sequence[NDArray[Any]],
    statistic: Statistic,
    seed: int = 0,
    draws: int = 1000,
) -> tuple[Floats, Floats, Floats, float]:
    """Regress a statistic on removed heads.

    Intervals hold both what scores rest on: examples are drawn with replacement (Efron 1979), and
    the error at each gate left out is given a random sign (Wu 1986).

    Args:
        removed: (R, N), whether gate i removes head j.
        counted: of each gate the numbers of every example, (S, F), that the statistic sums.

    Returns:
        The score of each head, harm above 0, and the bounds of its 95 % interval, (N,); and the
        share of the statistic's variance that is predicted at gates left out.
    """
    score, rows = statistic.score or counted_mean, len(counted)
    numbers = np.array([float(score(np.asarray(row).sum(axis=0))) for row in counted])
    linear, errors = ridge(removed.astype(np.float64), numbers)
    resampled = resampled_scores(counted, score, draws, seed) - numbers.mean()
    signs = np.random.default_rng([seed, rows]).choice((-1.0, 1.0), resampled.shape)
    ends = percentiles(statistic.sign * (resampled + signs * errors) @ linear.T)
    by_mean = float(numbers.var()) * rows * (rows / (rows - 1)) ** 2
    explained = 1 - float(errors @ errors) / by_mean if by_mean else float("nan")
    return statistic.sign * linear @ (numbers - numbers.mean()), *ends, explained
