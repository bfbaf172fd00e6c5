"""Fields of numbers as coloured cells: heat maps, and maps of all heads on one scale."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headscope.heads import Head
from headscope.report.html import Child, Html, tag
from headscope.report.matrix import CHARACTER, EMPTY, Axis, Cell, matrix, ramp_bar, ticks
from headscope.report.parts import (
    Drawn,
    bdi,
    caption,
    figure,
    legend,
    ramp_class,
    scroll,
)
from headscope.shown.blocks import HeadMap, HeadMaps, Heatmap
from headscope.shown.words import arrow, between, count, fixed, languages_of, number

WRITTEN, WIDE = 12, 150
"""A map of at most so many columns, and so many cells, has its numbers written in the cells."""

SPOKEN, HEADS = 600, 1500
"""Cells of larger maps, and of maps of more heads in all, say nothing by pointer: the page would
be too long."""

LARGE = 8
"""So many maps of heads or fewer are drawn large."""

SIGNED = 17
"""How far cells are apart, at least, where they hold signs: a wide map scrolls in its box."""


def ends_of(
    block: Heatmap | HeadMaps, rows: Sequence[Sequence[float | None]]
) -> tuple[float, float]:
    """The ends of the colours."""
    known = [value for row in rows for value in row if value is not None]
    low = min(known, default=0.0) if block.low is None else block.low
    high = max(known, default=1.0) if block.high is None else block.high
    if block.diverging:
        high = max(abs(low), abs(high)) or 1.0
        low = -high
    return low, high


def _colour(value: float | None, ends: tuple[float, float], diverging: bool) -> str:
    low, high = ends
    if diverging or value is None:
        return ramp_class(value, high, diverging)
    return ramp_class(value - low, (high - low) or 1.0)


# ---- heat maps -----------------------------------------------------------------------------------
def draw_heatmap(identifier: str, block: Heatmap) -> Drawn:
    """A field of numbers, written in its cells or said of them by pointer."""
    known = [value for row in block.values for value in row if value is not None]
    cells = len(block.rows) * len(block.columns)
    empty = cells - len(known)
    ends = ends_of(block, block.values)
    written = len(block.columns) <= WRITTEN and cells <= WIDE
    spoken = cells <= SPOKEN and (not written or bool(block.lowest))
    drawn = []
    for row, values in enumerate(block.values):
        for column, value in enumerate(values):
            words = "not run" if value is None else fixed(value, block.digits)
            sign = words if written and value is not None else ""
            if value is not None and block.lowest and block.highest:
                lowest, highest = block.lowest[row][column], block.highest[row][column]
                words += f" ({between(lowest, highest, block.digits)})"
            colour = EMPTY if value is None else _colour(value, ends, block.diverging)
            drawn.append(Cell(row, column, colour, words if spoken else "", sign=sign))
    pitch, row_pitch = _pitches(block, written)
    columns = ticks(block.columns, pitch)
    upright = any(len(name) * CHARACTER > pitch - 2 for name in columns)
    by_row, by_column = (f"{axis} " if axis else "" for axis in (block.row_axis, block.column_axis))
    pattern = {
        "data_words": f"{by_row}{{row}}, {by_column}{{column}}: {{words}}",
        "data_rows": "\t".join(block.rows),
        "data_columns": "\t".join(block.columns),
    }
    picture = matrix(
        drawn,
        Axis(ticks(block.rows, row_pitch), block.row_axis),
        Axis(columns, block.column_axis, upright),
        pitch,
        _said(block, known, by_row, by_column),
        row_pitch,
        merged=not spoken,
        **(pattern if spoken else {}),
    )
    low, high = (fixed(end, block.digits) for end in ends)
    words = caption(
        block.title,
        block.note,
        "Point at a cell for its number." if spoken else None,
        f"{count(empty, 'cell is', 'cells are')} empty: not run." if empty else None,
    )
    return Drawn(
        figure(
            identifier,
            words,
            scroll(picture),
            ramp_bar(f"{block.scale}: {low}", high, diverging=block.diverging),
            legend(("key-none", "not run")) if empty else None,
            class_="field small" if cells <= WIDE else "field",
        )
    )


def _pitches(block: Heatmap, written: bool) -> tuple[int, int]:
    """How far columns and rows of a map are apart."""
    if written:
        known = [fixed(value, block.digits) for row in block.values for value in row]
        return max(44, min(84, round(max(map(len, known), default=0) * 7.5) + 10)), 30
    pitch = max(9, min(28, 720 // max(1, len(block.columns))))
    worded = [not all(name.isdigit() for name in names) for names in (block.columns, block.rows)]
    return max(pitch, 14) if worded[0] else pitch, max(pitch, 15) if worded[1] else pitch


def _said(block: Heatmap, known: Sequence[float], by_row: str, by_column: str) -> str:
    """The map in words."""
    shape = (
        f"{block.title}: {len(block.rows)} rows by {len(block.columns)} columns of {block.scale}"
    )
    if not known:
        return f"{shape}, none of them run."
    highest = max(known)
    row, column = next(
        (row, column)
        for row, values in zip(block.rows, block.values, strict=True)
        for column, value in zip(block.columns, values, strict=True)
        if value == highest
    )
    empty = len(block.rows) * len(block.columns) - len(known)
    rest = f"; {empty} not run" if empty else ""
    return (
        f"{shape}, from {fixed(min(known), block.digits)} to {fixed(highest, block.digits)}, the "
        f"highest at {by_row}{row}, {by_column}{column}{rest}."
    )


# ---- maps of heads -------------------------------------------------------------------------------
def draw_head_maps(identifier: str, block: HeadMaps) -> Drawn:
    """Maps with one ramp for all of them."""
    rows = [row for head_map in block.maps for row in head_map.values]
    low, high = ends_of(block, rows)
    signed = any(head_map.signs for head_map in block.maps)
    small = not signed and (len(block.maps) > LARGE or sum(map(len, rows)) > HEADS)
    width = max(map(len, rows))
    most = 180 if small else 720 if len(block.maps) == 1 else 300
    pitch = max(SIGNED if signed else 4 if small else 9, min(28, most // max(1, width)))
    drawn = {
        head_map.name: _head_map(block, head_map, (low, high), pitch, small)
        for head_map in block.maps
    }
    words = caption(
        block.title,
        block.note,
        f"A dot: {block.marked}." if block.marked else None,
        None if small else "Point at a cell for its number.",
    )
    mark, word = block.tick or (None, "")
    at = None if mark is None else (mark - low) / ((high - low) or 1.0)
    bar = ramp_bar(f"{block.scale}: {number(low)}", number(high), at, word, block.diverging)
    maps = _arranged(drawn, width * pitch + (10 if small else 50))
    return Drawn(figure(identifier, words, maps, bar))


def _head_map(
    block: HeadMaps, head_map: HeadMap, ends: tuple[float, float], pitch: int, small: bool
) -> Html:
    marked, signs, more = set(head_map.marked), dict(head_map.signs), dict(head_map.words)
    cells = []
    for layer, row in enumerate(head_map.values):
        for head, value in enumerate(row):
            place = (layer, head)
            said = [
                fixed(value, block.digits),
                block.marked if place in marked else "",
                more.get(place),
            ]
            words = "\n".join(filter(None, said))
            colour = _colour(value, ends, block.diverging)
            cells.append(Cell(layer, head, colour, words, place in marked, signs.get(place, "")))
    layers, heads = len(head_map.values), max(map(len, head_map.values), default=0)
    known = [(value, str(Head(layer, head))) for layer, row in enumerate(head_map.values)
             for head, value in enumerate(row) if value is not None]  # fmt: skip
    best, at = max(known, default=(0.0, "none"))
    words = (
        f"{head_map.name or block.title}: {block.scale} of {count(layers * heads, 'head')}, "
        f"highest {at} ({fixed(best, block.digits)})"
    )
    down, across = head_axes(layers, heads, pitch)
    if small:
        rows, columns = (Axis([""] * many) for many in (layers, heads))
        return matrix(cells, rows, columns, pitch, words, merged=True)
    said_of = f"head L{{row}}.H{{column}}\n{block.scale}: {{words}}"
    return scroll(matrix(cells, down, across, pitch, words, data_heads=True, data_words=said_of))


def head_axes(layers: int, heads: int, pitch: int) -> tuple[Axis, Axis]:
    """The axes of a map of all heads."""
    numbers = (ticks([str(at) for at in range(length)], pitch) for length in (layers, heads))
    return Axis(next(numbers), "layer"), Axis(next(numbers), "head")


def _arranged(maps: Mapping[str, Html], width: int) -> Child:
    """By source and target where all are directions, else side by side, `width` pixels each."""
    if len(maps) == 1:
        return list(maps.values())
    if len(maps) > 3 and all(arrow(name) != name for name in maps):
        ways = {languages_of(name): drawn for name, drawn in maps.items()}
        sources = list(dict.fromkeys(source for source, _ in ways))
        targets = list(dict.fromkeys(target for _, target in ways))
        # One order for both sides, so that a direction and its reverse mirror each other.
        targets = [t for t in sources if t in targets] + [t for t in targets if t not in sources]
        rows = [
            tag("tr", tag("th", bdi(source), scope="row"),
                [tag("td", ways.get((source, target))) for target in targets])
            for source in sources
        ]  # fmt: skip
        top = tag("tr", tag("td"), [tag("th", bdi(name), scope="col") for name in targets])
        words = f"{count(len(maps), 'map')}, sources down, targets across"
        shown = tag("table", tag("caption", words), tag("thead", top), tag("tbody", rows))
        return scroll(shown)
    figures = [tag("figure", tag("h4", bdi(arrow(name))), drawn) for name, drawn in maps.items()]
    return tag("div", figures, class_="head-maps", style=f"--w:{width}px")
