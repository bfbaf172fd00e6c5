"""How every command runs: its folder is opened, computed in where it stopped, and finished."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from os import PathLike
from typing import Any

from headscope.runs.folder import Run, open_run, reopen_run

__all__ = ["Pending", "carry_out", "carry_out_again"]


class Pending(dict[str, Any]):
    """What is said of work that goes on elsewhere: the run stays unfinished."""


def carry_out(
    command: str,
    out: str | PathLike[str] | None,
    config: Any,
    inputs: Mapping[str, str],
    compute: Callable[[Run], Mapping[str, Any]],
    began: float | None = None,
    provenance: Mapping[str, Any] | None = None,
    fills_up: bool = False,
) -> dict[str, Any]:
    """The result of a command: the stored one of a finished run, else what `compute` returns.

    `compute` goes on with what the open run holds. Added to its result are the `signature`, unless
    it has its own, `run` and the `seconds` since `began` (`time.monotonic()`; None: now). With
    `fills_up` a finished run is computed again and its result replaced. The other arguments are
    those of `open_run`.
    """
    began = time.monotonic() if began is None else began
    with open_run(out, command, config, inputs, provenance=provenance) as run:
        if not run.finished:
            return _completed(run, compute, began)
        if not fills_up:
            return {**run.result(), "run": str(run.path)}  # the folder may have been moved
    return carry_out_again(run.path, compute)


def carry_out_again(
    path: str | PathLike[str], compute: Callable[[Run], Mapping[str, Any]]
) -> dict[str, Any]:
    """The result of a finished run, replaced by what `compute` makes of what the run stores.

    Until then the run is as it was. Raises `InputError` as `reopen_run` does.
    """
    began = time.monotonic()
    with reopen_run(path) as run:
        return _completed(run, compute, began)


def _completed(
    run: Run, compute: Callable[[Run], Mapping[str, Any]], began: float
) -> dict[str, Any]:
    computed = compute(run)
    seconds = time.monotonic() - began
    own = {"signature": run.signature, "run": str(run.path), "seconds": seconds}
    result = {**own, **computed}
    if not isinstance(computed, Pending):
        run.finish(result)
    return result
