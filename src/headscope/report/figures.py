"""Blocks as matplotlib figures, for papers and slides, in the colours of the pages."""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from math import nan
from typing import Any

from headscope.errors import InputError, need
from headscope.report.drawing.charts import marks_of
from headscope.report.drawing.heads import highest, written
from headscope.report.drawing.maps import ends_of
from headscope.shown.blocks import (
    Bars,
    Forest,
    HeadMap,
    HeadMaps,
    HeadTable,
    Heatmap,
    Histograms,
    Lines,
    Shown,
)
from headscope.shown.words import arrow

#: The light colours of `assets/report.css` by the names of their marks.
COLOURS = {
    "key-top": "#c2410c",
    "key-base": "#1f4080",
    "key-random": "#6b7680",
    "key-matched": "#aab2b9",
    "key-ta": "#1f4080",
    "key-low": "#2a8f8f",
    "key-off": "#7b848c",
    "key-s9": "#2e8fba",
    "key-rose": "#b0326b",
    "key-ochre": "#8f6a00",
    "key-violet": "#7a4f9e",
}
RAMP = ("#eaf2f3", "#abdce1", "#68bace", "#2e8fba", "#205f9f", "#1f4080", "#1a2261")
DIVERGING = ("#1f4080", "#68bace", "#fdfdfc", "#f0a377", "#c2410c")
#: Panels beside each other.
COLUMNS = 2
Drawable = Heatmap | Lines | Bars | Forest | HeadMaps | HeadTable | Histograms


#: The axes that a figure is drawn in, where they are given.
_GIVEN: ContextVar[list[Any] | None] = ContextVar("axes", default=None)


class _Inside:
    """The figure of given axes, of which nothing outside of them is changed."""

    def __init__(self, axes: list[Any]) -> None:
        self._axes = axes

    def suptitle(self, title: str, **style: Any) -> None:
        self._axes[0].set_title(title, **style)

    def colorbar(self, image: Any, **how: Any) -> None:
        self._axes[0].figure.colorbar(image, **how)

    def legend(self, handles: Any, labels: Any, **style: Any) -> None:
        self._axes[0].legend(handles, labels, frameon=False, fontsize="small")


def figure_of(shown: Shown, title: str = "", ax: Any = None) -> Any:
    """The first block that can be drawn, or the one of this title, as a matplotlib figure.

    It is drawn in `ax`, the axes or several of them, where they are given. `InputError` if there is
    none, or it has another number of panels.
    """
    blocks = [block for block in shown.blocks if isinstance(block, Drawable)]
    chosen = next((block for block in blocks if title in ("", block.title)), None)
    if chosen is None:
        known = "; ".join(dict.fromkeys(block.title for block in blocks)) or "none"
        raise InputError(f"there is no figure {title!r}; this run shows: {known}")
    if ax is None:
        return drawn(chosen)
    axes = list(ax.flat) if hasattr(ax, "flat") else list(ax) if isinstance(ax, Sequence) else [ax]
    before = _GIVEN.set(axes)
    try:
        drawn(chosen)
    finally:
        _GIVEN.reset(before)
    return axes[0].figure


def drawn(block: Drawable) -> Any:
    """A block as a matplotlib figure with its title, axes and legend."""
    need("matplotlib", "a figure", "plot")
    match block:
        case HeadTable():
            return _maps(_as_maps(block))
        case HeadMaps():
            return _maps(block)
        case Heatmap():
            return _heatmap(block)
        case Lines():
            return _lines(block)
        case Bars():
            return _bars(block)
        case Forest():
            return _forest(block)
        case Histograms():
            return _histograms(block)


def _panels(panels: int, size: tuple[float, float] = (6.4, 4.0)) -> Any:
    """A figure and its axes, as many as there are panels; pyplot keeps no record of it."""
    from matplotlib.figure import Figure

    if (given := _GIVEN.get()) is not None:
        if len(given) != panels:
            raise InputError(
                f"this figure has {panels} panels; give as many axes, not {len(given)}"
            )
        return _Inside(given), given
    columns = min(COLUMNS, panels)
    rows = -(-panels // columns)
    figure = Figure((size[0] * columns**0.5, size[1] * rows / columns**0.5), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for unused in axes[panels:]:
        unused.set_axis_off()
    return figure, axes[:panels]


def _titled(figure: Any, title: str) -> Any:
    figure.suptitle(title, fontsize="medium")
    return figure


def _colours(diverging: bool) -> Any:
    from matplotlib.colors import LinearSegmentedColormap

    colours = LinearSegmentedColormap.from_list("headscope", DIVERGING if diverging else RAMP)
    return colours.with_extremes(bad="#ffffff00")


def _as_maps(table: HeadTable) -> HeadMaps:
    """The map that a page draws of a table of heads: its first column, of its first part; values
    below 0 have the colour of 0, unless they are effects."""
    (part, numbers), first = next(iter(table.parts.items())), table.columns[0].key
    how = written(table)[first]
    rows: list[list[float | None]] = [[] for _ in range(1 + max(layer for layer, _ in table.heads))]
    for (layer, _), value in zip(table.heads, numbers[first], strict=True):
        rows[layer].append(None if value is None else how.factor * value)
    dots = zip(table.heads, table.dots(part), strict=True)
    marked = tuple(place for place, dot in dots if dot)
    drawn_map = HeadMap(part, tuple(map(tuple, rows)), marked)
    title = f"{table.title}, {arrow(part)}" if len(table.parts) > 1 else table.title
    most = how.factor * highest(table, first)
    return HeadMaps(title, (drawn_map,), how.title, 0.0, most, table.signed)


def _maps(block: HeadMaps) -> Any:
    rows = [row for head_map in block.maps for row in head_map.values]
    ends, wide, tall = ends_of(block, rows), max(map(len, rows)), len(block.maps[0].values)
    figure, axes = _panels(len(block.maps), size=(6.4, 1.2 + 5.2 * tall / wide))
    for head_map, axis in zip(block.maps, axes, strict=True):
        width = max(map(len, head_map.values))
        filled = [[*row, *[None] * (width - len(row))] for row in head_map.values]
        image = _image(axis, filled, ends, block.diverging)
        axis.set(xlabel="head", ylabel="layer", title=arrow(head_map.name) if len(axes) > 1 else "")
        if head_map.marked:
            layers_down, heads_across = zip(*head_map.marked, strict=True)
            axis.scatter(heads_across, layers_down, s=7, c="white", edgecolors=RAMP[-1], lw=0.6)
    figure.colorbar(image, ax=list(axes), label=block.scale, shrink=0.8)
    return _without_bands(_titled(figure, block.title), axes[0], len(axes))


def _without_bands(figure: Any, axis: Any, panels: int = 1) -> Any:
    """The figure as high as maps of square cells with their labels, where these fill the width."""
    for _ in range(0 if isinstance(figure, _Inside) else 4):
        figure.draw_without_rendering()
        size = figure.get_size_inches()
        place = axis.get_position(original=True).size * size
        used = axis.get_position().size * size
        labelled = axis.get_tightbbox().size / figure.dpi
        if labelled[0] < place[0]:  # bands at the sides
            more = (place[0] - labelled[0] + used[0]) * used[1] / used[0] - used[1]
        else:
            more = min(0.0, labelled[1] - place[1])
        if abs(more) < 0.02:
            break
        figure.set_figheight(size[1] + -(-panels // COLUMNS) * more)
    return figure


def _image(
    axis: Any, rows: Sequence[Sequence[Any]], ends: tuple[float, float], diverging: bool
) -> Any:
    values = [[nan if value is None else value for value in row] for row in rows]
    axis.set_facecolor("#eceff1")
    low, high = ends
    return axis.imshow(values, cmap=_colours(diverging), aspect="equal", vmin=low, vmax=high)


def _heatmap(block: Heatmap) -> Any:
    figure, (axis,) = _panels(1)
    image = _image(axis, block.values, ends_of(block, block.values), block.diverging)
    axis.set_xticks(range(len(block.columns)), block.columns, rotation=45, ha="right")
    axis.set_yticks(range(len(block.rows)), block.rows)
    axis.set(xlabel=block.column_axis, ylabel=block.row_axis)
    figure.colorbar(image, ax=axis, label=block.scale, shrink=0.8)
    return _without_bands(_titled(figure, block.title), axis)


def _lines(block: Lines) -> Any:
    figure, (axis,) = _panels(1)
    marks = marks_of([line.name for line in block.series])
    for line, mark in zip(block.series, marks, strict=True):
        points = sorted(line.points)
        axis.plot(*zip(*points, strict=True), marker="o", ms=3.5, lw=1.4, color=COLOURS[mark],
                  ls="--" if mark == "key-matched" else "-", label=line.name)  # fmt: skip
        if band := sorted(line.band):
            axis.fill_between(*zip(*band, strict=True), color=COLOURS[mark], alpha=0.14, lw=0)
    for name, value in block.references:
        axis.axhline(value, color=COLOURS["key-random"], lw=0.9, ls=(0, (4, 3)), label=name)
    axis.set(xlabel=block.x, ylabel=block.y)
    if block.logarithmic:
        axis.set_xscale("log")
    if block.logarithmic_y:
        axis.set_yscale("log")
    return _titled(_plain(figure, axis, len(block.series) + len(block.references) > 1), block.title)


def _bars(block: Bars) -> Any:
    figure, (axis,) = _panels(1, size=(6.4, 1.2 + 0.24 * len(block.groups) * len(block.series)))
    height = 0.8 / len(block.series)
    marks = marks_of(block.series)
    for at, (series, mark) in enumerate(zip(block.series, marks, strict=True)):
        places = [group + at * height for group in range(len(block.groups))]
        values = [_number(row[at]) for row in block.values]
        hatch = "///" if mark == "key-matched" else None
        axis.barh(places, values, height, color=COLOURS[mark], label=series, hatch=hatch)
        ends = [
            (place, _number(low[at]), _number(high[at]))
            for place, low, high in zip(places, block.low, block.high, strict=False)
        ]
        axis.hlines(*zip(*ends, strict=True), color="#1d2328", lw=1) if ends else None
        for place, draws in zip(places, block.draws, strict=False):
            axis.plot(draws[at], [place] * len(draws[at]), "|", color="#1d2328", ms=5,
                      clip_on=False)  # fmt: skip
    middle = height * (len(block.series) - 1) / 2
    axis.set_yticks([group + middle for group in range(len(block.groups))], block.groups)
    axis.invert_yaxis()
    axis.set_xlim(block.start, block.end)
    axis.set_xlabel(block.y)
    return _titled(_plain(figure, axis, len(block.series) > 1), block.title)


def _forest(block: Forest) -> Any:
    controls = block.controls
    lanes = len(block.rows) * (len(controls) + 0.5)
    figure, (axis,) = _panels(1, size=(6.4, 1.4 + 0.22 * lanes))
    axis.axvline(0, color=COLOURS["key-off"], lw=1)
    marks = dict(zip(controls, marks_of(controls), strict=True))
    named: set[str] = set()
    for row, (_, gaps) in enumerate(block.rows):
        for lane, gap in enumerate(gaps):
            place, colour = row + lane * 0.8 / len(controls), COLOURS[marks[gap.control]]
            if gap.draws:  # the range of random sets is as visible as the interval
                axis.hlines(place, min(gap.draws), max(gap.draws), color=colour, lw=6, alpha=0.25)
            axis.plot(gap.draws, [place] * len(gap.draws), "|", color=colour, ms=9, alpha=0.75)
            if gap.low is not None and gap.high is not None:
                axis.hlines(place, gap.low, gap.high, color="#1d2328", lw=1)
            new = gap.control and gap.control not in named
            label = f"selected \u2212 {gap.control}" if new else None
            axis.plot(gap.value, place, "D" if lane == 0 else "s", color=colour, ms=6,
                      mec="#1d2328", label=label)  # fmt: skip
            named.add(gap.control)
    axis.set_yticks(range(len(block.rows)), [name for name, _ in block.rows])
    # Half a lane above the first mark and below the last.
    apart = 0.8 / max(1, len(controls))
    axis.set_ylim(len(block.rows) - 1 + apart * (len(controls) - 0.5), -apart / 2)
    axis.set_xlabel(block.axis)
    return _titled(_plain(figure, axis, any(controls)), block.title)


def _histograms(block: Histograms) -> Any:
    figure, axes = _panels(len(block.panels))
    for panel, axis in zip(block.panels, axes, strict=True):
        axis.stairs(panel.counts, panel.edges, fill=True, color=COLOURS["key-base"])
        if panel.line is not None:
            axis.axvline(panel.line, color=COLOURS["key-top"], lw=1.2)
        axis.set(xlabel=block.x, ylabel=f"{block.counted}s", title=panel.name)
        _plain(figure, axis, False)
    return _titled(figure, block.title)


def _plain(figure: Any, axis: Any, legend: bool) -> Any:
    """Without the frame's upper and right side."""
    axis.spines[["top", "right"]].set_visible(False)
    if legend:
        figure.legend(*axis.get_legend_handles_labels(), frameon=False, fontsize="small",
                      loc="outside lower center", ncols=2)  # fmt: skip
    return figure


def _number(value: float | None) -> float:
    return nan if value is None else value
