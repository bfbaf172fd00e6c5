"""Plain head scores: the map of all heads, their ranking, and the profile over layers."""

from __future__ import annotations

from collections.abc import Mapping
from math import floor, log10
from pathlib import Path

import numpy as np

from headscope.errors import InputError
from headscope.heads import Head, HeadScores, check_geometry, read_scores
from headscope.report.charts import Series, line_chart
from headscope.report.html import Child, Html, join, tag
from headscope.report.matrix import Axis, Cell, matrix, ramp_bar
from headscope.report.method_words import MethodWords
from headscope.report.parts import figure, ramp_class, scroll, section, table
from headscope.shown.words import MEAN, between, count, fixed, number

__all__ = [
    "SHOWN",
    "head_map",
    "map_section",
    "profile_section",
    "ranking_section",
    "scores_of",
    "ticks",
]

SHOWN = 30
"""Rows that stand open in a table of heads."""


def scores_of(path: Path) -> tuple[HeadScores, dict[str, HeadScores]]:
    """The scores of a finished run, and of several parts (languages, effects) their mean and each.

    InputError if the run holds none, or its parts are of different models.
    """
    parts = read_scores(path)
    if MEAN not in parts:
        raise InputError(
            f"{path / 'scores'}: holds no scores of heads; run the same command again into a new "
            "folder"
        )
    main = parts.pop(MEAN)
    for name, part in parts.items():
        check_geometry(part, main.geometry, str(path / "scores" / name))
    return main, parts


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


def map_section(scores: Mapping[str, HeadScores], words: MethodWords) -> Html:
    """One map, or of several parts a map each."""
    figures = []
    for at, (name, one) in enumerate(scores.items()):
        label = f"{words.name}, {name}" if len(scores) > 1 else words.name
        caption: list[Child] = [
            tag("strong", "Every attention head of the model, one cell each"),
            tag("strong", ": ", tag("bdi", name)) if len(scores) > 1 else None,
            ". ",
        ]
        if at == 0:
            caption += [words.score, " The further along the ramp, the higher. "]
            caption.append(_dots(one))
        if (one.values[one.geometry.mask()] < 0).any():
            caption.append(" Scores below 0 are shown like 0; the table tells them.")
        most = 720 if len(scores) == 1 else 460
        figures.append(figure(f"map-{at}", join(*caption), head_map(one, label, most)))
    body = tag("div", figures, class_="pair") if len(figures) > 1 else figures
    return section("heads", "Where the heads are", body)


def ranking_section(main: HeadScores, parts: Mapping[str, HeadScores], words: MethodWords) -> Html:
    """Every head, highest first, with its interval, chance, and the score of each part."""
    extras = [name for name in main.extra if name != "chance"]
    chance = "chance" in main.extra
    interval = main.low is not None
    header: list[Child] = ["Head", "Rank", "Mean score" if len(parts) > 1 else "Score"]
    header += ["Interval"] if interval else []
    header += ["Chance"] if chance else []
    header += [words.extra.get(name, name.replace("_", " ")) for name in extras]
    header += [tag("bdi", name) for name in parts]

    # One number of decimals for all, so that a column can be read down.
    digits = min(6, max(2, 2 - floor(log10(_scale(main)))))

    def row(rank: int, head: Head) -> list[Child]:
        cells: list[Child] = [str(head), rank, fixed(main[head], digits)]
        if main.low is not None and main.high is not None:
            at = head.layer, head.head
            cells.append(between(main.low[at], main.high[at], digits))
        names = [*(["chance"] if chance else []), *extras]
        cells += [fixed(main.extra[name][head.layer, head.head], digits) for name in names]
        return [*cells, *(fixed(part[head], digits) for part in parts.values())]

    rows = [row(rank, head) for rank, (head, _) in enumerate(main.ranked(), 1)]
    first = table("Heads by score", header, rows[:SHOWN], class_="numbers")
    more = None
    if len(rows) > SHOWN:
        rest = table("The other heads by score", header, rows[SHOWN:], class_="numbers")
        summary = tag("summary", f"The other {count(len(rows) - SHOWN, 'head')}")
        more = tag("details", summary, scroll("The other heads", rest))
    caption = join(
        tag("strong", "Every head, highest first. "),
        "The scores are the mean over the parts, which stand beside. " if len(parts) > 1 else "",
        f"The interval is the 95\u00a0% one from resampling the {words.examples[1]}: it tells how "
        "far a score depends on just these, not on this choice of data or settings. "
        if interval
        else "These scores carry no interval. ",
        f"Chance is {words.chance}. " if chance and words.chance else "",
    )
    return section(
        "scores",
        "The scores",
        figure("ranking", caption, scroll("Heads by score", first), more),
    )


def profile_section(scores: HeadScores, words: MethodWords) -> Html:
    """Mean and highest score of every layer."""
    profile = scores.layer_profile()
    mean = [(float(one.layer), one.mean) for one in profile if one.mean is not None]
    highest = [(float(one.layer), one.highest) for one in profile if one.highest is not None]
    best = max(profile, key=lambda one: -np.inf if one.mean is None else one.mean)
    chart = line_chart(
        [Series("highest of the layer", highest, "key-top"), Series("mean", mean, "key-base")],
        "layer",
        "score",
        f"{words.name} by layer: the mean is highest in layer {best.layer}.",
        x_labels={x: str(int(x)) for x, _ in mean} if len(mean) <= 40 else None,
    )
    caption = join(
        tag("strong", "The same scores by layer, from the first to the last. "),
        f"On average they are highest in layer {best.layer} ({_number(best.mean)}). A mean over "
        "the heads of a layer moves less with other data than a single score.",
    )
    return section("layers", "By layer", figure("profile", caption, chart))


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


def _dots(scores: HeadScores) -> str:
    if scores.low is None:
        return "Point at a cell for its numbers."
    than = "chance" if "chance" in scores.extra else "0"
    marked = sum(_clear(scores, head) for head in scores.geometry.heads())
    return (
        f"A dot marks the {count(marked, 'head')} whose whole interval lies above {than}. Point at "
        "a cell for its numbers."
    )


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
