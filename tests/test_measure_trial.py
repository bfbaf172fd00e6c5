"""Conditions compared over examples, and rankings of documents."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import astuple
from fractions import Fraction
from itertools import permutations, product
from statistics import fmean
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headscope.errors import InputError
from headscope.estimates import Estimate
from headscope.measure.intervals import wilson_interval
from headscope.measure.metrics import chrf_from_statistics
from headscope.measure.ranking import auc, precision_at, ranking
from headscope.measure.statistics import counted, counted_mean
from headscope.measure.trial import Group, Side, Trial

#: By group and condition the sums and counts of each example, as whole numbers.
Counts = list[list[list[tuple[int, int]]]]
SIGNS: dict[Side, int] = {"lower": 1, "higher": -1}


def trial_of(groups: Counts, sets: list[str] | None = None, seed: int = 0) -> Trial:
    names = sets or [str(at) for at in range(len(groups[0]))]
    return Trial(
        [Group([np.array(part) for part in group], counted_mean, names, seed) for group in groups]
    )


def naive_score(examples: Sequence[tuple[int | Fraction, int | Fraction]]) -> Fraction:
    return Fraction(sum(one for one, _ in examples)) / sum(count for _, count in examples)


def naive_mean(scores: list[Fraction]) -> Fraction:
    return sum(scores, Fraction(0)) / len(scores)


def naive_difference(groups: Counts, at: int, others: list[int]) -> Fraction:
    """The mean over groups of a condition's score minus the mean score of the others."""
    return naive_mean(
        [
            naive_score(group[at]) - naive_mean([naive_score(group[other]) for other in others])
            for group in groups
        ]
    )


def naive_resamples(groups: Counts, at: int, others: list[int], seed: int) -> list[Fraction]:
    """The difference in each of 1,000 resamples; groups of one size are resampled alike."""
    streams = [np.random.default_rng([seed, len(group[0])]) for group in groups]
    found = []
    for _ in range(1000):
        taken: Counts = []
        for group, stream in zip(groups, streams, strict=True):
            size = len(group[0])
            times = stream.multinomial(size, np.full(size, 1 / size))
            rows = [example for example in range(size) for _ in range(times[example])]
            taken.append([[part[row] for row in rows] for part in group])
        found.append(naive_difference(taken, at, others))
    return found


def naive_p_draws(groups: Counts, sets: list[str], at: int, draws: list[int], side: Side) -> float:
    """(1 + distinct draws at least as far on that side) / (1 + distinct draws)."""
    scores = [SIGNS[side] * naive_mean([naive_score(group[n]) for group in groups])
              for n in range(len(sets))]  # fmt: skip
    seen: dict[str, Fraction] = {}
    for draw in draws:
        seen.setdefault(sets[draw], scores[draw])
    return (1 + sum(score <= scores[at] for score in seen.values())) / (1 + len(seen))


def naive_p_examples(group: list[list[tuple[int, int]]], at: int, draws: list[int]) -> float:
    """The larger of the exact shares of arrangements that make as large a difference.

    A condition's examples are swapped with the mean of the draws, or those of a draw take their
    place, where a difference counts by the root of its squares. A score is a sum over a sum, and so
    is linear as (sum - mean * count) / count of all.
    """
    examples = range(len(group[at]))

    def mean(rows: list[tuple[int, int]]) -> tuple[Fraction, Fraction]:
        first, second = (
            sum(map(Fraction, column)) / len(rows) for column in zip(*rows, strict=True)
        )
        return first, second

    means = [mean([group[draw][e] for draw in draws]) for e in examples]
    swapped = []
    for swaps in product((False, True), repeat=len(examples)):
        rows = zip(group[at], means, swaps, strict=True)
        lower, upper = zip(*[(d, own) if swap else (own, d) for own, d, swap in rows], strict=True)
        swapped.append(naive_score(upper) - naive_score(lower))
    p = fmean(difference >= swapped[0] for difference in swapped)
    if len(draws) == 1:
        return p
    conditions = [group[at], *(group[draw] for draw in draws)]
    total, count = (Fraction(sum(row[n] for part in conditions for row in part)) for n in (0, 1))
    linear = [[row[0] - total / count * row[1] for row in part] for part in conditions]
    taken = []
    for places in product(range(len(conditions)), repeat=len(examples)):
        each = [
            (sum(part[e] for part in linear) - linear[place][e]) / len(draws) - linear[place][e]
            for e, place in enumerate(places)
        ]
        squares = sum(difference**2 for difference in each)
        taken.append(float(sum(each)) / float(squares) ** 0.5 if squares else 0.0)
    return max(p, fmean(difference >= taken[0] - 1e-9 for difference in taken))


@st.composite
def counts(draw: st.DrawFn, groups: int = 2, conditions: int = 5, examples: int = 5) -> Counts:
    pair = st.tuples(st.integers(-9, 9), st.integers(1, 4))
    number = draw(st.integers(2, conditions))
    return [
        [draw(st.lists(pair, min_size=size, max_size=size)) for _ in range(number)]
        for size in draw(st.lists(st.integers(1, examples), min_size=1, max_size=groups))
    ]


@given(counts(), st.integers(0, 3))
@settings(max_examples=10)
def test_scores_differences_and_intervals_are_those_of_plain_loops(
    groups: Counts, seed: int
) -> None:
    trial = trial_of(groups, seed=seed)
    others = list(range(1, len(groups[0])))
    for at, score in enumerate(trial.scores):
        assert score == pytest.approx(float(naive_mean([naive_score(g[at]) for g in groups])))
    estimates = list(map(float, naive_resamples(groups, 0, others, seed)))
    low, high = np.quantile(estimates, [0.025, 0.975])
    if any(len(group[0]) == 1 for group in groups):  # a single example has no interval
        low = high = np.nan
    wanted = (float(naive_difference(groups, 0, others)), low, high)
    assert astuple(trial.difference(0, others)) == pytest.approx(wanted, abs=1e-9, nan_ok=True)


@given(counts(), st.sampled_from(["lower", "higher"]), st.data())
@settings(max_examples=40)
def test_p_over_draws_counts_each_set_once(groups: Counts, side: Side, data: st.DataObject) -> None:
    draws = data.draw(st.lists(st.integers(0, len(groups[0]) - 1), min_size=1, max_size=6))
    sets = [str(at % 3) for at in range(len(groups[0]))]
    found = trial_of(groups, sets).against(0, draws, side)
    # Equal means of fractions may differ in the last bit of a float.
    near = naive_p_draws(groups, sets, 0, draws, side)
    scores = trial_of(groups, sets).scores
    if all(draw == 0 or abs(scores[draw] - scores[0]) > 1e-12 for draw in draws):
        assert found.p_draws == near
    assert found.distinct == len({sets[draw] for draw in draws})
    assert found.least_p == 1 / (1 + found.distinct)
    assert found.p_draws is not None and found.least_p <= found.p_draws <= 1


#: Where sums are equal that a single central difference tells apart.
EQUAL_SUMS = [
    [
        [(0, 1), (0, 1), (-3, 1), (6, 1)],
        [(0, 1), (0, 1), (0, 1), (0, 1)],
        [(0, 1), (0, 1), (0, 1), (-1, 1)],
        [(0, 1), (-3, 1), (-5, 1), (6, 2)],
    ]
]


@given(counts(groups=1, conditions=4, examples=4))
@example(EQUAL_SUMS)
@settings(max_examples=40, deadline=None)
def test_p_over_examples_is_the_larger_share_of_all_arrangements(groups: Counts) -> None:
    draws = list(range(1, len(groups[0])))
    found = trial_of(groups).p_examples(0, draws)
    assert found == pytest.approx(naive_p_examples(groups[0], 0, draws))
    assert found is not None and found >= 0.5 ** len(groups[0][0])


@given(counts(), st.integers(0, 2))
@settings(max_examples=15, deadline=None)
def test_sides_mirror_each_other(groups: Counts, seed: int) -> None:
    mirrored = [[[(-one, count) for one, count in part] for part in group] for group in groups]
    trial, other = trial_of(groups, seed=seed), trial_of(mirrored, seed=seed)
    draws = list(range(1, len(groups[0])))
    lower, higher = trial.against(0, draws), other.against(0, draws, "higher")
    assert (lower.p_examples, lower.p_draws) == (higher.p_examples, higher.p_draws)
    assert higher.difference.value == pytest.approx(-lower.difference.value)
    two = [one.p_examples(0, draws, "two-sided") for one in (trial, other)]
    assert two[0] == two[1]


def test_a_mean_by_hand() -> None:
    values = [counted([1.0, 2, 3]), counted([0.0, 1, 2]), counted([3.0] * 3), counted([0.0] * 3)]
    trial = Trial([Group(values, counted_mean, ["own", "a", "b", "c"])])
    found = trial.against(0, [1, 2, 3], "higher")
    assert found.difference.value == pytest.approx(2 - (1 + 3 + 0) / 3)
    assert found.p_draws == 2 / 4 and trial.against(0, [1, 2, 3]).p_draws == 3 / 4
    assert found.difference.low <= found.difference.value <= found.difference.high
    # As far from the original model, on either side: 1 of 1, 1 and 2.
    other = Trial([Group([values[3], *values[:3]], counted_mean, range(4))])
    assert other.against(2, [1, 3], "two-sided").p_draws == 1.0


def test_nothing_that_differs_is_no_evidence() -> None:
    trial = Trial([Group([counted([0.0, 0, 0])] * 3, counted_mean, range(3))])
    found = trial.against(1, [0, 2])
    assert (found.p_examples, found.p_draws) == (1.0, 1.0)
    # None of three examples differs: the share of those that do may be Wilson's bound for 0 of 3.
    reach = wilson_interval(0, 3)[1]
    assert found.difference == Estimate(0.0, -reach, reach)
    # Numbers that are no shares, and never differ, have no interval.
    values = counted([0.5, 2.0, 0.1])
    found = Trial([Group([values] * 3, counted_mean, range(3))]).against(1, [0, 2])
    assert found.difference.value == 0 and not found.difference.bounded
    constant = Trial([Group([counted([0.5] * 4)], counted_mean, range(1))]).level(0)
    assert constant.value == 0.5 and not constant.bounded


def test_shares_of_one_group_have_wilsons_interval() -> None:
    for right, n in ((20, 20), (0, 200), (7, 12), (1, 2)):
        trial = Trial([Group([counted([1.0] * right + [0.0] * (n - right))])])
        assert astuple(trial.level(0)) == pytest.approx((right / n, *wilson_interval(right, n)))
    assert not Trial([Group([counted([1.0])])]).level(0).bounded


@pytest.mark.parametrize("sizes", [[32] * 5, [20], [3, 40]])
@pytest.mark.parametrize("hit", [0.0, 1.0])
def test_of_examples_that_are_all_alike_the_bound_is_that_of_all(
    sizes: list[int], hit: float
) -> None:
    """Where the true share is that bound, so many are all alike with a probability of 2.5 %, as
    the exact binomial says; Wilson's is close to that."""
    level, n = Trial([Group([counted([hit] * size)]) for size in sizes]).level(0), sum(sizes)
    assert astuple(level) == pytest.approx((hit, *wilson_interval(int(hit) * n, n)))
    bound = level.high if hit == 0 else 1 - level.low
    assert bound == pytest.approx(1 - 0.025 ** (1 / n), rel=0.05)


def test_a_difference_that_every_example_has_reaches_as_far_as_one_that_was_not_seen() -> None:
    ones, zeros, half = counted([1.0] * 20), counted([0.0] * 20), counted([0.0, 1.0] * 10)
    reach = wilson_interval(0, 20)[1]
    trial = Trial([Group([ones, zeros, half, half, ones])])
    assert astuple(trial.difference(0, [1])) == pytest.approx((1, 1 - reach, 1))
    assert astuple(trial.difference(2, [3])) == pytest.approx((0, -reach, reach))
    assert astuple(trial.difference(1, [1, 0, 4])) == pytest.approx(
        (-2 / 3, -2 / 3 - reach, -2 / 3 + reach)
    )
    # Others are resampled as before.
    seen = trial.difference(2, [0])
    assert seen.value == -0.5 and -1 < seen.low < -0.5 < seen.high < 0
    # The mean over groups: of other examples by their squares, of the same number by their sum.
    more = Group([counted([0.0] * 50)] * 2)
    both = Trial([Group([zeros] * 2), more]).difference(0, [1])
    assert both.high == pytest.approx(np.hypot(reach, wilson_interval(0, 50)[1]) / 2)
    assert Trial([more, more]).difference(0).high == pytest.approx(wilson_interval(0, 50)[1])


@pytest.mark.parametrize(
    ("sizes", "rates", "least"),
    [
        ([20], [0.02], 0.93),
        ([200], [0.01], 0.93),
        ([20, 20, 20], [0.02, 0.1, 0.3], 0.93),
        ([50] * 5, [0.0, 0.01, 0.02, 0.3, 0.9], 0.93),
        ([30, 60, 200], [0.05, 0.02, 0.01], 0.92),
    ],
)
def test_means_of_shares_cover_the_truth(
    sizes: list[int], rates: list[float], least: float
) -> None:
    """Groups of one size are of other examples, or half or wholly of the same ones."""
    stream = np.random.default_rng(6)
    for alike in (0.0, 0.5, 1.0):
        covered = 0
        for _ in range(600):
            common = {size: stream.random(size) for size in sizes}
            groups = []
            for size, rate in zip(sizes, rates, strict=True):
                same = stream.random(size) < alike
                below = np.where(same, common[size], stream.random(size)) < rate
                groups.append(Group([counted(below)]))
            level = Trial(groups).level(0)
            assert level.low < level.high
            covered += level.low <= np.mean(rates) <= level.high
        # Two standard deviations of 600 trials are 0.018.
        assert covered / 600 > least - 0.018


def test_the_order_of_examples_and_of_what_is_drawn_beside_changes_no_score() -> None:
    stream = random.Random(1)
    rows = [[(stream.randrange(9), 1) for _ in range(12)] for _ in range(4)]
    order = stream.sample(range(12), 12)
    moved = [[part[at] for at in order] for part in rows]
    one, other = trial_of([rows]), trial_of([moved])
    np.testing.assert_allclose(one.scores, other.scores)
    # What is drawn does not depend on how many conditions there are.
    fewer = trial_of([rows[:2]])
    assert fewer.difference(1) == one.difference(1)
    assert fewer.p_examples(1, [0]) == one.p_examples(1, [0])


def test_a_group_that_lacks_a_condition() -> None:
    part = counted([1.0, 2])
    full = Group([part, part + np.array([1, 0])], counted_mean, range(2))
    lacking = Group([part, None], counted_mean, range(2))
    trial = Trial([full, lacking])
    assert np.isnan(trial.scores[1])
    found = trial.against(1, [0])
    assert (found.p_examples, found.p_draws, found.distinct, found.least_p) == (None, None, 1, 0.5)
    assert np.isnan([found.difference.value, found.difference.low, found.difference.high]).all()
    assert Trial([full]).against(1, [0]).difference.value == pytest.approx(1)


def test_no_draws_are_no_comparison() -> None:
    trial = trial_of([[[(1, 1), (2, 1)]]])
    found = trial.against(0, [])
    assert (found.p_examples, found.p_draws, found.distinct, found.least_p) == (None, None, 0, 1)


def test_scores_that_are_no_means_have_a_rank_alone() -> None:
    group = Group([None] * 3, counted_mean, range(3), given=(0.3, 0.5, 0.6))
    found = Trial([group]).against(0, [1, 2])
    assert found.difference.record() == {
        "value": pytest.approx(0.3 - 0.55), "low": None, "high": None
    }  # fmt: skip
    assert (found.p_examples, found.p_draws) == (None, 1 / 3)


@given(st.integers(0, 99))
@settings(max_examples=5, deadline=None)
def test_corpus_scores_are_resampled_as_sums(seed: int) -> None:
    stream = np.random.default_rng(seed)
    totals = stream.integers(1, 30, (3, 6, 2, 8))
    matches = stream.binomial(totals.min(axis=2), 0.6)
    parts: Any = np.stack([totals[:, :, 0], totals[:, :, 1], matches], axis=-1).reshape(3, 6, 24)
    trial = Trial([Group(list(parts), chrf_from_statistics, range(3), seed)])
    rows = np.random.default_rng([seed, 6])
    for at in range(20):
        times = rows.multinomial(6, np.full(6, 1 / 6))
        taken = np.repeat(np.arange(6), times)
        wanted = [float(chrf_from_statistics(part[taken].sum(axis=0))) for part in parts]
        assert trial.estimates[at] == pytest.approx(wanted)


SCORES = st.lists(st.integers(-3, 3).map(float), min_size=1, max_size=20)


@given(SCORES, SCORES)
def test_auc_is_the_count_over_all_pairs(found: list[float], others: list[float]) -> None:
    pairs = [(a > b) + 0.5 * (a == b) for a in found for b in others]
    assert auc(found, others) == pytest.approx(sum(pairs) / len(pairs), abs=1e-12)
    # Turning the order round turns the area round; only the order counts.
    opposite = auc([-x for x in found], [-x for x in others])
    assert opposite == pytest.approx(1 - auc(found, others), abs=1e-12)
    assert auc(np.exp(found), np.exp(others)) == auc(found, others)


@given(
    st.lists(st.integers(0, 2).map(float), min_size=1, max_size=3),
    st.lists(st.integers(0, 2).map(float), min_size=1, max_size=3),
    st.sampled_from([0.01, 0.3, 0.5, 1.0]),
)
@settings(max_examples=40)
def test_precision_is_the_mean_over_all_orders_of_ties(
    found: list[float], others: list[float], share: float
) -> None:
    labelled = [(score, 1) for score in found] + [(score, 0) for score in others]
    size = max(1, round(share * len(labelled)))
    hits = []
    for order in permutations(labelled):
        top = sorted(order, key=lambda pair: -pair[0])[:size]  # stable: ties stay in this order
        hits.append(sum(label for _, label in top) / size)
    expected = sum(hits) / len(hits)
    assert precision_at(found, others, share) == pytest.approx(expected, abs=1e-12)


def test_values_by_hand() -> None:
    assert auc([3, 2], [1, 0, 0]) == 1.0
    assert auc([1.0, 0.0], [1.0, 0.0]) == 0.5
    assert auc([2, 0], [1]) == 0.5
    others = [0.0] * 17 + [4.0, 5.0, 6.0]
    assert precision_at([7.0, 1.0], others, 2 / 22) == 0.5
    assert precision_at([7.0, 8.0], others, 0.05) == 1.0


def test_intervals_hold_the_value_and_narrow_with_more_documents() -> None:
    random = np.random.default_rng(0)
    few = ranking(random.normal(1, 1, 10), random.normal(0, 1, 100), 0.1, draws=200)
    many = ranking(random.normal(1, 1, 400), random.normal(0, 1, 4000), 0.1, draws=200)
    for one in (few, many):
        assert one.auc_low < one.auc < one.auc_high
        assert one.precision_low < one.precision < one.precision_high
    assert many.auc_high - many.auc_low < few.auc_high - few.auc_low
    # Two normal distributions one standard deviation apart: Phi(1 / sqrt(2)).
    assert many.auc_low < 0.76025 < many.auc_high
    # Nothing varies between draws: Wilson's interval of two of two.
    ends = wilson_interval(2, 2)
    assert ranking([1, 2], [0, 0], 0.5, draws=9) == pytest.approx((1, *ends, 1, *ends))
    assert ranking([1, 2, 3], [0, 2], 0.5, seed=4) == ranking([1, 2, 3], [0, 2], 0.5, seed=4)


@pytest.mark.parametrize(
    ("found", "others", "share", "message"),
    [
        ([], [1.0], 0.5, "0 scores"),
        ([1.0], [], 0.5, "0 of the rest"),
        ([[1.0]], [1.0], 0.5, "give lists"),
        ([float("nan")], [1.0], 0.5, "NaN"),
        ([1.0], [1.0], 0.0, "share of 0"),
        ([1.0], [1.0], 1.5, "share of 1.5"),
    ],
)
def test_what_cannot_be_ranked(
    found: list[float], others: list[float], share: float, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        ranking(found, others, share, draws=2)
    with pytest.raises(InputError, match="at least one"):
        ranking([1.0], [0.0], 0.5, draws=0)
    with pytest.raises(InputError, match="level"):
        ranking([1.0], [0.0], 0.5, level=1.0)
