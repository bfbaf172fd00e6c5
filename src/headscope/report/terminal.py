"""What a run shows as plain text: the finding, one table, and what to do next; or in full."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise, zip_longest
from typing import assert_never

from rich.cells import cell_len

from headscope.heads import Head
from headscope.report.drawing.heads import written
from headscope.report.drawing.sentences import DIGITS, by_loss
from headscope.shown.blocks import (
    AS_MUCH,
    PROMPT,
    Bars,
    Block,
    Cell,
    Forest,
    Gap,
    HeadMaps,
    HeadSentences,
    HeadSets,
    HeadTable,
    Heatmap,
    Histograms,
    KeyText,
    Lines,
    NotMeasured,
    Row,
    Sentences,
    Shown,
    Table,
    Text,
    in_powers,
)
from headscope.shown.words import arrow, between, count, fixed, number, unbroken

#: Columns of a line where the terminal does not say how many it has; no sentence is longer than the
#: second, which is hard to read.
WIDTH, LINE = 100, 100
#: How columns begin that stand in one table with the column before them.
TOGETHER = ("p ", "its ", "same layers", AS_MUCH)
#: Lines of a terminal, and those that its table has at least, if it does not show all.
SCREEN, LEAST = 25, 6
#: Rows of a table, and heads of a ranking, that a terminal shows.
ROWS, HEADS = 40, 10
#: The narrowest columns of names and of words; a cell of more words than the last is wrapped.
NAMES, NARROW, WHOLE = 24, 10, 3
#: Sentences that a terminal shows, and characters of each of their texts.
EXAMPLES, LONGEST = 2, 160
LIST = re.compile(r"[0-9.]+ [0-9]")


def text_of(
    shown: Shown,
    run: str | None = None,
    report: str | None = None,
    width: int = WIDTH,
    full: bool = False,
) -> str:
    """The finding, what it rests on, cautions and the figure, in `width` columns; last where run
    and report are, and the command that goes on. `full`: brief sections, too, and `ROWS` rows."""
    warning = [f"Warning: {shown.warning}"] if shown.warning else []
    lines = [*_wrapped([*warning, *shown.finding], width)]
    if shown.uncertainty:
        remedy = f" Try {shown.remedy}." if shown.remedy else ""
        lines += _wrapped([shown.uncertainty + remedy], width)
    lines += _wrapped((f"Caution: {words}" for words in shown.cautions), width)
    brief = [
        block
        for section in shown.sections
        for block in section.blocks
        if section.brief or isinstance(block, Sentences)
    ]
    known = [*([shown.figure] if shown.figure else []), *brief]
    blocks = [block for block in known if _block(block, width)]
    places = {PROMPT: dict(shown.facts).get(PROMPT), "run": run, "report": report}
    last = [f"{name}: {place}" for name, place in places.items() if place is not None]
    if shown.next:  # a line of its own, however long, so that it can be copied
        last += [f"{shown.next.words}:", _plain(shown.next.command)]
    every = [line for block in blocks for line in ["", *_block(block, width)]]
    if full or len(lines) + len(every) + 1 + len(last) <= SCREEN:
        lines += every
    else:
        room = max(LEAST, SCREEN - len(lines) - len(last) - 3)
        first = _fitting(blocks[0], width, room) if blocks else []
        more = ["More tables and rows: --full"] if ["", *first] != every and blocks else []
        lines += ["", *first, *more]
    lines += ["", *last]
    return "\n".join(line.rstrip() for line in lines).strip("\n")


def _text(name: str, words: str) -> list[str]:
    """A text behind its name; one of several lines below it, line by line."""
    first, *more = words.strip("\n").split("\n")
    if not more:
        return [f"{name}: {_plain(first) or '(nothing)'}"]
    return [f"{name}:", *(f"  {_plain(line)}" for line in (first, *more))]


def _wrapped(sentences: Iterable[str], width: int) -> list[str]:
    return [
        _plain(line)
        for words in sentences
        for part in words.split("\n")
        for line in textwrap.wrap(unbroken(part), min(width, LINE), break_long_words=False,
                                  break_on_hyphens=False)
    ]  # fmt: skip


def _folded(line: str, width: int) -> list[str]:
    """A line that is too long as several."""
    if cell_len(line) <= width:
        return [line]
    return textwrap.wrap(line, width, subsequent_indent="  ", break_long_words=False,
                         break_on_hyphens=False)  # fmt: skip


def _fitting(block: Block, width: int, room: int) -> list[str]:
    """A block in so many lines, with as many rows as they hold."""
    every = (_block(block, width, rows) for rows in range(ROWS, 0, -1))
    return next((lines for lines in every if len(lines) <= room), _block(block, width, 1)[:room])


def _block(block: Block, width: int, rows: int = ROWS) -> list[str]:
    """A block in lines of this width, with at most so many rows."""
    return [part for line in _lines(block, width, rows) for part in _folded(line, width)]


def _lines(block: Block, width: int, rows: int) -> list[str]:
    match block:
        case Table():
            return [block.title, *_table(block, width, most=rows)]
        case HeadTable():
            return _head_table(block, width, min(rows, HEADS))
        case HeadSets():
            return [f"{name}: {_heads(heads)}" for name, heads in block.sets.items()]
        case Heatmap():
            cells = [
                (name, *(fixed(value, block.digits) for value in values))
                for name, values in zip(block.rows, block.values, strict=True)
            ]
            corner = "/".join(filter(None, (block.row_axis, block.column_axis)))
            shown = [(corner, *block.columns), *cells[:rows]]
            drawn = _tables(shown, _all(shown), width)
            return [f"{block.title} ({block.scale})", *drawn, *_left(len(cells) - rows)]
        case Forest():
            return [f"{block.title} ({block.axis})", *_table(_as_table(block), width, most=rows)]
        case Bars():
            return [f"{block.title} ({block.y})", *_bars(block, width, rows)]
        case Lines():
            lines = [f"{block.title} ({block.y} by {block.x})"]
            for series in block.series:
                points = ", ".join(f"{number(y)} at {number(x)}" for x, y in series.points[:12])
                lines.append(f"{series.name}: {points or 'not measured'}")
            lines += [f"{name}: {number(value)}" for name, value in block.references]
            return lines
        case Text():
            return [line for name, words in block.texts for line in _text(name, words)]
        case Sentences():
            return _sentences(block, width)
        case HeadMaps():
            return [
                f"{block.title} ({block.scale}), the highest",
                *_aligned(_highest(block), width),
            ]
        case Histograms():
            return [f"{block.title}: see the report"]
        # To be looked at, with a pointer; what is missing is said on the page.
        case HeadSentences() | KeyText() | NotMeasured():
            return []
    assert_never(block)


def _sentences(block: Sentences, width: int) -> list[str]:
    """How many there are, and the first of those that lost most."""
    if not block.sentences:
        return [f"{block.title}: none"]
    measure, scores, order = by_loss(block.sentences)
    many = count(len(block.sentences), "sentence")
    lines = [f"{block.title}: {many}, largest loss of {measure} first:"]
    for place in order[:EXAMPLES]:
        sentence, digits = block.sentences[place], DIGITS[measure]
        before, after = (fixed(score, digits) for score in scores[place])
        kind = f", {sentence.kind}" if sentence.kind else ""
        lines.append(f"{arrow(sentence.direction)} {sentence.id}{kind}: {before} \u2192 {after}")
        texts = {"Source": sentence.source, "Reference": sentence.reference}
        texts |= {name: sentence.outputs.get(key, "-") for key, name in block.labels.items()}
        lines += _aligned(
            [(name, textwrap.shorten(text, LONGEST, placeholder=" \u2026") or "(nothing)")
             for name, text in texts.items()], width
        )  # fmt: skip
    return lines


def _highest(block: HeadMaps) -> list[tuple[str, str]]:
    """The heads of each map with the highest numbers, as far as these are above 0."""
    rows = []
    for head_map in block.maps:
        known = {
            (layer, head): value
            for layer, row in enumerate(head_map.values)
            for head, value in enumerate(row)
            if value is not None and value > 0
        }
        best = sorted(known, key=lambda place: -known[place])[:HEADS]
        words = (f"{_heads([place])} ({fixed(known[place], block.digits)})" for place in best)
        rows.append((head_map.name, " ".join(words) or "none"))
    return rows


def _as_table(block: Forest) -> Table:
    """The difference from each control beside the levels that it is of, the range of its sets, and
    how many of them do as much: a row each."""

    def level(at: int) -> Callable[[Gap], Cell]:
        return lambda gap: Cell(gap.levels[at] if gap.levels else None, digits=block.digits)

    columns = {word: level(at) for at, word in enumerate(("original", "selected", "control"))}
    columns["difference"] = lambda gap: Cell.of(gap, block.digits)
    columns["single differences"] = lambda gap: Cell(
        between(min(gap.draws), max(gap.draws), block.digits) if gap.draws else None
    )
    columns[AS_MUCH] = lambda gap: Cell(gap.as_far or None)
    gaps = [gap for _, own in block.rows for gap in own]
    filled = {
        title: cell
        for title, cell in columns.items()
        if any(cell(gap).value is not None for gap in gaps)
    }
    several = len(block.controls) > 1
    rows = (
        Row(" ".join([name] * (not at) + [f"\u2212 {gap.control}"] * several),
            tuple(cell(gap) for cell in filled.values()))
        for name, own in block.rows
        for at, gap in enumerate(own)
    )  # fmt: skip
    return Table(block.title, tuple(filled), tuple(rows))


def _table(
    block: Table, width: int, corner: str = "", band: str = "95 % interval", most: int = ROWS
) -> list[str]:
    """A line a row, at most so many; a column of intervals after each column that has any."""
    block = in_powers(block)
    header, starts = [corner], list[int]()
    for at, column in enumerate(block.columns):
        cells = [row.cells[at] for row in block.rows]
        if not column.startswith(TOGETHER):
            starts.append(len(header))
        header.append(column)
        header += [band] * any(cell.low is not None for cell in cells)
        header += ["published"] * any(cell.published is not None for cell in cells)
    rows = []
    for row in block.rows[:most]:
        line = [row.name]
        for at, cell in enumerate(row.cells):
            column_cells = [row.cells[at] for row in block.rows]
            line.append(_cell(cell))
            if any(cell.low is not None for cell in column_cells):
                line.append("" if cell.low is None else between(cell.low, cell.high, cell.digits))
            if any(cell.published is not None for cell in column_cells):
                line.append("" if cell.published is None else str(cell.published))
        rows.append(line)
    drawn = _tables([header, *rows] if any(header) else rows, starts, width)
    return [*drawn, *_left(len(block.rows) - most)]


def _left(rows: int) -> list[str]:
    """What is said of so many rows that are not shown."""
    return [f"and {count(rows, 'more row')}, see the report"] if rows > 0 else []


def _tables(rows: Sequence[Sequence[str]], starts: Sequence[int], width: int) -> list[str]:
    """Rows as one table or, where that is too wide, several, cut before columns of `starts`."""
    rows = [[_plain(cell) for cell in row] for row in rows]
    least = _least([*zip(*rows, strict=True)])
    groups: list[list[int]] = []
    left = 0
    for start, end in pairwise([*starts, len(least)]):
        needed = sum(least[start:end]) + 2 * (end - start)
        if not groups or needed > left:
            groups.append([0])
            left = width - least[0]
        groups[-1] += range(start, end)
        left -= needed
    return [
        line
        for group in groups
        for line in _aligned([[r[at] for at in group] for r in rows], width)
    ]


def _least(columns: Sequence[Sequence[str]]) -> list[int]:
    """How narrow columns may be: words are wrapped, numbers and intervals are not."""
    least = []
    for at, (heading, *cells) in enumerate(columns):
        texts = [heading, *(cell for cell in cells if len(cell.split()) > WHOLE)]
        words = [cell_len(word) for text in texts for word in text.split()]
        whole = [cell_len(cell) for cell in cells if cell not in texts]
        narrow = max([NAMES if at == 0 else NARROW, *words, *whole])
        least.append(min(narrow, max(map(cell_len, (heading, *cells)))))
    return least


def _cell(cell: Cell) -> str:
    if cell.value is None:
        return cell.why or "-"
    return f"{cell.words} {cell.unit}" if cell.unit else cell.words


def _head_table(block: HeadTable, width: int, most: int) -> list[str]:
    """The first heads of a ranking, of the first part alone."""
    part, values = next(iter(block.parts.items()))
    columns = {key: how for key, how in written(block).items() if key not in ("low", "high")}
    first, interval = block.columns[0].key, "low" in values
    rows = []
    for at in block.ranked()[:most]:
        cells = []
        for key, how in columns.items():
            keys = [key, "low", "high"] if interval and key == first else [key]
            known = (values[key][at] for key in keys)
            value, *ends = (None if number is None else number * how.factor for number in known)
            low, high = ends or (None, None)
            cells.append(Cell(value, low, high, digits=how.digits))
        rows.append(Row(str(Head(*block.heads[at])), tuple(cells)))
    name = f", {part}" if len(block.parts) > 1 else ""
    title = f"{block.title}{name}: the first {len(rows)} of {count(len(block.heads), 'head')}"
    table = Table(title, tuple(how.title for how in columns.values()), tuple(rows))
    return [title, *_table(table, width, "head", block.band)]


def _bars(block: Bars, width: int, most: int) -> list[str]:
    rows: list[Sequence[str]] = [("", *block.series)]
    for at, (group, values) in enumerate(zip(block.groups, block.values, strict=True)):
        cells = []
        for place, value in enumerate(values):
            words = fixed(value, block.digits)
            if block.low and block.low[at][place] is not None:
                ends = between(block.low[at][place], block.high[at][place], block.digits)
                words += f" ({ends})"
            words += " %" * ("%" in block.y and value is not None)
            cells.append(words)
        rows.append((group, *cells))
    return [*_tables(rows[: 1 + most], _all(rows), width), *_left(len(rows) - 1 - most)]


def _all(rows: Sequence[Sequence[str]]) -> Sequence[int]:
    """A table may be cut before every column but that of the names."""
    return range(1, len(rows[0]))


def _aligned(rows: Sequence[Sequence[str]], width: int) -> list[str]:
    """Columns as wide as their widest cell, or as the line allows; all but the first at the right
    if all are numbers."""
    rows = [[_plain(cell) for cell in row] for row in rows]
    columns = list(zip(*rows, strict=True))
    widths, least = [max(map(cell_len, column)) for column in columns], _least(columns)
    while (excess := sum(widths) + 2 * (len(widths) - 1) - width) > 0 and widths != least:
        at = max(range(len(widths)), key=lambda at: widths[at] - least[at])
        widths[at] -= min(excess, (widths[at] - least[at] + 1) // 2)
    right = [
        at > 0
        and all(cell[:1] in "+-\u2013\u2212<0123456789" for cell in column[1:])
        and not any(LIST.match(cell) for cell in column[1:])
        for at, column in enumerate(columns)
    ]
    lines = []
    for row in rows:
        cells = [textwrap.wrap(cell, max(1, size), break_long_words=False) or [""]
                 for cell, size in zip(row, widths, strict=True)]  # fmt: skip
        for parts in zip_longest(*cells, fillvalue=""):
            padded = (
                " " * (size - cell_len(cell)) + cell
                if side
                else cell + " " * (size - cell_len(cell))
                for cell, size, side in zip(parts, widths, right, strict=True)
            )
            lines.append("  ".join(padded).rstrip())
    return lines


def _heads(heads: Sequence[tuple[int, int]]) -> str:
    return ", ".join(str(Head(*place)) for place in heads) or "none"


def _plain(text: str) -> str:
    """One line of plain spaces, and what could steer a terminal spelt out."""
    joined = " ".join(text.replace("\u00a0", " ").replace("\u2009", " ").split())
    return "".join(
        sign if sign.isprintable() else sign.encode("unicode_escape").decode("ascii")
        for sign in joined
    )
