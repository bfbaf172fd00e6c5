"""Heads by method: the map of all heads, a small map of each column, and the table."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping

from headscope.heads import Geometry, Head
from headscope.report.html import Child, Html, join, tag
from headscope.report.matrix import Axis, Cell, matrix, ramp_bar, small_matrix
from headscope.report.parts import figure, ramp_class, scroll, section, table
from headscope.report.sections.head_scores import SHOWN, ticks
from headscope.results.methods import Column, Comparison, HeadVerdicts, Verdict
from headscope.shown.words import count, enumeration, number

__all__ = ["map_section", "small_maps_section", "table_section"]


LISTED = 400
"""Heads that the table holds; a page of all heads of a large model would be slow to open."""


def _signs(compared: Comparison) -> dict[str, str]:
    """A letter for each method: A, B, C …"""
    return {one.name: _letter(place) for place, one in enumerate(compared.methods)}


def map_section(compared: Comparison, geometry: Geometry) -> Html:
    """Every head with the letter of the method that alone selects it, or how many do."""
    signs = _signs(compared)
    by_head = {one.place: one for one in compared.heads}
    most = max(2, len(compared.methods))
    # Room for a letter: a wide model's map scrolls in its box.
    pitch = max(17, min(30, 760 // geometry.width))
    cells = [
        Cell(
            head.layer,
            head.head,
            ramp_class(len(by_head[head].selected_by), most),
            words=_words(by_head[head]),
            sign=_sign(by_head[head], signs),
        )
        for head in geometry.heads()
    ]
    several = sum(len(one.selected_by) > 1 for one in compared.heads)
    alone = sum(len(one.selected_by) == 1 for one in compared.heads)
    picture = matrix(
        cells,
        Axis(ticks(geometry.layers, pitch), "layer"),
        Axis(ticks(geometry.width, pitch), "head"),
        pitch,
        f"Map of {count(geometry.total, 'head')}: {several} are selected by several "
        f"methods, {alone} by one alone. The table below says by which.",
    )
    key = [
        tag("li", tag("b", signs[one.name]), tag("bdi", one.name), f" ({_alone(one.specific)})")
        for one in compared.methods
    ]
    caption = join(
        tag("strong", "Which methods select each head. "),
        "A letter: that method alone selects the head. A number: so many methods do. Empty: none. "
        "The further along the ramp, the more methods. Point at a cell for what every method "
        "says of it.",
    )
    return section(
        "map",
        "Every head, every method",
        figure(
            "methods-map",
            caption,
            tag("ul", key, class_="methods-signs"),
            scroll("Map, layers by heads", picture),
            ramp_bar("no method", f"all {len(compared.methods)}"),
        ),
    )


def small_maps_section(compared: Comparison, geometry: Geometry) -> Html:
    """One small map a column: how high each head stands, and which are selected."""
    pitch = max(4, min(14, 224 // geometry.width))
    figures = []
    for place, column in enumerate(compared.columns):
        shades = _shades(compared, column)
        cells = [
            Cell(head.layer, head.head, shades[head], marked=head in column.places)
            for head in geometry.heads()
        ]
        layers = sorted({head.layer for head in column.places})
        picture = small_matrix(
            cells,
            geometry.shape,
            pitch,
            f"{column.name}: {count(column.size, 'head')} in layers "
            f"{', '.join(map(str, layers)) or 'none'}.",
        )
        caption = join(tag("strong", tag("bdi", column.name)), f", {_size(column)}")
        figures.append(figure(f"column-{place}", caption, picture))
    lead = tag(
        "p",
        "Layers run from top to bottom and heads from left to right. The darker a cell, the more "
        "of the other heads rank lower by this method, so that methods on different "
        "scales can be compared. Dots mark the heads that are selected.",
        class_="note",
    )
    return section(
        "maps",
        "What each method says of each head",
        lead,
        tag("div", figures, class_="methods-maps"),
        ramp_bar("above none", "above all"),
    )


def table_section(compared: Comparison) -> Html:
    """Every head with the score and rank that every column gives it; chosen ones are marked."""
    signs = _signs(compared)
    header: list[Child] = ["Head", "Methods"]
    header += [tag("bdi", one.name) for one in compared.columns]
    rows = [
        [
            str(one.place),
            " ".join(signs[name] for name in one.selected_by) or "\u2013",
            *(_cell(one.columns[column.name]) for column in compared.columns),
        ]
        for one in compared.heads[:LISTED]
    ]
    left = len(compared.heads) - len(rows)
    chosen = sum(bool(one.selected_by) for one in compared.heads)
    shown = max(min(SHOWN, len(rows)), 1)
    caption = join(
        tag("strong", "What every method says of every head: "),
        "its score and, behind it, its rank. A filled circle marks the heads that are selected. "
        f"Heads that most methods select come first; {count(chosen, 'head')} of "
        f"{len(compared.heads)} "
        "are selected by at least one. The files methods.csv and methods.json in the run folder "
        "hold the same in full"
        f"{f', also the {left} heads that are left out here' if left else ''}. "
        "Scores of different methods are on different scales: compare ranks. ",
        "The rank of a translation score is that of the score minus chance."
        if compared.rank == "above-chance"
        else "",
    )
    first = table("Heads by method", header, rows[:shown], class_="numbers methods-table")
    more = None
    if rows[shown:]:
        rest = table("The other heads", header, rows[shown:], class_="numbers methods-table")
        summary = tag("summary", f"The other {count(len(rows) - shown, 'head')}")
        more = tag("details", summary, scroll("The other heads", rest))
    return section(
        "table", "Head by head", figure("methods-heads", caption, scroll("Heads", first), more)
    )


def _letter(place: int) -> str:
    """A to Z, then AA, AB …"""
    text = ""
    place += 1
    while place:
        place, rest = divmod(place - 1, 26)
        text = chr(ord("A") + rest) + text
    return text


def _sign(one: HeadVerdicts, signs: Mapping[str, str]) -> str:
    if not one.selected_by:
        return ""
    return signs[one.selected_by[0]] if len(one.selected_by) == 1 else str(len(one.selected_by))


def _words(one: HeadVerdicts) -> str:
    lines = [f"head {one.place}: " + (enumeration(one.selected_by) or "no method")]
    lines += [
        f"{name} {number(verdict.score)}, rank {verdict.rank}"
        for name, verdict in one.columns.items()
        if verdict.score is not None
    ]
    return "\n".join(lines)


def _cell(verdict: Verdict) -> Html:
    mark = tag("span", "\u25cf\u00a0", title="selected") if verdict.selected else None
    value = "\u2013" if verdict.score is None else number(verdict.score)
    behind = None if verdict.rank is None else tag("small", f" #{verdict.rank}")
    return join(mark, tag("strong", value) if verdict.selected else value, behind)


def _shades(compared: Comparison, column: Column) -> dict[Head, str]:
    """Each head's colour: the share of the others that rank lower; of a bare set two colours."""
    verdicts = {one.place: one.columns[column.name] for one in compared.heads}
    ranks = sorted(verdict.rank or 0 for verdict in verdicts.values())
    found = {}
    for head, verdict in verdicts.items():
        if verdict.rank is None:
            found[head] = "s13" if verdict.selected else "s0"
        else:
            lower = float(len(ranks) - bisect_right(ranks, verdict.rank))
            found[head] = ramp_class(lower, max(1.0, len(ranks) - 1.0))
    return found


def _size(column: Column) -> str:
    kind = "as the method chose them" if column.own_size else "of the highest rank"
    return f"{count(column.size, 'head')} {kind}"


def _alone(heads: tuple[str, ...]) -> str:
    return f"{len(heads) or 'none'} by it alone"
