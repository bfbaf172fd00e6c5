"""Line charts and rows of bars, from SVG and CSS alone.

Text is HTML at its own size and only the lines are stretched to the width there is, so that ticks
are as legible on a phone as on paper. Series differ by the shape of their marks and by their
dashes as well as by colour, and every mark has its numbers in words, by pointer and by arrow keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, isfinite

from headscope.report.axes import Scale, scale
from headscope.report.html import Child, Html, join, tag
from headscope.report.parts import var_style
from headscope.shown.words import between, enumeration, fixed, number

SHAPES, DASHES = 8, 6
"""How many shapes (`p0` \u2026) and dashes (`d0` \u2026) the style sheet has."""

MARKED = 16
"""How many marks a line shows; of more points only some are marked."""

SPOKEN = 100
"""How many points of a line can be pointed at; of more, so many and the last, evenly spread."""

SAID = 24
"""How many single points of a bar are said in words; of more, the lowest and the highest are."""

# What a mark looks like unless an earlier series of the chart has taken that shape.
_SHAPE = {"key-base": 0, "key-top": 1, "key-random": 2, "key-ta": 3, "key-low": 4, "key-matched": 5}


@dataclass(frozen=True)
class Series:
    """One line: points (x, y) and, around it, a band of (x, low, high) such as an interval.

    `mark` names its colour: `key-top`, `key-base`, `key-random`, `key-matched`, `key-ta`,
    `key-low`, `key-off`, `key-s4`, `key-s9` or `key-s14`. A value that is not finite leaves a gap
    in the line.
    """

    name: str
    points: Sequence[tuple[float, float]]
    mark: str = "key-top"
    band: Sequence[tuple[float, float, float]] | None = None


@dataclass(frozen=True)
class BarRow:
    """One bar: its words, its value (None: `why` not), single points and an interval.

    `digits` are the decimals of the value, where they differ from those of the other bars.
    """

    words: Child
    value: float | None
    mark: str
    points: Sequence[float] = ()
    interval: tuple[float, float] | None = None
    why: str = "not computed"
    digits: int | None = None


def line_chart(
    series: Sequence[Series],
    x_title: str,
    y_title: str,
    description: str,
    x_log: bool = False,
    y_range: tuple[float, float] | None = None,
    x_labels: Mapping[float, str] | None = None,
    y_log: bool = False,
) -> Html:
    """Lines over x with their key.

    `description` says in words what is to be seen, for those who do not see it. With `x_log` the
    axis is logarithmic to base 10; a point at 0 stands apart at its left end, further negative
    ones are an error. The y axis covers the values and begins at 0 where none is negative, unless
    `y_range` says otherwise. With `y_log` it is logarithmic, and then begins and ends at round
    numbers. `x_labels` puts these words at these x instead of round numbers.
    """
    xs = [x for one in series for x, *_ in (*one.points, *(one.band or ()))]
    ys = [y for one in series for _, y in one.points]
    ys += [y for one in series for _, *ends in one.band or () for y in ends]
    across = scale([x for x in xs if isfinite(x)], log=x_log, labels=x_labels)
    known = [y for y in ys if isfinite(y)]
    up = scale(known, limits=y_range, log=y_log, from_zero=True, rounded=True)
    looks = _looks(series)
    lines = [_line(one, look, across, up) for one, look in zip(series, looks, strict=True)]
    bands = [_band(one, across, up) for one in series if one.band]
    marks = [
        _marks(row, one, look, across, up, x_title, y_title)
        for row, (one, look) in enumerate(zip(series, looks, strict=True))
    ]
    grid = [
        tag("div", tag("span", tick.words), class_="across", style=var_style(y=tick.share))
        for tick in up.ticks
    ]
    crowded = len(across.ticks) > 5 or sum(len(tick.words) + 2 for tick in across.ticks) > 30
    ticks = [
        tag(
            "div",
            tag("span", tick.words),
            class_="below"
            + (" minor" if place % 2 and crowded else "")
            + (" last" if tick.share > 0.97 and len(tick.words) > 4 else ""),
            style=var_style(x=tick.share),
        )
        for place, tick in enumerate(across.ticks)
    ]
    drawing = tag(
        "svg",
        *bands,
        *lines,
        viewBox="0 0 1000 1000",
        preserveAspectRatio="none",
        aria_hidden="true",
    )
    plot = tag("div", grid, drawing, ticks, marks, class_="plot", aria_hidden="true")
    chart = tag(
        "div",
        tag("span", y_title, class_="y-title", aria_hidden="true"),
        plot,
        tag("span", x_title, class_="x-title", aria_hidden="true"),
        class_="chart",
        role="img",
        tabindex=0,
        aria_label=description,
    )
    return join(chart, _key(series, looks) if len(series) > 1 else None)


def bar_rows(
    rows: Iterable[BarRow], end: float, digits: int = 1, start: float = 0.0, unit: str = ""
) -> Html:
    """Bars from 0 to their value; single points as rings, an interval as a whisker.

    The axis goes to `end` from `start`, which is below 0 where values are: bars then go to both
    sides of a line at 0. Single points say their value by pointer and, once the bars have the
    focus, by arrow keys.
    """
    listed = list(rows)
    axis = Scale(min(start, 0.0), end)
    bars = [_bar(place, row, axis, digits, unit) for place, row in enumerate(listed)]
    pointed = any(row.points and row.value is not None for row in listed)
    return tag("dl", bars, class_="bars", tabindex=0 if pointed else None)


def _bar(place: int, row: BarRow, axis: Scale, digits: int, unit: str) -> Html:
    if row.value is None:
        empty = tag("span", tag("span", class_="none"), class_="bar", aria_hidden="true")
        shown = tag("dd", empty, tag("span", row.why, class_="words"))
        return tag("div", tag("dt", row.words), shown)
    # Points at one place are drawn once, with the words of all of them.
    spots: dict[str, list[float]] = {}
    for one in row.points:
        spots.setdefault(var_style(v=axis.share(one)), []).append(one)
    points = [
        tag(
            "u",
            class_="point",
            data_words=", ".join(dict.fromkeys(fixed(one, digits) for one in same)),
            data_column=f"{axis.share(same[0]):.5f}",
            data_row=place,
            style=style,
        )
        for style, same in spots.items()
    ]
    whisker, words = None, ""
    if row.interval is not None:
        low, high = row.interval
        whisker = tag("s", style=var_style(lo=axis.share(low), hi=axis.share(high)))
        words = f" interval {between(low, high, digits)}"
    if len(row.points) > SAID:
        least, most = fixed(min(row.points), digits), fixed(max(row.points), digits)
        words += f" {len(row.points)} single values from {least} to {most}"
    elif row.points:
        words += " single values " + enumeration([fixed(point, digits) for point in row.points])
    told = fixed(row.value, digits if row.digits is None else row.digits)
    zero, at = axis.share(0.0), axis.share(row.value)
    sided = axis.low < 0
    bar = tag(
        "span",
        tag("b", class_=row.mark),
        tag("em", style=var_style(z=zero)) if sided else None,
        whisker,
        points,
        class_="bar" if len(row.points) <= SAID else "bar many",
        style=var_style(v=abs(at - zero), f=min(at, zero) if sided else None),
    )
    unseen = tag("span", words, class_="unseen") if words else None
    return tag("div", tag("dt", row.words), tag("dd", bar, unseen, tag("span", told + unit)))


@dataclass(frozen=True)
class _Look:
    mark: str
    shape: int
    dash: int


def _looks(series: Sequence[Series]) -> list[_Look]:
    """A shape and dashes for each series, its usual shape where no earlier one has it."""
    looks: list[_Look] = []
    for place, one in enumerate(series):
        taken = {look.shape for look in looks}
        free = [shape for shape in range(SHAPES) if shape not in taken]
        usual = _SHAPE.get(one.mark)
        shape = usual if usual in free else free[0] if free else place % SHAPES
        looks.append(_Look(one.mark, shape or 0, place % DASHES))
    return looks


def _line(one: Series, look: _Look, across: Scale, up: Scale) -> Html | None:
    path, pen = [], "M"
    for x, y in one.points:
        if not (isfinite(x) and isfinite(y)):
            pen = "M"
            continue
        path.append(f"{pen}{_thousand(across.share(x))} {1000 - _thousand(up.share(y))}")
        pen = "L"
    return tag("path", d="".join(path), class_=f"{look.mark} d{look.dash}") if path else None


def _band(one: Series, across: Scale, up: Scale) -> Html:
    rows = [row for row in one.band or () if all(map(isfinite, row))]
    corners = [(x, high) for x, _, high in rows] + [(x, low) for x, low, _ in reversed(rows)]
    points = " ".join(
        f"{_thousand(across.share(x))},{1000 - _thousand(up.share(y))}" for x, y in corners
    )
    return tag("polygon", points=points, class_=one.mark)


def _marks(
    row: int, one: Series, look: _Look, across: Scale, up: Scale, x_title: str, y_title: str
) -> list[Html]:
    bands = {x: (low, high) for x, low, high in one.band or ()}
    step = ceil(len(one.points) / MARKED)
    every = ceil(len(one.points) / SPOKEN)
    marks = []
    for place, (x, y) in enumerate(one.points):
        if not (isfinite(x) and isfinite(y)):
            continue
        if place % every and place + 1 < len(one.points):
            continue
        words = [one.name, f"{x_title}: {across.words(x)}", f"{y_title}: {number(y)}"]
        if x in bands and all(map(isfinite, bands[x])):
            words.append("band: " + "\u2009\u2013\u2009".join(map(number, bands[x])))
        marks.append(
            tag(
                "span",
                tag("i", class_=f"shape p{look.shape} {look.mark}"),
                class_="point" if (place + row) % step == 0 else "point quiet",
                style=var_style(x=across.share(x), y=up.share(y)),
                data_words="\n".join(words),
                data_column=f"{across.share(x):.5f}",
                data_row=row,
            )
        )
    return marks


def _key(series: Sequence[Series], looks: Sequence[_Look]) -> Html:
    items = []
    for one, look in zip(series, looks, strict=True):
        line = tag("line", x1=0, x2=30, y1=6, y2=6, class_=f"d{look.dash}")
        drawing = tag("svg", line, viewBox="0 0 30 12", aria_hidden="true")
        sample = tag(
            "i",
            drawing,
            tag("span", class_=f"shape p{look.shape}"),
            class_=f"line {look.mark}",
            aria_hidden="true",
        )
        items.append(tag("li", sample, tag("bdi", one.name)))
    return tag("ul", items, class_="legend")


def _thousand(share: float) -> int:
    return round(share * 1000)
