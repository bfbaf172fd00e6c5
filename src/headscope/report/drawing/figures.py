"""Heat maps, lines, and bars by group."""

from __future__ import annotations

from collections.abc import Sequence

from headscope.report.charts import BarRow, Series, bar_rows, line_chart
from headscope.report.html import Child, Html, join, tag
from headscope.report.matrix import CHARACTER, EMPTY, Axis, Cell, matrix, ramp_bar
from headscope.report.parts import diverging_class, figure, legend, named, ramp_class, scroll
from headscope.shown.blocks import Bars, Figure, Heatmap, Lines
from headscope.shown.words import between, count, fixed, sentence_of

MARKS = ("key-top", "key-base", "key-s9", "key-rose", "key-ochre", "key-violet", "key-low",
         "key-random", "key-matched", "key-off")  # fmt: skip
MEANT = {
    "same layers": "key-matched",
    "random": "key-random",
    "original": "key-base",
    "as is": "key-base",
    "selected": "key-top",
    "masked": "key-top",
    "chosen": "key-top",
    "token alignment": "key-ta",
    "low activity": "key-low",
    "inactive": "key-off",
}
"""Colours that mean the same on every page, by what a series is called; the first that fits."""

WRITTEN, WIDE = 12, 150
"""A map of at most so many columns, and so many cells, has its numbers written in the cells."""

SPOKEN = 600
"""Cells of larger maps say nothing by pointer: the page would be too long."""

OPEN, BESIDE = 12, 4
"""So many groups of bars stand open; up to so many fit one of two columns of a printed page."""


def told_figure(identifier: str, one: Figure) -> Html:
    """A figure with its title and note below it."""
    if isinstance(one, Heatmap):
        return _heatmap(identifier, one)
    return _lines(identifier, one) if isinstance(one, Lines) else _bars(identifier, one)


def _caption(one: Figure, *more: Child) -> Html:
    return join(
        named(one.title),
        f"{sentence_of(one.note)} " if one.note else None,
        *more,
    )


def _heatmap(identifier: str, one: Heatmap) -> Html:
    known = [value for row in one.values for value in row if value is not None]
    cells, empty = len(one.rows) * len(one.columns), 0
    low = one.low if one.low is not None else min(known, default=0.0)
    high = one.high if one.high is not None else max(known, default=1.0)
    if one.diverging:
        high = max(abs(low), abs(high)) or 1.0
        low = -high
    width = high - low or 1.0
    written = len(one.columns) <= WRITTEN and cells <= WIDE
    spoken = cells <= SPOKEN and (not written or bool(one.lowest))
    drawn = []
    for at, (row, values) in enumerate(zip(one.rows, one.values, strict=True)):
        for across, (column, value) in enumerate(zip(one.columns, values, strict=True)):
            if value is None:
                empty += 1
                colour, said = EMPTY, "not run"
            else:
                said = fixed(value, one.digits)
                if one.lowest and one.highest:
                    said += (
                        f" ({between(one.lowest[at][across], one.highest[at][across], one.digits)})"
                    )
                if one.diverging:
                    colour = diverging_class(value, high)
                else:
                    colour = ramp_class(value - low, width)
            words = f"{_axis(one.row_axis)}{row}, {_axis(one.column_axis)}{column}: {said}"
            drawn.append(
                Cell(at, across, colour, None, words if spoken else None,
                     sign=fixed(value, one.digits) if written and value is not None else "")
            )  # fmt: skip
    pitch, row_pitch = _pitches(one, written)
    picture = matrix(
        drawn,
        Axis(_thinned(one.rows, row_pitch), one.row_axis),
        Axis(
            _thinned(one.columns, pitch),
            one.column_axis,
            upright=any(len(name) * CHARACTER > pitch - 2 for name in _thinned(one.columns, pitch)),
        ),
        pitch,
        _said(one, known, empty),
        row_pitch=row_pitch,
        merged=not spoken,
    )
    ends = fixed(low, one.digits), fixed(high, one.digits)
    bar = ramp_bar(f"{one.scale}: {ends[0]}", ends[1], diverging=one.diverging)
    caption = _caption(
        one,
        "Point at a cell for its number. " if spoken else None,
        f"{count(empty, 'cell is', 'cells are')} empty: not run." if empty else None,
    )
    return figure(
        identifier,
        caption,
        scroll(one.title, picture),
        bar,
        legend(("key-none", "not run")) if empty else None,
        class_="told-map small" if cells <= WIDE else "told-map",
    )


def marks_of(names: Sequence[str]) -> list[str]:
    """The colour of each series: of what it is, unless an earlier one has it, or a free one."""
    found: list[str] = []
    meant = [next((mark for word, mark in MEANT.items() if word in name), "") for name in names]
    free = [mark for mark in MARKS if mark not in meant]
    for mark in meant:
        own = mark if mark and mark not in found else free.pop(0) if free else ""
        found.append(own or MARKS[len(found) % len(MARKS)])
    return found


def _axis(name: str) -> str:
    return f"{name} " if name else ""


def _pitches(one: Heatmap, written: bool) -> tuple[int, int]:
    """How far columns and rows of a map are apart."""
    if written:
        known = [fixed(value, one.digits) for row in one.values for value in row]
        longest = max(map(len, known), default=0)
        return max(44, min(84, round(longest * 7.5) + 10)), 30
    pitch = max(9, min(28, 720 // max(1, len(one.columns))))
    named = [not all(name.isdigit() for name in names) for names in (one.columns, one.rows)]
    return max(pitch, 14) if named[0] else pitch, max(pitch, 15) if named[1] else pitch


def _thinned(names: Sequence[str], pitch: int) -> list[str]:
    """Names that are numbers, thinned where they stand too close; others as they are."""
    if not all(name.isdigit() for name in names):
        return list(names)
    step = 1 if pitch >= 18 else 2 if pitch >= 13 else 4
    return [name if at % step == 0 else "" for at, name in enumerate(names)]


def _said(one: Heatmap, known: Sequence[float], empty: int) -> str:
    """The map in words."""
    shape = f"{one.title}: {len(one.rows)} rows by {len(one.columns)} columns of {one.scale}"
    if not known:
        return f"{shape}, none of them run."
    highest = max(known)
    row, column = next(
        (row, column)
        for row, values in zip(one.rows, one.values, strict=True)
        for column, value in zip(one.columns, values, strict=True)
        if value == highest
    )
    rest = f"; {empty} not run" if empty else ""
    return (
        f"{shape}, from {fixed(min(known), one.digits)} to {fixed(highest, one.digits)}, the "
        f"highest at {_axis(one.row_axis)}{row}, {_axis(one.column_axis)}{column}{rest}."
    )


def _lines(identifier: str, one: Lines) -> Html:
    marks = marks_of([line.name for line in one.series])
    drawn = [
        Series(line.name, sorted(line.points), mark, sorted(line.band) or None)
        for line, mark in zip(one.series, marks, strict=True)
        if line.points
    ]
    without = [line.name for line in one.series if not line.points]
    intervals = any(line.band for line in one.series)
    said = "; ".join(
        f"{line.name}: {', '.join(f'{y:.4g} at {x:.4g}' for x, y in line.points[:12])}"
        for line in one.series
        if line.points
    )
    caption = _caption(
        one,
        f"Bands are {one.band}. " if intervals else None,
        f"Not run: {', '.join(without)}." if without else None,
    )
    if not drawn:
        return figure(identifier, caption, tag("p", "not run", class_="note"))
    chart = line_chart(
        drawn,
        one.x,
        one.y,
        f"{one.title}: {said}.",
        x_log=one.logarithmic,
        x_labels=dict(one.labels) or None,
        y_log=one.logarithmic_y,
    )
    return figure(identifier, caption, chart, class_="told-lines")


def _bars(identifier: str, one: Bars) -> Html:
    ends = [value for part in (one.values, one.low, one.high) for row in part for value in row]
    known = [value for value in ends if value is not None]
    known += [value for row in one.draws for draws in row for value in draws]
    start = min(0.0, *known, 0.0) if one.start is None else one.start
    end = max(0.0, *known, 0.0) if one.end is None else one.end
    if end == start:
        end = 1.0
    single, marks = len(one.series) == 1, marks_of(one.series)
    several, unit = range(len(one.series)), "\u00a0%" if "%" in one.y else ""

    def row(at: int, place: int) -> BarRow:
        low = one.low[at][place] if one.low else None
        high = one.high[at][place] if one.high else None
        interval = None if low is None or high is None else (low, high)
        name = one.groups[at] if single else one.series[place]
        mark = "key-s9" if single else marks[place]
        draws = one.draws[at][place] if one.draws else ()
        return BarRow(tag("bdi", name), one.values[at][place], mark, draws, interval, "not run")

    if single:
        made = [
            bar_rows([row(at, 0)], end, one.digits, start, unit) for at in range(len(one.groups))
        ]
    else:
        made = [
            join(
                tag("h4", tag("bdi", group)),
                bar_rows([row(at, n) for n in several], end, one.digits, start, unit),
            )
            for at, group in enumerate(one.groups)
        ]
    look = "told-bars" if single else "told-bars groups"
    if not single:
        made = [tag("div", group) for group in made]
    shown: list[Child] = [tag("div", made[:OPEN], class_=look)]
    if len(made) > OPEN:
        more = tag("summary", f"The other {len(made) - OPEN}")
        shown.append(tag("details", more, tag("div", made[OPEN:], class_=look)))
    whiskers = "Whiskers are 95\u00a0% intervals. " if one.low else ""
    if any(draws for row in one.draws for draws in row):
        whiskers += "Rings are single draws, their bar the mean. "
    missing = sum(value is None for row in one.values for value in row)
    caption = _caption(
        one,
        f"Bars: {one.y}, from {fixed(start, one.digits)} to {fixed(end, one.digits)}. ",
        whiskers,
        f"{count(missing, 'bar', 'bars')} not run." if missing else None,
    )
    across = "across" if not single and len(made) > BESIDE else None
    return figure(identifier, caption, *shown, class_=across)
