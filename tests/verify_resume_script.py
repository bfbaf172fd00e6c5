"""Verifies a removal and kills itself with SIGKILL after some kept blocks of sentences.

Arguments: model folder, data file, run folder, blocks until death (0: never).
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from headscope.studies.models import ModelChoice
from headscope.studies.pairs import PairsChoice
from headscope.studies.verify.removal import VerifyRemoval, verify_removal
from headscope.verify.translation import Removal


def config(model: str, data: str) -> VerifyRemoval:
    """Two sets, and two draws of each kind beside each."""
    return VerifyRemoval(
        "1.0,0.2,1.3",
        (1, 3),
        ModelChoice(model),
        PairsChoice(("en-de",), (data,)),
        Removal(draws=2, max_new_tokens=4),
    )


def main() -> None:
    model, data, out, blocks = sys.argv[1:]
    calls = 0

    def progress(title: str, done: int, total: int) -> None:
        nonlocal calls
        calls += title == "translating"
        if title == "translating" and calls == int(blocks):
            os.kill(os.getpid(), signal.SIGKILL)

    verify_removal(config(model, data), Path(out), progress)


if __name__ == "__main__":
    main()
