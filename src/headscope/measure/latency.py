"""How far a simultaneous translation is behind its source, in source words; no model takes part.

`delays` are, of each word of an output, how many words of the source had been read when it was
complete; `source` is how many there are in all, and `target` how many words of the target the ideal
translator, which keeps pace with the source, would write. An output without a word counts as one
that is written when all is read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headscope.estimates import Floats
from headscope.measure.intervals import FromStatistics


def average_lagging(delays: Sequence[int], source: int, target: int | None = None) -> float:
    """AL (Ma et al. 2019, arXiv 1810.08398): the mean lag of the words up to the first one that is
    written when all is read.

    `target` is by default the length of the output, as in the paper; others take the reference's.
    """
    known = list(delays) or [source]
    pace = source / (target or len(known))
    last = next((at for at, read in enumerate(known) if read >= source), len(known) - 1)
    return sum(read - at * pace for at, read in enumerate(known[: last + 1])) / (last + 1)


def length_adaptive_lagging(delays: Sequence[int], source: int, reference: int) -> float:
    """LAAL (Papi et al. 2022, arXiv 2206.05807): AL with the longer of output and reference, so
    that words too many are no gain."""
    return average_lagging(delays, source, max(len(delays), reference))


def differentiable_lagging(delays: Sequence[int], source: int) -> float:
    """DAL (Cherry and Foster 2019, arXiv 1906.00048): the mean lag of all words, where each takes
    at least the time in which the ideal translator writes one."""
    known = list(delays) or [source]
    pace = source / len(known)
    slowed = accumulate(known, lambda before, read: max(read, before + pace))
    return sum(read - at * pace for at, read in enumerate(slowed)) / len(known)


#: By name, of delays, the words of the source and those of the reference.
LATENCIES: dict[str, tuple[str, Callable[[Sequence[int], int, int], float]]] = {
    "laal": ("LAAL", length_adaptive_lagging),
    "al": ("AL", lambda delays, source, _: average_lagging(delays, source)),
    "dal": ("DAL", lambda delays, source, _: differentiable_lagging(delays, source)),
}

#: Latencies between both ends at which curves are read.
READ_AT = 9


def curve_statistics(
    quality: Sequence[NDArray[Any]], lag: Sequence[NDArray[Any]], ends: tuple[float, float]
) -> NDArray[np.float64]:
    """Numbers of every example from which `quality_between` has the quality of a curve of points.

    `quality` (S, F) are the statistics of the points' quality, `lag` (S,) their latencies; `ends`
    is the range of latencies in which the curve is read.
    """
    every = [np.ones(len(lag[0])), *(np.full(len(lag[0]), end) for end in ends)]
    return np.concatenate([*quality, np.stack([*lag, *every], axis=1)], axis=1)


def quality_between(score: FromStatistics, points: int) -> FromStatistics:
    """From sums of `curve_statistics` to the mean quality between both ends.

    Between its points a curve is a straight line; before its first one it is as good as there,
    which is more than a policy that cannot be so fast has earned.
    """

    def scored(sums: NDArray[Any]) -> Floats:
        whole = np.asarray(sums, dtype=np.float64)
        lags, (low, high) = whole[..., -points - 3 : -3], np.moveaxis(whole[..., -2:], -1, 0)
        many = whole[..., -3:-2]
        shape = (*whole.shape[:-1], points, (whole.shape[-1] - points - 3) // points)
        order = np.argsort(lags, axis=-1, kind="stable")
        x = np.take_along_axis(lags / many, order, axis=-1)
        y = np.take_along_axis(score(whole[..., : -points - 3].reshape(shape)), order, axis=-1)
        means = np.stack([low, high], axis=-1) / many
        at = means[..., :1] + np.linspace(0, 1, READ_AT) * (means[..., 1:] - means[..., :1])
        above = (x[..., None, :] <= at[..., None]).sum(axis=-1)
        left, right = (np.clip(above - less, 0, points - 1) for less in (1, 0))
        x0, x1, y0, y1 = (
            np.take_along_axis(each, place, axis=-1)
            for each in (x, y) for place in (left, right)
        )  # fmt: skip
        way = np.divide(at - x0, x1 - x0, where=x1 > x0, out=np.zeros_like(at))
        return np.asarray((y0 + np.clip(way, 0, 1) * (y1 - y0)).mean(axis=-1))

    return scored
