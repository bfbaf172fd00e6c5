"""Matrices of coloured cells as SVG: heads of a model, and other fields of numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headscope.report.html import Html, tag
from headscope.report.parts import COLOURS, DIVERGING, RAMP

CHARACTER = 6.6
"""Width in pixels of a character of a tick label, generously."""

EMPTY = "none"
"""The colour of cells that there is nothing to say of: they are hatched."""

SMALLEST = 0.72
"""How far a matrix may shrink on a narrow screen."""

SIZE = 0.93
"""The share of its pitch that a cell takes, as in the style sheet."""


@dataclass(frozen=True)
class Axis:
    """Tick labels by position, an empty string where there is none; `title` says what it counts."""

    labels: Sequence[str]
    title: str = ""
    upright: bool = False

    @property
    def longest(self) -> int:
        """Pixels that the labels take."""
        return round(max(map(len, self.labels), default=0) * CHARACTER)

    @property
    def bare(self) -> bool:
        """Whether nothing is written along it."""
        return not any(self.labels) and not self.title


@dataclass(frozen=True)
class Cell:
    """One cell: its place, the class of its colour, and what is said of it by pointer.

    `sign` is a number or a letter or two that stand in the cell.
    """

    row: int
    column: int
    colour: str
    words: str = ""
    marked: bool = False
    sign: str = ""


def matrix(
    cells: Sequence[Cell],
    rows: Axis,
    columns: Axis,
    pitch: int,
    description: str,
    row_pitch: int | None = None,
    merged: bool = False,
    **data: object,
) -> Html:
    """An SVG of cells `pitch` pixels apart, with labels to the left and on top.

    Rows are `row_pitch` apart, if that is given: space for labels where columns are many. `merged`
    draws cells without their words, one path a colour, which is a tenth as long to write. `data`
    gives the script the words of cells: `data_words` is a pattern of row, column and the words
    of the cell (`head {row}.{column}: {words}`), which `data_rows` and `data_columns` name.

    It shrinks to the width it is given, as long as labels stay legible; then its box scrolls.
    """
    bare, tall = rows.bare and columns.bare, row_pitch or pitch
    left = 0 if bare else rows.longest + (32 if rows.title else 14)
    top = columns.longest + 10 if columns.upright else 18
    top = 0 if bare else top + (18 if columns.title else 0)
    width, height = left + pitch * len(columns.labels) + 2, top + tall * len(rows.labels) + 2
    if not columns.upright:  # a label in the middle of a narrow column reaches beyond it
        last = max((at for at, label in enumerate(columns.labels) if label), default=0)
        reach = pitch * last + pitch / 2 + len(columns.labels[last]) * CHARACTER / 2
        width = max(width, round(left + reach))
    middle = f"{left + SIZE * pitch / 2:g} {top + SIZE * tall / 2:g}"
    units = f"scale({pitch})" if tall == pitch else f"scale({pitch} {tall})"
    shapes, colours, signs = [], dict[str, list[str]](), dict[str, list[Html]]()
    for cell in cells:
        if merged or cell.colour == EMPTY:
            line = f"M{cell.column} {cell.row}h{SIZE}".replace("0.", ".")
            colours.setdefault(cell.colour, []).append(line)
        if not merged:
            place = {"x": cell.column, "y": cell.row}
            shapes.append(tag("rect", class_=f"cell {cell.colour}", **place))
        if cell.sign:
            kind = f"signs on-{cell.colour}" if merged else "signs letters"
            sign = tag("text", cell.sign, x=pitch * cell.column, y=tall * cell.row)
            signs.setdefault(kind, []).append(sign)
    # A line as wide as a cell is half as long to write as its outline.
    lines = [
        tag("path", d="".join(parts), class_=f"line is-{name}", style=f"stroke:var(--{name})")
        for name, parts in colours.items()
    ]
    level = f"translate({left} {top + SIZE * tall / 2:g}) {units}"
    dots = [tag("circle", class_="dot", cx=c.column, cy=c.row) for c in cells if c.marked]
    if any(cell.words for cell in cells) and not merged:
        data["data_values"] = "\t".join(cell.words.replace("\t", " ") for cell in cells)
    size = f"--r:{max(0.11, 1.5 / pitch):.2g}px;max-width:{width}px"
    return tag(
        "svg",
        None if bare else _ticks(rows, columns, left, top, pitch, tall),
        tag("g", shapes, transform=f"translate({left} {top}) {units}") if shapes else None,
        tag("g", lines, transform=level, stroke_width=SIZE) if lines else None,
        tag("g", dots, class_="dots", transform=f"translate({middle}) {units}")
        if dots or "data_words" not in data
        else None,
        [tag("g", texts, class_=kind, transform=f"translate({middle})")
         for kind, texts in signs.items()],
        viewBox=f"0 0 {width} {height}",
        class_="matrix",
        style=size if bare else f"{size};min-width:{round(width * SMALLEST)}px",
        role="img",
        tabindex=None if merged else 0,
        aria_label=description,
        **data,
    )  # fmt: skip


def _ticks(rows: Axis, columns: Axis, left: int, top: int, pitch: int, tall: int) -> Html:
    """The labels of both axes and their titles."""
    down = [tag("text", name, y=tall * row) for row, name in enumerate(rows.labels) if name]
    along = "y" if columns.upright else "x"
    over = [
        tag("text", name, **{along: pitch * column})
        for column, name in enumerate(columns.labels)
        if name
    ]
    left_of = f"translate({left - 6} {top + SIZE * tall / 2:g})"
    above = f"translate({left + SIZE * pitch / 2:g} {top - 7})"
    return tag(
        "g",
        tag("g", down, class_="down", transform=left_of),
        tag("g", over, class_="up", transform=f"{above} rotate(-90)")
        if columns.upright
        else tag("g", over, class_="over", transform=above),
        tag("text", columns.title, x=left, y=11) if columns.title else None,
        tag("text", rows.title, transform=f"translate(11 {top}) rotate(-90)", class_="turned")
        if rows.title
        else None,
        class_="ticks",
    )


def ticks(names: Sequence[str], pitch: int) -> list[str]:
    """Names that are numbers, thinned where they stand too close; others as they are."""
    if not all(name.isdigit() for name in names):
        return list(names)
    step = 1 if pitch >= 18 else 2 if pitch >= 13 else 4
    return [name if at % step == 0 else "" for at, name in enumerate(names)]


def ramp_bar(
    low: str, high: str, mark: float | None = None, words: str = "", diverging: bool = False
) -> Html:
    """The key of the colour ramp; `mark` (a share of the ramp) is pointed out with `words`.

    `diverging` is the ramp with two ends and 0 in its middle.
    """
    steps = [tag("i", class_=name) for name in (DIVERGING if diverging else COLOURS[: RAMP + 1])]
    pointer = None
    if mark is not None:
        pointer = tag("span", words, class_="pointer", style=f"--v:{mark:.4f}")
    bar = tag("span", steps, pointer, class_="ramp")
    return tag("div", tag("span", low), bar, tag("span", high), class_="rampbar")
