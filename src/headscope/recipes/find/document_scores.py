"""Scoring heads on documents of one or several languages, in a run folder."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headscope.data.documents import DocumentFile
from headscope.data.split import sentence_digest
from headscope.heads import HeadScores, save_scores
from headscope.recipes.documents import DEFAULT_LIMIT, DocumentsChoice, read_languages
from headscope.recipes.inputs import ModelChoice, Progress, Steps, run_with_model, steps_of
from headscope.recipes.leakage import FOUND_ON
from headscope.runs import Run

if TYPE_CHECKING:
    from headscope.lm import LanguageModel

__all__ = ["Describe", "Score", "describe_language", "score_languages"]

#: Scores the heads of a model on documents of one language, keeping batches in a run.
Score = Callable[["LanguageModel", DocumentFile, Run, Steps | None], HeadScores]
#: What a run says and stores beyond the scores themselves.
Describe = Callable[[Run, Mapping[str, HeadScores]], dict[str, Any]]


def score_languages(
    command: str,
    config: Any,
    model: ModelChoice,
    documents: DocumentsChoice,
    seed: int,
    score: Score,
    describe: Describe,
    check: Callable[[int], None] | None = None,
    out: Path | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Score every language and return the command's result; what is done already is kept.

    `config` is the command's whole configuration, for the signature; `check` is told the number of
    languages before a model is loaded. The run gets the scores of each language and their mean,
    and the digests of the documents.
    """
    began = time.monotonic()
    languages = read_languages(documents, model.model, "dev", seed)
    if check:
        check(len(languages))
    lm = model.load_for(out)
    digests = {code: file.digest for code, file in languages.items()}

    def compute(run: Run) -> dict[str, Any]:
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
        several = len(scores) > 1
        save_scores(run.path, scores if several else next(iter(scores.values())))
        together = HeadScores.mean(scores) if several else next(iter(scores.values()))
        return {
            "heads": together.records(),
            "examples": sum(one.config["examples"] for one in scores.values()),
            "tokens": sum(one.config["tokens"] for one in scores.values()),
            **describe(run, scores),
        }

    return run_with_model(
        lm, command, out, {"settings": config}, digests, compute, began, seed=seed
    )


def describe_language(scores: HeadScores, choice: DocumentsChoice) -> dict[str, Any]:
    """The JSON of one language: heads, and what was counted; `choice` says what was asked for."""
    documents = scores.config["examples"] + scores.config["left_out"]
    asked = choice.limit is not None or not choice.data
    return {
        "heads": scores.records(),
        "documents": scores.config["examples"],
        "left_out": scores.config["left_out"],
        "fewer_than_usual": not asked and documents < DEFAULT_LIMIT,
        "tokens": scores.config["tokens"],
        "loss": scores.config["loss"],
    }
