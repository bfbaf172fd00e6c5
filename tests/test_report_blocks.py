"""Blocks as HTML: what stands in tables and figures, and where."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import product
from math import sin

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import paper_run_helpers as made
from headscope.heads import Geometry, HeadScores
from headscope.report.drawing.blocks import draw
from headscope.report.drawing.heads import ROWS
from headscope.report.figures import drawn, figure_of
from headscope.report.frames import frames_of
from headscope.report.notebook import block_of
from headscope.report.parts import ramp_class
from headscope.report.terminal import text_of
from headscope.shown.blocks import (
    Bars,
    Block,
    Cell,
    Column,
    Forest,
    Gap,
    HeadMap,
    HeadMaps,
    HeadSets,
    HeadTable,
    Heatmap,
    Lines,
    Reference,
    Row,
    Section,
    Sentence,
    Sentences,
    Series,
    Shown,
    Table,
    p_cell,
)


def html_of(block: Block) -> str:
    drawn = draw("a", block)
    return f"{drawn.html}{drawn.more or ''}"


def test_a_small_p_is_a_number_that_is_written_as_a_bound() -> None:
    table = Table("A", ("p", "head"), (Row("r", (p_cell(2e-5), Cell("4.3"))),))
    shown = Shown("", "", (), sections=[Section("A", [table], brief=True)])
    assert re.findall(r"<td( class=\"said\")?>([^<]*)", html_of(table)) == [
        ("", "&lt; 0.001"), (' class="said"', "4.3")
    ]  # fmt: skip
    assert "< 0.001" in text_of(shown)
    assert frames_of(shown)["A"]["p"].tolist() == [2e-5]


def test_a_column_has_one_power_of_ten() -> None:
    rows = (
        Row("a", (Cell(7.08e-6, 1.2e-6, 1.29e-5), Cell(0.3))),
        Row("b", (Cell(-2e-8), Cell(1e-5))),
    )
    table = Table("A", ("effect", "share"), rows)
    shown = text_of(Shown("", "", (), sections=[Section("A", [table], brief=True)]))
    for text in (shown, html_of(table)):
        assert "effect (10\u207b\u2076)" in text and "share (" not in text
        assert {"7.080", "\u22120.020", "0.300", "0.000"} <= set(
            re.findall(r"\u2212?\d\.\d+", text)
        )


# ---- tables --------------------------------------------------------------------------------------
def table_of(reference: Reference | None, *, columns: int = 1) -> Table:
    score, heads = Cell(0.5, 0.4, 0.6, published=0.75), Cell(3, published=2, digits=0)
    if reference == made.SAME:
        score, heads = replace(score, difference=-0.25), replace(heads, difference=1)
    cells = (score, heads, Cell("de"))
    names = ("accuracy", "heads", "language")[:columns]
    return Table("One table", names, (Row("a row", cells[:columns]),), reference, "n is 9.")


@pytest.mark.parametrize("columns", [1, 2, 3])
def test_the_difference_is_given_where_it_is_the_same_model(columns: int) -> None:
    shown = html_of(table_of(made.SAME, columns=columns))
    assert "\u22120.250" in shown  # 0.5 - 0.75, with the digits of the cell
    assert "0.400\u2009\u2013\u20090.600" in shown
    assert "0.750" in shown
    assert "Heads Up!, Table 3, pocket" in shown
    assert "not comparable" not in shown
    assert ("+1" in shown) == (columns > 1)


@pytest.mark.parametrize("columns", [1, 2, 3])
def test_of_another_model_it_is_said_once_that_nothing_is_compared(columns: int) -> None:
    shown = html_of(table_of(made.OTHER, columns=columns))
    assert shown.count("not comparable: other model") == 1
    assert "0.750" in shown and "theirs" in shown
    assert "\u22120.250" not in shown and "difference" not in shown


def test_long_tables_are_folded_and_keep_every_row() -> None:
    shown = html_of(made.accuracy_table(36))
    before, after = shown.split("<details")
    assert before.count('scope="row"') == 10 and after.count('scope="row"') == 26
    assert "The other 26 rows" in after
    assert "<details" not in html_of(made.accuracy_table(14))


def test_rows_without_figures_of_ours_are_folded() -> None:
    ours, none = Cell(0.5, published=0.75), Cell(published=0.75, why="not run")
    rows = [Row(f"row {at}", (none if at % 3 else ours, none)) for at in range(7)]
    shown = html_of(Table("One table", ("a", "b"), tuple(rows)))
    before, after = shown.split("<details")
    assert re.findall("row [0-9]", before) == ["row 0", "row 3", "row 6"]
    assert re.findall("row [0-9]", after) == ["row 1", "row 2", "row 4", "row 5"]
    assert "The other 4 rows, without figures of ours" in after
    bare = html_of(Table("One table", ("a", "b"), tuple(rows[1:3])))
    assert ">2 rows, without figures of ours<" in bare
    assert 'scope="row"' not in bare.split("<details")[0]
    one = html_of(Table("One table", ("a", "b"), tuple(rows[2:4])))
    assert "<details" not in one, "a single row takes no more room than the words for it"
    empty = html_of(Table("One table", ("a",), (), note="Not run."))
    assert "<table" not in empty and "Not run." in empty


# ---- figures -------------------------------------------------------------------------------------
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


def test_a_heat_map_colours_by_value_and_leaves_empty_what_was_not_run() -> None:
    values = ((0.0, 0.5, None), (1.0, 2.0, 0.25))
    field = Heatmap("A map", ("0", "1"), ("0", "1", "2"), values, "score", "layer", "head")
    shown = html_of(field)
    cells = cells_of(shown)
    rows = sorted({y for one in cells.values() for _, y in one})
    columns = sorted({x for one in cells.values() for x, _ in one})
    assert {colour: (rows.index(one[0][1]), columns.index(one[0][0])) for colour, one in
            cells.items()} == {"s0": (0, 0), "s4": (0, 1), "none": (0, 2), "s8": (1, 0),
                               "s16": (1, 1), "s2": (1, 2)}  # fmt: skip
    written = re.findall(r'<g class="signs on-(\w+)"[^>]*><text[^>]*>([^<]*)<', shown)
    assert dict(written) == {"s0": "0.00", "s4": "0.50", "s8": "1.00", "s16": "2.00", "s2": "0.25"}
    assert "key-none" in shown and "1 cell is empty: not run" in shown
    assert "from 0.00 to 2.00, the highest at layer 1, head 1; 1 not run." in shown
    whole = Heatmap("A map", ("0",), ("0",), ((1.0,),), "score")
    assert "not run" not in html_of(whole)


def test_a_field_with_two_signs_has_its_middle_at_zero() -> None:
    field = Heatmap("A map", ("a",), ("b", "c", "d", "e"), ((-0.5, 0.0, 1.0, 0.5),), "change",
                    diverging=True)  # fmt: skip
    shown = html_of(field)
    assert sorted(cells_of(shown), key=lambda colour: cells_of(shown)[colour]) == [
        "n4", "m0", "q8", "q4",
    ]  # fmt: skip
    assert "change: \u22121.00" in shown
    ends = [ramp_class(value, 2.0, diverging=True) for value in (-9.0, -2.0, -0.01, 2.0, 9.0)]
    assert ends == ["n8", "n8", "m0", "q8", "q8"]


def test_a_large_map_draws_every_cell_in_few_shapes() -> None:
    field = made.heatmap(32, 32, empty=9)
    shown = html_of(field)
    drawn = {colour: len(set(cells)) for colour, cells in cells_of(shown).items()}
    assert sum(drawn.values()) == 1024
    assert drawn["none"] == sum(value is None for row in field.values for value in row)
    assert "data-words" not in shown and len(shown) < 20_000


def test_cells_too_small_for_numbers_say_them_by_pointer() -> None:
    field = made.heatmap(6, 16, empty=11)
    shown = html_of(field)
    words = re.search(r'data-values="([^"]*)"', shown)[1].split("\t")
    assert len(words) == 96 and 'class="signs' not in shown
    assert 'data-words="layer {row}, head {column}: {words}"' in shown
    assert words[0] == "not run" and words[17] == f"{sin(1.3):.2f}"


def test_what_lines_are_compared_with_is_a_line_without_marks() -> None:
    lines = Lines("A", (Series("selected", ((1.0, 0.5), (2.0, 0.75))),), "layer", "share",
                  references=(("chance", 0.25), ("all", 1.0)))  # fmt: skip
    shown = html_of(lines)
    assert shown.count('class="point') == 2
    # The axis goes from 0 to 1: a quarter of it lies below chance.
    assert re.findall(r'd="M0 (\d+)H1000" class="reference"', shown) == ["750", "0"]
    assert "chance (0.25) and all (1)" in shown
    (axis,) = drawn(lines).axes
    levels = {line.get_label(): [*line.get_ydata()] for line in axis.lines}
    assert levels["chance"] == [0.25, 0.25] and levels["all"] == [1.0, 1.0]
    assert frames_of(Shown("", "", (), figure=lines))["A"]["share"].tolist() == [
        0.5,
        0.75,
        0.25,
        1.0,
    ]


def test_a_figure_is_the_map_that_the_page_draws() -> None:
    columns = (Column("score", "Effect"), Column("rank", "Rank"))
    heads = ((0, 0), (0, 1), (1, 0), (1, 1))
    parts = {"mean": {"score": [0.5, -1.0, None, 0.25], "rank": [1.0, 4.0, 3.0, 2.0]},
             "en-de": {"score": [0.1] * 4, "rank": [1.0] * 4}}  # fmt: skip
    table = HeadTable("Heads", heads, columns, parts, ranked_by="rank")
    axis, bar = figure_of(Shown("", "", (), sections=[Section("A", [table])])).axes
    (image,) = axis.images
    assert image.get_array().tolist() == [[0.5, -1.0], [None, 0.25]]
    assert image.get_clim() == (0.0, 0.5) and bar.get_ylabel() == "Effect"


def test_bars_below_zero_go_to_the_left_of_it() -> None:
    bars = Bars("Bars", ("x", "y"), ("a", "b"), ((-1.0, 3.0), (1.0, None)), "nats")
    shown = html_of(bars)
    # the axis goes from -1 to 3: 0 lies at a quarter of its length
    styles = re.findall(r'class="bar" style="--v:([\d.]+);--f:([\d.]+)"', shown)
    assert [tuple(map(float, one)) for one in styles] == [(0.25, 0.0), (0.75, 0.25), (0.25, 0.25)]
    assert shown.count('<em style="--z:0.25">') == 3
    assert "1 bar not run" in shown and ">not run</span>" in shown


def test_series_have_the_colour_of_what_they_are() -> None:
    def colours(*series: str) -> list[str]:
        bars = Bars("Bars", ("x",), series, ((1.0,) * len(series),), "nats")
        return re.findall(r'<b class="key-(\w+)">', html_of(bars))

    assert colours("as is", "under random masks", "masked", "instructed") == [
        "base", "random", "top", "s9"
    ]  # fmt: skip
    assert colours("the chosen heads", "random heads", "random heads of the same layers") == [
        "top", "random", "matched"
    ]  # fmt: skip
    assert colours("token alignment heads", "low activity", "inactive") == ["ta", "low", "off"]
    for names in (("a", "b, random", "c, random"), tuple("abcdefghij")):
        assert len(set(colours(*names))) == len(names), "no colour stands for two series"


# ---- heads ---------------------------------------------------------------------------------------
def test_a_table_of_heads_ranks_by_its_column_and_holds_every_number_for_its_script() -> None:
    heads = tuple((layer, head) for layer in range(3) for head in range(20))
    scores = [((7 * at) % 60) / 60 for at in range(60)]
    chance = [0.9 if at == 17 else 0.0 for at in range(60)]
    above = [a - b for a, b in zip(scores, chance, strict=True)]
    block = HeadTable(
        "Heads",
        heads,
        (Column("score", "TS"), Column("chance", "Chance"), Column("above", "TS - chance")),
        {"en-de": {"score": scores, "chance": chance, "above": above}},
        ranked_by="above",
        threshold=0.5,
        classes=(("high", 0.5), ("low", None)),
    )
    drawn = draw("a", block)
    order = sorted(range(60), key=lambda at: (-above[at], at))
    below = drawn.more or ""
    rows = re.findall(r'<tr data-head="([\d.]+)">', below)
    assert rows == [f"{heads[at][0]}.{heads[at][1]}" for at in order[:ROWS]]
    assert drawn.html.count('class="dot"') == sum(value > 0.5 for value in above)
    assert below.count(">high</td>") == min(ROWS, sum(value > 0.5 for value in above))
    held = drawn.data["a"]["parts"]["en-de"]
    assert held["score"] == pytest.approx(scores, abs=1e-6)
    assert [tuple(each) for each in drawn.data["a"]["heads"]] == list(heads)


@given(st.lists(st.integers(-99, 99).map(lambda number: number / 100), min_size=1, max_size=40))
def test_effects_of_either_sign_are_ranked_by_size_and_have_a_colour_each(
    effects: list[float],
) -> None:
    ends = {"low": [value - 0.1 for value in effects], "high": [value + 0.1 for value in effects]}
    block = HeadTable(
        "Heads",
        tuple((0, at) for at in range(len(effects))),
        (Column("score", "Effect"), Column("low", ""), Column("high", "")),
        {"all": {"score": effects, **ends}},
        significant=True,
        signed=True,
    )
    order = block.ranked()
    assert [abs(effects[at]) for at in order] == sorted(map(abs, effects), reverse=True)
    assert block.dots("all") == [abs(value) > 0.1 for value in effects]
    colours = re.findall(r'class="cell ([a-z])(\d+)"', draw("a", block).html)
    most = max(map(abs, effects)) or 1.0
    for (side, step), value in zip(colours, effects, strict=True):
        assert int(step) == round(abs(value) / most * 8)
        assert side == ("m" if not int(step) else "n" if value < 0 else "q")


def test_a_forest_speaks_of_intervals_and_sets_only_where_it_draws_some() -> None:
    for low, draws, as_far in product((None, 0.5), ((), (0.8, 1.2)), ("", "0 of 2")):
        gap = Gap("random", 1.0, low, low and 1.5, draws, as_far)
        block = Forest("Forest", (("a", (gap,)),), "nats", over="texts")
        shown = Shown("", "", ("Found.",), figure=block)
        html, text, label = (
            draw("a", block).html,
            text_of(shown),
            figure_of(shown).axes[0].get_xlabel(),
        )
        said = {"intervals over texts" in each for each in (html, text, label)}
        assert said == {low is not None}
        assert ("Strokes" in html) == bool(draws and as_far)
        assert html.count("<u ") == len(draws)
        assert as_far in text


@pytest.mark.parametrize("full", [False, True])
def test_a_terminal_says_how_many_rows_it_leaves_out(full: bool) -> None:
    names = tuple(f"row {at}" for at in range(50))
    values = tuple((float(at),) for at in range(50))
    blocks = (
        Bars("Bars", names, ("a",), values, "chrF++"),
        Heatmap("Map", names, ("a",), values, "share"),
        Table("Table", ("a",), tuple(Row(name, (Cell(1.0),)) for name in names)),
    )
    for block in blocks:
        text = text_of(Shown("", "", ("Found.",), figure=block), full=full)
        (left,) = re.findall(r"and (\d+) more rows", text)
        assert len(re.findall(r"^row \d+", text, re.MULTILINE)) + int(left) == 50


@pytest.mark.parametrize("lowest", [-0.3, 0.05])
def test_scores_in_a_notebook_have_two_sides_where_some_are_below_0(lowest: float) -> None:
    values = np.array([[0.1, lowest], [0.2, 0.0]])
    block = block_of(HeadScores(Geometry((2, 2)), values, "attribution"))
    assert isinstance(block, HeadTable) and block.signed == (lowest < 0)
    first = np.unravel_index(np.abs(values).argmax(), values.shape)
    assert block.heads[block.ranked()[0]] == first


def test_a_column_of_tiny_numbers_is_written_in_powers_of_ten() -> None:
    columns = (Column("score", "Effect", digits=6), Column("low", ""), Column("high", ""))
    values = {"score": [7.08e-6, -2e-8], "low": [1.2e-6, None], "high": [1.29e-5, None]}
    block = HeadTable("Heads", ((0, 0), (0, 1)), columns, {"all": values})
    shown = html_of(block)
    assert "Effect (10\u207b\u2076)</button>" in shown
    ranking = shown.split('class="ranking"')[1].split("</table>")[0]
    assert re.findall(r"<td>([^<]*)</td>", ranking) == [
        "1", "7.080", "1.200\u2009\u2013\u200912.900", "2", "\u22120.020", "\u2013"
    ]  # fmt: skip
    said = text_of(Shown("", "", ("Found.",), sections=[Section("Heads", [block], brief=True)]))
    assert "Effect (10\u207b\u2076)" in said and "7.080  1.200 \u2013 12.900" in said
    large = replace(columns[0], digits=3), *columns[1:]
    one = replace(block, columns=large, parts={"all": {**values, "score": [0.2, 1e-9]}})
    assert ">Effect</button>" in html_of(one)


def test_maps_of_heads_share_one_scale() -> None:
    one, other = HeadMap("x", ((0.0, 1.0),), marked=((0, 1),)), HeadMap("y", ((2.0, None),))
    shown = html_of(HeadMaps("Maps", (one, other), "score", marked="selected"))
    cells = re.findall(r'class="cell (\w+)" x="(\d)" y="(\d)"', shown)
    assert cells == [("s0", "0", "0"), ("s8", "1", "0"), ("s16", "0", "0"), ("na", "1", "0")]
    assert re.findall(r'data-values="([^"]*)"', shown) == [
        "0.000\t1.000\nselected", "2.000\t\u2013"
    ]  # fmt: skip
    assert shown.count('class="dot"') == 1


def test_a_set_of_heads_is_copied_as_the_option_takes_it() -> None:
    shown = html_of(HeadSets("Heads", {"selected": ((5, 3), (0, 11))}))
    assert 'data-heads="5.3,0.11"' in shown
    assert shown.count('href="#head=') == 2


# ---- sentences -----------------------------------------------------------------------------------
def test_a_terminal_shows_the_sentences_that_lost_most() -> None:
    sentences = tuple(
        Sentence("en-de", str(at), f"source {at}", "ref",
                 {"original": "a", "selected": "b " * 200 * at},
                 chrf={"original": 90.0, "selected": 90.0 - 10 * at})
        for at in range(5)
    )  # fmt: skip
    block = Sentences("Outputs", sentences, {"original": "Original", "selected": "Removed"})
    said = text_of(Shown("", "", ("Found.",), sections=[Section("Sentences", [block])]))
    lines = said.splitlines()
    assert lines[2] == "Outputs: 5 sentences, largest loss of chrF++ first:"
    assert [line for line in lines if line.startswith("en \u2192 de")] == [
        "en \u2192 de 4: 90.0 \u2192 50.0", "en \u2192 de 3: 90.0 \u2192 60.0"
    ]  # fmt: skip
    assert "source 4" in said and "source 2" not in said and max(map(len, lines)) < 180
