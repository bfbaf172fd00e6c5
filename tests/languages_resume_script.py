"""Removes language heads and kills itself with SIGKILL after some kept conditions.

Arguments: model folder, data file, run folder, reports until death.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from headscope.results.language_texts import TextWithoutHeads
from headscope.studies.documents import DocumentsChoice
from headscope.studies.inputs import ModelChoice, Progress
from headscope.studies.verify.perplexity import VerifyPerplexity, verify_perplexity
from headscope.verify.languages.conditions import LanguageRemoval


def verify(model: str, data: str, out: Path, progress: Progress) -> TextWithoutHeads:
    """Two languages in one file, two draws of each kind."""
    documents, removal = DocumentsChoice((data,)), LanguageRemoval(draws=2)
    heads = ("en=1.0,0.2", "de=1.3")
    config = VerifyPerplexity(heads, (), ModelChoice(model), documents, removal)
    return verify_perplexity(config, out, progress)


def main() -> None:
    model, data, out, reports = sys.argv[1:]
    calls = 0

    def progress(title: str, done: int, total: int) -> None:
        nonlocal calls
        calls += title == "reading documents"
        if calls == int(reports):
            os.kill(os.getpid(), signal.SIGKILL)

    verify(model, data, Path(out), progress)


if __name__ == "__main__":
    main()
