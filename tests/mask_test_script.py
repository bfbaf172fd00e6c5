"""Tests a mask on a task and kills itself with SIGKILL after some steps.

Arguments: run of the mask, run folder, steps until death (0: never).
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from headscope.studies.tasks import TaskChoice
from headscope.studies.verify.mask import VerifyMask, verify_mask


def config(mask: str) -> VerifyMask:
    return VerifyMask((mask,), TaskChoice(("plural-en",), held_out=2), draws=1)


def main() -> None:
    mask, out, steps = sys.argv[1:]
    done_steps = 0

    def progress(title: str, done: int, total: int) -> None:
        nonlocal done_steps
        done_steps += done == total
        if done_steps == int(steps):
            os.kill(os.getpid(), signal.SIGKILL)

    verify_mask(config(mask), Path(out), progress)


if __name__ == "__main__":
    main()
