"""The report of all papers on a model: an index with their answers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import quote

from headscope.report.html import Child, Html, join, tag
from headscope.report.page import Page
from headscope.report.pages.frame import about_run, masthead, simple_page
from headscope.report.parts import figure, scroll, section, table
from headscope.report.records.paper import slugs
from headscope.report.sections.paper_parts import span
from headscope.report.sections.paper_repeat import whole_command
from headscope.runs.reading import finite, naming, read_result
from headscope.shown.words import count

__all__ = ["page"]

OWN = ("summary", "papers", "repeat", "provenance", "data", "tip")


def page(path: Path) -> Page:
    """The report of the run of `reproduce all` in this folder."""
    result = read_result(path)
    with naming(path / "result.json", "a run of all papers"):
        papers, model = result["papers"], result["model"]
        name = str((model.get("name") if isinstance(model, Mapping) else model) or "model")
        at = slugs([str(one["name"]) for one in papers], OWN)
        totals = result["totals"]
        return simple_page(
            "Papers",
            masthead(
                f"{count(len(papers), 'paper')} on {name}",
                "What each paper measured, measured again on this model.",
                [
                    ("runs", str(int(totals["runs"]))),
                    ("time", span(finite(result["seconds"]))),
                ],
                kicker="headscope reproduce all",
            ),
            [
                ("summary", "In short", _table(papers, at)),
                *(
                    (place, str(one["name"]), _answer(one, place))
                    for one, place in zip(papers, at, strict=True)
                ),
                ("repeat", "How to repeat it", _repeat(result)),
                ("provenance", "Provenance", about_run(path)),
            ],
            styles=("paper.css",),
        )


def _link(report: object, words: Child) -> Child:
    """A link to a report that lies below this one; only its words where it lies elsewhere."""
    where = PurePosixPath(str(report))
    if not report or where.is_absolute() or ".." in where.parts:
        return words
    return tag("a", words, href=f"./{quote(str(where))}")


def _table(papers: list[Mapping[str, Any]], at: list[str]) -> Html:
    rows = []
    for one, place in zip(papers, at, strict=True):
        totals = one["totals"]
        rows.append(
            (
                tag("a", tag("bdi", str(one["title"])), href=f"#{place}"),
                str(int(totals["run"])),
                str(int(totals["stored"])),
                str(int(totals["not_run"])),
                span(finite(totals["seconds"])),
                _link(one.get("report"), "report"),
            )
        )
    caption = join(
        tag("strong", "The papers, and how many of their runs were made. "),
        "Stored: read from results that come with the package. Not run: left out for their time, "
        "or not asked for.",
    )
    head = ("Paper", "Runs made", "Stored", "Not run", "Time", "Page")
    shown = scroll("Papers", table("Papers", head, rows, {5}, class_="numbers papers"))
    return section("summary", "In short", figure("papers-figure", caption, shown))


def _answer(one: Mapping[str, Any], place: str) -> Html:
    answer = one["answer"]
    sure = str(answer.get("sure") or "")
    return section(
        place,
        str(one["title"]),
        tag("p", str(one["question"]), class_="note") if one.get("question") else None,
        tag("p", str(answer["found"]) or "Nothing was run.", class_="found"),
        tag("p", tag("strong", "How sure: "), sure, class_="sure") if sure else None,
        tag("p", _link(one.get("report"), "The whole report"), class_="note"),
        class_="experiment",
    )


def _repeat(result: Mapping[str, Any]) -> Html | None:
    command = result.get("command")
    if not command:
        return None
    return section("repeat", "How to repeat it", tag("pre", whole_command(result), tabindex=0))
