"""Random draws one after another, until they decide: by a bet, or by the first that does as much.

If selected heads are nothing special, they are one more draw: among them and t draws every rank is
equally likely. The bet is that less than `share` of random sets do at least as much. Its wealth is
how much likelier that makes the ranks seen so far, uniformly over shares up to that, than equally
likely ranks do (Fischer and Ramdas 2024, "Sequential Monte-Carlo testing by betting", the binomial
mixture). Wealth begins at 1 and has mean 1 at every draw if the heads are nothing special, so that
it ever reaches 1/α with a probability of at most α (Ville 1939), whenever and for whatever reason
the drawing ends. So is p, 1 over the largest wealth so far, of every statistic that is read beside
the one that decided when to stop.

The bet has no p below 0.03, too large for one of several claims that are tested together. These
take as many draws as the first step of Holm's procedure needs (`draws_for`), and each ends at the
first draw that does as much, with p = 1/t after t draws (Besag and Clifford 1991, "Sequential
Monte Carlo p-values", h = 1): the first t draws all do less than heads that are nothing special
with a probability of at most 1/(t + 1). That, too, holds whenever the drawing ends.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import ceil, comb, log
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

#: The largest share of random sets that is bet on, of the level.
SHARE_OF_LEVEL = 0.6
#: With less wealth than this the bet is given up.
LOST = 0.1
#: Draws after which the bet ends undecided.
MOST_DRAWS = 199

Ended = Literal["shown", "given up", "limit", "open"]
#: By what draws one after another end: a bet, or the first draw that does as much.
Rule = Literal["bet", "first"]


@dataclass(frozen=True)
class Standing:
    """How a test by draws one after another stands.

    Attributes:
        p: valid whenever the drawing ended.
        draws: those until the test ended, or all.
        as_far: of these, those that do at least as much as the selected heads.
        ended: "shown" where p is at most the level at the end, "limit" where as many as there may
            be have not decided it, "open" before.
    """

    p: float
    draws: int
    as_far: int
    ended: Ended


def bet_on(as_far: ArrayLike, level: float = 0.05, most: int = MOST_DRAWS) -> Standing:
    """The bet that selected heads do more than random ones at this level, in at most so many draws.

    `as_far` says of each draw, in order, whether it does at least as much; ties do. What comes
    after the end of the bet changes nothing.
    """
    counts, worth = np.cumsum(np.asarray(as_far, dtype=int)), wealth(as_far, level)
    ends = np.flatnonzero((worth >= 1 / level) | (worth < LOST))
    draws = int(ends[0]) + 1 if ends.size else len(worth)
    won = ends.size > 0 and worth[draws - 1] >= 1 / level
    undecided: Ended = "limit" if draws >= most else "open"
    return Standing(
        p=min(1.0, 1 / worth[:draws].max(initial=1.0)),
        draws=draws,
        as_far=int(counts[draws - 1]) if draws else 0,
        ended="shown" if won else "given up" if ends.size else undecided,
    )


def until_first(as_far: ArrayLike, level: float = 0.05, most: int = MOST_DRAWS) -> Standing:
    """The test that ends at the first draw that does at least as much (ties do), or after `most`.

    p is 1/t if that is draw t, and 1/(1 + t) if none of t draws does. What comes after the end
    changes nothing.
    """
    done = np.asarray(as_far, dtype=bool)
    first = int(done.argmax()) + 1 if done.any() else None
    if first is not None:
        return Standing(1 / first, first, 1, "shown" if 1 / first <= level else "given up")
    draws, p = len(done), 1 / (1 + len(done))
    if draws < most:
        return Standing(p, draws, 0, "open")
    return Standing(p, draws, 0, "shown" if p <= level else "limit")


def draws_for(claims: int, level: float = 0.05) -> int:
    """The fewest draws after which one of so many claims can hold in Holm's procedure.

    p is at least 1/(1 + draws), and the smallest of m is at most level/m only with m/level − 1.
    """
    return max(1, ceil(round(claims / level, 9)) - 1)


def wealth(as_far: ArrayLike, level: float = 0.05) -> NDArray[np.float64]:
    """The wealth after each draw, (draws,): (1 − F(g; t + 1, c)) / c after t draws of which g do at
    least as much, where F is the binomial distribution function and c the share bet on."""
    share = SHARE_OF_LEVEL * level
    counts = np.cumsum(np.asarray(as_far, dtype=int)).tolist()
    return np.array([_above(done, at + 1, share) / share for at, done in enumerate(counts, 1)])


@cache
def _above(count: int, trials: int, share: float) -> float:
    """The probability of more than `count` successes."""
    few = range(count + 1, trials + 1)
    if count < trials / 2:  # the shorter sum; its complement loses no digit that counts
        few = range(count + 1)
    total = sum(comb(trials, at) * share**at * (1 - share) ** (trials - at) for at in few)
    return 1 - total if few.start == 0 else total


def draws_to_win(level: float = 0.05) -> int:
    """The draws that win the bet if none of them does as much; at levels near zero too many."""
    if level < 1e-6:
        return MOST_DRAWS + 1
    return ceil(log(1 - SHARE_OF_LEVEL) / log(1 - SHARE_OF_LEVEL * level)) - 1
