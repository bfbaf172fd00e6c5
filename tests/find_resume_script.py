"""Scores a model on a file and kills itself with SIGKILL after some batches.

Arguments: model folder, data file, run folder, decode mode, batches until death (0: never).
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import find_helpers
import headscope.data.align
from headscope.find.translation_config import TranslationScore
from headscope.studies.find.translation import FindTranslation, find_translation
from headscope.studies.models import ModelChoice
from headscope.studies.pairs import PairsChoice


def config(model: str, data: str, decode: Any, keep_peaks: bool = True) -> FindTranslation:
    """Batches of one sentence."""
    return FindTranslation(
        ModelChoice(model),
        PairsChoice(("en-de",), (data,)),
        TranslationScore(
            decode=decode,
            batch_tokens=1,
            max_new_tokens=8,
            bootstrap_draws=50,
            keep_peaks=keep_peaks,
        ),
    )


def stand_in_aligner() -> None:
    """Links that follow from the words, in place of a statistical aligner's, which has no seed."""
    align: Any = headscope.data.align
    align.check_eflomal = lambda: None
    align.align_eflomal = lambda texts, extra, options: tuple(
        find_helpers.links_by_rule(*one) for one in texts
    )


def main() -> None:
    model, data, out, decode, batches = sys.argv[1:]

    def progress(title: str, done: int, total: int) -> None:
        if done == int(batches):
            os.kill(os.getpid(), signal.SIGKILL)

    stand_in_aligner()
    find_translation(config(model, data, decode), Path(out), progress)


if __name__ == "__main__":
    main()
