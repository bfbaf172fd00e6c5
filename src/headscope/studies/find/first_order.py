"""First-order importance of heads for documents, in a run folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from headscope.executors import Execution
from headscope.find.first_order_scores import FirstOrder, first_order
from headscope.heads import HeadScores
from headscope.progress import Progress
from headscope.results.common import ScoredHead
from headscope.results.lahis import DocumentScores
from headscope.runs import Run
from headscope.settings import UNSIGNED, Settings
from headscope.shown.blocks import Column, Section, Shown, Table, method_section, table_of
from headscope.studies.documents import DocumentsChoice
from headscope.studies.find.head_scores import (
    describe_language,
    document_cautions,
    document_remedy,
    languages_table,
    score_languages,
)
from headscope.studies.models import ModelChoice
from headscope.studies.shows import few_caution, model_facts, spread, strongest, top_heads
from headscope.studies.study import Study
from headscope.studies.survey_plans import SurveyPlan

COMMAND = "find first-order"


@dataclass(frozen=True)
class FindFirstOrder(Settings):
    """Score every head by how steeply the loss of documents changes with its gate.

    Without --data the bundled model is scored on documents of its own development sentences, in
    all its languages.
    """

    model: ModelChoice = field(default_factory=ModelChoice)
    documents: DocumentsChoice = field(default_factory=DocumentsChoice)
    score: FirstOrder = field(default_factory=FirstOrder)
    execution: Execution = field(default_factory=Execution, metadata=UNSIGNED)


def find_first_order(
    config: FindFirstOrder, out: Path | None = None, progress: Progress | None = None
) -> DocumentScores:
    """Score every language and return the command's result; the run holds `scores/`."""

    def describe(run: Run, scores: Mapping[str, HeadScores]) -> DocumentScores:
        choice = config.documents
        return DocumentScores(
            scored=ScoredHead.all_of(HeadScores.mean(scores)),
            languages={code: describe_language(part, choice) for code, part in scores.items()},
        )

    return score_languages(
        COMMAND,
        config,
        config.documents,
        config.score.seed,
        lambda lm, file, run, report: first_order(lm, file, config.score, run, report),
        DocumentScores,
        describe,
        out=out,
        progress=progress,
    )


def _show(result: DocumentScores, run: Path) -> Shown:
    languages = result.languages
    fewest = min(language.documents for language in languages.values())
    cautions = [*few_caution(fewest, "document"), *document_cautions(languages)]
    cautions.append(
        "A gradient without sign is above 0 for any head; verify perplexity tests the heads "
        "against random ones."
    )
    raising = Column("raising", "Loss falls", "share of documents whose loss falls when stronger")
    return Shown(
        "First-order importance",
        "How steeply does the loss of documents change when the gate of a head moves?",
        [
            "The highest heads are candidates: these scores have no chance level.",
            strongest(result.scored, " nats a token"),
        ],
        spread(result.scored, f"{fewest:,} documents" + " a language" * (len(languages) > 1)),
        document_remedy(languages, run),
        cautions,
        [
            *model_facts(result.model_name, len(result.scored)),
            ("documents", f"{result.examples:,}"),
            ("languages", ", ".join(languages)),
        ],
        [
            Section("Heads", [top_heads(result.scored)]),
            Section("Languages", [_languages(result)], brief=True),
            method_section(
                "Score: mean over documents of the absolute gradient of the document\u2019s mean "
                "loss with respect to the gate of the head, at the original model (gate 1), in "
                "nats a token. Of several languages, scores and intervals are means over them."
            ),
        ],
        languages_table("Every head, highest first", result.scored, languages, [raising]),
    )


def _languages(result: DocumentScores) -> Table:
    return table_of(
        "Languages",
        result.languages.items(),
        {
            "documents": lambda language: language.documents,
            "tokens": lambda language: language.tokens,
            "loss, nats a token": lambda language: language.loss,
            "five highest heads": lambda language: ", ".join(
                str(head.place) for head in language.scored[:5]
            ),
        },
    )


def _survey(plan: SurveyPlan) -> FindFirstOrder | str:
    config = FindFirstOrder(plan.model, plan.documents(), FirstOrder(seed=plan.data.seed))
    return plan.missing(plan.data.documents, "--documents LANG=FILE") or config


command = Study(
    FindFirstOrder,
    find_first_order,
    result=DocumentScores,
    show=_show,
    survey=_survey,
    usage="--language de --limit 50",
)
