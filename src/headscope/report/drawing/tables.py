"""Tables: values with their intervals, with a published value and the difference to ours."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import PurePosixPath
from typing import TypeAlias
from urllib.parse import quote

from headscope.report.html import Child, Html, tag
from headscope.report.parts import Drawn, bdi, caption, figure, folded, scroll, table
from headscope.shown.blocks import Cell, Row, Table, in_powers
from headscope.shown.words import between, count, signed

Write: TypeAlias = Callable[[Cell], Child]

FLAT = 2
"""Up to so many columns, interval, published value and difference stand in columns of their own."""

LONGEST, OPEN = 14, 10
"""Of tables with more rows than the first, the second stand open and the others are folded."""

NARROW = 6
"""A table of more columns, or of several that hold words, takes both columns of a printed page."""


def draw_table(identifier: str, block: Table) -> Drawn:
    """A table with the words that say what stands in it and what it is compared with."""
    block = in_powers(block)
    stacked = len(block.columns) > FLAT
    columns: list[Child] = [bdi(column) for column in block.columns]
    said = _worded(block)
    header, write = (columns, _stacked) if stacked else _flat(block)
    if not stacked:  # a column is spread over several, and only the first of them holds words
        said = {1 + sum(len(_spread(block, before)) for before in range(at - 1)) for at in said}
    look = "values stacked" if stacked else "values"

    def drawn(title: str, rows: Sequence[Row]) -> Html:
        cells = [(bdi(row.name), *write(row)) for row in rows]
        return scroll(table(title, ["", *header], cells, said, class_=look))

    ours = [any(cell.value is not None for cell in row.cells) for row in block.rows]
    every = ours.count(False) == 1  # a single row takes no more space than the words for it
    shown = [row for row, is_ours in zip(block.rows, ours, strict=True) if is_ours or every]
    rest = [row for row, is_ours in zip(block.rows, ours, strict=True) if not (is_ours or every)]
    without = ", without figures of ours" if rest else ""
    if len(shown) > LONGEST:
        shown, rest, without = shown[:OPEN], [*shown[OPEN:], *rest], ""
    parts: list[Child] = [drawn(block.title, shown)] if shown else []
    if rest:
        words = f"{'The other ' if shown else ''}{count(len(rest), 'row')}{without}"
        title = f"{block.title}, further rows" if shown else block.title
        parts.append(folded(words, drawn(title, rest)))
    across = "across" if len(header) >= NARROW or len(said) > 1 else None
    words = caption(block.title, block.note, _source(block))
    return Drawn(figure(identifier, words, *parts, class_=across))


def _ours(cell: Cell) -> Child:
    if cell.value is None:
        return tag("i", cell.why, class_="none") if cell.why else "\u2013"
    words = bdi(cell.words)
    if cell.link and below(cell.link):
        return tag("a", words, href=f"./{quote(cell.link)}")
    return [words, f"\u00a0{cell.unit}"] if cell.unit else words


def below(link: str) -> bool:
    """Whether a link leads to a file below the page."""
    place = PurePosixPath(link)
    return not place.is_absolute() and ".." not in place.parts and ":" not in link


def _stacked(row: Row) -> list[Child]:
    """Cells of one column each: ours, its interval below, then theirs with the difference."""
    made: list[Child] = []
    for cell in row.cells:
        parts: list[Child] = [_ours(cell)]
        if interval := _interval(cell):
            parts.append(tag("small", interval))
        if cell.published is not None:
            gap = f" ({_difference(cell)})" if cell.difference is not None else None
            parts.append(tag("small", "theirs ", _theirs(cell), gap, class_="theirs"))
        made.append(parts)
    return made


def _spread(block: Table, at: int) -> list[tuple[str, Write]]:
    """What a column of a flat table is spread over: words, and how to write it of a cell."""
    cells = [row.cells[at] for row in block.rows]
    parts: list[tuple[str, Write]] = [("", _ours)]
    if any(cell.low is not None for cell in cells):
        parts.append(("95\u00a0% interval", _interval))
    if any(cell.published is not None for cell in cells):
        parts.append(("theirs", _theirs))
    if any(cell.difference is not None for cell in cells):
        parts.append(("difference", _difference))
    return parts


def _flat(block: Table) -> tuple[list[Child], Callable[[Row], list[Child]]]:
    """The header of a flat table, and how to write a row."""
    spread = [_spread(block, at) for at in range(len(block.columns))]
    header: list[Child] = []
    for column, parts in zip(block.columns, spread, strict=True):
        theirs = any(words == "theirs" for words, _ in parts)
        for words, _ in parts:
            header.append(words or [bdi(column), ", ours" if theirs else None])
    return header, lambda row: [
        write(cell) for cell, parts in zip(row.cells, spread, strict=True) for _, write in parts
    ]


def _interval(cell: Cell) -> Child:
    if cell.low is None or cell.high is None:
        return ""
    return between(cell.low, cell.high, cell.digits)


def _theirs(cell: Cell) -> Child:
    return bdi(Cell(cell.published, digits=cell.digits).words)


def _difference(cell: Cell) -> Child:
    return "" if cell.difference is None else signed(cell.difference, cell.digits)


def _worded(block: Table) -> set[int]:
    """The columns, counted from that of the names, that hold words alone."""
    return {
        at
        for at in range(1, len(block.columns) + 1)
        if any(isinstance(row.cells[at - 1].value, str) for row in block.rows)
        and not any(isinstance(row.cells[at - 1].value, (int, float)) for row in block.rows)
    }


def _source(block: Table) -> list[Child]:
    """Where published values come from, and whether ours are compared with them."""
    if block.reference is None:
        return []
    where = ", ".join(part for part in (block.reference.source, block.reference.model) if part)
    cited = any(cell.published is not None for row in block.rows for cell in row.cells)
    words: list[Child] = ["Theirs: " if cited else "The paper has no figures for these cells: "]
    words.append(bdi(where))
    if not block.reference.comparable:
        words += ["; ", tag("b", block.reference.why or "not comparable", class_="against")]
    return [*words, "."]
