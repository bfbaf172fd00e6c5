"""Induction scores from random repeated tokens, in a run folder."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from headscope.find.repeated import Induction, induction
from headscope.results.head_scores import ScoresResult
from headscope.settings import GIVEN, Part, Settings
from headscope.studies.documents import DocumentsChoice, read_languages
from headscope.studies.find.head_scores import scores_run
from headscope.studies.inputs import ModelChoice, Progress

__all__ = ["COMMAND", "FindInduction", "find_induction"]

COMMAND = "find induction"
#: Natural texts of each language where no limit is given.
TEXTS = 50


def _documents(**values: Any) -> DocumentsChoice | None:
    """Documents that `--data` names; other options alone do not ask for any."""
    return DocumentsChoice(**values) if values.get("data") else None


@dataclass(frozen=True)
class FindInduction(Settings):
    """Score every head by how often it looks at the token that followed the same one before.

    Needs no data: blocks of random tokens are repeated. Beside it stands how often a head looks at
    the token just before, over these tokens and over natural text: documents of --data, or else a
    few English ones of the repository's own.
    """

    model: ModelChoice = field(default_factory=ModelChoice)
    measure: Induction = field(default_factory=Induction)
    documents: Annotated[DocumentsChoice | None, Part(make=_documents)] = field(
        default=None, metadata=GIVEN
    )


def find_induction(
    config: FindInduction, out: Path | None = None, progress: Progress | None = None
) -> ScoresResult:
    """Score every head and return the command's result; what is done already is kept."""
    data, texts = _texts(config)
    lm = config.model.load_for(out)
    return scores_run(
        COMMAND,
        config,
        lm,
        data,
        out,
        lambda run, steps: induction(lm, config.measure, run, steps, texts),
        progress,
        ScoresResult,
        seed=config.measure.seed,
    )


def _texts(config: FindInduction) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """What a run tells about the natural texts that were asked for, by language; and the texts."""
    if config.documents is None:
        from headscope.pocket.sample import sample_documents

        return {}, [one.text for one in sample_documents("en", "dev", TEXTS, 0).documents]
    files = read_languages(
        config.documents, config.model.model, "dev", default_limit=TEXTS, pocket_limit=TEXTS
    )
    data = {
        code: {"path": one.path, "examples": len(one.documents), "digest": one.digest}
        for code, one in files.items()
    }
    return data, [one.text for file in files.values() for one in file.documents]
