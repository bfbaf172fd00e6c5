"""Heads of a model: maps on one scale, the table of all heads with its map, and sets to copy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

from headscope.report.drawing.drawn import Drawn
from headscope.report.html import Child, Html, join, tag
from headscope.report.matrix import Axis, Cell, matrix, ramp_bar, small_matrix
from headscope.report.parts import diverging_class, figure, named, ramp_class, scroll, var_style
from headscope.shown.blocks import HeadMap, HeadMaps, HeadPlace, HeadSets, HeadTable
from headscope.shown.words import arrow, between, count, fixed, languages_of, number, sentence_of

#: Rows of a ranking that stand open.
ROWS = 30
#: Digits of the numbers that a page holds for its scripts; the run folder holds them in full.
DIGITS = 6
#: Maps of more cells in all are drawn small, without words at each cell.
SPOKEN = 1500
#: Maps of more are drawn small, too.
LARGE = 8
#: How far cells are apart, at least, where they hold signs: a wide map scrolls in its box.
SIGNED = 17


def head_maps(identifier: str, block: HeadMaps) -> Drawn:
    """Maps with one ramp for all of them."""
    known = [v for each in block.maps for row in each.values for v in row if v is not None]
    low = min(known, default=0.0) if block.low is None else block.low
    high = max(known, default=1.0) if block.high is None else block.high
    if block.diverging:
        high = max(abs(low), abs(high)) or 1.0
        low = -high
    cells = sum(len(row) for each in block.maps for row in each.values)
    signed = any(each.signs for each in block.maps)
    small = not signed and (len(block.maps) > LARGE or cells > SPOKEN)
    drawn = {each.name: _map(block, each, low, (high - low) or 1.0, small) for each in block.maps}
    width = max(len(row) for each in block.maps for row in each.values)
    caption = join(
        named(block.title),
        f"{sentence_of(block.note)} " if block.note else None,
        f"A dot: {block.marked}. " if block.marked else None,
        None if small else "Point at a cell for its number.",
    )
    ends = number(low), number(high)
    mark, word = block.tick or (None, "")
    at = None if mark is None else (mark - low) / ((high - low) or 1.0)
    bar = ramp_bar(f"{block.scale}: {ends[0]}", ends[1], at, word, block.diverging)
    wide = width * _pitch(width, small, len(block.maps), signed) + (10 if small else 50)
    return Drawn(figure(identifier, caption, _arranged(drawn, wide), bar))


def _map(block: HeadMaps, head_map: HeadMap, low: float, width: float, small: bool) -> Html:
    marked, signs, more = set(head_map.marked), dict(head_map.signs), dict(head_map.words)
    cells = []
    for layer, row in enumerate(head_map.values):
        for head, value in enumerate(row):
            if value is None:
                colour = "na"
            elif block.diverging:
                colour = diverging_class(value, width / 2)
            else:
                colour = ramp_class(value - low, width)
            place = (layer, head)
            words = f"head {layer}.{head}\n{block.scale}: {fixed(value, block.digits)}"
            if place in marked and block.marked:
                words += f"\n{block.marked}"
            if place in more:
                words += f"\n{more[place]}"
            cells.append(
                Cell(layer, head, colour, words=words, marked=place in marked,
                     sign=signs.get(place, ""), head=f"{layer}.{head}")
            )  # fmt: skip
    layers, heads = len(head_map.values), max(map(len, head_map.values), default=0)
    best = max(
        ((v, f"{at}.{h}") for at, row in enumerate(head_map.values) for h, v in enumerate(row)
         if v is not None),
        default=(0.0, "none"),
    )  # fmt: skip
    words = (
        f"{head_map.name or block.title}: {block.scale} of {count(layers * heads, 'head')}, "
        f"highest {best[1]} ({fixed(best[0], block.digits)})"
    )
    pitch = _pitch(heads, small, len(block.maps), bool(signs))
    if small:
        return small_matrix(cells, (layers, heads), pitch, words)
    axes = (Axis(_ticks(layers, pitch), "layer"), Axis(_ticks(heads, pitch), "head"))
    return scroll(words, matrix(cells, *axes, pitch, words))


def _pitch(heads: int, small: bool, maps: int, signed: bool) -> int:
    """How far cells are apart, by the heads of a layer and the number of maps."""
    room = 180 if small else 720 if maps == 1 else 300
    least = SIGNED if signed else 4 if small else 9
    return max(least, min(28, room // max(1, heads)))


def _arranged(maps: Mapping[str, Html], width: int) -> Html:
    """By source and target where all are directions, else side by side, `width` pixels each."""
    if len(maps) == 1:
        return next(iter(maps.values()))
    ways = {name: languages_of(name) for name in maps}
    if len(maps) > 3 and all(arrow(name) != name for name in maps):
        sources = list(dict.fromkeys(source for source, _ in ways.values()))
        targets = list(dict.fromkeys(target for _, target in ways.values()))
        # One order for both sides, so that a direction and its reverse mirror each other.
        targets = [t for t in sources if t in targets] + [t for t in targets if t not in sources]
        at = {way: name for name, way in ways.items()}
        rows = [
            tag("tr", tag("th", tag("bdi", source), scope="row"),
                [tag("td", maps.get(at.get((source, target), ""))) for target in targets])
            for source in sources
        ]  # fmt: skip
        top = tag("tr", tag("td"), [tag("th", tag("bdi", name), scope="col") for name in targets])
        words = f"{count(len(maps), 'map')}, sources down, targets across"
        shown = tag("table", tag("caption", words), tag("thead", top), tag("tbody", rows))
        return scroll(words, shown)
    made = [
        tag("figure", tag("h4", tag("bdi", arrow(name))), drawn) for name, drawn in maps.items()
    ]
    return tag("div", made, class_="head-maps", style=f"--w:{width}px")


def head_table(identifier: str, block: HeadTable) -> Drawn:
    """Map and layers side by side, and the ranking below; the script refills all three."""
    part = next(iter(block.parts))
    values = {key: _known(column) for key, column in block.parts[part].items()}
    shades = [column for column in block.columns if column.key not in ("low", "high")]
    high = _high(block)
    ranked = block.ranked()
    body = tag(
        "div",
        tag("div", _heat_map(identifier, block, values, shades[0].key, high, ranked),
            _profile(block, values, shades[0].key, high), class_="pair"),
        _ranking(block, values, ranked, high),
        class_="head-table", id=identifier,
    )  # fmt: skip
    data = {
        "heads": [list(place) for place in block.heads],
        "columns": [[column.key, column.title, column.digits] for column in block.columns],
        "parts": {
            name: {key: _known(column) for key, column in numbers.items()}
            for name, numbers in block.parts.items()
        },
        "ranked": block.ranked_by,
        "threshold": block.threshold,
        "significant": block.significant,
        "classes": [list(each) for each in block.classes],
        "highs": {column.key: _high(block, column.key) for column in shades},
        "shown": ROWS,
    }
    parts = tuple(block.parts) if len(block.parts) > 1 else ()
    return Drawn(body, {identifier: data}, ("heads.js",), parts)


def _heat_map(
    identifier: str,
    block: HeadTable,
    values: Mapping[str, Sequence[float | None]],
    key: str,
    high: float,
    ranked: Sequence[int],
) -> Html:
    threshold, dots = block.threshold, block.dots(next(iter(block.parts)))
    cells = [
        Cell(
            layer,
            head,
            ramp_class(_above_zero(values[key][at]), high),
            index=at,
            marked=dots[at],
            head=f"{layer}.{head}",
        )
        for at, (layer, head) in enumerate(block.heads)
    ]
    layers = 1 + max(layer for layer, _ in block.heads)
    width = 1 + max(head for _, head in block.heads)
    pitch = max(9, min(28, 720 // width))
    first = next(column for column in block.columns if column.key == key)
    best = ", ".join(
        f"{_place(block.heads[at])} ({fixed(values[key][at], first.digits)})" for at in ranked[:5]
    )
    picture = matrix(
        cells,
        Axis(_ticks(layers, pitch), "layer"),
        Axis(_ticks(width, pitch), "head"),
        pitch,
        f"{block.title}: {count(len(block.heads), 'head')}, highest {best}. Arrow keys read single "
        "heads; the table below holds every number.",
    )
    shades = [c for c in block.columns if c.key not in ("low", "high")]
    choice = tag("select", [tag("option", c.title, value=c.key) for c in shades], class_="shade")
    said = ""
    if threshold is not None:
        by_title = next(c.title for c in block.columns if c.key == block.ranked_by)
        said = f"A dot: {by_title} above {fixed(threshold, 2)}. "
    elif block.significant:
        said = f"A dot: the whole 95\u00a0% interval is above {_floor(values)}. "
    negative = any((v or 0.0) < 0 for part in block.parts.values() for v in part[key])
    caption = join(
        tag("strong", "Every attention head, one cell each. "),
        f"Darker means higher (in a dark scheme, lighter). {said}",
        "Values below 0 have the colour of 0. " if negative else None,
        "Point at a cell for its numbers; a click marks the head everywhere on this page.",
    )
    mark = None if threshold is None or threshold > high else threshold / high
    return figure(
        f"{identifier}-map",
        caption,
        tag("label", "Colour shows", choice, class_="control script") if len(shades) > 1 else None,
        scroll("Map, layers by heads", picture),
        ramp_bar("0", number(high), mark, "" if mark is None else fixed(threshold, 2)),
        class_="heatmap",
    )


def _profile(
    block: HeadTable, values: Mapping[str, Sequence[float | None]], key: str, high: float
) -> Html:
    dots = block.dots(next(iter(block.parts)))
    dotted = block.threshold is not None or block.significant
    digits = next(column.digits for column in block.columns if column.key == key)
    rows = []
    layers: dict[int, list[int]] = {}
    for at, (layer, _) in enumerate(block.heads):
        layers.setdefault(layer, []).append(at)
    for layer, members in layers.items():
        known = [v for at in members if (v := values[key][at]) is not None]
        mean = sum(known) / len(known) if known else None
        highest = max(known, default=None)
        style = var_style(
            v=None if mean is None else mean / high, h=None if highest is None else highest / high
        )
        bar = tag("span", tag("b"), tag("i"), class_="bar", style=style)
        rows.append(
            tag(
                "tr",
                tag("th", layer, scope="row"),
                tag("td", bar, class_="wide", aria_hidden="true"),
                tag("td", fixed(mean, digits), class_="number"),
                tag("td", fixed(highest, digits), class_="number"),
                tag("td", sum(dots[at] for at in members), class_="number") if dotted else None,
                data_layer=layer,
            )
        )
    named = [("Layer", None), ("", "wide"), ("Mean", "number"), ("Highest", "number")]
    if block.threshold is not None:
        named.append((f"> {fixed(block.threshold, 2)}", "number"))
    elif dotted:
        named.append((f"CI > {_floor(values)}", "number"))
    header = [tag("th", words, scope="col", class_=kind) for words, kind in named]
    picture = tag(
        "table",
        tag("caption", "By layer", class_="unseen"),
        tag("thead", tag("tr", header)),
        tag("tbody", rows),
        class_="profile dense" if len(layers) > 12 else "profile",
    )
    caption = join(
        tag("strong", "By layer. "),
        "Bar: mean over the heads of a layer; tick: its highest head.",
    )
    return tag("figure", scroll("By layer", picture), tag("figcaption", caption))


def _ranking(
    block: HeadTable,
    values: Mapping[str, Sequence[float | None]],
    ranked: Sequence[int],
    high: float,
) -> Html:
    first, interval = block.columns[0], "low" in values
    columns = [column for column in block.columns if column.key not in ("low", "high")]
    heading: list[Html] = [
        tag("th", "#", scope="col", data_c="rank"),
        tag("th", _button("Head", "head"), scope="col", data_c="head"),
        tag("th", "", scope="col", data_c="range"),
    ]
    for column in columns:
        heading.append(
            tag("th", _button(column.title, column.key), scope="col", data_c=column.key,
                title=column.meaning or None,
                aria_sort="descending" if column.key == block.ranked_by else None)
        )  # fmt: skip
        if column is first and interval:
            heading.append(tag("th", block.band, scope="col", data_c="interval"))
    if block.classes:
        heading.append(tag("th", "Class", scope="col", data_c="class"))
    rows = []
    for rank, at in enumerate(ranked[:ROWS], 1):
        share = {
            mark: None
            if (value := values.get(key, [None] * (at + 1))[at]) is None
            else value / high
            for mark, key in (("v", first.key), ("lo", "low"), ("hi", "high"), ("c", "chance"))
        }
        picture = tag("span", tag("b"), tag("i"), class_="range", style=var_style(**share))
        cells: list[Html] = [
            tag("td", rank, data_c="rank"),
            tag("th", _place(block.heads[at]), scope="row", data_c="head"),
            tag("td", picture, data_c="range", aria_hidden="true"),
        ]
        for column in columns:
            cells.append(tag("td", fixed(values[column.key][at], column.digits), data_c=column.key))
            if column is first and interval:
                ends = between(values["low"][at], values["high"][at], first.digits)
                cells.append(tag("td", ends, data_c="interval"))
        if block.classes:
            cells.append(tag("td", class_of(block, values[block.ranked_by][at]), data_c="class"))
        rows.append(tag("tr", cells, data_head=_place(block.heads[at])))
    shown = tag(
        "table",
        tag("caption", block.title, class_="unseen"),
        tag("thead", tag("tr", heading)),
        tag("tbody", rows),
        class_="ranking",
    )
    more = tag("button", f"Show all {len(block.heads)} heads", type="button", class_="more script",
               aria_expanded="false", hidden=len(block.heads) <= ROWS)  # fmt: skip
    csv = tag("button", "Save as CSV", type="button", class_="csv script")
    caption = join(
        named(block.title),
        f"{sentence_of(block.note)} " if block.note else None,
        "The dot is the score" if interval or "chance" in values else None,
        f", the band its {block.band}" if interval else None,
        ", the grey tick chance" if "chance" in values else None,
        "." if interval or "chance" in values else None,
    )
    below = tag("p", more, " ", csv, class_="script")
    return tag("figure", scroll(block.title, shown), below, tag("figcaption", caption))


def class_of(block: HeadTable, value: float | None) -> str:
    """The class of a head by the number that it is ranked by."""
    number = 0.0 if value is None else value
    return next(name for name, above in block.classes if above is None or number > above)


def _button(words: str, key: str) -> Html:
    return tag("button", words, type="button", data_sort=key)


def head_sets(identifier: str, block: HeadSets) -> Drawn:
    """Each set as chips, with buttons that copy it for `--heads` and for Python."""
    made: list[Child] = []
    for name, heads in block.sets.items():
        listed = ",".join(map(_place, heads))
        chips = [
            tag("a", _place(head), href=f"#head={_place(head)}", class_="chip") for head in heads
        ]
        copies = [
            tag("button", words, type="button", class_="copy", data_copy=text)
            for words, text in (
                ("copy for --heads", listed),
                ("CSV", "layer,head\n" + "".join(f"{a},{b}\n" for a, b in heads)),
                ("Python", f"[{', '.join(f'({a}, {b})' for a, b in heads)}]"),
            )
        ]
        made.append(
            tag("div",
                tag("h4", tag("bdi", name), f" ({count(len(heads), 'head')})"),
                tag("p", [part for chip in chips for part in (chip, " ")] or "none"),
                tag("p", copies, class_="script") if heads else None,
                class_="head-set")
        )  # fmt: skip
    caption = join(
        named(block.title),
        sentence_of(block.note) if block.note else None,
    )
    return Drawn(figure(identifier, caption, made))


def _known(column: Sequence[float | None]) -> list[Any]:
    return [None if v is None or not isfinite(v) else float(f"{v:.{DIGITS}g}") for v in column]


def _high(block: HeadTable, key: str = "") -> float:
    """The end of the colours: of the first column, and of what is compared with it, one for all."""
    first = block.columns[0].key
    if key in ("", first, "chance", "above_chance"):
        if block.high is not None:
            return block.high
        key = first
    known = [v for part in block.parts.values() for v in _known(part[key]) if v is not None]
    return max([*known, 0.0]) or 1.0


def _floor(values: Mapping[str, object]) -> str:
    """What an interval must lie above."""
    return "chance" if "chance" in values else "0"


def _above_zero(value: float | None) -> float | None:
    return None if value is None else max(0.0, value)


def _ticks(length: int, pitch: int) -> list[str]:
    """Labels 0 to length - 1, thinned where cells are too small to label each."""
    step = 1 if pitch >= 18 else 2 if pitch >= 13 else 4
    return [str(number) if number % step == 0 else "" for number in range(length)]


def _place(head: HeadPlace) -> str:
    return f"{head[0]}.{head[1]}"
