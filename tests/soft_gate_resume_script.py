"""Train soft gates in a process that kills itself after so many reports of progress.

python soft_gate_resume_script.py MODEL QUESTIONS OUT REPORTS
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from headscope.find.trained_gates import SoftGate
from headscope.studies.find.soft_gate import FindSoftGate, find_soft_gate
from headscope.studies.models import ModelChoice
from headscope.studies.questions import QuestionsChoice


def config(model: str, data: str) -> FindSoftGate:
    """Two seeds, looks at every second step, two new tokens."""
    return FindSoftGate(
        "1.2,0.1",
        model=ModelChoice(model),
        questions=QuestionsChoice(data, train=6, stop=3, test=6),
        training=SoftGate(learning_rate=0.1, check_every=2, max_new_tokens=2, patience=9),
        seeds=2,
    )


def main() -> None:
    model, data, out, reports = sys.argv[1:]
    left = int(reports)

    def progress(title: str, done: int, total: int) -> None:
        nonlocal left
        left -= 1
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)

    find_soft_gate(config(model, data), Path(out), progress)


if __name__ == "__main__":
    main()
