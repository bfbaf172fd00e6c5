"""Matrices of coloured cells as SVG: heads of a model, and pairs of directions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headscope.report.html import Html, tag
from headscope.report.parts import RAMP, diverging_class

CHARACTER = 6.6
"""Width in pixels of a character of a tick label, generously."""

EMPTY = "none"
"""The colour of cells that there is nothing to say of; they need the style sheet `paper.css`."""

SMALLEST = 0.72
"""How far a matrix may shrink on a narrow screen."""


@dataclass(frozen=True)
class Axis:
    """Tick labels by position, an empty string where there is none, and where a gap comes before.

    `title` says what the axis counts.
    """

    labels: Sequence[str]
    title: str = ""
    gaps: frozenset[int] = frozenset()
    upright: bool = False

    def offset(self, position: int) -> int:
        """Pixels that the gaps before this position add."""
        return 5 * sum(gap <= position for gap in self.gaps)


@dataclass(frozen=True)
class Cell:
    """One cell: its place, the class of its colour, its index for the script and its words.

    `sign` is a letter or two that stand in the cell, `head` the head that it stands for (`4.3`).
    """

    row: int
    column: int
    colour: str
    index: int | None = None
    words: str | None = None
    marked: bool = False
    sign: str = ""
    head: str | None = None


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

    Rows are `row_pitch` apart, if that is given: room for labels where columns are many. `merged`
    draws cells without their words, one path a colour, which is a tenth as long to write; a colour
    is then the name of a custom property of the style sheet. Cells of the colour `none` are
    hatched.

    It shrinks to the width it is given, as long as labels stay legible; then its box scrolls.
    """
    left = round(max((len(label) for label in rows.labels), default=0) * CHARACTER) + 10
    left += 18 if rows.title else 0
    longest = round(max((len(label) for label in columns.labels), default=0) * CHARACTER)
    top = (longest + 10 if columns.upright else 18) + (18 if columns.title else 0)
    tall = row_pitch or pitch
    width = left + columns.offset(len(columns.labels) - 1) + pitch * len(columns.labels) + 2
    if not columns.upright:  # a label in the middle of a narrow column reaches beyond it
        last = max((at for at, label in enumerate(columns.labels) if label), default=0)
        reach = pitch * last + pitch / 2 + len(columns.labels[last]) * CHARACTER / 2
        width = max(width, round(left + columns.offset(last) + reach))
    height = top + rows.offset(len(rows.labels) - 1) + tall * len(rows.labels) + 2

    def x(column: int) -> int:
        return left + columns.offset(column) + pitch * column

    def y(row: int) -> int:
        return top + rows.offset(row) + tall * row

    size = pitch - (2 if pitch > 12 else 1)
    high = tall - (2 if tall > 12 else 1)
    shapes = []
    colours: dict[str, list[str]] = {}
    signs: dict[str, list[Html]] = {}
    for cell in cells:
        at = {"x": f"{x(cell.column) + size / 2:g}", "y": f"{y(cell.row) + high / 2:g}"}
        if merged or cell.colour == EMPTY:
            line = f"M{x(cell.column)} {at['y']}h{size}"
            colours.setdefault(cell.colour, []).append(line)
        if merged:
            if cell.sign:
                signs.setdefault(cell.colour, []).append(tag("text", cell.sign, **at))
            continue
        shapes.append(
            tag(
                "rect",
                x=x(cell.column),
                y=y(cell.row),
                width=size,
                height=high,
                rx=2 if pitch > 12 else None,
                class_=f"cell {cell.colour}",
                data_i=cell.index,
                data_words=cell.words,
                data_head=cell.head,
            )
        )
        if cell.index is not None or cell.marked:
            centre = {"cx": x(cell.column) + size / 2, "cy": y(cell.row) + high / 2}
            hidden = "dot" if cell.marked else "dot off"
            shapes.append(tag("circle", **centre, r=max(1.5, pitch / 9), class_=hidden))
        if cell.sign:
            shapes.append(
                tag("text", cell.sign, **at, dy="0.35em", text_anchor="middle", class_="sign")
            )
    # A line as wide as a cell is half as long to write as its outline.
    shapes += [
        tag("path", d="".join(lines), class_=f"line is-{name}", style=f"stroke:var(--{name})")
        for name, lines in colours.items()
    ]
    shapes += [tag("g", words, class_=f"signs on-{name}") for name, words in signs.items()]
    middle = size / 2
    labels = [
        tag("text", label, x=left - 6, y=y(row) + high / 2, dy="0.35em", text_anchor="end")
        for row, label in enumerate(rows.labels)
        if label
    ]
    for column, label in enumerate(columns.labels):
        if label and columns.upright:
            place = f"translate({x(column) + middle} {top - 6}) rotate(-90)"
            labels.append(tag("text", label, transform=place, dy="0.35em"))
        elif label:
            labels.append(tag("text", label, x=x(column) + middle, y=top - 7, text_anchor="middle"))
    if columns.title:
        labels.append(tag("text", columns.title, x=left, y=11, class_="axis"))
    if rows.title:
        place = f"translate(11 {y(0)}) rotate(-90)"
        labels.append(tag("text", rows.title, transform=place, text_anchor="end", class_="axis"))
    return tag(
        "svg",
        tag("g", labels, class_="ticks", aria_hidden="true"),
        tag("g", shapes, stroke_width=high if colours else None),
        viewBox=f"0 0 {width} {height}",
        class_="matrix",
        style=f"max-width:{width}px;min-width:{round(width * SMALLEST)}px",
        role="img",
        tabindex=0,
        aria_label=description,
        **data,
    )


def small_matrix(
    cells: Sequence[Cell], shape: tuple[int, int], pitch: int, description: str
) -> Html:
    """An SVG of (rows, columns) cells without labels or words, one path a colour.

    Large models have thousands of cells, and a page many such maps.
    """
    size = pitch - (2 if pitch > 12 else 1)
    colours: dict[str, list[str]] = {}
    dots = []
    for cell in cells:
        x, y = cell.column * pitch, cell.row * pitch
        colours.setdefault(cell.colour, []).append(f"M{x} {y}h{size}v{size}h-{size}z")
        if cell.marked:
            r = max(1, round(pitch / 7))
            left, middle = x + size / 2 - r, y + size / 2
            dots.append(f"M{left:g} {middle:g}a{r} {r} 0 1 0 {2 * r} 0a{r} {r} 0 1 0 -{2 * r} 0z")
    width, height = shape[1] * pitch, shape[0] * pitch
    return tag(
        "svg",
        [tag("path", d="".join(drawn), class_=f"cell {name}") for name, drawn in colours.items()],
        tag("path", d="".join(dots), class_="dot") if dots else None,
        viewBox=f"0 0 {width} {height}",
        class_="matrix",
        style=f"max-width:{width}px",
        role="img",
        aria_label=description,
    )


def ramp_bar(
    low: str, high: str, mark: float | None = None, words: str = "", diverging: bool = False
) -> Html:
    """The key of the colour ramp; `mark` (a share of the ramp) is pointed out with `words`.

    `diverging` is the ramp with two ends and 0 in its middle.
    """
    half = RAMP // 2
    colours = [
        diverging_class(step - half, half) if diverging else f"s{step}" for step in range(RAMP + 1)
    ]
    steps = [tag("i", class_=colour) for colour in colours]
    pointer = None
    if mark is not None:
        pointer = tag("span", words, class_="pointer", style=f"--v:{mark:.4f}")
    bar = tag("span", steps, pointer, class_="ramp")
    return tag("div", tag("span", low), bar, tag("span", high), class_="rampbar")
