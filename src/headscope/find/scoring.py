"""What methods that score every head share: kept batches, rates with intervals, and scores.

All take a model, their data and settings; `run`, the folder where finished batches are kept, so
that a run that was stopped goes on; and `progress`, called with how much is done, and of how much.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from headscope.errors import InputError
from headscope.heads import HeadScores
from headscope.measure.intervals import Average, Interval, bootstrap_interval, rate_interval
from headscope.progress import Steps, further
from headscope.runs.plain import plain
from headscope.settings import Settings

if TYPE_CHECKING:
    from headscope.lm import LanguageModel
    from headscope.runs import Run

Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class RunPart:
    """A named place in a run for finished batches; without a run nothing is kept."""

    run: Run | None = None
    name: str = ""

    def record(self, name: str) -> Any:
        """A kept record, or None."""
        return None if self.run is None else self.run.read_part(f"{self.name}/{name}").get(name)

    def keep_record(self, name: str, record: Any) -> None:
        if self.run is not None:
            self.run.append_part(f"{self.name}/{name}", name, record)

    def tensors(self, name: str) -> list[Arrays]:
        """The arrays of all kept batches."""
        if self.run is None:
            return []
        return list(self.run.read_tensors(f"{self.name}/{name}").values())

    def keep_tensors(self, name: str, key: str, tensors: Arrays) -> None:
        if self.run is not None:
            self.run.append_tensors(f"{self.name}/{name}", key, tensors)

    @contextmanager
    def units(
        self,
        name: str,
        batches: Sequence[Sequence[int]],
        found: Container[int],
        reread: Callable[[], None],
        progress: Steps | None = None,
    ) -> Iterator[list[list[int]]]:
        """What is left to do of those batches that this process computes (see `Run.units`)."""
        if self.run is None:
            yield unfinished(batches, found)
            return
        units = {f"{batch[0]:09d}": batch for batch in batches}
        total = sum(map(len, batches))

        def left() -> list[str]:
            return [unit for unit, batch in units.items() if unfinished([batch], found)]

        done = total - sum(map(len, unfinished(batches, found)))
        report = further(progress and (lambda _, *steps: progress(*steps)), "", done, total)
        with self.run.units(f"{self.name}/{name}", left, reread, report) as mine:
            yield unfinished([units[unit] for unit in mine], found)


#: Where nothing is kept.
NOWHERE = RunPart()


def unfinished(batches: Iterable[Sequence[int]], done: Container[int]) -> list[list[int]]:
    """What is left to do of each batch."""
    left = ([index for index in batch if index not in done] for batch in batches)
    return [batch for batch in left if batch]


@dataclass(frozen=True, kw_only=True)
class Resampled(Settings):
    """Settings of scores with intervals over examples: their level, from so many bootstrap draws.

    A class of settings that inherits from it has a `seed`.
    """

    bootstrap_draws: int = 1000
    level: float = 0.95

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.bootstrap_draws < 1:
            raise InputError("bootstrap_draws must be 1 or more")
        if not 0 < self.level < 1:
            raise InputError(f"level is {self.level}; it must lie between 0 and 1, such as 0.95")

    @property
    def bootstrap(self) -> tuple[int, int, float]:
        """Draws, seed and level, as the functions of `measure.intervals` take them."""
        return self.bootstrap_draws, getattr(self, "seed", 0), self.level


def rate(hits: NDArray[Any], totals: NDArray[Any], average: str = "macro") -> NDArray[np.float64]:
    """Hits (S, ...) over totals (S,) by the chosen average; NaN if every total is 0."""
    kept = totals > 0
    if not kept.any():
        return np.full(hits.shape[1:], np.nan)
    chosen, sizes = hits[kept].astype(np.float64), totals[kept].astype(np.float64)
    if average == "micro":
        return np.asarray(chosen.sum(axis=0) / sizes.sum())
    return np.asarray((chosen / sizes.reshape(-1, *[1] * (hits.ndim - 1))).mean(axis=0))


def scored(
    lm: LanguageModel,
    method: str,
    config: Resampled,
    run: Run | None,
    hits: NDArray[Any],
    totals: NDArray[Any],
    extra: Mapping[str, NDArray[Any]],
    statistics: Mapping[str, NDArray[Any]],
    about: Mapping[str, Any],
    average: Average = "macro",
    counts: bool = True,
) -> HeadScores:
    """The rates of hits (S, L, W) over totals (S,) with their bounds, as a method's scores.

    Hits that are no `counts` but other numbers have bootstrap bounds. `about` tells beside the
    settings what was counted; the other arrays stay with the scores.
    """
    known = np.nan_to_num(hits)
    if counts:
        bounds = rate_interval(known, totals, average, config.level)
    else:
        bounds = bootstrap_interval(known, totals, average, *config.bootstrap)
    values = rate(hits, totals, average)
    return with_bounds(lm, method, config, run, values, bounds, extra, statistics, about)


def with_bounds(
    lm: LanguageModel,
    method: str,
    config: Resampled,
    run: Run | None,
    values: NDArray[np.float64],
    bounds: Interval,
    extra: Mapping[str, NDArray[Any]],
    statistics: Mapping[str, NDArray[Any]],
    about: Mapping[str, Any],
) -> HeadScores:
    """Scores (L, W) of a method, as `scored` makes them of hits."""
    return HeadScores(
        lm.geometry,
        values,
        method,
        bounds.low.reshape(lm.geometry.shape),
        bounds.high.reshape(lm.geometry.shape),
        extra,
        statistics,
        {**plain(config), **about},
        dict(run.provenance) if run is not None else {},
        run.signature if run is not None else "",
    )
