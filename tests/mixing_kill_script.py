"""Mixes a file and kills itself with SIGKILL at some step.

Arguments: rated folder, output folder, title of the step, how many of it are done at death.
"""

from __future__ import annotations

import os
import signal
import sys

from headscope.use.mixing import MixPlan, index, mix, writing

PLAN = MixPlan("remove", share=0.05, size="70%", file_bytes=4000)


def small_steps() -> None:
    """Note what is done after every file, and keep nothing back."""
    index.KEPT = writing.SAVED = writing.KEPT = 1


def main() -> None:
    rated, out, title, steps = sys.argv[1:]

    def progress(step: str, done: int, total: int) -> None:
        if step == title and done == int(steps):
            os.kill(os.getpid(), signal.SIGKILL)

    small_steps()
    mix([rated], out, PLAN, progress)


if __name__ == "__main__":
    main()
