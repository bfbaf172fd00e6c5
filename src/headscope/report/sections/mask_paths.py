"""The way of every head's weight through a training, all in one drawing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from headscope.report.axes import Scale, scale
from headscope.report.html import Html, join, tag
from headscope.report.parts import legend, var_style
from headscope.report.records.mask import HeadCourse, MaskRecord

__all__ = ["STYLE", "drawn_courses", "paths_chart"]

#: Lines drawn of heads that did not waver, and of those that did; points of a line.
PLAIN, WAVERING, POINTS = 160, 60, 80
STYLE = "mask.css"
_MARK = {True: "key-base", False: "key-top"}


def drawn_courses(record: MaskRecord) -> list[HeadCourse]:
    """The heads whose lines are drawn: the wavering ones last, on top; of many, an even choice."""
    plain = [one for one in record.courses if one.fate not in ("tried", "regained")]
    wavered = [one for one in record.courses if one.fate in ("tried", "regained")]
    return [*_evenly(plain, PLAIN), *_evenly(wavered, WAVERING)]


def paths_chart(record: MaskRecord, description: str) -> Html:
    """Weights over steps: kept heads in one colour, the others in another, wavering ones bold."""
    courses = drawn_courses(record)
    at = np.unique(np.linspace(0, len(record.steps) - 1, POINTS).round().astype(int))
    steps, weights = record.steps[at], record.weights[at]
    shown = [weights[:, one.head.layer, one.head.head] for one in courses]
    across = scale([float(step) for step in steps])
    up = scale([0.0, *(float(value) for line in shown for value in line)])
    paths = [
        tag(
            "path",
            d=_line(steps, line, across, up),
            class_=_MARK[one.selected] + (" wavered" if len(one.changes) > 1 else ""),
        )
        for one, line in zip(courses, shown, strict=True)
    ]
    zero = tag("path", d=_line(steps[[0, -1]], np.zeros(2), across, up), class_="zero")
    drawing = tag(
        "svg",
        paths,
        zero,
        viewBox="0 0 1000 1000",
        preserveAspectRatio="none",
        aria_hidden="true",
    )
    grid = [
        tag("div", tag("span", tick.words), class_="across", style=var_style(y=tick.share))
        for tick in up.ticks
    ]
    ticks = [
        tag("div", tag("span", tick.words), class_="below", style=var_style(x=tick.share))
        for tick in across.ticks
    ]
    chart = tag(
        "div",
        tag("span", "weight M", class_="y-title", aria_hidden="true"),
        tag("div", grid, drawing, ticks, class_="plot", aria_hidden="true"),
        tag("span", "steps", class_="x-title", aria_hidden="true"),
        class_="chart paths",
        role="img",
        aria_label=description,
    )
    return join(chart, legend(("key-base", "in the mask"), ("key-top", "not in the mask")))


def _line(steps: NDArray[np.int64], values: NDArray[np.floating], across: Scale, up: Scale) -> str:
    points = [
        f"{round(across.share(float(x)) * 1000)} {1000 - round(up.share(float(y)) * 1000)}"
        for x, y in zip(steps, values, strict=True)
    ]
    return "M" + "L".join(points)


def _evenly(courses: Sequence[HeadCourse], most: int) -> list[HeadCourse]:
    if len(courses) <= most:
        return list(courses)
    return [courses[int(at)] for at in np.linspace(0, len(courses) - 1, most).round()]
