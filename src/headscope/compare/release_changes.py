"""Whether a number got worse from one checkpoint to the next, on the same examples.

Two checkpoints are compared on the same texts, so differences vary far less than the numbers. A
change counts as a loss only beyond a margin, and as none only where its interval excludes that
margin: a test of superiority and one of equivalence with one interval (Schuirmann 1987).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike, NDArray

from headscope.errors import InputError
from headscope.estimates import Estimate
from headscope.measure import bootstrap_difference, chrf, chrf_from_statistics, wilson_interval
from headscope.measure.intervals import t_quantile
from headscope.results.release import Answer, Change

#: Draws of the bootstrap, since intervals of many changes together need far tails.
DRAWS = 10_000
#: Fewer examples decide nothing: those that differ may not be among them.
FEWEST = 30


@dataclass(frozen=True)
class Margins:
    """By how much each number may get worse, in its own unit (see `Change.statistic`)."""

    loss: float = 0.01
    off_target: float = 0.05
    chrf: float = 1.0


def answer_of(worse: Estimate, margin: float, examples: int) -> Answer:
    """What the interval of a change says, of which above 0 is worse."""
    if examples < FEWEST:
        return "cannot tell"
    if np.isnan(worse.value):  # the new checkpoint gives no number any more
        return "lost"
    low, high = (worse.low, worse.high) if worse.bounded else (worse.value, worse.value)
    return "lost" if low > margin else "kept" if high < margin else "cannot tell"


def loss_change(
    part: str,
    statistic: str,
    old: ArrayLike,
    new: ArrayLike,
    tokens: ArrayLike,
    margin: float,
    level: float,
) -> Change:
    """The change of a loss in nats a token: sums of losses of each text (S,), and its tokens.

    The interval is Student's of a ratio over texts: percentiles of a bootstrap would be too narrow
    so far out. `InputError` if the old loss is no finite number.
    """
    before, after, sizes = (np.asarray(values, dtype=np.float64) for values in (old, new, tokens))
    if not np.isfinite(before).all():
        raise InputError(f"the old checkpoint's loss of {part} is no finite number; give another")
    change = _mean_change(after - before, sizes, level)
    total = sizes.sum()
    return Change(
        part=part,
        statistic=statistic,
        old=float(before.sum() / total),
        new=float(after.sum() / total),
        change=change,
        margin=margin,
        answer=answer_of(change, margin, len(sizes)),
        examples=len(sizes),
    )


def _mean_change(
    changes: NDArray[np.float64], sizes: NDArray[np.float64], level: float
) -> Estimate:
    number, value = len(changes), float(changes.sum() / sizes.sum())
    if not np.isfinite(value):
        return Estimate()
    if number < 2:
        return Estimate(value)
    apart = changes - value * sizes
    error = np.sqrt((apart**2).sum() * number / (number - 1)) / sizes.sum()
    half = t_quantile(number - 1, level) * float(error)
    return Estimate(value, value - half, value + half)


def needed(margin: float, level: float) -> int:
    """How many outputs have to stay as they are for *kept*, by the interval of `share_change`."""
    squared = NormalDist().inv_cdf((3 + level) / 4) ** 2
    return ceil(squared * (1 - margin) / margin) if margin else 0


def share_change(part: str, old: ArrayLike, new: ArrayLike, margin: float, level: float) -> Change:
    """The change of the share of outputs in another language; bool (S,) each.

    Its interval is that of the share of outputs that became wrong minus that of those that became
    right, each of them Wilson's at a level at which both hold together. So it has a width where no
    output changed.
    """
    before, after = np.asarray(old, dtype=bool), np.asarray(new, dtype=bool)
    both = (1 + level) / 2
    worse, better = (
        wilson_interval(int(became.sum()), len(became), both)
        for became in (after & ~before, before & ~after)
    )
    value = float(after.mean() - before.mean())
    change = Estimate(value, worse[0] - better[1], worse[1] - better[0])
    return Change(
        part=part,
        statistic="off_target",
        old=float(before.mean()),
        new=float(after.mean()),
        change=change,
        margin=margin,
        answer=answer_of(change, margin, len(before)),
        examples=len(before),
    )


def chrf_change(
    part: str,
    old: Sequence[str],
    new: Sequence[str],
    references: Sequence[str],
    margin: float,
    level: float,
    seed: int = 0,
) -> Change:
    """The change of corpus chrF++, of which below 0 is worse."""
    before, after = chrf(old, references), chrf(new, references)
    change = bootstrap_difference(
        after.statistics, before.statistics, chrf_from_statistics, DRAWS, seed, level
    )
    worse = Estimate(-change.value, -change.high, -change.low)
    return Change(
        part=part,
        statistic="chrf",
        old=before.value,
        new=after.value,
        change=change,
        margin=margin,
        answer=answer_of(worse, margin, len(references)),
        examples=len(references),
    )
