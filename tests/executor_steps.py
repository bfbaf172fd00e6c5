"""Steps of datatrove for tests: one that writes a file a chunk, and a worker that kills itself."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from datatrove.pipeline.base import PipelineStep

from headscope.errors import InputError
from headscope.runs import Run
from headscope.studies.workers import _Work


class WriteNumbers(PipelineStep):
    """Task r of n writes the files r, r + n, … that are not there yet, each with its number.

    `dies` kills the worker that comes to this number with SIGKILL the first time, `fails` raises
    an InputError there.
    """

    type, name = "TEST", "numbers"

    def __init__(self, out: Path, numbers: int, dies: int = -1, fails: int = -1) -> None:
        super().__init__()
        self.out, self.numbers, self.dies, self.fails = out, numbers, dies, fails

    def run(self, data: Any, rank: int = 0, world_size: int = 1) -> Iterator[Any]:
        """Nothing is handed on."""
        for number in range(rank, self.numbers, world_size):
            file = self.out / f"{number:03}"
            if file.exists():
                continue
            if number == self.fails:
                raise InputError(f"{number} cannot be written; take another")
            if number == self.dies and not (self.out / "died").exists():
                (self.out / "died").write_text(str(os.getpid()))
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(0.01)
            # A worker that is ended half-way leaves no empty file that looks done.
            partial = file.with_suffix(".partial")
            partial.write_text(str(number))
            os.replace(partial, file)
        yield from data or ()


class DyingWork(_Work):
    """The work of a study; the second worker kills itself before it keeps a second unit."""

    def __call__(self, data: Any, rank: int = 0, world_size: int = 1) -> None:
        if rank == 1:
            for name in ("append_part", "append_tensors"):
                setattr(Run, name, _once(getattr(Run, name)))
        super().__call__(data, rank, world_size)


def _once(method: Any) -> Any:
    calls: list[Any] = []

    def call(*given: Any) -> None:
        if calls:
            os.kill(os.getpid(), signal.SIGKILL)
        calls.append(given)
        method(*given)

    return call
