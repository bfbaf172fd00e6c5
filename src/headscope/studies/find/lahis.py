"""Language heads by LAHIS: importance a language, specific and general sets, in a run folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Annotated

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
from headscope.heads import HeadScores, HeadSet
from headscope.measure.statistics import overlap
from headscope.results.common import PairOverlap, ScoredHead, SetOverlap
from headscope.results.lahis import GeneralHead, LahisLanguage, LahisResult, LayerCounts
from headscope.runs import Run
from headscope.settings import Option, Settings
from headscope.studies.documents import DocumentsChoice
from headscope.studies.find.document_scores import describe_language, score_languages
from headscope.studies.inputs import ModelChoice, Progress

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
) -> LahisResult:
    """Score every language, sort the heads and return the command's result.

    The run holds `scores/`, `specific/LANG/` and `general/`; the sets are best first.
    """

    def describe(run: Run, scores: Mapping[str, HeadScores]) -> LahisResult:
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
        LahisResult,
        describe,
        lambda languages: check_sets(languages, config.quantile, config.general_in),
        out,
        progress,
    )


def _describe(
    config: FindLahis, scores: Mapping[str, HeadScores], sets: LanguageSets
) -> LahisResult:
    """The result but for what was counted in all."""
    geometry = sets.general.geometry
    quantile = quantile_for(geometry) if config.quantile is None else config.quantile
    sizes = [len(heads) for heads in sets.important.values()]
    several = len(scores) > 1
    languages = {}
    for code, part in scores.items():
        read = describe_language(part, config.documents)
        important, specific = sets.important[code], sets.specific[code]
        by_place = {head.place: head for head in read.heads}
        languages[code] = LahisLanguage(
            **vars(read),
            threshold=sets.thresholds[code],
            important=len(important),
            specific=tuple(by_place[head] for head in specific),
            halves=_halves(part, quantile),
            layers=_layers(important, specific),
        )
    return LahisResult(
        heads=ScoredHead.all_of(HeadScores.mean(scores)),
        quantile=quantile,
        update_gate=config.score.update_gate,
        general_in=sets.general_in if several else None,
        general=tuple(
            GeneralHead(head.layer, head.head, sets.languages_of[head]) for head in sets.general
        ),
        general_expected=(
            expected_general(sizes, geometry.total, sets.general_in) if several else None
        ),
        languages=languages,
        overlap=tuple(
            PairOverlap(a, b, _overlap(sets.important[a], sets.important[b]))
            for a, b in combinations(scores, 2)
        ),
    )


def _halves(scores: HeadScores, quantile: float) -> SetOverlap | None:
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


def _overlap(a: HeadSet, b: HeadSet) -> SetOverlap:
    found = overlap(a.heads, b.heads, a.geometry.total)
    return SetOverlap(found.jaccard, found.expected, found.expected_exact, found.p_value)


def _layers(important: HeadSet, specific: HeadSet) -> tuple[LayerCounts, ...]:
    return tuple(
        LayerCounts(
            layer,
            count,
            sum(head.layer == layer for head in important),
            sum(head.layer == layer for head in specific),
        )
        for layer, count in enumerate(important.geometry.counts)
    )
