"""Scoring heads on documents of one or several languages, in a run folder."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from headscope.data.documents import DocumentFile
from headscope.data.split import sentence_digest
from headscope.heads import HeadScores, save_scores
from headscope.results.common import ScoredHead
from headscope.results.head_scores import HeadsResult
from headscope.results.lahis import LanguageScores
from headscope.runs import Run
from headscope.studies.documents import DEFAULT_LIMIT, DocumentsChoice, read_languages
from headscope.studies.inputs import ModelChoice, Progress, Steps, run_with_model, steps_of
from headscope.studies.leakage import FOUND_ON

if TYPE_CHECKING:
    from headscope.lm import LanguageModel

#: Scores the heads of a model on documents of one language, keeping batches in a run.
Score = Callable[["LanguageModel", DocumentFile, Run, Steps | None], HeadScores]
AnyResult = TypeVar("AnyResult", bound=HeadsResult)


def score_languages(
    command: str,
    config: Any,
    model: ModelChoice,
    documents: DocumentsChoice,
    seed: int,
    score: Score,
    kind: type[AnyResult],
    describe: Callable[[Run, Mapping[str, HeadScores]], AnyResult],
    check: Callable[[int], None] | None = None,
    out: Path | None = None,
    progress: Progress | None = None,
) -> AnyResult:
    """Score every language and return the command's result; what is done already is kept.

    `config` is the command's whole configuration, for the signature; `describe` makes the result,
    of type `kind`, but for what was counted in all; `check` is told the number of languages before
    a model is loaded. The run gets the scores of each language and their mean, and the digests of
    the documents.
    """
    began = time.monotonic()
    languages = read_languages(documents, model.model, "dev", seed)
    if check:
        check(len(languages))
    lm = model.load_for(out)
    digests = {code: file.digest for code, file in languages.items()}

    def compute(run: Run) -> AnyResult:
        scores = {
            code: score(lm, file, run, steps_of(progress, code)) for code, file in languages.items()
        }
        run.write_json(
            FOUND_ON,
            {
                code: {"documents": sorted({sentence_digest(one.text) for one in file.documents})}
                for code, file in languages.items()
            },
        )
        save_scores(run.path, scores if len(scores) > 1 else next(iter(scores.values())))
        configs = [part.config for part in scores.values()]
        return replace(
            describe(run, scores),
            examples=sum(counted["examples"] for counted in configs),
            tokens=sum(counted["tokens"] for counted in configs),
        )

    settings = {"settings": config}
    return run_with_model(lm, command, out, settings, digests, compute, began, kind=kind, seed=seed)


def describe_language(scores: HeadScores, choice: DocumentsChoice) -> LanguageScores:
    """One language: heads, and what was counted; `choice` says what was asked for."""
    documents = scores.config["examples"] + scores.config["left_out"]
    asked = choice.limit is not None or not choice.data
    return LanguageScores(
        heads=ScoredHead.all_of(scores),
        documents=scores.config["examples"],
        left_out=scores.config["left_out"],
        fewer_than_usual=not asked and documents < DEFAULT_LIMIT,
        tokens=scores.config["tokens"],
        loss=scores.config["loss"],
    )
