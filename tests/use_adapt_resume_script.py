"""Writes under a gate and kills itself with SIGKILL after some kept blocks of prompts.

Arguments: model folder, prompts, run folder, blocks until death (0: never).
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
from pathlib import Path

from headscope.studies.models import ModelChoice
from headscope.studies.use.adapt import UseAdapt, use_adapt
from headscope.studies.use.gates import GateChoice
from headscope.studies.use.prompts import PromptsChoice


def config(model: str, data: str) -> UseAdapt:
    """Two heads, tripled."""
    return UseAdapt(
        GateChoice(heads="0.1,1.2", scale=3.0),
        PromptsChoice(data=data),
        ModelChoice(model),
        max_new_tokens=4,
    )


def main() -> None:
    model, data, out, blocks = sys.argv[1:]
    conditions = importlib.import_module("headscope.verify.translation.conditions")
    conditions.KEPT_AT_ONCE = 2  # so that a few prompts make several blocks
    calls = 0

    def progress(title: str, done: int, total: int) -> None:
        nonlocal calls
        calls += 1
        if calls == int(blocks):
            os.kill(os.getpid(), signal.SIGKILL)

    use_adapt(config(model, data), Path(out), progress)


if __name__ == "__main__":
    main()
