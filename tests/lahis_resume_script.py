"""Scores language heads on documents and kills itself with SIGKILL after some of them.

Arguments: model folder, data file, run folder, whether the gate moves (0 or 1), documents until
death (0: never).
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from headscope.find import gate_gradients
from headscope.find.importance import Lahis
from headscope.studies.documents import DocumentsChoice
from headscope.studies.find.lahis import FindLahis, find_lahis
from headscope.studies.models import ModelChoice


def config(model: str, data: str, moving: bool) -> FindLahis:
    """Batches of one document; a moving gate is written down after every second one."""
    gate_gradients.KEPT_EVERY = 2
    return FindLahis(
        ModelChoice(model),
        DocumentsChoice((data,)),
        Lahis(update_gate=moving, batch_tokens=1, bootstrap_draws=20),
        quantile=0.5,
    )


def main() -> None:
    model, data, out, moving, documents = sys.argv[1:]
    done_so_far = []

    def progress(title: str, done: int, total: int) -> None:
        done_so_far.append(title)
        if len(done_so_far) == int(documents):
            os.kill(os.getpid(), signal.SIGKILL)

    find_lahis(config(model, data, moving == "1"), Path(out), progress)


if __name__ == "__main__":
    main()
