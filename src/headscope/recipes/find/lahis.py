"""Language heads by LAHIS: importance a language, specific and general sets, in a run folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from headscope.find.lahis import (
    Lahis,
    LanguageSets,
    check_sets,
    expected_general,
    importance,
    lahis,
    language_sets,
    quantile_for,
)
from headscope.heads import Head, HeadScores, HeadSet
from headscope.measure.statistics import overlap
from headscope.recipes.documents import DocumentsChoice
from headscope.recipes.find.document_scores import describe_language, score_languages
from headscope.recipes.inputs import ModelChoice, Progress
from headscope.runs import Run
from headscope.settings import Option, Settings

__all__ = ["COMMAND", "FindLahis", "find_lahis"]

COMMAND = "find lahis"


@dataclass(frozen=True)
class FindLahis(Settings):
    """Score every head by how much each language's text depends on it (LAHIS).

    Without --data the bundled model is scored on documents of its own development sentences, in
    all its languages.
    """

    model: ModelChoice = field(default_factory=ModelChoice)
    documents: DocumentsChoice = field(default_factory=DocumentsChoice)
    score: Lahis = field(default_factory=Lahis)
    quantile: Annotated[
        float | None,
        Option(
            "Heads above this quantile are important; without it 0.96, or 0.9 in a model of fewer "
            "than 256 heads.",
            metavar="Q",
        ),
    ] = None
    general_in: Annotated[
        int | None,
        Option(
            "In how many languages general heads are important; without it all but one, at least "
            "2.",
            min=2,
        ),
    ] = None


def find_lahis(
    config: FindLahis, out: Path | None = None, progress: Progress | None = None
) -> dict[str, Any]:
    """Score every language, sort the heads and return the command's result.

    The run holds `scores/`, `specific/LANG/` and `general/`; the sets are best first.
    """

    def describe(run: Run, scores: Mapping[str, HeadScores]) -> dict[str, Any]:
        sets = language_sets(scores, config.quantile, config.general_in)
        for code, heads in sets.specific.items():
            heads.save_pretrained(run.path / "specific" / code)
        sets.general.save_pretrained(run.path / "general")
        return _describe(config, scores, sets)

    return score_languages(
        COMMAND,
        config,
        config.model,
        config.documents,
        config.score.seed,
        lambda lm, file, run, report: lahis(lm, file, config.score, run, report),
        describe,
        lambda languages: check_sets(languages, config.quantile, config.general_in),
        out,
        progress,
    )


def _describe(
    config: FindLahis, scores: Mapping[str, HeadScores], sets: LanguageSets
) -> dict[str, Any]:
    """The JSON of a run beyond the scores."""
    geometry = sets.general.geometry
    q = quantile_for(geometry) if config.quantile is None else config.quantile
    sizes = [len(heads) for heads in sets.important.values()]
    several = len(scores) > 1
    return {
        "quantile": q,
        "update_gate": config.score.update_gate,
        "general_in": sets.general_in if several else None,
        "general": [
            {"layer": head.layer, "head": head.head, "languages": sets.languages_of[head]}
            for head in sets.general
        ],
        "general_expected": expected_general(sizes, geometry.total, sets.general_in)
        if several
        else None,
        "languages": {
            code: {
                **describe_language(one, config.documents),
                "threshold": sets.thresholds[code],
                "important": len(sets.important[code]),
                "specific": _heads(sets.specific[code], one),
                "halves": _halves(one, q),
                "layers": _layers(sets.important[code], sets.specific[code]),
            }
            for code, one in scores.items()
        },
        "overlap": [
            {"a": a, "b": b, **_overlap(sets.important[a], sets.important[b])}
            for a, b in combinations(scores, 2)
        ],
    }


def _heads(heads: HeadSet, scores: HeadScores) -> list[dict[str, Any]]:
    """The records of chosen heads, in their order."""
    records = {Head(one["layer"], one["head"]): one for one in scores.records()}
    return [records[head] for head in heads]


def _halves(scores: HeadScores, quantile: float) -> dict[str, Any] | None:
    """How far the important heads of one half of the documents are those of the other half."""
    products = scores.statistics["products"]
    if len(products) < 2:
        return None
    mask = scores.geometry.mask()
    chosen = []
    for half in (products[::2], products[1::2]):
        values = importance(half)
        chosen.append(
            HeadSet.from_mask(
                scores.geometry, mask & (values > np.quantile(values[mask], quantile))
            )
        )
    return _overlap(*chosen)


def _overlap(a: HeadSet, b: HeadSet) -> dict[str, Any]:
    found = overlap(a.heads, b.heads, a.geometry.total)
    return {
        "jaccard": found.jaccard,
        "expected": found.expected,
        "expected_exact": found.expected_exact,
        "p_value": found.p_value,
    }


def _layers(important: HeadSet, specific: HeadSet) -> list[dict[str, int]]:
    """By layer: heads, how many are important, how many are specific."""
    return [
        {
            "layer": layer,
            "heads": count,
            "important": sum(head.layer == layer for head in important),
            "specific": sum(head.layer == layer for head in specific),
        }
        for layer, count in enumerate(important.geometry.counts)
    ]
