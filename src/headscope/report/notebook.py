"""What a notebook shows: pages in a frame of their own, and maps of scores, gates and sets.

In a frame, neither's style reaches the other.
"""

from __future__ import annotations

from typing import Any

from headscope.heads import Gate, Geometry, HeadScores, HeadSet
from headscope.heads.hub import Artifact
from headscope.report.drawing.blocks import draw
from headscope.report.html import Html, join, tag
from headscope.report.page import Page, render
from headscope.report.parts import ends
from headscope.shown.blocks import Column, HeadMap, HeadMaps, HeadTable


def page_in_frame(page: Page) -> str:
    """A page as an element that any notebook shows, with scripts and without the network."""
    style = "width: 100%; height: 36rem; border: 0"
    allowed = "allow-scripts allow-downloads"
    return tag("iframe", srcdoc=render(page), title=page.title, style=style, sandbox=allowed)


def artifact_page(artifact: Artifact) -> Page:
    """A page of the map of heads alone."""
    made = draw("heads", block_of(artifact))
    return Page(
        "heads", Html(""), [("heads", "", join(made.html, made.more))], (), made.data, made.scripts
    )


def block_of(artifact: Artifact) -> HeadTable | HeadMaps:
    """Scores with all that is known of them; gates, and sets as gates of 1 among 0."""
    match artifact:
        case HeadScores():
            known = {"score": artifact.values, "low": artifact.low, "high": artifact.high}
            columns = {**{n: a for n, a in known.items() if a is not None}, **artifact.extra}
            numbers = {
                name: [_number(array[head.layer, head.head]) for head in artifact.geometry.heads()]
                for name, array in columns.items()
            }
            return HeadTable(
                artifact.method,
                tuple((head.layer, head.head) for head in artifact.geometry.heads()),
                tuple(Column(name, name.replace("_", " ")) for name in columns),
                {"all": numbers},
                significant="low" in columns,
                signed=ends(numbers["score"])[1],
            )
        case Gate():
            rows = _by_layer(artifact.values, artifact.geometry)
            return HeadMaps("Gate", (HeadMap("gate", rows),), "gate", low=min(0.0, *map(min, rows)))
        case HeadSet():
            rows = _by_layer(artifact.mask(), artifact.geometry)
            return HeadMaps("Heads", (HeadMap("selected", rows),), "selected", high=1.0, digits=0)
        case _:
            raise TypeError(f"{type(artifact).__name__} has no map of heads")


def _by_layer(array: Any, geometry: Geometry) -> tuple[tuple[float, ...], ...]:
    """The rows of an array (L, W), each as long as its layer has heads."""
    pairs = zip(array, geometry.counts, strict=True)
    return tuple(tuple(map(float, row[:count])) for row, count in pairs)


def _number(value: Any) -> float | None:
    number = float(value)
    return None if number != number else number
