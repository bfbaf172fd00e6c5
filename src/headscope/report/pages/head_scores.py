"""The report of any run that gives every head a plain score."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headscope.report.html import Child, Html, join, tag
from headscope.report.method_words import MethodWords, method_words
from headscope.report.page import Page
from headscope.report.pages.frame import about_run, masthead, simple_page
from headscope.report.parts import figure, scroll, section, table
from headscope.report.records.head_scores import HeadScoresRecord, read_head_scores
from headscope.report.sections.head_scores import (
    map_section,
    profile_section,
    ranking_section,
)
from headscope.report.words import between, count, enumeration, fixed, number, p_value, percent

__all__ = ["page"]


def page(path: Path) -> Page:
    """The report of the run in this folder: map, ranking, layers, and where it comes from."""
    record = read_head_scores(path)
    words = method_words(record.command)
    geometry = record.main.geometry
    facts = [
        ("", record.model),
        ("", f"{count(geometry.total, 'head')} in {count(geometry.layers, 'layer')}"),
        ("", "" if record.examples is None else count(record.examples, *words.examples)),
        ("", ", ".join(record.parts)),
    ]
    return simple_page(
        f"{record.model} \u00b7 {words.name.lower()}",
        masthead(words.name, words.lead, facts, kicker=f"headscope {record.command}"),
        [
            ("summary", "", _summary(record, words)),
            ("heads", "Heads", map_section(record.parts or record.scores, words)),
            ("scores", "Scores", ranking_section(record.main, record.parts, words)),
            ("correlations", "Correlations", _correlations(record)),
            ("layers", "Layers", profile_section(record.main, words)),
            ("places", "Places", _places(record)),
            ("provenance", "Provenance", about_run(path)),
        ],
    )


def _summary(record: HeadScoresRecord, words: MethodWords) -> Html:
    lines: list[Child] = [tag("p", words.score)]
    for name, scores in (record.parts or record.scores).items():
        best = [f"{head} ({number(score)})" for head, score in scores.ranked()[:3]]
        values = scores.values[scores.geometry.mask()]
        lines.append(
            tag(
                "p",
                tag("bdi", f"{name}: ") if record.parts else None,
                "the highest scores are those of ",
                tag("strong", enumeration(best)),
                f"; the mean over all heads is {number(float(values.mean()))}.",
            )
        )
    if record.left_out:
        lines.append(
            tag("p", f"Left out: {count(record.left_out, *words.examples)} that cannot be counted.")
        )
    return section("summary", "In short", *lines)


def _correlations(record: HeadScoresRecord) -> Html | None:
    """How the scores agree with those of other runs, over all heads and within layers."""
    found = record.result.get("correlations")
    if not found:
        return None

    def words(part: Mapping[str, Any]) -> str:
        if part["value"] is None:
            return "no ranking"
        return f"{fixed(part['value'], 2)} ({between(part['low'], part['high'], 2)})"

    rows = [
        (
            f"{one['with'].replace('_', ' ')}, {one['ablate']} ablation",
            words(one["all"]),
            words(one["within_layers"]),
            "\u2013" if one["p_within_layers"] is None else p_value(one["p_within_layers"]),
        )
        for one in found
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


def _places(record: HeadScoresRecord) -> Html | None:
    if not record.places:
        return None
    rows = [
        (
            str(one.length),
            fixed(one.depth, 2),
            one.examples,
            "\u2013" if one.answered is None else percent(one.answered),
        )
        for one in record.places
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
