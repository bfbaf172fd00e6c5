"""Language heads by LAHIS: importance a language, specific and general sets, in a run folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path
from statistics import fmean, median
from typing import Annotated

from headscope.executors import Execution
from headscope.find.lahis_scores import (
    Lahis,
    LanguageSets,
    Quantile,
    check_sets,
    expected_general,
    importance,
    lahis,
    language_sets,
    threshold,
)
from headscope.heads import Head, HeadScores, HeadSet
from headscope.measure.intervals import wilson_interval
from headscope.measure.statistics import overlap
from headscope.progress import Progress
from headscope.results.common import LanguagesOverlap, ScoredHead, SetOverlap
from headscope.results.lahis import GeneralHead, LahisLanguage, LahisResult
from headscope.runs import Run
from headscope.settings import UNSIGNED, Option, Settings
from headscope.shown.blocks import (
    Cell,
    Column,
    HeadMaps,
    HeadSets,
    HeadTable,
    Heatmap,
    Section,
    Shown,
    Table,
    method_section,
    table_of,
)
from headscope.shown.words import count, enumeration, fixed, number, percent
from headscope.studies.documents import DocumentsChoice
from headscope.studies.find.head_scores import (
    describe_language,
    document_cautions,
    document_remedy,
    languages_table,
    score_languages,
)
from headscope.studies.models import ModelChoice
from headscope.studies.shows import by_chance, head_map, model_facts, places
from headscope.studies.study import Study
from headscope.studies.survey_plans import SurveyPlan

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
    quantile: Quantile = None
    general_in: Annotated[
        int | None,
        Option(
            "In how many languages general heads are important; without it all but one, at least "
            "2.",
            min=2,
            panel="Expert",
        ),
    ] = None
    execution: Execution = field(default_factory=Execution, metadata=UNSIGNED)


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
    sizes = [len(heads) for heads in sets.important.values()]
    several = len(scores) > 1
    languages = {}
    for code, part in scores.items():
        read = describe_language(part, config.documents)
        important = sets.important[code]
        by_place = {head.place: head for head in read.scored}
        languages[code] = LahisLanguage(
            **vars(read),
            threshold=sets.thresholds[code],
            important=len(important),
            specific=tuple(by_place[head] for head in sets.specific[code]),
            halves=_halves(part, sets.quantile),
        )
    return LahisResult(
        scored=ScoredHead.all_of(HeadScores.mean(scores)),
        quantile=sets.quantile,
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
            LanguagesOverlap(a, b, _overlap(sets.important[a], sets.important[b]))
            for a, b in combinations(scores, 2)
        ),
    )


def _halves(scores: HeadScores, quantile: float) -> SetOverlap | None:
    """How far the important heads of one half of the documents are those of the other half."""
    products = scores.statistics["products"]
    if len(products) < 2:
        return None
    halves = [
        HeadScores(scores.geometry, importance(half), "lahis")
        for half in (products[::2], products[1::2])
    ]
    return _overlap(*(half.select(threshold(half, quantile)) for half in halves))


def _overlap(a: HeadSet, b: HeadSet) -> SetOverlap:
    shared = overlap(a.heads, b.heads, a.geometry.total)
    return SetOverlap(shared.jaccard, shared.expected, shared.expected_exact, shared.p_value)


def _show(result: LahisResult, run: Path) -> Shown:
    languages = result.languages
    documents = sum(language.documents for language in languages.values())
    cautions = document_cautions(languages)
    unstable = [c for c, one in languages.items() if one.halves and one.halves.jaccard < 0.5]
    if unstable:
        cautions.append(
            f"In {enumeration(unstable)} two halves of the documents share fewer than half of "
            "their important heads: other documents would give other heads."
        )
    raising = [
        share
        for language in languages.values()
        for head in language.scored
        if (share := head.number("raising")) is not None
    ]
    if raising:
        cautions.append(
            f"Strengthening a head lowers the loss of {percent(median(raising))} of documents "
            "(median). Near 50\u00a0% the score says how much text depends on a head, not whether "
            "the head helps."
        )
    several = result.general_in is not None
    sets = {"general": places(head.place for head in result.general)} if several else {}
    sets |= {code: places(language.specific_heads) for code, language in languages.items()}
    trained = "The gate was trained one step after each document, as published."
    return Shown(
        "Language heads",
        "How much does text of each language depend on each attention head?",
        _finding(result),
        _uncertainty(result),
        document_remedy(languages, run),
        cautions,
        [
            *model_facts(result.model_name, len(result.scored)),
            ("documents", f"{documents:,}"),
            ("languages", ", ".join(languages)),
        ],
        [
            Section(
                "Heads", [HeadSets("General and specific heads, best first", sets)], brief=True
            ),
            Section("Languages", [_languages(result)], brief=True),
            *([Section("Every head", [_ranking(result)]), _shared(result)] if several else []),
            method_section(
                "Score: the mean over documents of gate times gradient of the loss, without sign, "
                "times the share of documents whose loss falls when the head is stronger. "
                f"Important: above the {fixed(result.quantile, 2)} quantile of a language's "
                "scores; general: important in most languages; specific: important, not general. "
                + trained
                * result.update_gate
            ),
        ],
        _important_in(result) if several else _ranking(result),
    )


def _finding(result: LahisResult) -> list[str]:
    general, expected = len(result.general), result.general_expected
    specific = [len(language.specific) for language in result.languages.values()]
    if expected is None:
        return [
            f"The {max(specific)} highest heads are candidates: with one language, general heads "
            "cannot be separated from specific ones."
        ]
    least = wilson_interval(general, len(result.scored))[0] * len(result.scored)
    more = "" if least > expected else "General heads are not shown: "
    return [
        f"{more}{count(general, 'head')} {'is' if general == 1 else 'are'} important in most "
        f"languages ({by_chance(expected)}).",
        f"Specific heads of a language: {number(fmean(specific))} on average.",
    ]


def _important_in(result: LahisResult) -> HeadMaps:
    """In how many languages each head is important."""
    codes: dict[Head, list[str]] = {head.place: [] for head in result.scored}
    for code, language in result.languages.items():
        for head in language.scored:
            if (head.score or 0.0) > language.threshold:
                codes[head.place].append(code)
    counted = [
        ScoredHead(layer=head.layer, head=head.head, score=float(len(names)))
        for head, names in codes.items()
    ]
    named = tuple(((head.layer, head.head), ", ".join(names)) for head, names in codes.items())
    general = (head.place for head in result.general)
    many = len(result.languages)
    return HeadMaps(
        "Important heads",
        (replace(head_map("", counted, general), words=named),),
        "languages in which a head is important",
        high=float(many),
        digits=0,
        marked=f"general, important in at least {result.general_in} of {many} languages",
    )


def _uncertainty(result: LahisResult) -> str:
    halves = [
        language.halves for language in result.languages.values() if language.halves is not None
    ]
    if not halves:
        return "One document a language: no two halves can be compared."
    return (
        "Important heads of two halves of a language's documents: Jaccard "
        f"{fixed(fmean(half.jaccard for half in halves), 2)} (mean of {len(halves)}; chance "
        f"{fixed(fmean(half.expected for half in halves), 2)})."
    )


def _languages(result: LahisResult) -> Table:
    return table_of(
        "Languages",
        result.languages.items(),
        {
            "documents": lambda language: language.documents,
            "tokens": lambda language: language.tokens,
            "loss, nats a token": lambda language: language.loss,
            "important heads": lambda language: language.important,
            "specific heads": lambda language: len(language.specific),
            "halves, Jaccard": lambda language: Cell(
                language.halves.jaccard if language.halves else None, digits=2, why="one document"
            ),
            "by chance": lambda language: Cell(
                language.halves.expected if language.halves else None, digits=2
            ),
        },
    )


def _shared(result: LahisResult) -> Section:
    codes = tuple(result.languages)
    at = {(pair.a, pair.b): pair.overlap for pair in result.overlap}
    at |= {(pair.b, pair.a): pair.overlap for pair in result.overlap}
    values = tuple(tuple(1.0 if a == b else at[a, b].jaccard for b in codes) for a in codes)
    chance = fmean(pair.overlap.expected for pair in result.overlap)
    mean = fmean(pair.overlap.jaccard for pair in result.overlap)
    shared = Heatmap(
        "Important heads that two languages share",
        codes,
        codes,
        values,
        "Jaccard index",
        low=0.0,
        high=1.0,
        note=f"Mean {fixed(mean, 2)}; random sets of these sizes: {fixed(chance, 2)}",
    )
    return Section("Shared heads", [shared])


def _ranking(result: LahisResult) -> HeadTable:
    columns = (
        Column("magnitude", "Mean gradient", "gate times gradient, without sign", 5),
        Column("raising", "Loss falls", "share of documents whose loss falls when stronger", 3),
    )
    score = Column("score", "LAHIS", "mean gradient times the share", 5)
    title = "Every head by its score"
    return languages_table(title, result.scored, result.languages, columns, score)


def _survey(plan: SurveyPlan) -> FindLahis | str:
    config = FindLahis(plan.model, plan.documents(), Lahis(seed=plan.data.seed))
    return plan.missing(plan.data.documents, "--documents LANG=FILE") or config


command = Study(
    FindLahis, find_lahis, result=LahisResult, show=_show, survey=_survey, usage="--out runs/lahis"
)
