"""The report of `compare overlap`: a matrix of Jaccard indices beside chance, groups, numbers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from headscope.heads import Geometry
from headscope.report.html import Html, join, tag
from headscope.report.matrix import Axis, Cell, matrix, ramp_bar
from headscope.report.page import Page
from headscope.report.pages.frame import about_run, masthead, simple_page
from headscope.report.parts import figure, in_short, ramp_class, scroll, section, table
from headscope.results.overlap import ComparedSet, GroupOverlap, OverlapResult, PairOverlap
from headscope.runs.reading import result_of
from headscope.shown.words import arrow, between, count, fixed, p_value

__all__ = ["group_table", "jaccard_matrix", "page", "pair_table"]

Pairs = Sequence[PairOverlap]

GROUPED = {
    "source": "both out of this language",
    "target": "both into this language",
    "pivot": "neither out of nor into it",
}
RELATIONS = {
    "opposite": "there and back between two languages",
    "same source": "out of one language, whichever it is",
    "same target": "into one language, whichever it is",
    "other": "all the rest",
}


def page(path: Path) -> Page:
    """The report of the comparison in this folder."""
    result = result_of(path, OverlapResult, "a comparison of sets")
    artifacts, pairs = result.artifacts, result.pairs
    names = [one.name for one in artifacts]
    geometry = Geometry.from_dict(result.geometry)
    sizes = sorted({one.size for one in artifacts})
    heads = f"{geometry.total} in {count(geometry.layers, 'layer')}"
    return simple_page(
        "Overlap of head sets",
        masthead(
            "Overlap of head sets",
            "How far sets of attention heads hold the same heads, beside what sets of their "
            "sizes drawn at random would share.",
            [
                ("", count(len(names), "set")),
                ("heads in a set", _range(sizes)),
                ("heads of the model", heads),
            ],
            "headscope compare overlap",
        ),
        [
            ("summary", "", _summary(result)),
            ("overlap", "Matrix", jaccard_matrix(names, pairs)),
            ("groups", "Groups", group_table(result.groups)),
            ("pairs", "Pairs", pair_table(pairs)),
            ("sets", "Sets", _sets(artifacts)),
            ("provenance", "Provenance", about_run(path)),
        ],
    )


def _summary(result: OverlapResult) -> Html:
    pairs = result.pairs
    jaccards = [pair.jaccard for pair in pairs]
    chance = fmean(pair.expected_exact for pair in pairs)
    clear = sum(pair.p_value < 0.05 for pair in pairs)
    if len(pairs) == 1:
        (pair,) = pairs
        words: list[Html] = [_one_pair(pair)]
    else:
        low, high = (pick(pairs, key=lambda pair: pair.jaccard) for pick in (min, max))
        words = [
            join(
                f"Over {count(len(pairs), 'pair')} of sets the Jaccard index, the heads both "
                "have by the heads either has, is ",
                tag("strong", fixed(fmean(jaccards), 2)),
                f" on average ({fixed(chance, 2)} would be chance). It is highest between ",
                _pair(high),
                f" ({fixed(high.jaccard, 2)}), lowest between ",
                _pair(low),
                f" ({fixed(low.jaccard, 2)}).",
            ),
            join(
                f"In {_of(clear, len(pairs))} so large an overlap has a probability below 0.05 "
                "under random sets."
            ),
        ]
    if result.threshold is not None:
        chosen = f"the heads that score above {fixed(result.threshold, 2)}"
    elif result.k is not None:
        share = str(result.k).endswith("%") or float(result.k) < 1
        chosen = f"the first {result.k}{' of the' if share else ''} heads of each"
    else:
        chosen = "saved sets as they are, and of scores the usual share of highest heads"
    by = result.ranked_by if result.threshold is None else None
    words.append(join(f"Compared were {chosen}{f', ranked by {by}' if by else ''}."))
    return in_short(*words)


def _one_pair(pair: PairOverlap) -> Html:
    rank = pair.rank_correlation
    ranks = (
        ""
        if rank is None
        else f" Over all heads the two scores agree with a rank correlation of {fixed(rank, 2)}."
    )
    return join(
        tag("bdi", arrow(pair.a)),
        f" ({count(pair.size_a, 'head')}) and ",
        tag("bdi", arrow(pair.b)),
        f" ({count(pair.size_b, 'head')}) share ",
        tag("strong", count(pair.intersection, "head")),
        f": a Jaccard index of {fixed(pair.jaccard, 2)}, where random sets of these sizes reach "
        f"{fixed(pair.expected_exact, 2)} on average (p\u00a0{p_value(pair.p_value)}).",
        ranks,
    )


def jaccard_matrix(names: Sequence[str], pairs: Pairs) -> Html:
    """The Jaccard index of every two of these sets, darker where they share more."""
    place = {name: number for number, name in enumerate(names)}
    cells = [Cell(number, number, "self") for number in range(len(names))]
    for pair in pairs:
        at = place[pair.a], place[pair.b]
        for row, column in (at, at[::-1]):
            colour = ramp_class(pair.jaccard, 1.0)
            cells.append(Cell(row, column, colour, words=_words(pair)))
    jaccards = [pair.jaccard for pair in pairs]
    chance = fmean(pair.expected_exact for pair in pairs)
    description = (
        f"Matrix of the Jaccard index between {len(names)} sets of heads, from "
        f"{fixed(min(jaccards), 2)} to {fixed(max(jaccards), 2)}. The tables below hold every "
        "number."
    )
    pitch = max(10, min(28, 640 // len(names)))
    labels = [_short(name) for name in names] if pitch >= 13 else [""] * len(names)
    picture = matrix(cells, Axis(labels), Axis(labels, upright=True), pitch, description)
    by_chance = round(0.05 * len(pairs))
    caption = join(
        tag("strong", "How many heads two sets share: "),
        "the Jaccard index, shared heads by all heads in either set. Sets of these sizes drawn at "
        f"random would reach {fixed(chance, 2)} on average (exact mean; the ratio of expected "
        "counts that the literature uses gives "
        f"{fixed(fmean(pair.expected for pair in pairs), 2)}). Each p is the probability of "
        "as large an overlap of random sets (hypergeometric)",
        f"; among so many pairs about {by_chance} fall below 0.05 by chance alone. "
        if by_chance
        else ". ",
        "Sets that were found on the same sentences are not independent of each other.",
    )
    key = ramp_bar("0", "1", chance, "chance")
    return section(
        "overlap", "The same heads?", figure("jaccard", caption, scroll("Matrix", picture), key)
    )


def group_table(groups: Sequence[GroupOverlap]) -> Html | None:
    """Means over groups of directions; None where there are no directions."""
    if not groups:
        return None
    header = ("Group", "Pairs of two directions", "Number", "Mean Jaccard", "Range",
              "Expected (ratio)", "Expected (exact)", "Largest p")  # fmt: skip
    rows = [
        (
            tag("bdi", one.name),
            RELATIONS.get(one.name) or GROUPED.get(one.by, ""),
            one.count,
            fixed(one.jaccard, 3),
            between(one.lowest, one.highest, 2),
            fixed(one.expected, 3),
            fixed(one.expected_exact, 3),
            p_value(one.largest_p),
        )
        for one in groups
    ]
    caption = join(
        tag("strong", "Means over groups of translation directions, "),
        "by how two directions are related, by their common source and by their common target "
        "language. The pairs of a group share directions, so a group's mean is less sure than its "
        "number of pairs suggests.",
    )
    body = scroll("Groups", table("Overlap by group", header, rows, said={1}, class_="numbers"))
    return section("groups", "Groups of directions", figure("groups-figure", caption, body))


def pair_table(pairs: Pairs) -> Html:
    """Every number of every pair."""
    header = ("A", "B", "Jaccard", "Expected (ratio)", "Expected (exact)", "p", "Shared",
              "of A", "of B (recall)", "Rank correlation")  # fmt: skip
    rows = [
        (
            tag("bdi", arrow(pair.a)),
            tag("bdi", arrow(pair.b)),
            fixed(pair.jaccard, 3),
            fixed(pair.expected, 3),
            fixed(pair.expected_exact, 3),
            p_value(pair.p_value),
            f"{pair.intersection} of {pair.size_a} and {pair.size_b}",
            fixed(pair.conditional.given_a, 3),
            fixed(pair.conditional.given_b, 3),
            fixed(pair.rank_correlation, 3),
        )
        for pair in pairs
    ]
    shown = table("Overlap of every two sets", header, rows, said={1}, class_="numbers")
    body = scroll("Pairs", shown)
    caption = join(
        tag("strong", "The overlap of every two sets. "),
        "\u201cShared\u201d counts the heads in both. Shares of A and of B are those of its heads "
        "that the other holds too; the last is recall, with B as the reference. The rank "
        "correlation is Spearman\u2019s over all heads, where both have scores: 1 is the same "
        "order, 0 none. How sure: the numbers are exact for these sets, and p says how often "
        "random sets of their sizes would share as many heads. Nothing here says how the sets "
        "themselves would change with other sentences.",
    )
    if len(pairs) > 20:
        body = tag("details", tag("summary", f"All {count(len(pairs), 'pair')}"), body)
    return section("pairs", "Every pair", figure("pairs-figure", caption, body))


def _sets(artifacts: Sequence[ComparedSet]) -> Html:
    rows = [
        tag(
            "details",
            tag("summary", tag("bdi", one.name), f": {count(one.size, 'head')}"),
            tag("p", tag("code", ",".join(one.heads), class_="heads")),
            tag("p", "Read from ", tag("code", one.place)),
        )
        for one in artifacts
    ]
    return section("sets", "The sets that were compared", rows)


def _pair(pair: PairOverlap) -> Html:
    return join(tag("bdi", arrow(pair.a)), " and ", tag("bdi", arrow(pair.b)))


def _words(pair: PairOverlap) -> str:
    return (
        f"{arrow(pair.a)}  and  {arrow(pair.b)}\n"
        f"Jaccard {fixed(pair.jaccard, 2)}, {pair.intersection} shared\n"
        f"expected {fixed(pair.expected_exact, 2)} (exact), "
        f"{fixed(pair.expected, 2)} (ratio)\np {p_value(pair.p_value)}"
    )


def _short(name: str) -> str:
    shown = arrow(name)
    return shown if len(shown) <= 28 else f"\u2026{shown[-27:]}"


def _range(sizes: Sequence[int]) -> str:
    return str(sizes[0]) if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"


def _of(some: int, every: int) -> str:
    return f"all {every}" if some == every else f"{some or 'none'} of {every}"
