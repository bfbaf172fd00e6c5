"""Histograms one below the other, with the same axes, so that they can be compared by eye."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from headscope.report.axes import Scale, scale
from headscope.report.drawing.drawn import Drawn
from headscope.report.html import Html, join, tag
from headscope.report.parts import figure, named, var_style
from headscope.shown.blocks import Histogram, Histograms
from headscope.shown.words import count, number, percent, sentence_of

MOST = 8
"""Panels that stand open."""


def draw_histograms(identifier: str, block: Histograms) -> Drawn:
    """A panel each, of shares of its own examples, on axes common to all; many are folded.

    The height of a bar is the share in a bin as wide as the widest of all: where bins are
    narrower, their bars are as much higher, so that equal areas are equal shares in every panel.
    """
    unit = max((b - a for one in block.panels for a, b in pairwise(one.edges)), default=1.0)
    across = _across(block.panels)
    highest = max((max(_heights(one, unit), default=0.0) for one in block.panels), default=0.0)
    up = scale([0.0, highest or 1.0], from_zero=True)
    made = [_panel(at, one, block, across, up, unit) for at, one in enumerate(block.panels)]
    parts = [tag("div", made[:MOST], class_="histograms")]
    if len(made) > MOST:
        summary = tag("summary", f"The other {len(made) - MOST}")
        parts.append(tag("details", summary, tag("div", made[MOST:], class_="histograms")))
    caption = join(
        named(block.title),
        f"{sentence_of(block.note)} " if block.note else None,
        f"Height: share of {block.counted}s in a bin of width {number(unit)}; narrower bins have "
        "bars as much higher, so that equal areas are equal shares.",
    )
    return Drawn(figure(identifier, caption, *parts))


def _panel(
    at: int, one: Histogram, block: Histograms, across: Scale, up: Scale, unit: float
) -> Html:
    shares, heights = _shares(one), _heights(one, unit)
    fullest = max(range(len(shares)), key=shares.__getitem__, default=None)
    said = f"{one.name}: {block.x} from {number(one.edges[0])} to {number(one.edges[-1])}" + (
        ""
        if fullest is None
        else f", most ({percent(shares[fullest], 1)}) from {number(one.edges[fullest])} to "
        f"{number(one.edges[fullest + 1])}"
    )
    grid = [
        tag("div", tag("span", percent(float(tick), _digits(up))), class_="across", style=style)
        for tick, style in ((_value(up, t.share), var_style(y=t.share)) for t in up.ticks)
    ]
    below = [
        tag(
            "div",
            tag("span", tick.words),
            class_="below" + (" minor" if place % 2 and len(across.ticks) > 5 else ""),
            style=var_style(x=tick.share),
        )
        for place, tick in enumerate(across.ticks)
    ]
    points = []
    for (left, right), share, height, counted in zip(
        pairwise(one.edges), shares, heights, one.counts, strict=True
    ):
        if counted:
            middle = across.share((left + right) / 2)
            points.append(
                tag(
                    "span",
                    tag("i", class_="shape p0 key-base"),
                    class_="point quiet",
                    style=var_style(x=middle, y=up.share(height)),
                    data_words=f"{block.x} {number(left)} to {number(right)}\n"
                    f"{count(counted, block.counted)} ({percent(share, 1)})",
                    data_column=f"{middle:.5f}",
                    data_row=at,
                )
            )
    drawing = tag(
        "svg",
        _bars(one, heights, across, up),
        _line(one, across),
        viewBox="0 0 1000 1000",
        preserveAspectRatio="none",
        aria_hidden="true",
    )
    plot = tag("div", grid, drawing, below, points, class_="plot", aria_hidden="true")
    heading = join(tag("h4", tag("bdi", one.name)), tag("p", one.note, class_="note"))
    title = tag("span", block.x, class_="x-title", aria_hidden="true")
    chart = tag("div", plot, title, class_="chart", role="img", tabindex=0, aria_label=f"{said}.")
    return tag("div", heading, chart)


def _bars(one: Histogram, heights: Sequence[float], across: Scale, up: Scale) -> Html | None:
    """One path of all bars, each as wide as its bin."""
    parts = []
    for (left, right), height in zip(pairwise(one.edges), heights, strict=True):
        if height:
            x, end = round(1000 * across.share(left), 1), round(1000 * across.share(right), 1)
            parts.append(f"M{x} 1000V{round(1000 * (1 - up.share(height)), 1)}H{end}V1000Z")
    return tag("path", d="".join(parts), class_="bins") if parts else None


def _line(one: Histogram, across: Scale) -> Html | None:
    if one.line is None:
        return None
    return tag("path", d=f"M{round(1000 * across.share(one.line), 1)} 1000V0", class_="upright")


def _across(several: Sequence[Histogram]) -> Scale:
    """From the lowest to the highest edge of a bin that holds anything, and all lines."""
    held = [
        edge
        for one in several
        for (left, right), documents in zip(pairwise(one.edges), one.counts, strict=True)
        if documents
        for edge in (left, right)
    ]
    held += [one.line for one in several if one.line is not None]
    return scale(held or [0.0, 1.0])


def _shares(one: Histogram) -> list[float]:
    total = sum(one.counts)
    return [documents / total if total else 0.0 for documents in one.counts]


def _heights(one: Histogram, unit: float) -> list[float]:
    widths = [right - left for left, right in pairwise(one.edges)]
    return [share * unit / width for share, width in zip(_shares(one), widths, strict=True)]


def _value(axis: Scale, share: float) -> float:
    return axis.low + share * (axis.high - axis.low)


def _digits(axis: Scale) -> int:
    return 0 if axis.high > 0.05 else 1
