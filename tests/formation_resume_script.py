"""Measures a series of checkpoints and kills itself with SIGKILL.

Arguments: run folder, title of the progress to die at, how much of it is done by then.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from headscope.find.translation_config import TranslationScore
from headscope.studies.compare.checkpoints import checkpoint_series
from headscope.studies.compare.formation import Formation, formation
from headscope.studies.pairs import PairsChoice


def config() -> Formation:
    """Two checkpoints, two directions, few sentences."""
    return Formation(
        checkpoint_series(["pocket:step-00800", "pocket:final"]),
        PairsChoice(("en-de", "tr-en"), limit=4),
        TranslationScore(bootstrap_draws=50, keep_peaks=True),
        check=2,
    )


def main() -> None:
    out, title, done = sys.argv[1:]

    def progress(what: str, how_much: int, total: int) -> None:
        if (what, how_much) == (title, int(done)):
            os.kill(os.getpid(), signal.SIGKILL)

    formation(config(), Path(out), progress)


if __name__ == "__main__":
    main()
