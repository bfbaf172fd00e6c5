"""The page of a paper's run, and the index of several: what they show, and of what."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from math import sin
from pathlib import Path
from typing import Any

import pytest

import paper_run_helpers as made
from headscope.errors import InputError
from headscope.report.charts import BarRow, bar_rows
from headscope.report.parts import diverging_class
from headscope.report.records.paper import read_paper, slugs
from headscope.runs import file_digest
from headscope.shown.blocks import Bars, Cell, Heatmap, Reference, Row, Table
from headscope.studies.report import write_report

HOSTILE = (
    "</script><script>window.hacked=1</script><img src=x onerror='window.hacked=1'>"
    '"\' onmouseover="window.hacked=1" &amp; <!-- --flag=<b> \u2028'
)


class Seen(HTMLParser):
    """Elements with their attributes, and the text of each section."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.sections: dict[str, str] = {}
        self.within = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag == "section":
            self.within = dict(attrs)["id"] or ""

    def handle_data(self, data: str) -> None:
        self.sections[self.within] = self.sections.get(self.within, "") + data

    def values(self, name: str) -> list[str]:
        """The values of an attribute, of all elements that have it."""
        return [found[name] or "" for _, found in self.elements if name in found]


def page_of(run: Path) -> str:
    return write_report(run).read_text("utf-8")


def part(page: str, identifier: str) -> str:
    """The HTML of an element with this id up to the next section or the end."""
    start = page.index(f'id="{identifier}"')
    return page[start : page.index("</section>", start)]


def one_table(tmp_path: Path, table: Table) -> str:
    """The HTML of a table alone on its page."""
    run = made.write_paper(tmp_path, experiments=[made.experiment("a", "Table 1", tables=[table])])
    return part(page_of(run), "a-table-1")


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    return page_of(made.write_paper(tmp_path_factory.mktemp("paper") / "run"))


# ---- the whole page ------------------------------------------------------------------------------
def test_question_and_answer_come_before_method_experiments_and_runs(page: str) -> None:
    order = ["summary", "method", "experiments", "table-1", "table-12", "figure-5", "figure-6",
             "not-run", "runs", "repeat", "provenance"]  # fmt: skip
    seen = Seen(page)
    assert [name for name in seen.sections if name not in ("", "origin")] == order
    assert "Do few attention heads hold what a model needs" in seen.sections["summary"]
    assert "Yes: 21 of 96 heads do." in seen.sections["summary"]
    assert "How sure: One training a mask." in seen.sections["summary"]
    assert "headscope reproduce heads-up --model pocket" in seen.sections["repeat"]


def test_every_link_leads_somewhere_and_no_identifier_is_used_twice(page: str) -> None:
    seen = Seen(page)
    names = seen.values("id")
    assert len(set(names)) == len(names)
    links = [link for link in seen.values("href") if link.startswith("#")]
    assert {link[1:] for link in links} <= set(names)
    # from the table of all experiments to each, and from each to its runs
    for name in ("table-1", "table-20", "table-21", "run-mask-en-de", "not-run"):
        assert f"#{name}" in links


def test_states_are_told_and_what_was_not_run_stands_in_one_table(page: str) -> None:
    seen = Seen(page)
    states = re.findall(r'class="state is-([a-z-]+)"', part(page, "experiments"))
    assert states == ["run", "part", "run", "stored", "not-run", "missing"]
    assert "table-20" not in seen.sections and "table-21" not in seen.sections
    left = part(page, "not-run")
    assert "<code>--questions de=FILE</code>, <code>--questions en=FILE</code>" in left
    assert "XQuAD is not part of the package" in left
    assert "<code>--only table-20</code>" in left
    assert left.count("<tr") == 3


def test_many_elements_are_named_shortly_and_what_may_be_run_says_how(tmp_path: Path) -> None:
    elements = ["Table 1", *(f"Table {n}" for n in range(12, 32)), "Figure 4", "exp-type ppl"]
    rows = [
        made.experiment("masks", *elements),
        made.experiment("full", "Table 2", state="not run", why="left to --full: a mask"),
        made.experiment("theirs", state="missing", why="nobody has that model"),
    ]
    seen = Seen(page_of(made.write_paper(tmp_path, experiments=rows)))
    assert "Tables 1 and 12\u201331, Figure 4, exp-type ppl" in seen.sections["experiments"]
    assert "--only full --full" in seen.sections["not-run"]
    assert "nothing would help" in seen.sections["not-run"]


def test_numbers_are_traced_to_their_runs(page: str) -> None:
    section = part(page, "table-12-title")
    linked = re.findall(r'href="#run-mask-en-([a-z]+)"', section)
    assert linked == [name for name in made.LANGUAGES if name != "en"]
    assert "The 42 runs behind it, 36 of them not run" in section
    runs = part(page, "runs-title")
    assert runs.count("<tr") == 1 + 9  # six masks and three other runs were made
    assert "<code>runs/mask-en-de</code>" in runs
    assert "made with seed 0" in runs
    repeat = Seen(page).sections["repeat"]
    assert "36 runs are not made: left to --full, which makes all runs" in repeat
    assert "1 run is not made: not asked for." in repeat
    assert "1 run is not made: data for them is missing." in repeat
    assert "the run mask-es-en" in repeat


def test_the_command_to_repeat_a_run_names_its_folder(tmp_path: Path) -> None:
    out = tmp_path / "two words"
    repeat = Seen(page_of(made.write_paper(out))).sections["repeat"]
    assert f"headscope reproduce heads-up --model pocket --out '{out}'" in repeat
    given = Seen(page_of(made.write_paper(tmp_path / "r", command="headscope --out there")))
    assert given.sections["repeat"].count("--out") == 1


def test_a_run_that_failed_is_told_once_and_for_its_own_reason(tmp_path: Path) -> None:
    rows = [made.experiment("table-1", "Table 1", state="part", why="the package is not there")]
    run = made.write_paper(
        tmp_path, experiments=rows, failed={"step-table-1": "the package is not there"}
    )
    page = page_of(run)
    repeat = Seen(page).sections["repeat"]
    assert "step-table-1: the package is not there" in repeat
    assert "not made:" not in repeat and "--full" not in repeat
    # Every experiment is at least in part there, so nothing tells why one is not.
    assert 'href="#not-run"' not in page and 'id="not-run"' not in page


def test_an_answer_that_is_lacking_is_told_from_nothing_run(tmp_path: Path) -> None:
    nothing = {"found": "", "sure": ""}
    one = made.write_paper(
        tmp_path / "one", answer=nothing, experiments=[made.experiment("a", "Figure 2")]
    )
    assert "does not answer the paper\u2019s question" in Seen(page_of(one)).sections["summary"]
    none = [made.experiment("a", "Figure 2", state="not run", why="it was not asked for")]
    none_run = made.write_paper(tmp_path / "none", answer=nothing, experiments=none)
    assert "Nothing was run" in Seen(page_of(none_run)).sections["summary"]


def test_a_column_of_bounds_is_set_as_numbers(tmp_path: Path) -> None:
    cells = (Cell("< 0.001"), Cell("4.3"), Cell(1.0))
    html = one_table(tmp_path, Table("A", ("p", "head", "n"), (Row("r", cells),)))
    assert re.findall(r'<td( class="said")?>', html) == ["", ' class="said"', ""]


def test_notes_become_sentences(tmp_path: Path) -> None:
    table = Table("A", ("b",), (Row("r", (Cell(1.0),)),), note="by chance 0.055")
    assert "By chance 0.055. " in one_table(tmp_path, table)


def test_runs_that_failed_are_told_with_their_reason(tmp_path: Path) -> None:
    run = made.write_paper(tmp_path, failed={"mask-en-zh": "there are 3 sentences & 4 are needed"})
    assert "mask-en-zh: there are 3 sentences & 4 are needed" in Seen(page_of(run)).sections[
        "repeat"
    ]  # fmt: skip


def test_a_page_of_forty_experiments_stays_small(tmp_path: Path) -> None:
    many = [
        made.experiment(f"e-{at}", f"Table {at}", tables=[made.pairs_table()],
                        figures=[made.overlap_map() if at % 2 else made.lines()])
        for at in range(40)
    ]  # fmt: skip
    run = made.write_paper(tmp_path, experiments=many)
    assert write_report(run).stat().st_size < 450_000
    four = [one for one in made.experiments() if one["state"] in ("run", "part", "stored")]
    many = [{**one, "name": f"{one['name']}-{at}"} for at in range(10) for one in four]
    full = made.write_paper(tmp_path / "full", experiments=many)
    assert write_report(full).stat().st_size < 900_000


# ---- tables --------------------------------------------------------------------------------------
def table_of(reference: Reference | None, *, columns: int = 1) -> Table:
    cells = (Cell(0.5, 0.4, 0.6, published=0.75), Cell(3, published=2, digits=0), Cell("de"))
    names = ("accuracy", "heads", "language")[:columns]
    return Table("One table", names, (Row("a row", cells[:columns]),), reference, "n is 9.")


@pytest.mark.parametrize("columns", [1, 2, 3])
def test_the_difference_is_given_where_it_is_the_same_model(tmp_path: Path, columns: int) -> None:
    shown = one_table(tmp_path, table_of(made.SAME, columns=columns))
    assert "\u22120.250" in shown  # 0.5 - 0.75, with the digits of the cell
    assert "0.400\u2009\u2013\u20090.600" in shown
    assert "0.750" in shown
    assert "Heads Up!, Table 3, pocket" in shown
    assert "not comparable" not in shown
    assert ("+1" in shown) == (columns > 1)


@pytest.mark.parametrize("columns", [1, 2, 3])
def test_of_another_model_it_is_said_once_that_nothing_is_compared(
    tmp_path: Path, columns: int
) -> None:
    shown = one_table(tmp_path, table_of(made.OTHER, columns=columns))
    assert shown.count("not comparable: other model") == 1
    assert "0.750" in shown and "theirs" in shown
    assert "\u22120.250" not in shown and "difference" not in shown


def test_columns_without_intervals_or_published_values_take_no_room(tmp_path: Path) -> None:
    rows = (Row("a row", (Cell(0.5), Cell(0.25, 0.2, 0.3))),)
    shown = one_table(tmp_path, Table("One table", ("first", "second"), rows))
    header = re.findall(r'<th scope="col"[^>]*>(.*?)</th>', shown)
    assert header == ["", "<bdi>first</bdi>", "<bdi>second</bdi>", "95\u00a0% interval"]
    assert "theirs" not in shown.lower()


def test_texts_stand_at_the_left_beside_numbers_with_intervals(tmp_path: Path) -> None:
    rows = (Row("a row", (Cell(0.5, 0.4, 0.6), Cell("a text"))),)
    shown = one_table(tmp_path, Table("One table", ("score", "text"), rows))
    assert re.findall(r"<td[^>]*>", shown) == ["<td>", "<td>", '<td class="said">']


def test_what_was_not_run_stands_as_words_in_its_cell(tmp_path: Path) -> None:
    shown = one_table(tmp_path, made.pairs_table())
    ran = sum((a + b) % 3 == 0 for a in range(7) for b in range(7) if a != b)
    assert shown.count(">not run</i>") == 42 - ran
    assert shown.count("<td>\u2013</td>") == 7
    assert shown.count("theirs ") == 42


def test_long_tables_are_folded_and_keep_every_row(tmp_path: Path) -> None:
    shown = one_table(tmp_path, made.accuracy_table(36))
    before, after = shown.split("<details")
    assert before.count('scope="row"') == 10 and after.count('scope="row"') == 26
    assert "The other 26 rows" in after
    assert "<details" not in one_table(tmp_path / "short", made.accuracy_table(14))


def test_rows_without_figures_of_ours_are_folded(tmp_path: Path) -> None:
    ours, none = Cell(0.5, published=0.75), Cell(published=0.75, why="not run")
    rows = [Row(f"row {at}", (none if at % 3 else ours, none)) for at in range(7)]
    shown = one_table(tmp_path, Table("One table", ("a", "b"), tuple(rows)))
    before, after = shown.split("<details")
    assert re.findall("row [0-9]", before) == ["row 0", "row 3", "row 6"]
    assert re.findall("row [0-9]", after) == ["row 1", "row 2", "row 4", "row 5"]
    assert "The other 4 rows, without figures of ours" in after
    bare = one_table(tmp_path / "bare", Table("One table", ("a", "b"), tuple(rows[1:3])))
    assert ">2 rows, without figures of ours<" in bare
    assert 'scope="row"' not in bare.split("<details")[0]
    one = one_table(tmp_path / "one", Table("One table", ("a", "b"), tuple(rows[2:4])))
    assert "<details" not in one, "a single row takes no more room than the words for it"
    empty = one_table(tmp_path / "empty", Table("One table", ("a",), (), note="Not run."))
    assert "<table" not in empty and "Not run." in empty


# ---- figures -------------------------------------------------------------------------------------
def figure_of(tmp_path: Path, figure: Any) -> str:
    one = made.experiment("a", "Figure 1", figures=[figure])
    return part(page_of(made.write_paper(tmp_path, experiments=[one])), "a-figure-1")


def cells_of(shown: str) -> dict[str, list[tuple[float, float]]]:
    """By colour, the left ends of the cells of a map that is drawn with one line a cell."""
    found = re.findall(
        r'<path d="([^"]*)" class="line is-(\w+)" style="stroke:var\(--(\w+)\)"', shown
    )
    assert all(colour == variable for _, colour, variable in found)
    return {
        colour: [(float(x), float(y)) for x, y in re.findall(r"M([\d.]+) ([\d.]+)h", path)]
        for path, colour, _ in found
    }


def test_a_heat_map_colours_by_value_and_leaves_empty_what_was_not_run(tmp_path: Path) -> None:
    values = ((0.0, 0.5, None), (1.0, 2.0, 0.25))
    field = Heatmap("A map", ("0", "1"), ("0", "1", "2"), values, "score", "layer", "head")
    shown = figure_of(tmp_path, field)
    cells = cells_of(shown)
    rows = sorted({y for one in cells.values() for _, y in one})
    columns = sorted({x for one in cells.values() for x, _ in one})
    assert {colour: (rows.index(one[0][1]), columns.index(one[0][0])) for colour, one in
            cells.items()} == {"s0": (0, 0), "s4": (0, 1), "none": (0, 2), "s8": (1, 0),
                               "s16": (1, 1), "s2": (1, 2)}  # fmt: skip
    written = re.findall(r'<g class="signs on-(\w+)"><text[^>]*>([^<]*)<', shown)
    assert dict(written) == {"s0": "0.00", "s4": "0.50", "s8": "1.00", "s16": "2.00", "s2": "0.25"}
    assert "key-none" in shown and "1 cell is empty: not run" in shown
    assert "from 0.00 to 2.00, the highest at layer 1, head 1; 1 not run." in shown
    whole = Heatmap("A map", ("0",), ("0",), ((1.0,),), "score")
    assert "not run" not in figure_of(tmp_path / "whole", whole)


def test_a_field_with_two_signs_has_its_middle_at_zero(tmp_path: Path) -> None:
    field = Heatmap("A map", ("a",), ("b", "c", "d", "e"), ((-0.5, 0.0, 1.0, 0.5),), "change",
                    diverging=True)  # fmt: skip
    shown = figure_of(tmp_path, field)
    assert sorted(cells_of(shown), key=lambda colour: cells_of(shown)[colour]) == [
        "n4", "m0", "q8", "q4",
    ]  # fmt: skip
    assert "change: \u22121.00" in shown
    ends = [diverging_class(value, 2.0) for value in (-9.0, -2.0, -0.01, 2.0, 9.0)]
    assert ends == ["n8", "n8", "m0", "q8", "q8"]


def test_a_large_map_draws_every_cell_in_few_shapes(tmp_path: Path) -> None:
    field = made.heatmap(32, 32, empty=9)
    shown = figure_of(tmp_path, field)
    drawn = {colour: len(set(cells)) for colour, cells in cells_of(shown).items()}
    assert sum(drawn.values()) == 1024
    assert drawn["none"] == sum(value is None for row in field.values for value in row)
    assert "data-words" not in shown and len(shown) < 20_000


def test_cells_too_small_for_numbers_say_them_by_pointer(tmp_path: Path) -> None:
    field = made.heatmap(6, 16, empty=11)
    shown = figure_of(tmp_path, field)
    words = re.findall(r'data-words="([^"]*)"', shown)
    assert len(words) == 96 and 'class="sign"' not in shown
    assert words[0] == "layer 0, head 0: not run"
    assert words[17] == f"layer 1, head 1: {sin(1.3):.2f}"


def test_lines_show_each_series_with_points_and_name_the_others(tmp_path: Path) -> None:
    shown = figure_of(tmp_path, made.lines())
    assert shown.count('class="point') == 10
    assert shown.count("<polygon") == 1
    assert "Not run: layer 3." in shown
    assert "highest heads: 90 at 1, 85 at 4" in shown
    assert "heads removed" in shown and "160 sentences." in shown


def test_bars_below_zero_go_to_the_left_of_it(tmp_path: Path) -> None:
    bars = Bars("Bars", ("x", "y"), ("a", "b"), ((-1.0, 3.0), (1.0, None)), "nats")
    shown = figure_of(tmp_path, bars)
    # the axis goes from -1 to 3: 0 lies at a quarter of its length
    styles = re.findall(r'class="bar" style="--v:([\d.]+);--f:([\d.]+)"', shown)
    assert [tuple(map(float, one)) for one in styles] == [(0.25, 0.0), (0.75, 0.25), (0.25, 0.25)]
    assert shown.count('<em style="--z:0.2500">') == 3
    assert "1 bar not run" in shown and ">not run</span>" in shown


def test_series_have_the_colour_of_what_they_are(tmp_path: Path) -> None:
    def colours(*series: str) -> list[str]:
        bars = Bars("Bars", ("x",), series, ((1.0,) * len(series),), "nats")
        folder = tmp_path / "-".join(series).replace(" ", "-")
        return re.findall(r'<b class="key-(\w+)">', figure_of(folder, bars))

    assert colours("as is", "under random masks", "masked", "instructed") == [
        "base", "random", "top", "s9"
    ]  # fmt: skip
    assert colours("the chosen heads", "random heads", "random heads of the same layers") == [
        "top", "random", "matched"
    ]  # fmt: skip
    assert colours("token alignment heads", "low activity", "inactive") == ["ta", "low", "off"]
    for names in (("a", "b, random", "c, random"), tuple("abcdefghij")):
        assert len(set(colours(*names))) == len(names), "no colour stands for two series"


def test_bars_from_zero_are_written_as_before() -> None:
    drawn = bar_rows([BarRow("a", 3.0, "key-top", (1.0,), (2.0, 4.0))], 4.0)
    assert 'class="bar" style="--v:0.7500"' in drawn
    assert 'style="--lo:0.5000;--hi:1.0000"' in drawn
    assert "<em" not in drawn


# ---- other people's text -------------------------------------------------------------------------
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
    clean = Seen(page_of(tmp_path / "plain"))
    seen = Seen(page_of(write(tmp_path / "run", **poisoned(kept))))
    names = {name for name, _ in clean.elements}
    assert {name for name, _ in seen.elements} - names <= {"code"}  # the flag in it is set as code
    assert sum(name == "script" for name, _ in seen.elements) == sum(
        name == "script" for name, _ in clean.elements
    )
    assert not [key for _, one in seen.elements for key in one if key.startswith("on")]
    assert "<script>window.hacked=1</script>" in "".join(seen.sections.values())


# ---- damaged runs --------------------------------------------------------------------------------
def without(key: str) -> Callable[[dict[str, Any]], object]:
    return lambda result: result.pop(key)


def experiment_with(**more: Any) -> Callable[[dict[str, Any]], object]:
    return lambda result: result["experiments"][0].update(more)


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
        lambda result: result.update(experiments={"a": 1}),
        lambda result: result.update(answer="yes"),
        lambda result: result["experiments"].append(result["experiments"][0]),
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
    _rewrite(run, damage)
    with pytest.raises(InputError, match=re.escape(str(run / "result.json"))):
        write_report(run)
    assert not (run / "report.html").exists()


def _rewrite(run: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the result of a finished run as if it had been finished with it."""
    file = run / "result.json"
    stored = json.loads(file.read_text("utf-8"))
    change(stored)
    file.write_text(json.dumps(stored), "utf-8")
    done = json.loads((run / "DONE.json").read_text("utf-8"))
    (run / "DONE.json").write_text(json.dumps({**done, "result": file_digest(file)}), "utf-8")


def test_an_index_of_another_shape_is_named(tmp_path: Path) -> None:
    run = made.write_papers(tmp_path, papers=[{"name": "lahis"}])
    with pytest.raises(InputError, match=r"result\.json: holds no 'totals'"):
        write_report(run)


# ---- the index -----------------------------------------------------------------------------------
def test_the_index_links_every_paper_with_its_answer_and_counts(tmp_path: Path) -> None:
    page = page_of(made.write_papers(tmp_path))
    seen = Seen(page)
    for name in ("token-alignment-heads", "lahis", "heads-up"):
        assert f"./{name}/report.html" in seen.values("href")
        assert "Yes: 21 of 96 heads do." in seen.sections[name]
    assert "runs: 135 \u00b7 time: 21\u00a0min" in seen.sections[""]


@pytest.mark.parametrize("report", ["/etc/page.html", "../page.html", "", None])
def test_the_index_links_only_to_pages_below_it(tmp_path: Path, report: str | None) -> None:
    run = made.write_papers(tmp_path / "run")
    papers = json.loads((run / "result.json").read_text("utf-8"))["papers"]
    changed = [{**one, "report": report} for one in papers]
    links = Seen(page_of(made.write_papers(tmp_path / "other", papers=changed))).values("href")
    assert all(link.startswith("#") for link in links)


def test_the_index_makes_no_other_scheme_of_a_path(tmp_path: Path) -> None:
    run = made.write_papers(tmp_path / "run")
    papers = json.loads((run / "result.json").read_text("utf-8"))["papers"]
    changed = [{**one, "report": "javascript:alert(1)"} for one in papers]
    links = Seen(page_of(made.write_papers(tmp_path / "other", papers=changed))).values("href")
    assert "./javascript%3Aalert%281%29" in links
    assert not [link for link in links if link.startswith("javascript")]


def test_how_to_read_a_table_and_what_holds_for_all_stand_once(tmp_path: Path) -> None:
    tables = [made.accuracy_table(), made.pairs_table(), made.words_table()]
    one = made.experiment("a", "Table 1", tables=tables)
    two = made.experiment("b", "Table 2", tables=tables)
    notes = ["Ten heads where the paper takes 20.", "Random draws are five."]
    text = page_of(made.write_paper(tmp_path, experiments=[one, two], notes=notes))
    for said in (*notes, "a cell holds, from above", "Figures without an interval have none"):
        assert text.count(said) == 1, said
    assert "from above: ours" not in text.split('id="experiments"')[1]
    older = page_of(made.write_paper(tmp_path / "older", experiments=[one]))  # told no notes
    assert "What holds for several experiments" not in older


# ---- what is read is what a recipe told ----------------------------------------------------------
def test_what_the_report_reads_is_what_was_told(tmp_path: Path) -> None:
    figures = [made.heatmap(3, 4, empty=5), made.lines(), made.bars(3, signs=True)]
    table = made.pairs_table(made.SAME)
    one = made.experiment("a", "Table 1", tables=[table], figures=figures)
    record = read_paper(made.write_paper(tmp_path, experiments=[one]))
    read = record.experiments[0]
    assert read.figures == tuple(figures)
    compared = [
        replace(row, cells=tuple(replace(cell, difference=None) for cell in row.cells))
        for row in read.tables[0].rows
    ]
    assert replace(read.tables[0], rows=tuple(compared)) == table
    for cell in (cell for row in read.tables[0].rows for cell in row.cells):
        assert cell.difference == (None if cell.value is None else pytest.approx(-0.31))


def test_identifiers_are_plain_and_differ() -> None:
    assert slugs(["Table 1", "table-1", "\u8868", "runs", "a<b>"], ("runs",)) == [
        "table-1",
        "table-1-2",
        "experiment",
        "runs-2",
        "a-b",
    ]
