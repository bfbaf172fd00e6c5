"""First-order importance of heads for documents, in a run folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from headscope.find.first_order import FirstOrder, first_order
from headscope.heads import HeadScores
from headscope.results.common import ScoredHead
from headscope.results.lahis import DocumentScores
from headscope.runs import Run
from headscope.settings import Settings
from headscope.studies.documents import DocumentsChoice
from headscope.studies.find.document_scores import describe_language, score_languages
from headscope.studies.inputs import ModelChoice, Progress

__all__ = ["COMMAND", "FindFirstOrder", "find_first_order"]

COMMAND = "find first-order"


@dataclass(frozen=True)
class FindFirstOrder(Settings):
    """Score every head by how steeply the loss of documents changes with its gate, in either way.

    Without --data the bundled model is scored on documents of its own development sentences, in
    all its languages.
    """

    model: ModelChoice = field(default_factory=ModelChoice)
    documents: DocumentsChoice = field(default_factory=DocumentsChoice)
    score: FirstOrder = field(default_factory=FirstOrder)


def find_first_order(
    config: FindFirstOrder, out: Path | None = None, progress: Progress | None = None
) -> DocumentScores:
    """Score every language and return the command's result; the run holds `scores/`."""

    def describe(run: Run, scores: Mapping[str, HeadScores]) -> DocumentScores:
        choice = config.documents
        return DocumentScores(
            heads=ScoredHead.all_of(HeadScores.mean(scores)),
            languages={code: describe_language(part, choice) for code, part in scores.items()},
        )

    return score_languages(
        COMMAND,
        config,
        config.model,
        config.documents,
        config.score.seed,
        lambda lm, file, run, report: first_order(lm, file, config.score, run, report),
        DocumentScores,
        describe,
        out=out,
        progress=progress,
    )
