"""Small maps of many masks beside each other: each head's weight σ(M), layers by heads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil

from headscope.report.html import Html, join, tag
from headscope.report.matrix import ramp_bar
from headscope.report.parts import RAMP, figure, scroll, section
from headscope.shown.words import arrow, count, languages_of

__all__ = ["Rows", "maps_section", "small_map"]

Rows = Sequence[Sequence[float | None]]
"""σ(M) of one mask by layer, then head; None where the model has no head."""

#: Small maps of a row of the page, where tasks are no directions.
ABREAST = 6


def small_map(rows: Rows, description: str, width: int = 96) -> Html:
    """One map, late layers on top; runs of cells of one colour are drawn as one."""
    layers, heads = len(rows), max(len(row) for row in rows)
    paths: dict[str, list[str]] = {}
    for layer, row in enumerate(rows):
        start = 0
        for at in range(1, len(row) + 1):
            if at < len(row) and _colour(row[at]) == _colour(row[start]):
                continue
            shape = f"M{start} {layers - 1 - layer}h{at - start}"
            paths.setdefault(_colour(row[start]), []).append(shape)
            start = at
    # Lines as wide as a row are half as long to write as rectangles.
    drawn = [
        tag("path", d="".join(shapes), style=f"stroke:var(--{colour})")
        for colour, shapes in paths.items()
    ]
    return tag(
        "svg",
        tag("g", drawn, transform="translate(0 .5)", stroke_width=1, fill="none"),
        viewBox=f"0 0 {heads} {layers}",
        preserveAspectRatio="none",
        shape_rendering="crispEdges",
        style=f"display:block;width:{width}px;height:{_height(layers, heads, width)}px",
        role="img",
        aria_label=description,
    )


def maps_section(maps: Mapping[str, Rows], bases: Mapping[str, Rows]) -> Html:
    """The maps of all masks and, below, of the base model's.

    By source and target where all are directions, else one after another.
    """
    ways = {name: languages_of(name) for name in maps}
    directions = len(maps) > 3 and all(source and target for source, target in ways.values())
    grid = _square(maps, ways) if directions else _row(maps)
    below = scroll("Maps of base masks", _row(bases)) if bases else None
    caption = join(
        tag("strong", "The weight \u03c3(M) of every head in every mask"),
        ", late layers on top, heads from left to right. A head is kept where it is at least 0.5. "
        + (
            "Masks stand by source language (down) and target language (across). "
            if directions
            else ""
        ),
        "Each mask is one training run: how a map would look after another one is not shown here.",
    )
    key = ramp_bar("0", "1", 0.5, "kept")
    body = figure("maps-figure", caption, scroll("Maps", grid), below, key)
    return section("maps", "Which heads each mask keeps", body)


def _square(maps: Mapping[str, Rows], ways: Mapping[str, tuple[str, str]]) -> Html:
    sources = list(dict.fromkeys(source for source, _ in ways.values()))
    targets = list(dict.fromkeys(target for _, target in ways.values()))
    # One order for both sides, so that a direction and its reverse mirror each other.
    targets = [one for one in sources if one in targets] + [t for t in targets if t not in sources]
    at = {way: name for name, way in ways.items()}
    width = max(48, min(110, 620 // len(targets)))
    body = []
    for source in sources:
        cells = [tag("th", source, scope="row")]
        for target in targets:
            name = at.get((source, target))
            picture = None if name is None else small_map(maps[name], _words(name), width)
            cells.append(tag("td", picture))
        body.append(tag("tr", cells))
    top = tag("tr", tag("td"), [tag("th", target, scope="col") for target in targets])
    return tag(
        "table",
        tag("caption", f"Maps of {count(len(maps), 'mask')}, sources down, targets across"),
        tag("thead", top),
        tag("tbody", body),
    )


def _row(maps: Mapping[str, Rows]) -> Html:
    names = list(maps)
    rows = ceil(len(names) / ABREAST)
    body = []
    for number in range(rows):
        some = names[number * ABREAST : (number + 1) * ABREAST]
        body.append(tag("tr", [tag("th", tag("bdi", arrow(one)), scope="col") for one in some]))
        body.append(tag("tr", [tag("td", small_map(maps[one], _words(one))) for one in some]))
    return tag("table", tag("caption", "Maps of the masks"), tag("tbody", body))


def _words(name: str) -> str:
    return f"Weights of the mask of {arrow(name)}, layers by heads"


def _height(layers: int, heads: int, width: int) -> int:
    return max(32, min(160, round(width * layers / heads)))


def _colour(value: float | None) -> str:
    if value is None:
        return "hair"
    return f"s{min(RAMP, max(0, round(value * RAMP)))}"
