"""Heads of a model: the table of all heads with its map and its layers, and sets to copy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite

from headscope.heads import Head
from headscope.heads.geometry import keys_of
from headscope.report.drawing.maps import head_axes
from headscope.report.html import Child, Html, join, tag
from headscope.report.matrix import Cell, matrix, ramp_bar
from headscope.report.parts import (
    Drawn,
    bdi,
    caption,
    figure,
    folded,
    named,
    ramp_class,
    scroll,
    table,
    var_style,
)
from headscope.shown.blocks import Column, HeadSets, HeadTable
from headscope.shown.words import count, fixed, in_power, interval, number, power_of

#: Rows of a ranking that stand open.
ROWS = 12
#: Sets of heads that stand open.
SETS = 6
#: Digits of the numbers that a page holds for its scripts; the run folder holds them in full.
DIGITS = 6
#: Of more layers the table of layers is set small.
MANY_LAYERS = 12

Numbers = Mapping[str, Sequence[float | None]]


@dataclass(frozen=True)
class Written:
    """How numbers of a column are written: with so many decimals, times a factor in its title."""

    title: str
    digits: int
    factor: float = 1.0

    def __call__(self, value: float | None) -> str:
        return fixed(None if value is None else value * self.factor, self.digits)

    def between(self, low: float | None, high: float | None) -> str:
        return interval(self(low), self(high))


def written(block: HeadTable) -> dict[str, Written]:
    """How each column is written: in powers of ten where its decimals would show next to nothing.

    Columns that are compared with the first one have its power.
    """
    columns = {}
    for column in block.columns:
        power = power_of(highest(block, column.key), 10.0 ** (1 - column.digits))
        title, digits = in_power(column.title, power), 3 if power else column.digits
        columns[column.key] = Written(title, digits, 10.0**-power)
    return columns


def draw_head_table(identifier: str, block: HeadTable) -> Drawn:
    """The map, and below it layers and the ranking; the script refills all three."""
    parts = {
        name: {key: [_known(value) for value in column] for key, column in numbers.items()}
        for name, numbers in block.parts.items()
    }
    values, writes = next(iter(parts.values())), written(block)
    body = tag("div", _map(identifier, block, values, writes), class_="head-table", id=identifier)
    layers = folded("Layers", _profile(block, values, writes))
    below = tag("div", _ranking(block, values, writes), layers, id=f"{identifier}-below")
    data = {
        "heads": block.heads,
        "columns": [[key, how.title, how.digits, how.factor] for key, how in writes.items()],
        "parts": parts,
        "ranked": block.ranked_by,
        "threshold": block.threshold,
        "significant": block.significant,
        "classes": block.classes,
        "highs": {key: highest(block, key) for key in writes},
        "span": _span(block),
        "signed": block.signed,
        "shown": ROWS,
    }
    choices = tuple(parts) if len(parts) > 1 else ()
    return Drawn(body, {identifier: data}, ("heads.js",), choices, below)


def _shades(block: HeadTable) -> list[Column]:
    """The columns that cells can be coloured by."""
    return [column for column in block.columns if column.key not in ("low", "high")]


def _map(identifier: str, block: HeadTable, values: Numbers, writes: Mapping[str, Written]) -> Html:
    first, shades, dots = block.columns[0].key, _shades(block), block.dots(next(iter(block.parts)))
    high = highest(block, first)
    cells = [
        Cell(layer, head, ramp_class(values[first][at], high, block.signed), marked=dots[at])
        for at, (layer, head) in enumerate(block.heads)
    ]
    layers, width = (1 + max(places) for places in zip(*block.heads, strict=True))
    pitch = max(9, min(28, 720 // width))
    best = ", ".join(
        f"{Head(*block.heads[at])} ({writes[first](values[first][at])})"
        for at in block.ranked()[:5]
    )
    words = (
        f"{block.title}: {count(len(block.heads), 'head')}, {_most(block)} {best}. Arrow keys read "
        "single heads; the table below holds every number."
    )
    picture = matrix(cells, *head_axes(layers, width, pitch), pitch, words, data_heads=True)
    options = [tag("option", writes[column.key].title, value=column.key) for column in shades]
    choice = tag("select", options, class_="shade")
    said = None
    if block.threshold is not None:
        by_title = next(c.title for c in block.columns if c.key == block.ranked_by)
        said = f"A dot: {by_title} above {fixed(block.threshold, 2)}. "
    elif block.significant:
        side = "on one side of 0" if block.signed else f"above {_floor(block, values)}"
        said = f"A dot: the whole 95\u00a0% interval is {side}. "
    numbers = (value for part in block.parts.values() for value in part[first])
    negative = not block.signed and any((value or 0.0) < 0 for value in numbers)
    mark = None
    if block.threshold is not None and block.ranked_by == first and block.threshold <= high:
        mark = block.threshold / high
    return figure(
        f"{identifier}-map",
        join(
            named(f"Every head: {writes[first].title}"),
            " One cell each. ",
            "Blue is below 0, orange above. "
            if block.signed
            else "Darker means higher (in a dark scheme, lighter). ",
            said,
            "Values below 0 have the colour of 0. " if negative else None,
            "Point at a cell for its numbers; click to mark the head on the whole page.",
        ),
        tag("label", "Colour shows", choice, class_="control script") if len(shades) > 1 else None,
        scroll(picture),
        ramp_bar(
            number(-high) if block.signed else "0",
            number(high),
            mark,
            "" if mark is None else fixed(block.threshold, 2),
            block.signed,
        ),
        class_="heatmap",
    )


def _profile(block: HeadTable, values: Numbers, writes: Mapping[str, Written]) -> Html:
    first, dots = block.columns[0].key, block.dots(next(iter(block.parts)))
    high = highest(block, first)
    header = ["Layer", "", "Mean", _most(block).capitalize()]
    if block.threshold is not None:
        header.append(f"> {fixed(block.threshold, 2)}")
    elif block.significant:
        header.append("CI without 0" if block.signed else f"CI > {_floor(block, values)}")
    members: dict[int, list[int]] = {}
    for at, (layer, _) in enumerate(block.heads):
        members.setdefault(layer, []).append(at)
    rows: list[list[Child]] = []
    for layer, of_layer in members.items():
        known = [value for at in of_layer if (value := values[first][at]) is not None]
        ends = (sum(known) / len(known), max(known, key=block.size)) if known else (None, None)
        shares = (None if end is None else block.size(end) / high for end in ends)
        style = var_style(v=next(shares), h=next(shares))
        bar = tag("span", tag("b"), tag("i"), class_="bar", style=style)
        row: list[Child] = [layer, bar, *map(writes[first], ends), sum(dots[at] for at in of_layer)]
        rows.append(row[: len(header)])
    look = "profile dense" if len(members) > MANY_LAYERS else "profile"
    title = f"Layers: {writes[first].title}"
    of_size = ", of either sign" if block.signed else ""
    words = join(
        named(title),
        f" Bar: mean over the heads of a layer{of_size}; tick: its {_most(block)} head.",
    )
    return figure(None, words, scroll(table(title, header, rows, class_=look)))


def _ranking(block: HeadTable, values: Numbers, writes: Mapping[str, Written]) -> Html:
    first, interval = block.columns[0], "low" in values
    chance = block.beside_chance and "chance" in values
    shades = _shades(block)
    heading = [
        _heading("rank", "#"),
        _heading("head", tag("button", "Head", data_sort="head")),
        _heading("range", ""),
    ]
    for column in shades:
        button = tag("button", writes[column.key].title, data_sort=column.key)
        falling = "descending" if column.key == block.ranked_by else None
        heading.append(
            _heading(column.key, button, title=column.meaning or None, aria_sort=falling)
        )
        if column is first and interval:
            heading.append(_heading("interval", block.band))
    if block.classes:
        heading.append(_heading("class", "Class", class_="said"))
    rows = []
    start, end = _span(block)
    for rank, at in enumerate(block.ranked()[:ROWS], 1):
        marks = {"v": first.key, "lo": "low", "hi": "high"} | ({"c": "chance"} if chance else {})
        known = {mark: values[key][at] for mark, key in marks.items() if key in values}
        style = var_style(
            **{mark: (v - start) / (end - start) for mark, v in known.items() if v is not None}
        )
        cells: list[Html] = []
        for column in shades:
            cells.append(tag("td", writes[column.key](values[column.key][at])))
            if column is first and interval:
                ends = values["low"][at], values["high"][at]
                cells.append(tag("td", writes[first.key].between(*ends)))
        if block.classes:
            cells.append(tag("td", class_of(block, values[block.ranked_by][at]), class_="said"))
        place = Head(*block.heads[at])
        picture = tag("span", tag("b"), tag("i"), class_="range", style=style)
        first_cells = tag("td", rank), tag("th", str(place), scope="row"), tag("td", picture)
        rows.append(tag("tr", first_cells, cells, data_head=place.key))
    shown = tag(
        "table",
        tag("caption", block.title),
        tag("thead", tag("tr", heading)),
        tag("tbody", rows),
        class_="ranking",
    )
    hidden = len(block.heads) <= ROWS
    buttons = [
        tag("button", f"Show all {len(block.heads)} heads", class_="more", aria_expanded="false",
            hidden=hidden), " ",
        tag("button", "Save as CSV", class_="csv"),
    ]  # fmt: skip
    meaning = "The dot is the score" if interval or chance else ""
    meaning += f", the band its {block.band}" if interval else ""
    meaning += ", the grey tick chance" if chance else ""
    words = caption(block.title, block.note, f"{meaning}." if meaning else None)
    return figure(None, words, scroll(shown), tag("p", buttons, class_="script"))


def _heading(key: str, words: Child, **attributes: object) -> Html:
    return tag("th", words, scope="col", data_c=key, **attributes)


def class_of(block: HeadTable, value: float | None) -> str:
    """The class of a head by the number that it is ranked by."""
    return next(name for name, above in block.classes if above is None or (value or 0.0) > above)


def draw_head_sets(identifier: str, block: HeadSets) -> Drawn:
    """Each set as chips, with buttons that copy it for `--heads`, as CSV and for Python."""
    sets = []
    for name, heads in block.sets.items():
        places = [Head(*place) for place in heads]
        chips = [
            [tag("a", str(place), href=f"#head={place.key}", class_="chip"), " "]
            for place in places
        ]
        formats = ("copy for --heads", "CSV", "Python")
        copies = [[tag("button", words, class_="copy"), " "] for words in formats]
        sets.append(
            tag("div",
                tag("h4", bdi(name), f" ({count(len(heads), 'head')})"),
                tag("p", chips or "none"),
                tag("p", copies, class_="script") if heads else None,
                class_="head-set", data_heads=",".join(keys_of(places)))
        )  # fmt: skip
    more = folded(f"The other {len(sets) - SETS}", sets[SETS:]) if len(sets) > SETS else None
    return Drawn(figure(identifier, caption(block.title, block.note), *sets[:SETS], more))


def _known(value: float | None) -> float | None:
    return None if value is None or not isfinite(value) else float(f"{value:.{DIGITS}g}")


def highest(block: HeadTable, key: str) -> float:
    """The end of the colours: of the first column, and of what is compared with it, one for all."""
    first = block.columns[0].key
    if key in (first, "low", "high", "chance", "above_chance"):
        if block.high is not None:
            return block.high
        key = first
    known = [_known(value) or 0.0 for part in block.parts.values() for value in part[key]]
    return max([*map(block.size, known), 0.0]) or 1.0


def _most(block: HeadTable) -> str:
    """What the first head of the ranking is."""
    return "strongest" if block.signed else "highest"


def _span(block: HeadTable) -> tuple[float, float]:
    """Where the axis of scores and their intervals begins, at 0 or below, and where it ends."""
    keys = (block.columns[0].key, "low", "high", *(["chance"] if block.beside_chance else []))
    known = [
        _known(value) or 0.0
        for part in block.parts.values()
        for key in keys
        for value in part.get(key, ())
    ]
    return min([*known, 0.0]), max([*known, 0.0]) or 1.0


def _floor(block: HeadTable, values: Mapping[str, object]) -> str:
    """What an interval must lie above."""
    return "chance" if block.beside_chance and "chance" in values else "0"
