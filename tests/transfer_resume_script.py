"""Asks about contradictions and kills itself with SIGKILL after some kept blocks.

Arguments: model folder, folder of heads, run folder, blocks until death (0: never).
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from headscope.studies.inputs import ModelChoice
from headscope.studies.verify.transfer import VerifyTransfer, verify_transfer


def config(model: str, heads: str) -> VerifyTransfer:
    """Both orders of two languages, and a draw of each kind beside each gate."""
    return VerifyTransfer(
        heads, 2, ModelChoice(model), ("de-en", "en-de"), limit=3, draws=1, max_new_tokens=3
    )


def main() -> None:
    model, heads, out, blocks = sys.argv[1:]
    calls = 0

    def progress(title: str, done: int, total: int) -> None:
        nonlocal calls
        calls += title in ("answering", "ranking answers")
        if calls and calls == int(blocks):
            os.kill(os.getpid(), signal.SIGKILL)

    verify_transfer(config(model, heads), Path(out), progress)


if __name__ == "__main__":
    main()
