"""The way of every head's weight through a training, all in one drawing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from headscope.errors import InputError
from headscope.heads import Geometry, HeadScores
from headscope.report.axes import Scale, scale
from headscope.report.html import Html, join, tag
from headscope.report.parts import legend, var_style
from headscope.results.mask import FoundMask, MaskHead

__all__ = ["STYLE", "MaskHistory", "drawn_heads", "paths_chart", "read_history"]

#: Lines drawn of heads that did not waver, and of those that did; points of a line.
PLAIN, WAVERING, POINTS = 160, 60, 80
STYLE = "mask.css"
_MARK = {True: "key-base", False: "key-top"}


@dataclass(frozen=True, eq=False)
class MaskHistory:
    """The weights `weights` (S, L, W) after so many `steps` (S,)."""

    geometry: Geometry
    steps: NDArray[np.int64]
    weights: NDArray[np.float32]


def read_history(path: Path, found: FoundMask) -> MaskHistory:
    """The history of a finished run; InputError if it is damaged or not that of this result."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    file = path / "history.safetensors"
    geometry = HeadScores.from_pretrained(path / "scores").geometry
    try:
        arrays = load(file.read_bytes())
        steps, weights, losses = (arrays[name] for name in ("steps", "weights", "losses"))
    except OSError as error:
        raise InputError(f"{file}: cannot be read ({error.strerror})") from error
    except (SafetensorError, KeyError, ValueError) as error:
        raise InputError(f"{file}: is damaged; run the same command again") from error
    if (
        sorted(head.place for head in found.heads) != list(geometry.heads())
        or weights.shape != (len(steps), *geometry.shape)
        or len(steps) < 2
        or not int(steps[-1]) == len(losses) == len(found.loss)
    ):
        raise InputError(
            f"{path}: its files are not of one run; run the same command again into a new folder"
        )
    return MaskHistory(geometry, steps, weights)


def drawn_heads(heads: Sequence[MaskHead]) -> list[MaskHead]:
    """The heads whose lines are drawn: the wavering ones last, on top; of many, an even choice."""
    plain = [head for head in heads if not head.wavered]
    wavered = [head for head in heads if head.wavered]
    return [*_evenly(plain, PLAIN), *_evenly(wavered, WAVERING)]


def paths_chart(history: MaskHistory, heads: Sequence[MaskHead], description: str) -> Html:
    """Weights over steps: kept heads in one colour, the others in another, wavering ones bold."""
    drawn = drawn_heads(heads)
    at = np.unique(np.linspace(0, len(history.steps) - 1, POINTS).round().astype(int))
    steps, weights = history.steps[at], history.weights[at]
    shown = [weights[:, head.layer, head.head] for head in drawn]
    across = scale([float(step) for step in steps])
    up = scale([0.0, *(float(value) for line in shown for value in line)])
    paths = [
        tag(
            "path",
            d=_line(steps, line, across, up),
            class_=_MARK[head.selected] + (" wavered" if head.wavered else ""),
        )
        for head, line in zip(drawn, shown, strict=True)
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


def _evenly(heads: Sequence[MaskHead], most: int) -> list[MaskHead]:
    if len(heads) <= most:
        return list(heads)
    return [heads[int(at)] for at in np.linspace(0, len(heads) - 1, most).round()]
