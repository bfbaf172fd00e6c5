"""Rates a corpus again and again, each time in a process that is killed at another point.

Arguments: data file, folder for runs, seed. A child process rates into ``killed`` with a stand-in
for the model and is killed by SIGKILL, at first at a call of the system drawn from the seed, later
on after a time; another one is left alone, as is the one that rates into ``whole``. Prints how many
were killed.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import headscope.studies.use.rate
import headscope.use.corpus.steps
from headscope.heads import Geometry
from headscope.studies.models import ModelChoice
from headscope.studies.use.rate import UseRate, use_rate
from headscope.use.corpus.records import Written
from use_corpus_helpers import rate_by_hash

# Before the children are made, so that none of them has to load it by itself.
import_module("datatrove.executor.local")

CHUNK = 20


def stand_in() -> None:
    """No model is loaded, and what it would say follows from each text."""
    choice: Any = ModelChoice
    choice.load_for = lambda self: SimpleNamespace(
        name="stand-in", geometry=Geometry((8,) * 8), dtype="float32"
    )
    recipe: Any = headscope.studies.use.rate
    for name in ("about_model", "about_loaded"):
        setattr(recipe, name, lambda lm: {})
    recipe.model_inputs = lambda lm: {"model": "stand-in"}
    steps: Any = headscope.use.corpus.steps
    steps.rate_texts = rate_by_hash


def dying(name: str, left: list[int]) -> None:
    """Let `os.NAME` kill this process at the last of some calls, before or after its work."""
    work: Any = getattr(os, name)

    def count() -> None:
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def call(*arguments: Any, **named: Any) -> Any:
        count()
        result = work(*arguments, **named)
        count()
        return result

    setattr(os, name, call)


def rate(data: str, out: Path, calls: int | None = None, seconds: float | None = None) -> int:
    """Rate in a child process that is killed after calls or seconds; how it ended."""
    child = os.fork()
    if not child:
        if calls is not None:
            left = [calls]
            for name in ("replace", "fsync", "open"):
                dying(name, left)
        use_rate(UseRate((data,), "5.3,4.2", written=Written(chunk=CHUNK)), out)
        os._exit(0)
    if seconds is not None:
        time.sleep(seconds)
        os.kill(child, signal.SIGKILL)
    return os.waitpid(child, 0)[1]


def main() -> None:
    data, folder, seed = sys.argv[1:]
    draw = random.Random(int(seed))
    stand_in()
    out = Path(folder) / "killed"
    ended = [rate(data, out, calls=draw.randint(5, 60)) for _ in range(5)]
    ended += [rate(data, out, seconds=draw.uniform(0.01, 0.2)) for _ in range(2)]
    print(sum(map(os.WIFSIGNALED, ended)))
    for name in ("killed", "whole"):
        assert rate(data, Path(folder) / name) == 0


if __name__ == "__main__":
    main()
