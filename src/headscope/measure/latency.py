"""How far a simultaneous translation is behind its source, in source words; no model takes part.

`delays` are, of each word of an output, how many words of the source had been read when it was
complete; `source` is how many there are in all, and `target` how many words of the target the ideal
translator, which keeps pace with the source, would write. An output without a word counts as one
that is written when all is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
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


def differentiable_lagging(delays: Sequence[int], source: int) -> float:
    """DAL (Cherry and Foster 2019, arXiv 1906.00048): the mean lag of all words, where each takes
    at least the time in which the ideal translator writes one."""
    known = list(delays) or [source]
    pace = source / len(known)
    slowed: Iterator[float] = accumulate(known, lambda before, read: max(read, before + pace))
    return sum(read - at * pace for at, read in enumerate(slowed)) / len(known)


#: By name, of delays, the words of the source and those of the reference. LAAL (Papi et al. 2022,
#: arXiv 2206.05807) is AL by the longer of output and reference: words too many are no gain.
LATENCIES: dict[str, tuple[str, Callable[[Sequence[int], int, int], float]]] = {
    "laal": ("LAAL", lambda d, source, target: average_lagging(d, source, max(len(d), target))),
    "al": ("AL", lambda delays, source, _: average_lagging(delays, source)),
    "dal": ("DAL", lambda delays, source, _: differentiable_lagging(delays, source)),
}
#: Latencies between both ends at which curves are read.
READ_AT = 9


def curve_statistics(
    quality: Iterable[NDArray[Any]], lag: NDArray[Any], ends: tuple[float, float]
) -> NDArray[np.float64]:
    """Numbers of every example that `quality_between` reads: of each point of a curve the
    statistics of its quality (S, F); of all the latencies (points, S); and those between which it
    is read."""
    every = (np.full(len(lag[0]), value) for value in (1, *ends))
    return np.concatenate([*quality, np.stack([*lag, *every], axis=1)], axis=1)


def quality_between(score: FromStatistics, points: int) -> FromStatistics:
    """From sums of `curve_statistics` to the mean quality between both ends.

    Between its points a curve is a straight line; before its first one it is as good as there,
    which is more than a policy that cannot be so fast has earned.
    """

    def scored(sums: NDArray[Any]) -> Floats:
        rows = np.asarray(sums, dtype=np.float64).reshape(-1, sums.shape[-1])
        quality = score(rows[:, : -points - 3].reshape(len(rows), points, -1))
        lags = rows[:, -points - 3 :] / rows[:, -3:-2]
        order = lags[:, :points].argsort(axis=1, kind="stable")
        means = [
            np.interp(np.linspace(lag[-2], lag[-1], READ_AT), lag[rising], value[rising]).mean()
            for lag, value, rising in zip(lags, quality, order, strict=True)
        ]
        return np.reshape(means, sums.shape[:-1])

    return scored
