"""Trains a mask and kills itself with SIGKILL after some steps.

Arguments: model folder, task file, run folder, steps until death (0: never).
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from headscope.find import mask_training as train
from headscope.studies.find.mask import FindMask, find_mask
from headscope.studies.models import ModelChoice
from headscope.studies.tasks import TaskChoice


def config(model: str, task: str) -> FindMask:
    """A short training with feed-forward gates, so that every kind of weight is resumed."""
    changes = {"steps": 12, "learning_rate": 1.5, "batch": 3, "feed_forward": True}
    return FindMask(ModelChoice(model), TaskChoice((task,), held_out=2), "small", changes)


def main() -> None:
    model, task, out, steps = sys.argv[1:]
    # The state is written more often than usual, so that there is something to go on from.
    train._EVERY = 4

    def progress(title: str, done: int, total: int) -> None:
        if done == int(steps):
            os.kill(os.getpid(), signal.SIGKILL)

    find_mask(config(model, task), Path(out), progress)


if __name__ == "__main__":
    main()
