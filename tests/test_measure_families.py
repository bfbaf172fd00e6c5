"""Several claims tested together: early-ended draws, Holm and max-T against their definitions."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise, permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from headscope.errors import InputError
from headscope.measure.sequence import draws_for, until_first
from headscope.measure.statistics import holm, max_t

AS_FAR = st.lists(st.booleans(), min_size=1, max_size=60)
#: Few different numbers, so that ties and rows without spread are common: m tests, N draws.
SCORES = st.tuples(st.integers(1, 6), st.integers(1, 12)).flatmap(
    lambda shape: arrays(np.int64, (shape[0], 1 + shape[1]), elements=st.integers(-3, 3))
)


# Draws until the first that does as much


@given(AS_FAR, st.sampled_from([0.05, 0.2]), st.integers(0, 5))
def test_draws_end_at_the_first_that_does_as_much(
    as_far: list[bool], level: float, more: int
) -> None:
    """The naive twin draws one after another."""
    most = len(as_far) + more
    drawn, hit = 0, False
    while drawn < len(as_far) and not hit:
        hit = as_far[drawn]
        drawn += 1
    p = Fraction(1, drawn) if hit else Fraction(1, drawn + 1)
    ended = until_first(as_far, level, most)
    assert (ended.draws, ended.as_far, ended.p) == (drawn, int(hit), float(p))
    if not hit and drawn < most:
        assert ended.ended == "open"
    else:
        assert ended.ended == ("shown" if p <= level else "given up" if hit else "limit")


@given(AS_FAR, st.lists(st.booleans(), max_size=20))
def test_what_follows_the_first_changes_nothing(as_far: list[bool], more: list[bool]) -> None:
    whole = until_first([*as_far, *more], most=100)
    if any(as_far):
        assert whole == until_first(as_far, most=100)
    # Without one p falls with every draw, and is the rank among all.
    none = [until_first([False] * draws, most=100).p for draws in range(5)]
    assert none == [1 / (1 + draws) for draws in range(5)]
    assert whole.p >= 1 / (1 + len(as_far) + len(more))


@pytest.mark.parametrize("draws", [1, 3, 5, 6])
def test_an_early_end_is_as_rare_as_its_p_says(draws: int) -> None:
    """Over all orders of different scores, at whatever draw of all one stops for another reason."""
    every = [[score > order[0] for score in order[1:]] for order in permutations(range(1 + draws))]
    for stop in range(1, draws + 1):
        p_values = [until_first(as_far[:stop], most=draws).p for as_far in every]
        for bound in range(1, draws + 2):
            few = sum(p <= 1 / bound for p in p_values)
            assert Fraction(few, len(every)) <= Fraction(1, bound)
            if bound <= stop + 1:
                assert Fraction(few, len(every)) == Fraction(1, bound)


def test_a_family_takes_the_draws_of_the_first_step_of_holm() -> None:
    assert [draws_for(claims) for claims in (1, 9, 13)] == [19, 179, 259]
    for claims in range(1, 60):
        for level in (0.05, 0.01, 0.1):
            draws = draws_for(claims, level)
            for some, enough in ((draws, True), (draws - 1, False)):
                if some:
                    p = until_first([False] * some, most=some).p
                    smallest = min(holm([p] + [1.0] * (claims - 1)))
                    assert (smallest <= level * (1 + 1e-12)) == enough


# Holm

P_VALUES = st.lists(st.integers(1, 40).map(lambda rank: rank / 40), min_size=1, max_size=8)


@given(P_VALUES, st.data())
def test_holm_is_the_procedure_of_its_definition(p_values: list[float], data: Any) -> None:
    """At every level: reject the smallest while it is at most level / those that are left."""
    corrected = holm(p_values)
    for level in (0.049, 0.051, 0.11, 0.51, 0.99):
        left = sorted(range(len(p_values)), key=lambda at: p_values[at])
        rejected = set()
        while left and p_values[left[0]] * len(left) <= level:
            rejected.add(left.pop(0))
        assert {at for at, p in enumerate(corrected) if p <= level} == rejected
    assert all(p <= q <= 1 for p, q in zip(p_values, corrected, strict=True))
    order = data.draw(st.permutations(range(len(p_values))))
    assert holm([p_values[at] for at in order]) == [corrected[at] for at in order]


# Max-T


def naive_max_t(scores: Any) -> list[Fraction]:
    """Westfall and Young's step-down procedure, test by test, from the definition."""
    rows = []
    for row in scores.tolist():
        mean = Fraction(sum(row), len(row))
        square = sum((value - mean) ** 2 for value in row) / len(row)
        # As squares with a sign, which are exact and in the same order.
        signed = [(value - mean) * abs(value - mean) for value in row]
        rows.append([part / square if square else Fraction(0) for part in signed])
    left = sorted(range(len(rows)), key=lambda at: -rows[at][0])
    p_of: dict[int, Fraction] = {}
    last = Fraction(0)
    while left:
        first = left[0]
        reached = 0
        for column in range(len(rows[0])):
            if max(rows[at][column] for at in left) >= rows[first][0]:
                reached += 1
        last = max(last, Fraction(reached, len(rows[0])))
        p_of[first] = last
        left = left[1:]
    return [p_of[at] for at in range(len(rows))]


def own_and_draws(scores: Any) -> tuple[Any, Any]:
    return scores[:, 0], scores[:, 1:]


@given(SCORES)
def test_max_t_is_the_step_down_procedure(scores: Any) -> None:
    assert max_t(*own_and_draws(scores)) == [float(p) for p in naive_max_t(scores)]


@given(SCORES, st.data())
def test_laws_of_max_t(scores: Any, data: st.DataObject) -> None:
    p_values = max_t(*own_and_draws(scores))
    tests, columns = scores.shape
    assert all(1 / columns <= p <= 1 for p in p_values)
    # Never below p of the test by itself.
    alone = [(row[1:] >= row[0]).sum() + 1 for row in scores]
    assert all(p >= one / columns for p, one in zip(p_values, alone, strict=True))
    order = data.draw(st.permutations(range(tests)))
    assert max_t(*own_and_draws(scores[order])) == [p_values[at] for at in order]
    factors = data.draw(arrays(np.float64, (tests, 1), elements=st.floats(1e-6, 1e6)))
    shifts = data.draw(arrays(np.float64, (tests, 1), elements=st.floats(-10, 10)))
    assert max_t(*own_and_draws(scores * factors)) == p_values
    assert max_t(*own_and_draws(scores + shifts)) == p_values
    farther = sorted(range(tests), key=lambda at: p_values[at])
    spread = scores.std(axis=1)
    about = np.divide(scores[:, 0] - scores.mean(axis=1), spread, where=spread > 0,
                      out=np.zeros(tests))  # fmt: skip
    for first, other in pairwise(farther):
        assert p_values[first] == p_values[other] or about[first] > about[other]


def test_max_t_of_one_test_is_its_rank_and_of_equal_scores_one() -> None:
    assert max_t([5.0], [[1.0, 2.0, 5.0, 7.0]]) == [3 / 5]
    assert max_t([0.1, 9.0], [[0.1] * 19, list(range(-19, 0))]) == [1.0, 1 / 20]
    # Sums of the same numbers in another order differ in their last bits.
    assert max_t([0.1 + 0.2 + 0.3], [[0.3 + 0.2 + 0.1] * 4]) == [1.0]


@pytest.mark.parametrize(
    ("selected", "draws"),
    [
        ([1.0, 2.0], [[0.0, 1.0], [0.0]]),
        ([1.0, 2.0], [[0.0, 1.0]]),
        ([1.0, 2.0], [[], []]),
        ([], []),
        ([1.0, np.nan], [[0.0], [0.0]]),
        ([1.0, 2.0], [[0.0], [np.inf]]),
        ([1.0], [1.0]),
    ],
)
def test_max_t_refuses_what_cannot_be_paired(selected: Any, draws: Any) -> None:
    with pytest.raises(InputError, match="draw"):
        max_t(selected, draws)


def test_max_t_holds_its_level_with_draws_of_their_own_and_not_with_shared_ones() -> None:
    """13 tests of the same effects under different selected heads, none of them special."""
    generator = np.random.default_rng(3)
    wrong = {"own": 0, "shared": 0}
    for _ in range(400):
        own, shared = generator.normal(size=(13, 20)), generator.normal(size=19)
        wrong["own"] += min(max_t(*own_and_draws(own))) <= 0.05
        wrong["shared"] += min(max_t(own[:, 0], [shared] * 13)) <= 0.05
    assert wrong["own"] / 400 <= 0.05 + 3 * (0.05 * 0.95 / 400) ** 0.5
    assert wrong["shared"] / 400 > 0.2
