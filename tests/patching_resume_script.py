"""Patches the bundled model and kills itself with SIGKILL after some pairs.

Arguments: run folder, pairs until death.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from headscope.find.path_effects import Patching
from headscope.results.head_scores import PatchingResult
from headscope.studies.find.patching import FindPatching, find_patching


def find(out: Path, death: int = 0) -> PatchingResult:
    """The run; it ends with the process after `death` pairs (0: never)."""

    def progress(title: str, done: int, total: int) -> None:
        if done == death:
            os.kill(os.getpid(), signal.SIGKILL)

    measure = Patching(pairs=4, known_only=False, control=False, bootstrap_draws=50)
    return find_patching(FindPatching(measure=measure), out, progress)


if __name__ == "__main__":
    find(Path(sys.argv[1]), int(sys.argv[2]))
