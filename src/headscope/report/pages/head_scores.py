"""The report of any run that gives every head a plain score."""

from __future__ import annotations

from collections.abc import Mapping
from math import isnan
from pathlib import Path

from headscope.estimates import Estimate
from headscope.heads import HeadScores
from headscope.report.html import Child, Html, join, tag
from headscope.report.method_words import MethodWords, method_words
from headscope.report.page import Page
from headscope.report.pages.frame import about_run, masthead, simple_page
from headscope.report.parts import figure, scroll, section, table
from headscope.report.sections.head_scores import (
    map_section,
    profile_section,
    ranking_section,
    scores_of,
)
from headscope.results.head_scores import HeadsResult, RemovedHeads, RetrievalResult
from headscope.runs.reading import read_object, result_of
from headscope.shown.words import MEAN, between, count, enumeration, fixed, number, p_value, percent

__all__ = ["page"]

#: The results of commands that tell more than scores.
RESULTS: Mapping[str, type[HeadsResult]] = {
    "find retrieval": RetrievalResult,
    "verify heads": RemovedHeads,
}


def page(path: Path) -> Page:
    """The report of the run in this folder: map, ranking, layers, and where it comes from."""
    command = str(read_object(path / "run.json").get("command"))
    result = result_of(path, RESULTS.get(command, HeadsResult), "a search for heads")
    main, parts = scores_of(path)
    words = method_words(command)
    geometry = main.geometry
    facts = [
        ("", result.model_name),
        ("", f"{count(geometry.total, 'head')} in {count(geometry.layers, 'layer')}"),
        ("", "" if result.examples is None else count(result.examples, *words.examples)),
        ("", ", ".join(parts)),
    ]
    maps = parts or {MEAN: main}
    return simple_page(
        f"{result.model_name} \u00b7 {words.name.lower()}",
        masthead(words.name, words.lead, facts, kicker=f"headscope {command}"),
        [
            ("summary", "", _summary(result, maps, words)),
            ("heads", "Heads", map_section(maps, words)),
            ("scores", "Scores", ranking_section(main, parts, words)),
            ("correlations", "Correlations", _correlations(result)),
            ("layers", "Layers", profile_section(main, words)),
            ("places", "Places", _places(result)),
            ("provenance", "Provenance", about_run(path)),
        ],
    )


def _summary(result: HeadsResult, parts: Mapping[str, HeadScores], words: MethodWords) -> Html:
    lines: list[Child] = [tag("p", words.score)]
    for name, scores in parts.items():
        best = [f"{head} ({number(score)})" for head, score in scores.ranked()[:3]]
        values = scores.values[scores.geometry.mask()]
        lines.append(
            tag(
                "p",
                tag("bdi", f"{name}: ") if len(parts) > 1 else None,
                "the highest scores are those of ",
                tag("strong", enumeration(best)),
                f"; the mean over all heads is {number(float(values.mean()))}.",
            )
        )
    if left_out := result.left_out_in_all:
        lines.append(
            tag("p", f"Left out: {count(left_out, *words.examples)} that cannot be counted.")
        )
    return section("summary", "In short", *lines)


def _correlations(result: HeadsResult) -> Html | None:
    """How the scores agree with those of other runs, over all heads and within layers."""
    if not isinstance(result, RemovedHeads) or not result.correlations:
        return None

    def words(part: Estimate) -> str:
        if isnan(part.value):
            return "no ranking"
        return f"{fixed(part.value, 2)} ({between(part.low, part.high, 2)})"

    rows = [
        (
            f"{each.other.replace('_', ' ')}, {each.ablate} ablation",
            words(each.all),
            words(each.within_layers),
            p_value(each.p_within_layers),
        )
        for each in result.correlations
    ]
    caption = join(
        tag("strong", "Spearman\u2019s rank correlation with other scores of the same heads. "),
        "Heads of one depth may be alike in many ways, so the second column centres the ranks in "
        "each layer. Intervals are 95\u00a0% bootstrap intervals over the sentences of this run; "
        "the test permutes heads inside layers. A head that others can stand in for costs little "
        "when it alone is removed, and the noise of few sentences lowers every correlation, so a "
        "low one does not say that a score is wrong.",
    )
    header = ("Score", "All heads", "Within layers", "p within layers")
    shown = table("Rank correlations", header, rows, class_="numbers")
    return section(
        "correlations",
        "Beside other scores",
        figure("correlations-figure", caption, scroll("Rank correlations", shown)),
    )


def _places(result: HeadsResult) -> Html | None:
    if not isinstance(result, RetrievalResult) or not result.places:
        return None
    rows = [
        (str(place.length), fixed(place.depth, 2), place.examples, percent(place.answered))
        for place in result.places
    ]
    header = ("Length in tokens", "Depth", "Prompts", "Answered right")
    caption = join(
        tag("strong", "Whether the model finds the hidden fact, by place. "),
        "Depth is the share of the text that stands before the fact. A fact that is not found "
        "says nothing of heads: unless asked otherwise, only answers that are right are counted "
        "in the scores.",
    )
    body = scroll("Places", table("Hidden facts by place", header, rows, class_="numbers"))
    return section("places", "Hidden facts by place", figure("places-figure", caption, body))
