"""How far sets of heads agree, beside what chance gives.

The measures are those of the sources: the Jaccard index with both expectations and the
hypergeometric tail (Token Alignment Heads, section on consistency) over all heads, beside it that
within layers, recall |A ∩ B| / |B| with B the
reference (Heads Up!, similarity of masks), and Spearman's rank correlation over all heads.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import combinations
from math import sqrt
from statistics import fmean

import numpy as np

from headscope.data.languages import parse_direction, same_language
from headscope.errors import InputError
from headscope.estimates import known
from headscope.heads import HeadScores, HeadSet, check_geometry
from headscope.measure.ranking import centred, correlation, mid_ranks
from headscope.measure.statistics import overlap, overlap_within, shared_by_all
from headscope.results.overlap import Conditional, GroupOverlap, Halves, Kernel, PairOverlap

RELATIONS = ("same direction", "opposite", "same source", "same target", "other")


def overlaps(
    sets: Mapping[str, HeadSet],
    scores: Mapping[str, HeadScores] | None = None,
    directions: Mapping[str, str | None] | None = None,
    halves: Mapping[str, Halves | None] | None = None,
) -> list[PairOverlap]:
    """The overlap of every two sets, in the order of their names.

    Args:
        sets: heads by name, all of one geometry.
        scores: scores by the same names, where there are any, for the rank correlation.
        directions: the direction that each belongs to, where it is not the name itself.
        halves: how far each agrees with itself, where that is known.

    Raises `InputError` if the geometries differ.
    """
    ranked = scores or {}
    ways = {name: (directions or {}).get(name, name) for name in sets}
    rows = []
    for a, b in combinations(sets, 2):
        first, other = sets[a], sets[b]
        check_geometry(other, first.geometry, f"{b} (compared with {a})")
        common = overlap(set(first), set(other), first.geometry.total)
        within = overlap_within(set(first), set(other), first.geometry.by_layer())
        both = [half.jaccard for half in ((halves or {}).get(name) for name in (a, b)) if half]
        given_b = common.intersection / len(other) if len(other) else None
        given_a = common.intersection / len(first) if len(first) else None
        correlation = (
            rank_correlation(ranked[a], ranked[b]) if a in ranked and b in ranked else None
        )
        rows.append(
            PairOverlap(
                a,
                b,
                common.jaccard,
                common.expected,
                common.expected_exact,
                common.p_value,
                common.intersection,
                len(first),
                len(other),
                given_b,
                Conditional(given_a, given_b),
                correlation,
                _relation(ways[a], ways[b]),
                within.expected_exact,
                within.p_value,
                sqrt(both[0] * both[1]) if len(both) == 2 else None,
            )
        )
    return rows


def kernel_of(sets: Sequence[HeadSet]) -> Kernel | None:
    """The heads that all of three or more sets hold, in the first one's order; else None."""
    if len(sets) < 3 or not all(sets):
        return None
    layers = sets[0].geometry.by_layer()
    free = shared_by_all(sets, [[head for layer in layers for head in layer]])
    within = shared_by_all(sets, layers)
    common = [head.key for head in sets[0] if all(head in heads for heads in sets[1:])]
    return Kernel(tuple(common), free.expected, free.p_value, within.expected, within.p_value)


def rank_correlation(a: HeadScores, b: HeadScores) -> float | None:
    """Spearman's rank correlation of two scores over all heads of the model.

    The correlation of ranks, equal scores having the mean of the ranks they share. None where all
    scores of one are equal, which have no ranking.
    """
    check_geometry(b, a.geometry, "the other scores")
    mask = a.geometry.mask()
    first, other = (centred(mid_ranks(scores.values[mask])) for scores in (a, b))
    return known(float(np.clip(correlation(first, other), -1.0, 1.0)))


def group_overlaps(
    pairs: Sequence[PairOverlap], directions: Mapping[str, str | None], pivot: str = "en"
) -> list[GroupOverlap]:
    """Means over groups of pairs of directions; empty unless two names are directions.

    Groups by `relation` (the same direction, one the reverse of the other, one source, one target,
    other), by `source` and by `target` (both directions from, or into, that language), and those
    without the `pivot`, beside those from and into it (Token Alignment Heads, Fig. 28).
    """
    ways = {name: parse_direction(way) for name, way in directions.items() if way and _is_way(way)}
    rows = [pair for pair in pairs if pair.a in ways and pair.b in ways]
    chosen: list[tuple[str, str | None, str, list[PairOverlap]]] = [
        ("relation", None, relation, [pair for pair in rows if pair.relation == relation])
        for relation in RELATIONS
    ]
    for side, shown in (("source", "{} → x"), ("target", "x → {}")):
        codes = {name: getattr(way, side) for name, way in ways.items()}
        for language in _languages([*codes.values()]):
            alike = {name for name, code in codes.items() if same_language(code, language)}
            chosen.append((side, language, shown.format(language), _within(rows, alike)))
    without = {
        name
        for name, way in ways.items()
        if not same_language(way.source, pivot) and not same_language(way.target, pivot)
    }
    if len(without) < len(ways):
        chosen.append(("pivot", pivot, f"without {pivot}", _within(rows, without)))
    return [
        GroupOverlap(
            by,
            language,
            name,
            count=len(group),
            jaccard=fmean(pair.jaccard for pair in group),
            expected=fmean(pair.expected for pair in group),
            expected_exact=fmean(pair.expected_exact for pair in group),
            lowest=min(pair.jaccard for pair in group),
            highest=max(pair.jaccard for pair in group),
            largest_p=max(pair.p_value for pair in group),
            expected_within_layers=_known(fmean, (p.expected_within_layers for p in group)),
            largest_p_within_layers=_known(max, (p.p_within_layers for p in group)),
        )
        for by, language, name, group in chosen
        if group
    ]


def _known(of: Callable[[list[float]], float], values: Iterable[float | None]) -> float | None:
    """Something of several values; None where one is not known."""
    numbers = list(values)
    known = [number for number in numbers if number is not None]
    return of(known) if len(known) == len(numbers) else None


def _within(pairs: Sequence[PairOverlap], names: Collection[str]) -> list[PairOverlap]:
    return [pair for pair in pairs if pair.a in names and pair.b in names]


def _relation(a: str | None, b: str | None) -> str | None:
    if not a or not b or not _is_way(a) or not _is_way(b):
        return None
    first, other = parse_direction(a), parse_direction(b)
    source = same_language(first.source, other.source)
    target = same_language(first.target, other.target)
    if source and target:
        return "same direction"
    crossed = same_language(first.source, other.target), same_language(first.target, other.source)
    if all(crossed):
        return "opposite"
    return "same source" if source else "same target" if target else "other"


def _is_way(name: str) -> bool:
    try:
        parse_direction(name)
    except InputError:
        return False
    return True


def _languages(codes: Sequence[str]) -> list[str]:
    """The languages in order, each by the spelling that comes first."""
    languages: list[str] = []
    for code in codes:
        if not any(same_language(code, language) for language in languages):
            languages.append(code)
    return languages
