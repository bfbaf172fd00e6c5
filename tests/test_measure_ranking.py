"""Rankings: AUC against a count over all pairs, precision against all orders of ties."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headscope.errors import InputError
from headscope.measure.ranking import auc, precision_at, ranking

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
    assert ranking([1, 2], [0, 0], 0.5, draws=9)[:3] == (1, 1, 1)
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
