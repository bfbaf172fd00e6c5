"""Ranking, classes and profiles of scores."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headscope.errors import InputError
from headscope.heads import Geometry, Head, HeadScores

GEOMETRY = Geometry((3, 0, 2))


def scores(*flat: float, **more: Any) -> HeadScores:
    """Scores of the five heads of GEOMETRY in their order."""
    values = np.full(GEOMETRY.shape, np.nan)
    values[GEOMETRY.mask()] = flat
    return HeadScores(GEOMETRY, values, "test", **more)


def grid(*flat: float) -> np.ndarray:
    array = np.full(GEOMETRY.shape, np.nan)
    array[GEOMETRY.mask()] = flat
    return array


five = st.lists(st.sampled_from([0.0, 0.1, 0.25, 0.5, 1.0]), min_size=5, max_size=5)


@given(five)
def test_ranking_is_descending_with_ties_by_layer_then_head(flat: list[float]) -> None:
    ranked = scores(*flat).ranked()
    expected = sorted(zip(GEOMETRY.heads(), flat, strict=True), key=lambda p: (-p[1], p[0]))
    assert ranked == expected


@given(five, st.integers(1, 5))
def test_top_takes_the_best_and_nests(flat: list[float], k: int) -> None:
    s = scores(*flat)
    top = s.top(k)
    assert top.heads == tuple(head for head, _ in s.ranked()[:k])
    assert min(s[h] for h in top) >= max((s[h] for h in top.complement()), default=-1)
    assert s.top("100%").heads[:k] == top.heads


@given(five, st.sampled_from([0.0, 0.1, 0.3]))
def test_classes_partition_the_heads(flat: list[float], active: float) -> None:
    classes = scores(*flat).classes(active)
    assert sum(classes.values()) == GEOMETRY.total
    assert classes["token_alignment"] == len(scores(*flat).select(active))
    assert classes["inactive"] == flat.count(0.0)


def test_classes_at_their_borders() -> None:
    classes = scores(0.0, 0.1, 0.1000001, 1e-9, -0.2).classes()
    assert classes == {"token_alignment": 1, "low_activity": 2, "inactive": 2}


def test_layer_profile() -> None:
    profile = scores(0.0, 0.3, 0.6, 0.05, 0.15).layer_profile()
    assert [p.heads for p in profile] == [3, 0, 2]
    assert [p.mean for p in profile] == [pytest.approx(0.3), None, pytest.approx(0.1)]
    assert [p.highest for p in profile] == [0.6, None, 0.15]
    assert [p.token_alignment for p in profile] == [2, 0, 1]


def test_records_are_json_with_null_for_what_is_unknown() -> None:
    s = scores(
        0,
        1,
        2,
        3,
        4,
        low=grid(0, 0, 0, 0, 1),
        high=grid(9, 9, 9, 9, 9),
        extra={"chance": grid(0, 0, 0, np.nan, 0.5)},
    )
    assert s.records()[:2] == [
        {"layer": 2, "head": 1, "score": 4.0, "low": 1.0, "high": 9.0, "chance": 0.5},
        {"layer": 2, "head": 0, "score": 3.0, "low": 0.0, "high": 9.0, "chance": None},
    ]
    assert scores(0, 1, 2, 3, 4).records()[0]["low"] is None


def test_above_chance_shifts_scores_and_bounds() -> None:
    s = scores(
        0.5,
        0.5,
        0.5,
        0.5,
        0.5,
        low=grid(*[0.25] * 5),
        high=grid(*[0.75] * 5),
        extra={"chance": grid(0, 0.25, 0.5, 0.75, 1)},
    ).above_chance()
    assert s.values[GEOMETRY.mask()].tolist() == [0.5, 0.25, 0, -0.25, -0.5]
    assert s.low is not None and s.low[GEOMETRY.mask()].tolist() == [0.25, 0, -0.25, -0.5, -0.75]
    assert s.classes() == {"token_alignment": 2, "low_activity": 0, "inactive": 3}
    with pytest.raises(InputError, match="chance"):
        scores(0, 0, 0, 0, 0).above_chance()


def test_mean_over_directions() -> None:
    mean = HeadScores.mean(
        {
            "en-de": scores(0, 0, 0, 0, 1, extra={"chance": grid(0, 0, 0, 0, 1)}),
            "de-en": scores(1, 0, 0, 0, 0),
        }
    )
    assert mean.values[GEOMETRY.mask()].tolist() == [0.5, 0, 0, 0, 0.5]
    assert "chance" not in mean.extra
    assert mean.config["mean_over"] == ["en-de", "de-en"]
    with pytest.raises(InputError, match="no scores"):
        HeadScores.mean({})


def test_the_mean_says_only_what_all_directions_say() -> None:
    def part(pair: str, signature: str) -> HeadScores:
        return scores(
            0, 0, 0, 0, 1, config={"pair": pair, "scope": "all"}, provenance={"seed": 0},
            signature=signature,
        )  # fmt: skip

    def mean(*signatures: str) -> HeadScores:
        return HeadScores.mean({str(n): part(str(n), s) for n, s in enumerate(signatures)})

    one = mean("h|find|run|links:a", "h|find|run|links:b")
    assert one.config == {"scope": "all", "mean_over": ["0", "1"]}
    assert one.provenance == {"seed": 0}
    assert one.signature.startswith("h|find|run|mean:")
    assert one.signature != mean("h|find|run|links:a", "h|find|run|links:c").signature
    assert mean("same", "same").signature == "same"


def test_entries_without_a_head_become_nan_and_arrays_are_copies() -> None:
    values = np.zeros(GEOMETRY.shape)
    s = HeadScores(GEOMETRY, values, "test", extra={"chance": values})
    values[0, 0] = 5
    assert s[Head(0, 0)] == 0
    assert np.array_equal(np.isnan(s.values), ~GEOMETRY.mask())
    assert np.array_equal(np.isnan(s.extra["chance"]), ~GEOMETRY.mask())
    with pytest.raises(ValueError, match="read-only"):
        s.values[0, 0] = 1


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_scores_must_be_finite(bad: float) -> None:
    with pytest.raises(InputError, match="finite"):
        scores(0, 0, bad, 0, 0)


def test_wrong_shapes_and_half_an_interval_are_refused() -> None:
    with pytest.raises(InputError, match="shape"):
        HeadScores(GEOMETRY, np.zeros((2, 2)), "test")
    with pytest.raises(InputError, match="both bounds"):
        scores(0, 0, 0, 0, 0, low=grid(0, 0, 0, 0, 0))
    with pytest.raises(InputError, match="no head"):
        scores(0, 0, 0, 0, 0)[Head(1, 0)]


def test_threshold_of_the_first_class_is_not_negative() -> None:
    with pytest.raises(InputError, match="0 or more"):
        scores(0, 0, 0, 0, 0).classes(-0.1)


def test_sets_remember_the_scores_they_come_from() -> None:
    s = scores(0, 1, 2, 3, 4, signature="headscope-1|x|y", provenance={"model": "m"})
    assert s.top(2).origin.signature == "headscope-1|x|y"
    assert s.top(2).removed().origin.provenance == {"model": "m"}
