"""Heads by method: the map of all heads, a small map of each column, and the table."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping

from headscope.heads import Head
from headscope.report.html import Child, Html, join, tag
from headscope.report.matrix import Axis, Cell, matrix, ramp_bar, small_matrix
from headscope.report.parts import figure, ramp_class, scroll, section, table
from headscope.report.records.methods import Column, HeadEntry, MethodsRecord
from headscope.report.sections.head_scores import SHOWN, ticks
from headscope.report.words import count, enumeration, number

__all__ = ["map_section", "signs_of", "small_maps_section", "table_section"]


LISTED = 400
"""Heads that the table holds; a page of all heads of a large model would be slow to open."""


def signs_of(record: MethodsRecord) -> dict[str, str]:
    """A letter for each method: A, B, C …"""
    return {one.name: _letter(place) for place, one in enumerate(record.methods)}


def map_section(record: MethodsRecord) -> Html:
    """Every head with the letter of the method that alone selects it, or how many do."""
    signs = signs_of(record)
    by_head = {one.head: one for one in record.heads}
    most = max(2, len(record.methods))
    # Room for a letter: a wide model's map scrolls in its box.
    pitch = max(17, min(30, 760 // record.geometry.width))
    cells = [
        Cell(
            head.layer,
            head.head,
            ramp_class(len(by_head[head].selected_by), most),
            words=_words(by_head[head], record.columns),
            sign=_sign(by_head[head], signs),
        )
        for head in record.geometry.heads()
    ]
    several = sum(len(one.selected_by) > 1 for one in record.heads)
    alone = sum(len(one.selected_by) == 1 for one in record.heads)
    picture = matrix(
        cells,
        Axis(ticks(record.geometry.layers, pitch), "layer"),
        Axis(ticks(record.geometry.width, pitch), "head"),
        pitch,
        f"Map of {count(record.geometry.total, 'head')}: {several} are selected by several "
        f"methods, {alone} by one alone. The table below says by which.",
    )
    key = [
        tag("li", tag("b", signs[one.name]), tag("bdi", one.name), f" ({_alone(one.specific)})")
        for one in record.methods
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
            ramp_bar("no method", f"all {len(record.methods)}"),
        ),
    )


def small_maps_section(record: MethodsRecord) -> Html:
    """One small map a column: how high each head stands, and which are selected."""
    pitch = max(4, min(14, 224 // record.geometry.width))
    figures = []
    for place, column in enumerate(record.columns):
        shades = _shades(record, place)
        cells = [
            Cell(head.layer, head.head, shades[head], marked=head in column.heads)
            for head in record.geometry.heads()
        ]
        layers = sorted({head.layer for head in column.heads})
        picture = small_matrix(
            cells,
            record.geometry.shape,
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


def table_section(record: MethodsRecord) -> Html:
    """Every head with the score and rank that every column gives it; chosen ones are marked."""
    signs = signs_of(record)
    header: list[Child] = ["Head", "Methods"]
    header += [tag("bdi", one.name) for one in record.columns]
    rows = [
        [
            str(one.head),
            " ".join(signs[name] for name in one.selected_by) or "\u2013",
            *(_cell(one, place) for place in range(len(record.columns))),
        ]
        for one in record.heads[:LISTED]
    ]
    left = len(record.heads) - len(rows)
    chosen = sum(bool(one.selected_by) for one in record.heads)
    shown = max(min(SHOWN, len(rows)), 1)
    caption = join(
        tag("strong", "What every method says of every head: "),
        "its score and, behind it, its rank. A filled circle marks the heads that are selected. "
        f"Heads that most methods select come first; {count(chosen, 'head')} of "
        f"{len(record.heads)} "
        "are selected by at least one. The files methods.csv and methods.json in the run folder "
        "hold the same in full"
        f"{f', also the {left} heads that are left out here' if left else ''}. "
        "Scores of different methods are on different scales: compare ranks. ",
        "The rank of a translation score is that of the score minus chance."
        if record.result.get("rank") == "above-chance"
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


def _sign(one: HeadEntry, signs: Mapping[str, str]) -> str:
    if not one.selected_by:
        return ""
    return signs[one.selected_by[0]] if len(one.selected_by) == 1 else str(len(one.selected_by))


def _words(one: HeadEntry, columns: tuple[Column, ...]) -> str:
    lines = [f"head {one.head}: " + (enumeration(one.selected_by) or "no method")]
    for column, score, rank in zip(columns, one.scores, one.ranks, strict=True):
        if score is not None:
            lines.append(f"{column.name} {number(score)}, rank {rank}")
    return "\n".join(lines)


def _cell(one: HeadEntry, place: int) -> Html:
    score, rank, chosen = one.scores[place], one.ranks[place], one.selected[place]
    mark = tag("span", "\u25cf\u00a0", title="selected") if chosen else None
    value = "\u2013" if score is None else number(score)
    behind = None if rank is None else tag("small", f" #{rank}")
    return join(mark, tag("strong", value) if chosen else value, behind)


def _shades(record: MethodsRecord, place: int) -> dict[Head, str]:
    """Each head's colour: the share of the others that rank lower; of a bare set two colours."""
    ranks = sorted(one.ranks[place] or 0 for one in record.heads)
    found = {}
    for one in record.heads:
        rank = one.ranks[place]
        if rank is None:
            found[one.head] = "s13" if one.selected[place] else "s0"
        else:
            lower = float(len(ranks) - bisect_right(ranks, rank))
            found[one.head] = ramp_class(lower, max(1.0, len(ranks) - 1.0))
    return found


def _size(column: Column) -> str:
    kind = "as the method chose them" if column.own else "of the highest rank"
    return f"{count(column.size, 'head')} {kind}"


def _alone(heads: tuple[Head, ...]) -> str:
    return f"{len(heads) or 'none'} by it alone"
