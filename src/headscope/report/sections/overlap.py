"""How far the directions use the same heads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean

from headscope.heads import rank_words
from headscope.report.html import Html, join, tag
from headscope.report.matrix import Axis, Cell, matrix, ramp_bar
from headscope.report.parts import figure, ramp_class, scroll, section, table
from headscope.report.records.atlas import AtlasRecord, Overlap
from headscope.shown.words import arrow, between, count, fixed, languages_of, p_value

__all__ = ["overlap_section"]

PIVOT = "en"


def overlap_section(record: AtlasRecord) -> Html | None:
    """Jaccard matrix ordered by source and by target, means of groups, all numbers."""
    if not record.overlap:
        return None
    order = tag(
        "select",
        tag("option", "source language", value="source"),
        tag("option", "target language", value="target"),
        id="order",
    )
    return section(
        "overlap",
        "The same heads in every direction?",
        figure(
            "jaccard",
            _caption(record),
            tag("label", "Group by", order, class_="control script"),
            tag("div", _picture(record, 0), id="by-source"),
            tag("div", _picture(record, 1), id="by-target", hidden=True),
            ramp_bar("0", "1", _expected(record), "chance"),
        ),
        _groups(record),
        tag(
            "details",
            tag("summary", f"All {count(len(record.overlap), 'pair')}"),
            scroll("Overlap of every two directions", _all(record.overlap)),
        ),
    )


def _picture(record: AtlasRecord, side: int) -> Html:
    """The matrix with directions ordered by source (side 0) or by target language (side 1)."""
    place = {name: number for number, name in enumerate(_languages(record, side))}
    names = sorted(record.directions, key=lambda name: place[languages_of(name)[side]])
    gaps = frozenset(
        number
        for number in range(1, len(names))
        if languages_of(names[number])[side] != languages_of(names[number - 1])[side]
    )
    position = {name: number for number, name in enumerate(names)}
    cells = [Cell(number, number, "self") for number in range(len(names))]
    for pair in record.overlap:
        if pair.a in position and pair.b in position:
            for row, column in ((pair.a, pair.b), (pair.b, pair.a)):
                cells.append(
                    Cell(
                        position[row],
                        position[column],
                        ramp_class(pair.jaccard, 1.0),
                        words=_words(pair),
                    )
                )
    labels = [arrow(name) for name in names]
    jaccards = [pair.jaccard for pair in record.overlap]
    description = (
        f"Matrix of the Jaccard similarity of the top {record.top_k} heads between "
        f"{len(names)} directions, from {fixed(min(jaccards), 2)} to {fixed(max(jaccards), 2)}, "
        f"mean {fixed(fmean(jaccards), 2)}. The table below holds every number."
    )
    pitch = max(10, min(22, 640 // len(names)))
    axis = Axis(labels if pitch >= 13 else [""] * len(labels), gaps=gaps)
    upright = Axis(axis.labels, gaps=gaps, upright=True)
    return scroll("Jaccard matrix", matrix(cells, axis, upright, pitch, description))


def _caption(record: AtlasRecord) -> Html:
    pairs = record.overlap
    clear = sum(pair.p_value < 0.05 for pair in pairs)
    by_chance = round(0.05 * len(pairs))
    by = rank_words({"k": record.top_k, **record.result})
    return join(
        tag("strong", f"How many of the top {record.top_k} heads two directions share: "),
        f"the Jaccard similarity, shared heads by all heads in either set, ranked by {by}. "
        "Sets of this size drawn at random would reach "
        f"{fixed(fmean(p.expected_exact for p in pairs), 2)} on average (exact mean; the "
        "simpler ratio of expected counts, as the literature has it, gives "
        f"{fixed(fmean(p.expected for p in pairs), 2)}). ",
        f"In {clear} of {count(len(pairs), 'pair')} as large an overlap has a probability below "
        f"0.05 under random sets (hypergeometric; at so many pairs about {by_chance} would by "
        "chance alone). Directions that share a language share sentences, so the pairs are not "
        "independent of each other.",
    )


def _groups(record: AtlasRecord) -> Html:
    rows: list[tuple[str, list[Overlap]]] = []
    for side, word in ((0, "source"), (1, "target")):
        for language in _languages(record, side):
            rows.append((f"same {word}: {language}", _both(record, _has(side, language))))
    if PIVOT in _languages(record, 0) + _languages(record, 1):
        without = _both(record, lambda name: PIVOT not in languages_of(name))
        rows.append((f"both without {PIVOT}", without))
    rows.append(("a direction and its reverse", [p for p in record.overlap if _reverse(p)]))
    rows.append(("all", list(record.overlap)))
    body = [
        (
            tag("bdi", name),
            len(pairs),
            fixed(fmean(pair.jaccard for pair in pairs), 2),
            between(min(p.jaccard for p in pairs), max(p.jaccard for p in pairs), 2),
            fixed(fmean(pair.expected for pair in pairs), 2),
            fixed(fmean(pair.expected_exact for pair in pairs), 2),
            p_value(max(pair.p_value for pair in pairs)),
        )
        for name, pairs in rows
        if pairs
    ]
    header = (
        "Pairs of directions",
        "Pairs",
        "Mean Jaccard",
        "Range",
        "Expected (ratio)",
        "Expected (exact)",
        "Largest p",
    )
    picture = table("Overlap by group of directions", header, body, class_="numbers")
    return scroll("Overlap by group", picture)


def _all(pairs: Sequence[Overlap]) -> Html:
    header = ("A", "B", "Jaccard", "Expected (ratio)", "Expected (exact)", "p")
    rows = [
        (
            tag("bdi", arrow(pair.a)),
            tag("bdi", arrow(pair.b)),
            fixed(pair.jaccard, 3),
            fixed(pair.expected, 3),
            fixed(pair.expected_exact, 3),
            p_value(pair.p_value),
        )
        for pair in pairs
    ]
    return table("Overlap of every two directions", header, rows, class_="numbers")


def _words(pair: Overlap) -> str:
    return (
        f"{arrow(pair.a)}  and  {arrow(pair.b)}\n"
        f"Jaccard {fixed(pair.jaccard, 2)}\n"
        f"expected {fixed(pair.expected_exact, 2)} (exact), {fixed(pair.expected, 2)} (ratio)\n"
        f"p {p_value(pair.p_value)}"
    )


def _languages(record: AtlasRecord, side: int) -> list[str]:
    """Languages on one side of the directions, in the order in which they come."""
    return list(dict.fromkeys(languages_of(name)[side] for name in record.directions))


def _both(record: AtlasRecord, keep: Callable[[str], bool]) -> list[Overlap]:
    return [pair for pair in record.overlap if keep(pair.a) and keep(pair.b)]


def _has(side: int, language: str) -> Callable[[str], bool]:
    return lambda direction: languages_of(direction)[side] == language


def _reverse(pair: Overlap) -> bool:
    return languages_of(pair.a) == languages_of(pair.b)[::-1]


def _expected(record: AtlasRecord) -> float:
    return fmean(pair.expected_exact for pair in record.overlap)
