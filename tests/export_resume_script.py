"""Exports a model and kills itself with SIGKILL while it writes, or right before it ends.

Arguments: model folder, run folder, the step and how often it is told of until death.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from headscope.studies.models import ModelChoice
from headscope.studies.use.export import UseExport, use_export
from headscope.studies.use.gates import GateChoice


def config(model: str) -> UseExport:
    """Small weight files, so that there are several."""
    choice = GateChoice(heads="0.1,1.2")
    return UseExport(choice, ModelChoice(model), max_shard_size="60KB")


def main() -> None:
    model, out, step, calls = sys.argv[1:]
    left = int(calls)

    def progress(title: str, done: int, total: int) -> None:
        nonlocal left
        left -= title.startswith(step)
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    use_export(config(model), Path(out), progress)


if __name__ == "__main__":
    main()
