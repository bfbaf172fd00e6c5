"""Where the heads are: the heat map of all heads and the profile over layers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from headscope.heads import Geometry, HeadScores, count_words
from headscope.report.html import Html, join, tag
from headscope.report.matrix import Axis, Cell, matrix, ramp_bar
from headscope.report.parts import figure, legend, ramp_class, scroll, section, var_style
from headscope.report.records.atlas import AtlasRecord
from headscope.shown.words import MEAN, arrow, count, fixed

__all__ = ["direction_choices", "head_values", "heads_section", "scale_of", "scores_data"]

DIGITS = 6
"""Decimals of the numbers that the page holds; the run folder holds them in full."""
SHADES = {
    "score": "Translation Score",
    "above": "Translation Score \u2212 chance",
    "chance": "chance",
    "identical": "score on words with the same form",
    "different": "score on words with another form",
}


def heads_section(record: AtlasRecord) -> Html:
    """Heat map and layer profile."""
    return section(
        "heads",
        "Where the heads are",
        tag("div", _heat_map(record), _profile(record), class_="pair"),
    )


def scale_of(record: AtlasRecord) -> float:
    """The score at the end of the colour ramp, the same for every direction: tenths, rounded up."""
    highest = max(float(np.nanmax(scores.values)) for scores in record.scores.values())
    return float(max(np.ceil(highest * 10 - 1e-9) / 10, 2 * record.threshold, 0.1))


def head_values(scores: HeadScores) -> dict[str, list[float | None]]:
    """Every array over heads, in the order of the heads, rounded to `DIGITS` decimals.

    `above` is the score minus chance.
    """
    arrays: dict[str, NDArray[Any] | None] = {
        "score": scores.values,
        "low": scores.low,
        "high": scores.high,
    }
    arrays |= {name: scores.extra.get(name) for name in ("chance", "identical", "different")}
    if arrays["chance"] is not None:
        arrays["above"] = scores.values - arrays["chance"]
    mask = scores.geometry.mask()
    return {
        name: [None if np.isnan(v) else round(float(v), DIGITS) for v in array[mask]]
        for name, array in arrays.items()
        if array is not None
    }


def scores_data(record: AtlasRecord) -> dict[str, Any]:
    """What the script `atlas.js` needs: the heads and all their numbers, by direction."""
    geometry, threshold = record.scores[record.main].geometry, record.threshold
    return {
        "heads": [[head.layer, head.head] for head in geometry.heads()],
        "layers": geometry.layers,
        "threshold": threshold,
        "inactive": record.inactive,
        "rank": "above" if record.rank == "above-chance" else "score",
        "aligned": {
            name: [count_words(layer.token_alignment) for layer in part.layer_profile(threshold)]
            for name, part in record.scores.items()
        },
        "scale": scale_of(record),
        "values": {name: head_values(part) for name, part in record.scores.items()},
    }


def direction_choices(record: AtlasRecord) -> list[tuple[str, str]]:
    """The choices of the page: the mean and every direction."""
    many = len(record.directions)
    return [(name, f"mean of {many}" if name == MEAN else arrow(name)) for name in record.scores]


def _heat_map(record: AtlasRecord) -> Html:
    scores, scale = record.scores[record.main], scale_of(record)
    geometry, values = scores.geometry, head_values(scores)
    by = values["above" if record.rank == "above-chance" else "score"]
    cells = [
        Cell(
            head.layer,
            head.head,
            ramp_class(values["score"][index], scale),
            index,
            marked=(by[index] or 0.0) > record.threshold,
        )
        for index, head in enumerate(geometry.heads())
    ]
    pitch = max(9, min(28, 720 // geometry.width))
    picture = matrix(
        cells,
        Axis(_ticks(geometry.layers, pitch), "layer"),
        Axis(_ticks(geometry.width, pitch), "head"),
        pitch,
        _described(scores, record),
        id="heatmap-picture",
    )
    shades = [tag("option", words, value=name) for name, words in SHADES.items() if name in values]
    shade = tag("select", shades, id="shade")
    control = tag("label", "Colour shows", shade, class_="control script")
    caption = join(
        tag("strong", "Every attention head of the model, one cell each. "),
        "The Translation Score (TS) of a head is the share of target tokens for which the key the "
        "head weighs most, at the step that predicts the token, belongs to the source word that "
        "is aligned with it. The further along the ramp, the higher the score; the ramp is the "
        "same for all directions. ",
        f"A dot marks heads above {fixed(record.threshold, 2)}"
        + (
            " when corrected for chance, the score of the same peaks against the word links of "
            "other sentences of similar length. "
            if record.rank == "above-chance"
            else ". "
        ),
        _sureness(scores),
    )
    return figure(
        "heatmap",
        caption,
        control,
        scroll("Heat map, layers by heads", picture),
        ramp_bar("0", fixed(scale, 1), record.threshold / scale, fixed(record.threshold, 2)),
        class_="heatmap",
    )


def _profile(record: AtlasRecord) -> Html:
    scores, scale = record.scores[record.main], scale_of(record)
    rows = []
    for layer in scores.layer_profile(record.threshold):
        style = var_style(
            v=None if layer.mean is None else layer.mean / scale,
            h=None if layer.highest is None else layer.highest / scale,
        )
        bar = tag("span", tag("b"), tag("i"), class_="bar", style=style)
        rows.append(
            tag(
                "tr",
                tag("th", layer.layer, scope="row"),
                tag("td", bar, class_="wide", aria_hidden="true"),
                tag("td", fixed(layer.mean, 2), class_="number"),
                tag("td", fixed(layer.highest, 2), class_="number"),
                tag("td", count_words(layer.token_alignment), class_="number"),
                data_layer=layer.layer,
            )
        )
    header = [
        tag("th", words, scope="col", class_=kind)
        for words, kind in (
            ("Layer", None),
            ("", "wide"),
            ("Mean", "number"),
            ("Highest", "number"),
            (f"> {fixed(record.threshold, 2)}", "number"),
        )
    ]
    picture = tag(
        "table",
        tag("caption", "Translation Scores by layer", class_="unseen"),
        tag("thead", tag("tr", header)),
        tag("tbody", rows),
        class_="profile dense" if scores.geometry.layers > 12 else "profile",
        id="profile-table",
    )
    caption = join(
        tag("strong", "The same scores by layer, from the first to the last: "),
        "the mean over the heads of a layer, its highest score, and how many of its heads are "
        f"above {fixed(record.threshold, 2)}"
        + (f" (mean of {record.counted_over} directions)" if record.counted_over > 1 else "")
        + ". A mean over many heads moves less with other sentences than a single score; the "
        "intervals of single heads stand in the table below.",
    )
    return figure(
        "profile",
        caption,
        scroll("Layer profile", picture),
        legend(("key-bar", "mean"), ("key-tick", "highest")),
    )


def _ticks(length: int, pitch: int) -> list[str]:
    """Labels 0 to length - 1, thinned where cells are too small to label each."""
    step = 1 if pitch >= 18 else 2 if pitch >= 13 else 4
    return [str(number) if number % step == 0 else "" for number in range(length)]


def _described(scores: HeadScores, record: AtlasRecord) -> str:
    threshold, ranked = record.threshold, scores.ranked(record.rank)
    best = ", ".join(f"{head} ({fixed(scores[head], 2)})" for head, _ in ranked[:5])
    return (
        f"Heat map of {_shape(scores.geometry)}: {count(len(scores.select(threshold)), 'head')} "
        f"of {scores.geometry.total} above {fixed(threshold, 2)}. Highest: {best}. "
        "Arrow keys read single heads; the score table below holds every number."
    )


def _shape(geometry: Geometry) -> str:
    return f"{geometry.layers} layers with up to {count(geometry.width, 'head')}"


def _sureness(scores: HeadScores) -> str:
    if scores.low is None or scores.high is None:
        return "Point at a cell for its numbers."
    half = float(np.nanmedian((scores.high - scores.low) / 2))
    return (
        "Point at a cell for its numbers and the interval from resampling the sentences; "
        f"half its width is {fixed(half, 3)} for the median head."
    )
