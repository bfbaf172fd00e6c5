"""How every command runs: its folder is opened, computed in where it stopped, and finished."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from os import PathLike
from typing import Any, TypeVar, overload

from headscope.display import concluded
from headscope.heads.store import RUN_FORMAT
from headscope.runs.codec import Result, decode, encode
from headscope.runs.folder import Provenance, Run, open_run, reopen_run

AnyResult = TypeVar("AnyResult", bound=Result)


@overload
def carry_out(
    command: str,
    out: str | PathLike[str] | None,
    config: Any,
    inputs: Mapping[str, str],
    compute: Callable[[Run], Mapping[str, Any]],
    began: float | None = None,
    provenance: Provenance = None,
    fills_up: bool = False,
) -> dict[str, Any]: ...


@overload
def carry_out(
    command: str,
    out: str | PathLike[str] | None,
    config: Any,
    inputs: Mapping[str, str],
    compute: Callable[[Run], AnyResult],
    began: float | None = None,
    provenance: Provenance = None,
    fills_up: bool = False,
    *,
    kind: type[AnyResult],
    cautions: tuple[str, ...] = (),
) -> AnyResult: ...


def carry_out(
    command: str,
    out: str | PathLike[str] | None,
    config: Any,
    inputs: Mapping[str, str],
    compute: Callable[[Run], Any],
    began: float | None = None,
    provenance: Provenance = None,
    fills_up: bool = False,
    *,
    kind: type[Any] | None = None,
    cautions: tuple[str, ...] = (),
) -> Any:
    """The result of a command: the stored one of a finished run, else what `compute` returns.

    `compute` goes on with what the open run holds. Added to its result are the `signature`, unless
    it has its own, `run`, the `seconds` since `began` (`time.monotonic()`; None: now), and as
    `verdict` and `cautions` what its page says first. With
    `fills_up` a finished run is computed again and its result replaced. `kind` is the type of the
    result, `cautions` are put before its own. The other arguments are those of `open_run`.
    """
    began = time.monotonic() if began is None else began
    with open_run(out, command, config, inputs, provenance=provenance) as run:
        if not run.finished:
            return _completed(run, compute, began, cautions)
        if not fills_up:
            stored = {**run.result(), "run": str(run.path)}  # the folder may have been moved
            return stored if kind is None else decode(kind, stored)
    return carry_out_again(run.path, compute)


def carry_out_again(path: str | PathLike[str], compute: Callable[[Run], Any]) -> Any:
    """The result of a finished run, replaced by what `compute` makes of what the run stores.

    Until then the run is as it was. Raises `InputError` as `reopen_run` does.
    """
    began = time.monotonic()
    with reopen_run(path) as run:
        return _completed(run, compute, began)


def _completed(
    run: Run, compute: Callable[[Run], Any], began: float, cautions: tuple[str, ...] = ()
) -> Any:
    computed = compute(run)
    path, seconds = str(run.path), time.monotonic() - began
    if isinstance(computed, Result):
        signature = computed.signature or run.signature
        cautions = (*cautions, *computed.cautions)
        typed = replace(
            computed,
            command=run.key.command,
            signature=signature,
            run=path,
            # What is measured again took what it took when the model ran.
            seconds=computed.seconds or seconds,
            cautions=cautions,
        )
        if not typed.pending:
            typed = concluded(typed)
            run.finish(encode(typed))
        return typed
    about = {"format": RUN_FORMAT, "signature": run.signature, "run": path, "seconds": seconds}
    result = {**about, **computed}
    run.finish(result)
    return result
