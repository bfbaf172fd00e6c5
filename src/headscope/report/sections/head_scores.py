"""Plain head scores: the map of all heads."""

from __future__ import annotations

import numpy as np

from headscope.heads import Head, HeadScores
from headscope.report.html import Html, join
from headscope.report.matrix import Axis, Cell, matrix, ramp_bar
from headscope.report.parts import ramp_class, scroll
from headscope.shown.words import between, count, number

__all__ = ["SHOWN", "head_map", "ticks"]

SHOWN = 30
"""Rows that stand open in a table of heads."""


def head_map(scores: HeadScores, label: str, most: int = 720) -> Html:
    """The heat map of one set of scores with its ramp; negative scores are shown like 0."""
    geometry, scale = scores.geometry, _scale(scores)
    pitch = max(9, min(28, most // geometry.width))
    cells = [
        Cell(
            head.layer,
            head.head,
            ramp_class(max(0.0, scores[head]), scale),
            index,
            _words(scores, head),
            marked=_clear(scores, head),
        )
        for index, head in enumerate(geometry.heads())
    ]
    best = ", ".join(f"{head} ({number(score)})" for head, score in scores.ranked()[:5])
    picture = matrix(
        cells,
        Axis(ticks(geometry.layers, pitch), "layer"),
        Axis(ticks(geometry.width, pitch), "head"),
        pitch,
        f"{label}: {count(geometry.total, 'head')}, highest {best}. The table below holds every "
        "number.",
    )
    return join(scroll(f"{label}, layers by heads", picture), ramp_bar("0", number(scale)))


def ticks(length: int, pitch: int) -> list[str]:
    """Labels 0 to length - 1, thinned where cells are too small to label each."""
    step = 1 if pitch >= 18 else 2 if pitch >= 13 else 4
    return [str(place) if place % step == 0 else "" for place in range(length)]


def _scale(scores: HeadScores) -> float:
    highest = float(np.nanmax(scores.values))
    return highest if highest > 0 else 1.0


def _clear(scores: HeadScores, head: Head) -> bool:
    """Whether the whole interval lies above chance, or above 0 where there is no chance."""
    if scores.low is None:
        return False
    low, chance = float(scores.low[head.layer, head.head]), 0.0
    if "chance" in scores.extra:
        known = float(scores.extra["chance"][head.layer, head.head])
        chance = known if np.isfinite(known) else 0.0
    return low > max(chance, 0.0)


def _words(scores: HeadScores, head: Head) -> str:
    at = head.layer, head.head
    lines = [f"head {head}", f"score {_number(scores[head])}"]
    if scores.low is not None and scores.high is not None:
        lines.append(f"interval {_between(float(scores.low[at]), float(scores.high[at]))}")
    lines += [f"{name} {_number(float(one[at]))}" for name, one in scores.extra.items()]
    return "\n".join(lines)


def _number(value: float | None) -> str:
    return "\u2013" if value is None or not np.isfinite(value) else number(value)


def _between(low: float, high: float) -> str:
    if not np.isfinite(low + high) or 0.001 <= max(abs(low), abs(high)) < 1000:
        return between(low, high, 3)
    return f"{number(low)} to {number(high)}"
