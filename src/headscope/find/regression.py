"""Knockouts: a ridge regression of a statistic on which heads were removed at random.

The statistic under gate i is regressed on 1 - g_i over random gates: the coefficient of a head is
what its removal changes, beside others that are removed with it.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

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
from headscope.settings import Option, Settings

METHOD = "knockouts"
#: Penalties that are tried, as shares of the mean squared singular value.
PENALTIES = 10.0 ** np.arange(-9, 4.25, 0.25)
#: Random gates for each head, where no number is given.
GATES_A_HEAD = 4


@dataclass(frozen=True)
class RandomGates(Settings):
    """How many random gates (None: `GATES_A_HEAD` for each head), and what each removes."""

    gates: Annotated[
        int | None, Option("Random gates, each a pass; without it four for every head.", min=4)
    ] = None
    remove: Annotated[
        Amount,
        Option(
            "Heads that a gate removes: a share such as 0.1 or 10% (each head by itself with that "
            "probability), or a number, exactly so many.",
            metavar="K",
            typed=str,
        ),
    ] = "10%"

    def drawn(self, geometry: Geometry, seed: int) -> list[tuple[Head, ...]]:
        """The heads that each gate removes; gate i follows from the seed and i.

        Raises `InputError` where that gives too few different gates.
        """
        every, number = [*geometry.heads()], self.gates or GATES_A_HEAD * geometry.total
        size, amount = count_of(self.remove, geometry.total), read_amount(self.remove)
        if amount is not None and amount[1]:
            streams = (random.Random(f"knockouts {seed} {place}") for place in range(number))
            gates = [tuple(h for h in every if draw.random() < amount[0]) for draw in streams]
        else:
            sets = sets_within([every], (size,), geometry, number, f"knockouts {seed}")
            gates = [tuple(heads) for heads in sets]
        if len({*gates}) < 3:
            raise InputError(
                f"--remove {self.remove} of {geometry.total} heads gives fewer than 3 different "
                "gates, which tell no heads apart; give another number"
            )
        return gates


class Ridge(NamedTuple):
    """A ridge regression of numbers (R,) on features (R, N), with a constant.

    `linear` (N, R) gives the coefficients of any numbers of these rows, `errors` (R,) are each
    number minus what the other rows predict for it.
    """

    linear: Floats
    errors: Floats


def ridge(features: Floats, numbers: Floats) -> Ridge:
    """The regression with that of `PENALTIES` whose errors are least (Allen 1974)."""
    rows, centred = len(numbers), numbers - numbers.mean()
    u, s, v = np.linalg.svd(features - features.mean(axis=0), full_matrices=False)
    there = s > 1e-9 * s[0]
    u, s, v = u[:, there], s[there], v[there]
    fits = []
    for penalty in PENALTIES * np.mean(s**2):
        share = s**2 / (s**2 + penalty)
        # Row i of the hat matrix, of the constant and the shrunk directions, predicts number i.
        own = np.minimum(1 / rows + u**2 @ share, 1 - 1e-12)
        errors = (centred - u @ (share * (u.T @ centred))) / (1 - own)
        fits.append(Ridge(v.T * (s / (s**2 + penalty)) @ u.T, errors))
    return min(fits, key=lambda fit: float(fit.errors @ fit.errors))


class Fit(NamedTuple):
    """What the removal of each head does, (N,), harm above 0, in the statistic's unit, with the
    bounds of 95 % intervals; the statistic under each gate, (R,); and the share of its variance
    that is predicted at gates left out, NaN where it does not vary."""

    scores: Floats
    low: Floats
    high: Floats
    numbers: Floats
    explained: float


def fitted(
    removed: NDArray[np.bool_],
    counted: Sequence[NDArray[Any]],
    statistic: Statistic,
    seed: int = 0,
    draws: int = 1000,
) -> Fit:
    """Regress a statistic on removed heads.

    Intervals hold both what scores rest on: examples are drawn with replacement (Efron 1979), and
    the error at each gate left out is given a random sign (Wu 1986).

    Args:
        removed: (R, N), whether gate i removes head j.
        counted: of each gate the numbers of every example, (S, F), that the statistic sums.

    Raises:
        InputError: the statistic is no finite number under some gate.
    """
    score = statistic.score or counted_mean
    numbers = np.array([float(score(np.asarray(own).sum(axis=0))) for own in counted])
    if not np.isfinite(numbers).all():
        raise InputError(
            f"{statistic.words} is no number under {int((~np.isfinite(numbers)).sum())} of "
            f"{len(numbers)} random gates; remove fewer heads with --remove"
        )
    fit = ridge(removed.astype(np.float64), numbers)
    linear, rows = statistic.sign * fit.linear, len(numbers)
    resampled = resampled_scores(counted, score, draws, seed)
    signs = np.random.default_rng([seed, rows]).choice((-1.0, 1.0), resampled.shape)
    low, high = percentiles((resampled + signs * fit.errors) @ linear.T)
    mean_alone = float(numbers.var()) * rows * (rows / (rows - 1)) ** 2
    explained = 1 - float(fit.errors @ fit.errors) / mean_alone if mean_alone else float("nan")
    return Fit(linear @ numbers, low, high, numbers, explained)
