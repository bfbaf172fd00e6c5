"""What a paper's run shows, read from its folder: typed, traced, and safe."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import paper_run_helpers as made
from headscope.errors import InputError
from headscope.papers.show import PaperResult, show_paper
from headscope.runs import file_digest
from headscope.runs.reading import result_of
from headscope.shown.blocks import Section, Shown, Table
from headscope.studies.report import write_report

HOSTILE = (
    "</script><script>window.hacked=1</script><img src=x onerror='window.hacked=1'>"
    '"\' onmouseover="window.hacked=1" &amp; <!-- --flag=<b> \u2028'
)


def shown_of(run: Path) -> Shown:
    return show_paper(result_of(run, PaperResult, "a paper's run"), run)


def section(shown: Shown, title: str) -> Section:
    (found,) = (each for each in shown.sections if each.title == title)
    return found


def overview(shown: Shown) -> Table:
    """The table of the experiments: the figure of a page without claims."""
    (table,) = (block for block in shown.blocks
                if isinstance(block, Table) and "what became of them" in block.title)  # fmt: skip
    return table


def names(table: Any) -> list[str]:
    assert isinstance(table, Table)
    return [row.name for row in table.rows]


def test_every_experiment_stands_in_the_table_and_those_with_results_have_a_section(
    tmp_path: Path,
) -> None:
    run = made.write_paper(tmp_path)
    shown, rows = shown_of(run), made.experiments()
    assert len(names(overview(shown))) == len(rows)
    there = [row for row in rows if row["state"] in ("run", "part", "stored")]
    folded = [each.title for each in shown.sections if each.compact]
    assert sorted(folded) == sorted(row["title"] for row in there)
    made_runs = {step["step"] for row in rows for step in row["runs"] if step["state"] != "not run"}
    assert set(names(section(shown, "Runs").blocks[0])) == made_runs


def test_claims_stand_beside_the_answer_with_their_verdicts(tmp_path: Path) -> None:
    claims = shown_of(made.write_paper(tmp_path)).figure
    assert isinstance(claims, Table)
    assert [row.cells[2].value for row in claims.rows] == [
        "holds", "open", "does not hold", "not measured"
    ]  # fmt: skip
    assert [row.cells[1].value for row in claims.rows][:2] == ["21 of 96", "3 of 21"]
    none = made.write_paper(tmp_path / "none", answer={"found": "", "sure": ""})
    assert shown_of(none).figure == overview(shown_of(none))


def test_a_page_leads_to_claims_and_experiments_follow_theirs(tmp_path: Path) -> None:
    run = made.write_paper(tmp_path)
    titles = [each.title for each in shown_of(run).sections]
    first = next(row for row in made.experiments() if row["name"] == "table-1")
    at = titles.index("Few heads do it")
    assert titles[at + 1] == first["title"] and "Larger models have more" in titles[at:]
    page = write_report(run).read_text("utf-8")
    links = re.search(r"<nav .*?</nav>", page, re.DOTALL)
    assert links is not None and "few heads" in links[0] and first["title"] not in links[0]


def test_what_is_read_is_what_the_paper_wrote(tmp_path: Path) -> None:
    figures = [made.heatmap(3, 4, empty=5), made.lines(), made.bars(3, signs=True)]
    table = made.pairs_table(made.SAME)
    one = made.experiment("a", "Table 1", tables=[table], figures=figures)
    run = made.write_paper(tmp_path, experiments=[one])
    read = result_of(run, PaperResult, "a paper's run").experiments[0]
    assert read.figures == tuple(figures)
    compared = [
        replace(row, cells=tuple(replace(cell, difference=None) for cell in row.cells))
        for row in read.tables[0].rows
    ]
    assert replace(read.tables[0], rows=tuple(compared)) == table
    for cell in (cell for row in read.tables[0].rows for cell in row.cells):
        assert cell.difference == (None if cell.value is None else pytest.approx(-0.31))


class Seen(HTMLParser):
    """Elements with their attributes, and the text of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def seen(run: Path) -> Seen:
    return Seen(write_report(run).read_text("utf-8"))


@pytest.mark.parametrize("report", ["/etc/page.html", "../page.html", "javascript:alert(1)", ""])
def test_the_index_links_only_to_pages_below_it(tmp_path: Path, report: str) -> None:
    run = made.write_papers(tmp_path / "run")
    links = [one["href"] for _, one in seen(run).elements if "href" in one]
    assert "./lahis/report.html" in links
    papers = json.loads((run / "result.json").read_text("utf-8"))["details"]["papers"]
    other = made.write_papers(tmp_path / "o", papers=[{**one, "report": report} for one in papers])
    links = [one["href"] or "" for _, one in seen(other).elements if "href" in one]
    assert all(link.startswith("#") for link in links)


def poisoned(value: Any, key: str = "") -> Any:
    """Every text of a result with something hostile behind it, but for what is looked up."""
    if isinstance(value, dict):
        return {name: poisoned(one, name) for name, one in value.items()}
    if isinstance(value, list):
        return [poisoned(one, key) for one in value]
    return value + HOSTILE if isinstance(value, str) and key not in ("state", "kind") else value


@pytest.mark.parametrize("write", [made.write_paper, made.write_papers])
def test_hostile_text_is_shown_and_never_becomes_an_element(
    tmp_path: Path, write: Callable[..., Path]
) -> None:
    plain = json.loads((write(tmp_path / "plain") / "result.json").read_text("utf-8"))
    kept = {name: one for name, one in plain.items() if name not in ("signature", "run")}
    clean, hostile = seen(tmp_path / "plain"), seen(write(tmp_path / "run", **poisoned(kept)))
    known = {name for name, _ in clean.elements}
    assert {name for name, _ in hostile.elements} - known <= {"code"}  # the flag is set as code
    scripts = [sum(name == "script" for name, _ in page.elements) for page in (clean, hostile)]
    assert scripts[0] == scripts[1]
    assert not [key for _, one in hostile.elements for key in one if key.startswith("on")]
    assert "<script>window.hacked=1</script>" in hostile.text


def without(key: str) -> Callable[[dict[str, Any]], object]:
    return lambda result: result["details"].pop(key)


def experiment_with(**more: Any) -> Callable[[dict[str, Any]], object]:
    return lambda result: result["details"]["experiments"][0].update(more)


RAGGED = {"kind": "heatmap", "title": "t", "rows": ["a", "b"], "columns": ["c"], "scale": "s",
          "values": [[1.0], [1.0, 2.0]]}  # fmt: skip
SHORT = {"title": "t", "columns": ["a", "b"], "rows": [{"name": "r", "cells": [{"value": 1}]}],
         "reference": None, "note": ""}  # fmt: skip
BAND = {"kind": "lines", "title": "t", "x": "x", "y": "y",
        "series": [{"name": "s", "points": [[1, 2], [2, 3]], "low": [1], "high": [3]}]}  # fmt: skip
LOGARITHM = {"kind": "lines", "title": "t", "x": "x", "y": "y", "logarithmic": True,
             "series": [{"name": "s", "points": [[-1, 2], [2, 3]]}]}  # fmt: skip


@pytest.mark.parametrize(
    "damage",
    [
        without("paper"),
        without("experiments"),
        without("answer"),
        lambda result: result["details"].update(experiments={"a": 1}),
        lambda result: result["details"].update(answer="yes"),
        lambda result: result["details"]["answer"].update(claims=[{"holds": True}]),
        lambda result: result["details"]["experiments"].extend(result["details"]["experiments"]),
        experiment_with(state="maybe"),
        experiment_with(runs=None),
        experiment_with(tables=[SHORT]),
        experiment_with(figures=[RAGGED]),
        experiment_with(figures=[BAND]),
        experiment_with(figures=[LOGARITHM]),
        experiment_with(figures=[{**RAGGED, "kind": "pie"}]),
        experiment_with(figures=[{**RAGGED, "values": [[1.0], ["high"]]}]),
    ],
)
def test_a_misshapen_result_is_named(
    tmp_path: Path, damage: Callable[[dict[str, Any]], object]
) -> None:
    run = made.write_paper(tmp_path)
    file = run / "result.json"
    stored = json.loads(file.read_text("utf-8"))
    damage(stored)
    file.write_text(json.dumps(stored), "utf-8")
    done = json.loads((run / "DONE.json").read_text("utf-8"))
    (run / "DONE.json").write_text(json.dumps({**done, "result": file_digest(file)}), "utf-8")
    with pytest.raises(InputError, match=re.escape(str(run / "result.json"))):
        write_report(run)
    assert not (run / "report.html").exists()
