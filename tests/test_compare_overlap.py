"""Overlap of head sets: laws of sets, Spearman against its definition, groups of directions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import combinations
from math import comb, isclose, sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headscope.compare.overlap_agreement import half_agreement
from headscope.compare.overlap_sets import group_overlaps, overlaps, rank_correlation
from headscope.heads import Geometry, HeadScores, HeadSet
from headscope.measure.ranking import halves
from headscope.results.overlap import Halves
from headscope.shown.blocks import Bars, Heatmap
from headscope.studies.shows import alike, overlap_blocks

GEOMETRY = Geometry((3, 0, 3, 2))
HEADS = tuple(GEOMETRY.heads())
SETS = st.lists(st.sampled_from(HEADS), unique=True).map(lambda heads: HeadSet(GEOMETRY, heads))
VALUES = st.lists(st.integers(-3, 3), min_size=len(HEADS), max_size=len(HEADS))


def scored(values: list[float], geometry: Geometry = GEOMETRY) -> HeadScores:
    array = np.full(geometry.shape, np.nan)
    array[geometry.mask()] = values
    return HeadScores(geometry, array, "made up")


def naive_ranks(values: list[float]) -> list[float]:
    """Of each value: how many are smaller, and the mean place among its equals."""
    return [
        sum(other < one for other in values) + (1 + sum(other == one for other in values)) / 2
        for one in values
    ]


def naive_spearman(a: list[float], b: list[float]) -> float | None:
    """Pearson's correlation of the ranks, from its definition."""
    one, other = naive_ranks(a), naive_ranks(b)
    mean_a, mean_b = sum(one) / len(one), sum(other) / len(other)
    above = sum((x - mean_a) * (y - mean_b) for x, y in zip(one, other, strict=True))
    below = sum((x - mean_a) ** 2 for x in one) * sum((y - mean_b) ** 2 for y in other)
    return above / sqrt(below) if below else None


@given(SETS, SETS)
def test_values_follow_from_their_definitions(a: HeadSet, b: HeadSet) -> None:
    (row,) = overlaps({"a": a, "b": b})
    one, other, total = set(a), set(b), len(HEADS)
    shared = len(one & other)
    assert (row.intersection, row.size_a, row.size_b) == (shared, len(one), len(other))
    assert row.jaccard == (shared / len(one | other) if one | other else 1)
    assert row.recall == row.conditional.given_b == (shared / len(other) if other else None)
    assert row.conditional.given_a == (shared / len(one) if one else None)
    ratio = len(one) * len(other) / total
    assert isclose(row.expected, ratio / (len(one) + len(other) - ratio) if one | other else 1)
    # Every set of B's size, counted one by one.
    drawn = [len(one & set(some)) for some in combinations(HEADS, len(other))]
    assert len(drawn) == comb(total, len(other))
    assert isclose(row.p_value, sum(number >= shared for number in drawn) / len(drawn))
    unions = [len(one) + len(other) - number for number in drawn]
    means = [n / u if u else 1 for n, u in zip(drawn, unions, strict=True)]
    assert isclose(row.expected_exact, sum(means) / len(means))
    # Every set with as many heads of each layer, counted one by one.
    wanted = Counter(head.layer for head in other)
    drawn = [
        set(some)
        for some in combinations(HEADS, len(other))
        if Counter(head.layer for head in some) == wanted
    ]
    numbers = [len(one & some) for some in drawn]
    p = sum(number >= shared for number in numbers) / len(drawn)
    assert row.p_within_layers is not None and isclose(row.p_within_layers, p)
    means = [
        n / len(one | some) if one | some else 1 for n, some in zip(numbers, drawn, strict=True)
    ]
    assert isclose(row.expected_within_layers or 0, sum(means) / len(means), abs_tol=1e-12)
    assert row.rank_correlation is None and row.relation is None and row.ceiling is None


@given(SETS, SETS)
def test_overlap_is_symmetric_and_bounded(a: HeadSet, b: HeadSet) -> None:
    (row,), (back,) = overlaps({"a": a, "b": b}), overlaps({"b": b, "a": a})
    for name in ("jaccard", "intersection"):
        assert getattr(row, name) == getattr(back, name)
    for name in ("expected", "expected_exact", "p_value"):
        assert isclose(getattr(row, name), getattr(back, name), abs_tol=1e-12)
    assert row.conditional.given_a == back.conditional.given_b
    assert 0 <= row.jaccard <= 1 and 0 < row.p_value <= 1
    assert 0 <= row.expected_exact <= 1 + 1e-12


@given(VALUES, VALUES)
def test_rank_correlation_is_spearmans(a: list[float], b: list[float]) -> None:
    found, expected = rank_correlation(scored(a), scored(b)), naive_spearman(a, b)
    assert (found is None) == (expected is None)
    if found is not None and expected is not None:
        assert isclose(found, expected, abs_tol=1e-12) and -1 <= found <= 1


@settings(max_examples=25)
@given(VALUES, VALUES, st.permutations(range(len(HEADS))))
def test_rank_correlation_is_of_pairs(a: list[float], b: list[float], order: list[int]) -> None:
    one, other = rank_correlation(scored(a), scored(b)), rank_correlation(scored(b), scored(a))
    moved = rank_correlation(scored([a[i] for i in order]), scored([b[i] for i in order]))
    for found in (other, moved):
        assert (found is None) == (one is None)
        assert one is None or isclose(one, found or 0, abs_tol=1e-12)


def test_directions_are_grouped_by_how_they_relate() -> None:
    names = ("en-de", "de-en", "en-ru", "ru-de", "tr-es", "mean")
    sets = {name: HeadSet(GEOMETRY, HEADS[place : place + 3]) for place, name in enumerate(names)}
    rows = overlaps(sets)
    relations = {(row.a, row.b): row.relation for row in rows}
    assert relations["en-de", "de-en"] == "opposite"
    assert relations["en-de", "en-ru"] == "same source"
    assert relations["en-de", "ru-de"] == "same target"
    assert relations["de-en", "en-ru"] == "other"
    assert relations["en-de", "mean"] is None
    groups = {(one.by, one.name): one for one in group_overlaps(rows, {n: n for n in names})}
    counts = {name: one.count for name, one in groups.items()}
    assert counts["relation", "opposite"] == counts["relation", "same source"] == 1
    assert sum(n for (by, _), n in counts.items() if by == "relation") == comb(5, 2)
    assert counts["source", "en → x"] == 1 and counts["target", "x → de"] == 1
    assert counts["pivot", "without en"] == 1  # ru-de and tr-es
    chosen = next(row for row in rows if (row.a, row.b) == ("ru-de", "tr-es"))
    group = groups["pivot", "without en"]
    assert (group.jaccard, group.expected) == (chosen.jaccard, chosen.expected)
    assert group.lowest == group.highest == chosen.jaccard


def test_one_direction_under_other_names_and_spellings() -> None:
    sets = {"base": HeadSet(GEOMETRY, HEADS[:2]), "instruct": HeadSet(GEOMETRY, HEADS[1:3])}
    ways = {"base": "en-de", "instruct": "eng_Latn-deu_Latn"}
    (row,) = overlaps(sets, directions=ways)
    assert row.relation == "same direction"
    (relation, source, target) = group_overlaps([row], ways)
    assert (relation.name, source.language, target.language) == (
        "same direction", "en", "de",
    )  # fmt: skip


def test_heads_of_the_same_layers_share_more_by_chance() -> None:
    """Any three of four heads of one layer have two in common: of 64 heads that would be rare."""
    geometry = Geometry((4,) * 16)
    a, b = HeadSet.parse("7.0,7.1,7.2", geometry), HeadSet.parse("7.1,7.2,7.3", geometry)
    (row,) = overlaps({"a": a, "b": b})
    assert row.p_value < 0.01 and row.p_within_layers == 1
    assert row.expected_within_layers == 1 / 4 + 3 / 4 * row.jaccard


def measured(average: str = "macro", sentences: int = 21, seed: int = 4) -> HeadScores:
    """Translation scores and their chance, of made-up hits."""
    random = np.random.default_rng(seed)
    totals = random.integers(0, 12, size=sentences)
    true = random.beta(1, 3, size=len(HEADS))
    hits = np.zeros((sentences, *GEOMETRY.shape), dtype=np.uint16)
    hits[:, GEOMETRY.mask()] = random.binomial(totals[:, None], true)
    chance = np.zeros((sentences, *GEOMETRY.shape), dtype=np.float32)
    chance[:, GEOMETRY.mask()] = random.random((sentences, len(HEADS)))
    statistics = {
        "hits": hits, "totals": totals, "chance": chance, "chance_totals": 3.0 * (totals > 2)
    }  # fmt: skip
    values, expected = (
        np.array(part) for part in naive_scores(statistics, range(sentences), average)
    )
    return HeadScores(
        GEOMETRY, values, "translation-score", extra={"chance": expected}, statistics=statistics,
        config={"average": average},
    )  # fmt: skip


def naive_scores(
    statistics: Mapping[str, np.ndarray], rows: Iterable[int], average: str
) -> list[np.ndarray]:
    """Score and chance of some sentences, in loops."""
    made = []
    for name, totals in (("hits", "totals"), ("chance", "chance_totals")):
        own = [row for row in rows if statistics["totals"][row] and statistics[totals][row]]
        hits = [statistics[name][row].astype(float) for row in own]
        sizes = [float(statistics[totals][row]) for row in own]
        each = [hit / size for hit, size in zip(hits, sizes, strict=True)]
        made.append(sum(hits) / sum(sizes) if average == "micro" else sum(each) / len(each))
    return made


@pytest.mark.parametrize("average", ["macro", "micro"])
def test_two_halves_choose_heads_by_their_own_sentences(average: str) -> None:
    scores = measured(average)
    found = half_agreement(scores, lambda part: part.top(3), seed=2)
    jaccards = []
    for split in range(100):
        sets = []
        for rows in halves(21, split, 2):
            values, chance = naive_scores(scores.statistics, rows, average)
            best = sorted(HEADS, key=lambda head: -(values - chance)[head.layer, head.head])
            sets.append(set(best[:3]))
        jaccards.append(len(sets[0] & sets[1]) / len(sets[0] | sets[1]))
    assert found is not None and found.examples == 21
    assert isclose(found.jaccard, sum(jaccards) / 100)
    by_size = [comb(3, n) * comb(len(HEADS) - 3, 3 - n) / comb(len(HEADS), 3) for n in range(4)]
    assert isclose(found.expected, sum(p * n / (6 - n) for n, p in enumerate(by_size)))


def test_halves_of_a_split_hold_every_example_once() -> None:
    for examples in (2, 7, 40):
        first, other = halves(examples, 3)
        assert sorted([*first, *other]) == list(range(examples))
        assert abs(len(first) - len(other)) <= 1
    assert [list(half) for half in halves(1, 3)] == [[0], [0]]


def test_documents_are_halved_as_their_scores_are_defined() -> None:
    random = np.random.default_rng(1)
    products = random.normal(random.normal(size=GEOMETRY.shape), size=(12, *GEOMETRY.shape))
    size = np.abs(products).mean(axis=0)
    both = {"lahis": size * (products < 0).mean(axis=0), "first-order": size}
    for method, values in both.items():
        scores = HeadScores(GEOMETRY, values, method, statistics={"products": products})
        found = half_agreement(scores, lambda part: part.top(2))
        assert found is not None and 0 < found.jaccard <= 1
        # Scores that are not those of their examples have no halves.
        assert half_agreement(replace(scores, values=values + 1), lambda part: part.top(2)) is None
    assert half_agreement(scored([0.0] * len(HEADS)), lambda part: part.top(2)) is None


def test_the_ceiling_is_the_geometric_mean_of_both() -> None:
    sets = {"a": HeadSet(GEOMETRY, HEADS[:2]), "b": HeadSet(GEOMETRY, HEADS[1:3])}
    own = {"a": Halves(10, 0.9, 0.1), "b": Halves(20, 0.4, 0.1)}
    assert isclose(overlaps(sets, halves=own)[0].ceiling or 0, 0.6)
    assert overlaps(sets, halves={**own, "b": None})[0].ceiling is None


def test_a_verdict_on_overlap_takes_the_correction_and_a_map_joins_equal_sets() -> None:
    geometry = Geometry.uniform(4, 8)
    heads = list(geometry.heads())
    starts = {"a": 0, "b": 0, "c": 1, "d": 2, "e": 3}
    sets = {name: HeadSet(geometry, tuple(heads[at::7])) for name, at in starts.items()}
    pairs = overlaps(sets)
    assert alike(pairs[:1]).startswith("These sets share more")
    assert alike(pairs[1:2]).startswith("These sets are not shown")
    assert alike(pairs).startswith("1 of the 10 pairs share more")
    # One p of 0.04 is significant alone, and not among five.
    chance = replace(pairs[1], p_value=0.04, p_within_layers=None)
    assert "are not shown" not in alike([chance])
    assert alike([chance] + [replace(chance, p_value=1.0)] * 4).startswith("None of the 5")
    shared, *_ = overlap_blocks(pairs)
    assert isinstance(shared, Heatmap) and len(shared.rows) == 4
    assert shared.values[0][0] == 1 and shared.values[0][1] == 0
    few, *_ = overlap_blocks(pairs[:1])
    assert isinstance(few, Bars) and few.values[0][0] == 1
