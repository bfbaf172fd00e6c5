"""Lines, bars by group and histograms, from SVG and CSS alone.

Text is HTML at its own size and only the lines are stretched to the width there is, so that ticks
are as legible on a phone as on paper. Series differ by the shape of their marks and by their
dashes as well as by colour, and every mark has its numbers in words, by pointer and by arrow keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from math import ceil, isfinite
from typing import TypeVar

from headscope.report.axes import Scale, Tick, scale
from headscope.report.html import Child, Html, join, tag
from headscope.report.parts import Drawn, bdi, caption, figure, folded, legend, var_style
from headscope.shown.blocks import AS_MUCH, Bars, Forest, Gap, Histogram, Histograms, Lines, Series
from headscope.shown.words import (
    between,
    count,
    enumeration,
    fixed,
    number,
    percent,
    signed,
)

Look = TypeVar("Look")

MARKS = ("key-s9", "key-rose", "key-ochre", "key-violet", "key-low", "key-top", "key-base",
         "key-random", "key-matched", "key-off")  # fmt: skip
MEANT = {
    "same layers": "key-matched",
    "random": "key-random",
    "shuffled": "key-random",
    "original": "key-base",
    "as is": "key-base",
    "selected": "key-top",
    "masked": "key-top",
    "chosen": "key-top",
    "this order": "key-top",
    "token alignment": "key-ta",
    "low activity": "key-low",
    "inactive": "key-off",
}
"""Colours that mean the same on every page, by what a series is called; the first that fits."""

SHAPES, DASHES = 8, 6
"""How many shapes (`p0` \u2026) and dashes (`d0` \u2026) the style sheet has."""

SHAPE = {"key-base": 0, "key-top": 1, "key-random": 2, "key-ta": 3, "key-low": 4, "key-matched": 5}
"""The shape of a mark unless an earlier series of the chart has it."""

MARKED, SPOKEN = 16, 100
"""How many marks a line shows, and how many of its points can be pointed at, evenly spread."""

SAID = 24
"""How many single points of a bar are said in words; of more, the lowest and the highest are."""

OPEN, IN_COLUMN = 12, 4
"""So many groups of bars stand open; up to so many fit one of two columns of a printed page."""

PANELS = 8
"""Histograms that stand open."""


def marks_of(names: Sequence[str]) -> list[str]:
    """The colour of each series: of what it is, unless an earlier one has it, or a free one."""
    meant = [next((mark for word, mark in MEANT.items() if word in name), None) for name in names]
    return _each_its_own(meant, MARKS)


def _each_its_own(meant: Sequence[Look | None], looks: Sequence[Look]) -> list[Look]:
    """What is meant where no earlier one has it, else one that none means, as long as there are."""
    given: list[Look] = []
    free = [look for look in looks if look not in meant]
    for place, look in enumerate(meant):
        if look is None or look in given:
            look = free.pop(0) if free else looks[place % len(looks)]
        given.append(look)
    return given


def _plot(
    description: str,
    lines: Iterable[Child],
    marks: Iterable[Child],
    across: Scale,
    up: Scale,
    x_title: str,
    y_title: str = "",
) -> Html:
    """Axes with what is drawn in them; `description` says it in words."""
    crowded = len(across.ticks) > 5 or sum(len(tick.words) + 2 for tick in across.ticks) > 30
    ticks = [
        tag("div", tag("span", tick.words), class_="across", style=var_style(y=tick.share))
        for tick in up.ticks
    ]
    for place, tick in enumerate(across.ticks):
        minor = " minor" if place % 2 and crowded else ""
        last = " last" if tick.share > 0.97 and len(tick.words) > 4 else ""
        at = var_style(x=tick.share)
        ticks.append(tag("div", tag("span", tick.words), class_=f"below{minor}{last}", style=at))
    drawing = tag("svg", lines, viewBox="0 0 1000 1000", preserveAspectRatio="none")
    return tag(
        "div",
        tag("span", y_title, class_="y-title") if y_title else None,
        tag("div", ticks, drawing, marks, class_="plot"),
        tag("span", x_title, class_="x-title"),
        class_="chart",
        role="img",
        tabindex=0,
        aria_label=description,
    )


def _point(x: float, y: float, words: str, quiet: bool = False) -> Html:
    """A mark that says its words by pointer; a quiet one is seen only then."""
    look = "point quiet" if quiet else "point"
    return tag("span", class_=look, style=var_style(x=x, y=y), data_words=words)


# ---- lines ---------------------------------------------------------------------------------------
def draw_lines(identifier: str, block: Lines) -> Drawn:
    """Lines over x with their key, and the names of those that have no points.

    A value that is not finite leaves a gap in its line.
    """
    series = [line for line in block.series if line.points]
    without = [line.name for line in block.series if not line.points]
    compared = [f"{name} ({number(value)})" for name, value in block.references]
    words = caption(
        block.title,
        block.note,
        f"Bands are {block.band}." if any(line.band for line in block.series) else None,
        f"Dashed: {enumeration(compared)}." if compared else None,
        f"Not run: {', '.join(without)}." if without else None,
    )
    if not series:
        return Drawn(figure(identifier, words, tag("p", "not run", class_="note")))
    chart = line_chart(block, series, marks_of([line.name for line in block.series if line.points]))
    return Drawn(figure(identifier, words, chart, class_="lines"))


def line_chart(block: Lines, series: Sequence[Series], marks: Sequence[str]) -> Html:
    """Axes around the points of these series, their lines and bands, and a key of several."""
    points = [point for line in series for point in line.points]
    ends = [(x, end) for line in series for x, *both in line.band for end in both]
    ends += [(points[0][0], value) for _, value in block.references]
    finite = [
        [value for value in axis if isfinite(value)] for axis in zip(*points, *ends, strict=True)
    ]
    across = scale(finite[0], log=block.logarithmic, labels=dict(block.labels) or None)
    up = scale(finite[1], log=block.logarithmic_y, from_zero=True)
    shapes = _each_its_own([SHAPE.get(mark) for mark in marks], range(SHAPES))
    bands = [_band(line, mark, across, up) for line, mark in zip(series, marks, strict=True)]
    lines = [
        _line(line, f"{mark} d{place % DASHES}", across, up)
        for place, (line, mark) in enumerate(zip(series, marks, strict=True))
    ]
    spots = [
        tag("div", _points(place, line, block, across, up), class_=f"marks p{shape} {mark}")
        for place, (line, shape, mark) in enumerate(zip(series, shapes, marks, strict=True))
    ]
    said = "; ".join(
        f"{line.name}: {', '.join(f'{y:.4g} at {x:.4g}' for x, y in line.points[:12])}"
        for line in series
    )
    for name, value in block.references:
        lines.append(tag("path", d=f"M0 {1000 - _thousand(up, value)}H1000", class_="reference"))
        spots.append(tag("span", name, class_="referred", style=var_style(y=up.share(value))))
    title = f"{block.title}: {said}."
    chart = _plot(title, [bands, lines], spots, across, up, block.x, block.y)
    return join(chart, _key(series, shapes, marks) if len(series) > 1 else None)


def _line(series: Series, look: str, across: Scale, up: Scale) -> Html | None:
    path, pen = [], "M"
    for x, y in sorted(series.points):
        finite = isfinite(x) and isfinite(y)
        if finite:
            path.append(f"{pen}{_thousand(across, x)} {1000 - _thousand(up, y)}")
        pen = "L" if finite else "M"
    return tag("path", d="".join(path), class_=look) if path else None


def _band(series: Series, mark: str, across: Scale, up: Scale) -> Html | None:
    rows = [row for row in sorted(series.band) if all(map(isfinite, row))]
    corners = [(x, high) for x, _, high in rows] + [(x, low) for x, low, _ in reversed(rows)]
    points = " ".join(f"{_thousand(across, x)},{1000 - _thousand(up, y)}" for x, y in corners)
    return tag("polygon", points=points, class_=mark) if series.band else None


def _points(row: int, series: Series, block: Lines, across: Scale, up: Scale) -> list[Html]:
    bands = {x: (low, high) for x, low, high in series.band}
    last = len(series.points) - 1
    step, every = ceil((last + 1) / MARKED), ceil((last + 1) / SPOKEN)
    marks = []
    for place, (x, y) in enumerate(sorted(series.points)):
        if not (isfinite(x) and isfinite(y)) or (place % every and place < last):
            continue
        words = [series.name, f"{block.x}: {across.words(x)}", f"{block.y}: {number(y)}"]
        if x in bands and all(map(isfinite, bands[x])):
            words.append("band: " + "\u2009\u2013\u2009".join(map(number, bands[x])))
        quiet = (place + row) % step != 0
        marks.append(_point(across.share(x), up.share(y), "\n".join(words), quiet))
    return marks


def _key(series: Sequence[Series], shapes: Sequence[int], marks: Sequence[str]) -> Html:
    items = []
    for place, (named_line, shape, mark) in enumerate(zip(series, shapes, marks, strict=True)):
        line = tag("line", x1=0, x2=30, y1=6, y2=6, class_=f"d{place % DASHES}")
        drawing = tag("svg", line, viewBox="0 0 30 12")
        dot = tag("span", class_=f"shape p{shape}")
        sample = tag("i", drawing, dot, class_=f"line {mark}")
        items.append(tag("li", sample, bdi(named_line.name)))
    return tag("ul", items, class_="legend")


def _thousand(axis: Scale, value: float) -> int:
    return round(axis.share(value) * 1000)


# ---- bars ----------------------------------------------------------------------------------------
def draw_bars(identifier: str, block: Bars) -> Drawn:
    """Bars from 0 to their value; single draws as rings, an interval as a whisker.

    Where values are negative, bars go to both sides of a line at 0. Draws say their value by
    pointer and, once the bars have the focus, by arrow keys.
    """
    known = [
        value
        for rows in (block.values, block.low, block.high, *block.draws)
        for row in rows
        for value in row
        if value is not None
    ]
    start = min(0.0, *known, 0.0) if block.start is None else block.start
    end = max(0.0, *known, 0.0) if block.end is None else block.end
    axis = Scale(min(start, 0.0), 1.0 if end == start else end)
    single, marks = len(block.series) == 1, marks_of(block.series)
    groups = [
        [
            _bar(block, at, place, bdi(group if single else name), axis, marks[place])
            for place, name in enumerate(block.series)
        ]
        for at, group in enumerate(block.groups)
    ]
    pointed = [0 if block.draws and any(block.draws[at]) else None for at in range(len(groups))]
    drawn: list[Html] = [
        tag("dl", bars, class_="bars", tabindex=index)
        for bars, index in zip(groups, pointed, strict=True)
    ]
    look = "bar-groups"
    if not single:
        look += " several"
        headings = [tag("h4", bdi(group)) for group in block.groups]
        drawn = [tag("div", *both) for both in zip(headings, drawn, strict=True)]
    shown = [tag("div", drawn[:OPEN], class_=look)]
    if left := drawn[OPEN:]:
        shown.append(folded(f"The other {len(left)}", tag("div", left, class_=look)))
    missing = sum(value is None for row in block.values for value in row)
    draws = any(single_draws for row in block.draws for single_draws in row)
    words = caption(
        block.title,
        block.note,
        f"Bars: {block.y}, from {fixed(start, block.digits)} to {fixed(axis.high, block.digits)}.",
        "Whiskers are 95\u00a0% intervals." if block.low else None,
        "Rings are single draws, their bar the mean." if draws else None,
        f"{count(missing, 'bar', 'bars')} not run." if missing else None,
    )
    across = "across" if not single and len(drawn) > IN_COLUMN else None
    return Drawn(figure(identifier, words, *shown, class_=across))


def _bar(block: Bars, at: int, place: int, name: Child, axis: Scale, mark: str) -> Html:
    value, digits = block.values[at][place], block.digits
    if value is None:
        empty = tag("span", tag("span", class_="none"), class_="bar")
        return tag("div", tag("dt", name), tag("dd", empty, tag("span", "not run", class_="words")))
    low = block.low[at][place] if block.low else None
    high = block.high[at][place] if block.high else None
    draws = block.draws[at][place] if block.draws else ()
    whisker, said = None, []
    if low is not None and high is not None:
        whisker = tag("s", style=var_style(lo=axis.share(low), hi=axis.share(high)))
        said.append(f"interval {between(low, high, digits)}")
    if len(draws) > SAID:
        ends = fixed(min(draws), digits), fixed(max(draws), digits)
        said.append(f"{len(draws)} single values from {ends[0]} to {ends[1]}")
    elif draws:
        said.append("single values " + enumeration([fixed(draw, digits) for draw in draws]))
    # Draws at one place are drawn once, with the words of all of them.
    spots: dict[str, dict[str, None]] = {}
    for draw in draws:
        spots.setdefault(var_style(v=axis.share(draw)), {})[fixed(draw, digits)] = None
    zero, end, sided = axis.share(0.0), axis.share(value), axis.low < 0
    bar = tag(
        "span",
        tag("b", class_=mark if len(block.series) > 1 else "key-s9"),
        tag("em", style=var_style(z=zero)) if sided else None,
        whisker,
        [tag("u", class_="point", data_words=", ".join(words), style=style)
         for style, words in spots.items()],
        class_="bar" if len(draws) <= SAID else "bar many",
        style=var_style(v=abs(end - zero), f=min(end, zero) if sided else None),
    )  # fmt: skip
    unseen = tag("span", " ", " ".join(said), class_="unseen") if said else None
    unit = "\u00a0%" if "%" in block.y else ""
    return tag(
        "div", tag("dt", name), tag("dd", bar, unseen, tag("span", fixed(value, digits), unit))
    )


# ---- forests -------------------------------------------------------------------------------------
def draw_forest(identifier: str, block: Forest) -> Drawn:
    """Differences as marks with their intervals around a line at zero, single draws as strokes.

    Every row has a lane for each control.
    """
    gaps = [gap for _, row_gaps in block.rows for gap in row_gaps]
    known = [0.0, *(end for gap in gaps for end in (gap.value, gap.low, gap.high, *gap.draws)
                    if end is not None)]  # fmt: skip
    counted = any(gap.as_far for gap in gaps)
    stroked = any(gap.as_far and gap.draws for gap in gaps)
    axis = scale(known)
    marks = dict(zip(block.controls, marks_of(block.controls), strict=True))
    rows = [
        tag("div", [_gap(block, name, at, gap, axis, marks[gap.control])
                    for at, gap in enumerate(row_gaps)])
        for name, row_gaps in block.rows
    ]  # fmt: skip
    below, above = block.sides
    ticks = [
        tag("span", tick.words, style=var_style(v=tick.share), class_="tick") for tick in axis.ticks
    ]
    # A side is named where the axis has room for it.
    sides = tag(
        "small",
        tag("span", f"\u2190 {below}" if min(known) < 0 else ""),
        tag("span", f"{above} \u2192" if max(known) > 0 else ""),
    )
    foot = tag("div", tag("span"), tag("p", ticks, sides if below else None), tag("span"),
               class_="foot", aria_hidden="true")  # fmt: skip
    shown: list[Child] = [tag("dl", rows[:OPEN], class_="bars forest", tabindex=0), foot]
    if left := rows[OPEN:]:
        more = tag("dl", left, class_="bars forest", tabindex=0)
        shown.append(folded(f"The other {len(left)}", more))
    entries = [(f"shape p{SHAPE[mark]} {mark}" if mark in SHAPE else f"shape p0 {mark}",
                f"selected \u2212 {name}") for name, mark in marks.items() if name]  # fmt: skip
    words = caption(
        block.title,
        block.note,
        f"{block.axis}.",
        "Strokes on a band: the difference from each random set." if stroked else None,
        "At the right: how many random sets do as much." if counted else None,
    )
    return Drawn(figure(identifier, words, legend(*entries), *shown, class_="across"))


def _gap(block: Forest, name: str, at: int, gap: Gap, axis: Scale, mark: str) -> Html:
    low, high = gap.low, gap.high
    words = [f"{name} \u2212 {gap.control}: {signed(gap.value, block.digits)}"]
    whisker = spread = None
    levels = zip(("original", "selected", gap.control), gap.levels, strict=False)
    words += [f"{of}: {fixed(level, block.digits)}" for of, level in levels if level is not None]
    if low is not None and high is not None:
        whisker = tag("s", style=var_style(lo=axis.share(low), hi=axis.share(high)))
        words.append(f"95\u00a0% CI {between(low, high, block.digits)}")
    # Draws at one place are drawn once.
    strokes = dict.fromkeys(var_style(v=axis.share(draw)) for draw in gap.draws)
    if gap.draws:
        ends = between(min(gap.draws), max(gap.draws), block.digits)
        words.append(f"single differences: {ends}")
        ends_style = var_style(lo=axis.share(min(gap.draws)), hi=axis.share(max(gap.draws)))
        spread = tag("b", style=ends_style)
    if gap.as_far:
        words.append(f"{gap.as_far} {AS_MUCH}")
    counts = tag("small", gap.as_far.replace(" ", "\u00a0")) if gap.as_far else None
    shape = f"shape p{SHAPE.get(mark, 0)} point"
    bar = tag(
        "span",
        tag("em", style=var_style(z=axis.share(0.0))),
        spread,
        [tag("u", style=style) for style in strokes],
        whisker,
        tag("i", class_=shape, style=var_style(v=axis.share(gap.value)),
            data_words="\n".join(words)),
        class_=f"bar {mark}",
    )  # fmt: skip
    title = bdi(name) if at == 0 else tag("span", f"\u2212 {gap.control}", class_="unseen")
    said = tag("span", signed(gap.value, block.digits), " ", counts)
    return tag("div", tag("dt", title), tag("dd", bar, said))


# ---- histograms ----------------------------------------------------------------------------------
def draw_histograms(identifier: str, block: Histograms) -> Drawn:
    """A panel each, of shares of its own examples, on axes common to all; many are folded.

    The height of a bar is the share in a bin as wide as the widest of all: where bins are
    narrower, their bars are as much higher, so that equal areas are equal shares in every panel.
    """
    unit = max((b - a for panel in block.panels for a, b in pairwise(panel.edges)), default=1.0)
    edges = [edge for panel in block.panels for bin_ in _bins(panel, unit) for edge in bin_[:2]]
    edges += [panel.line for panel in block.panels if panel.line is not None]
    heights = [height for panel in block.panels for *_, height, _ in _bins(panel, unit)]
    across, up = scale(edges or [0.0, 1.0]), scale([0.0, max(heights, default=1.0)], from_zero=True)
    digits = 0 if up.high > 0.05 else 1
    up = replace(
        up,
        ticks=tuple(
            Tick(tick.share, percent(up.low + tick.share * (up.high - up.low), digits))
            for tick in up.ticks
        ),
    )
    panels = [_panel(panel, block, across, up, unit) for panel in block.panels]
    parts = [tag("div", panels[:PANELS], class_="histograms")]
    if left := panels[PANELS:]:
        parts.append(folded(f"The other {len(left)}", tag("div", left, class_="histograms")))
    words = caption(
        block.title,
        block.note,
        f"Height: share of {block.counted}s in a bin of width {number(unit)}; narrower bins have "
        "bars as much higher, so that equal areas are equal shares.",
    )
    return Drawn(figure(identifier, words, *parts))


def _bins(panel: Histogram, unit: float) -> list[tuple[float, float, int, float, float]]:
    """Of every bin that holds anything its edges, its count, the height of its bar, its share."""
    total = sum(panel.counts)
    bins = zip(pairwise(panel.edges), panel.counts, strict=True)
    return [
        (left, right, counted, counted / total * unit / (right - left), counted / total)
        for (left, right), counted in bins
        if counted
    ]


def _panel(panel: Histogram, block: Histograms, across: Scale, up: Scale, unit: float) -> Html:
    bins = _bins(panel, unit)
    said = f"{panel.name}: {block.x} from {number(panel.edges[0])} to {number(panel.edges[-1])}"
    if bins:
        left, right, *_, share = max(bins, key=lambda bin_: bin_[-1])
        said += f", most ({percent(share, 1)}) from {number(left)} to {number(right)}"
    path, points = "", []
    for left, right, counted, height, share in bins:
        start, end, top = (
            f"{1000 * place:.1f}"
            for place in (across.share(left), across.share(right), 1 - up.share(height))
        )
        path += f"M{start} 1000V{top}H{end}V1000Z"
        words = (
            f"{block.x} {number(left)} to {number(right)}\n"
            f"{count(counted, block.counted)} ({percent(share, 1)})"
        )
        points.append(_point(across.share((left + right) / 2), up.share(height), words, quiet=True))
    lines = [tag("path", d=path, class_="bins") if path else None]
    if panel.line is not None:
        upright = f"M{1000 * across.share(panel.line):.1f} 1000V0"
        lines.append(tag("path", d=upright, class_="upright"))
    marks = [tag("div", points, class_="marks p0 key-base")]
    chart = _plot(f"{said}.", lines, marks, across, up, block.x)
    return tag("div", tag("h4", bdi(panel.name)), tag("p", panel.note, class_="note"), chart)
