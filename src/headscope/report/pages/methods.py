"""The report of `compare methods`: what several methods say of the heads of one model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from headscope.report.charts import BarRow, bar_rows
from headscope.report.html import Child, Html, join, tag
from headscope.report.page import Page
from headscope.report.pages.frame import about_run, masthead, simple_page
from headscope.report.pages.overlap import jaccard_matrix, pair_table
from headscope.report.parts import figure, scroll, section, table
from headscope.report.sections.methods import map_section, small_maps_section, table_section
from headscope.results.methods import Comparison, MethodsResult, SurveyResult
from headscope.runs.reading import result_of
from headscope.shown.words import count, enumeration, fixed, p_value

__all__ = ["page", "survey_page"]

STYLE = "methods.css"
NAMED = 12
"""Heads that are named in a sentence or a row; of more the first."""


def page(path: Path, command: str = "compare methods") -> Page:
    """The report of the comparison in this folder, made by this command."""
    result = result_of(path, MethodsResult, "a comparison of methods")
    geometry, compared = result.geometry, result.comparison
    model = result.model.name or "a model"
    facts = [
        ("", model),
        ("", f"{count(geometry.total, 'head')} in {count(geometry.layers, 'layer')}"),
        ("", count(len(compared.methods), "method")),
        ("heads of a method's scores", str(compared.k)),
    ]
    names = [one.name for one in compared.columns]
    return simple_page(
        f"{model} \u00b7 methods",
        masthead(
            "One model, many methods",
            "Which attention heads different methods find, how far the methods agree, and which "
            "heads one of them finds alone.",
            facts,
            kicker=f"headscope {command}",
        ),
        [
            ("summary", "", _summary(compared)),
            ("map", "Map", map_section(compared, geometry)),
            ("maps", "Small maps", small_maps_section(compared, geometry)),
            ("agreement", "Agreement", _agreement(compared)),
            ("overlap", "Overlap", jaccard_matrix(names, compared.pairs)),
            ("pairs", "Pairs", pair_table(compared.pairs)),
            ("table", "Heads", table_section(compared)),
            ("provenance", "Provenance", about_run(path)),
        ],
        styles=(STYLE,),
    )


def survey_page(path: Path) -> Page:
    """The report of a survey: its comparison, and which methods took part."""
    made = page(path / "methods", "survey")
    survey = result_of(path, SurveyResult, "a survey")
    header = ("Method", "What it measures", "Seconds", "Remark")
    cells = [
        (
            tag("bdi", one.method),
            one.measures,
            "left out" if one.seconds is None else fixed(one.seconds, 0),
            one.why or "",
        )
        for one in survey.runs
    ]
    shown = table("Methods of this survey", header, cells, class_="texts")
    caption = join(
        tag("strong", "The methods of this survey. "),
        "Each has a run folder of its own, runs/METHOD below that of the survey, with a report of "
        "its own: headscope report SURVEY/runs/METHOD.",
    )
    runs = section("runs", "What was run", figure("runs-figure", caption, scroll("Methods", shown)))
    summary, *others = made.sections[:-1]
    parts = [
        summary,
        ("runs", "Methods", runs),
        *others,
        ("provenance", "Provenance", about_run(path)),
    ]
    return replace(made, sections=parts)


def _summary(compared: Comparison) -> Html:
    apart = compared.apart
    clear = sum(pair.p_value < 0.05 for pair in apart)
    lines: list[Child] = []
    if apart:
        best = max(apart, key=lambda pair: pair.jaccard)
        lines.append(
            tag(
                "p",
                "The methods most alike are ",
                tag("strong", tag("bdi", best.a), " and ", tag("bdi", best.b)),
                f": they share {best.intersection} of {best.size_a} and {best.size_b} "
                f"heads (Jaccard index {fixed(best.jaccard, 2)}; random sets of these sizes "
                f"{fixed(best.expected_exact, 2)}, p\u00a0{p_value(best.p_value)}). Of "
                f"{count(len(apart), 'pair')} of different methods {clear or 'none'} share more "
                "than random sets would in 19 of 20 cases; about "
                f"{round(0.05 * len(apart), 1):g} would do so by chance.",
            )
        )
    none = next((one for one in compared.agreement if one.methods == 0), None)
    if none is not None:
        lines.append(
            tag(
                "p",
                f"{none.heads} of {count(len(compared.heads), 'head')} are selected by no "
                f"method ({fixed(none.expected, 1)} if the methods had nothing to do with each "
                "other).",
            )
        )
    shared = _named(compared.shared)
    every = "Both" if len(compared.methods) == 2 else f"All {len(compared.methods)}"
    lines.append(
        tag(
            "p",
            f"{every} methods select ",
            tag("strong", shared) if compared.shared else "no head",
            " in common." if not compared.shared else ".",
        )
    )
    return section("summary", "In short", *lines)


def _agreement(compared: Comparison) -> Html:
    rows: list[BarRow] = []
    told = (one.methods for one in compared.agreement if one.heads or one.expected >= 0.05)
    last = max(told, default=0)
    for one in compared.agreement[: last + 1]:
        words = "no method" if one.methods == 0 else count(one.methods, "method")
        rows.append(BarRow(f"selected by {words}", float(one.heads), "key-top", digits=0))
        rows.append(BarRow("  by chance", one.expected, "key-random"))
    end = max(row.value or 0.0 for row in rows) or 1.0
    caption = join(
        tag("strong", "How many heads so many methods select, "),
        "and how many it would be on average if each method had drawn as many heads at random, "
        "independently of the others. More heads than that at both ends means that the methods "
        "agree.",
    )
    specific = [
        (
            tag("bdi", one.name),
            one.size,
            len(one.specific),
            _named(one.specific) or "\u2013",
        )
        for one in compared.methods
    ]
    header = ("Method", "Heads", "By it alone", "Which")
    alone = table("Heads by one method alone", header, specific, said={3}, class_="numbers")
    note = join(
        tag("strong", "Heads that one method selects and no other does. "),
        "The set of a method with several columns, such as languages, holds the heads of all of "
        "them.",
    )
    return section(
        "agreement",
        "Agreement",
        figure("agreement-bars", caption, bar_rows(rows, end, 1)),
        figure("alone", note, scroll("Heads by one method alone", alone)),
    )


def _named(heads: Sequence[str]) -> str:
    if len(heads) <= NAMED:
        return enumeration(heads)
    return f"{', '.join(heads[:NAMED])} and {len(heads) - NAMED} more"
