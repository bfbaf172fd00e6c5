"""The overlap of learned masks: a matrix of Jaccard indices beside chance, groups, numbers."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from headscope.report.html import Html, join, tag
from headscope.report.matrix import Axis, Cell, matrix, ramp_bar
from headscope.report.parts import figure, ramp_class, scroll, section, table
from headscope.results.overlap import GroupOverlap, PairOverlap
from headscope.shown.words import arrow, between, count, fixed, p_value

__all__ = ["group_table", "jaccard_matrix", "pair_table"]

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
