"""Ranking, classes and profiles of scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headscope.errors import InputError
from headscope.heads import Geometry, Head, HeadScores, about_rank, rank_words

GEOMETRY = Geometry((3, 0, 2))


def scores(*flat: float, method: str = "test", **more: Any) -> HeadScores:
    """Scores of the five heads of GEOMETRY in their order."""
    return HeadScores(GEOMETRY, grid(*flat), method, **more)


def translation(flat: Sequence[float], chance: Sequence[float]) -> HeadScores:
    """Translation scores with their chance."""
    return scores(*flat, method="translation-score", extra={"chance": grid(*chance)})


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


@given(five, five, st.integers(1, 5))
def test_translation_scores_are_ranked_by_score_minus_chance(
    flat: list[float], chance: list[float], k: int
) -> None:
    s = translation(flat, chance)
    heads = list(GEOMETRY.heads())
    order = sorted(range(5), key=lambda at: (chance[at] - flat[at], at))  # naive
    assert s.ranked() == [(heads[at], flat[at] - chance[at]) for at in order]
    assert s.top(k).heads == tuple(heads[at] for at in order[:k])
    assert s.ranked("score") == scores(*flat).ranked()
    rows = s.records()
    assert [one["score"] for one in rows] == sorted(flat, reverse=True)
    place = {(one["layer"], one["head"]): one["rank"] for one in rows}
    assert [place[heads[at].layer, heads[at].head] for at in order] == [1, 2, 3, 4, 5]
    assert [one["rank"] for one in s.records("score")] == [1, 2, 3, 4, 5]


def test_scores_without_chance_are_ranked_by_score_and_say_why() -> None:
    chance = (0.3, 0, 0, 0, 0)
    known = translation((0.5, 0.4, 0, 0, 0), chance)
    assert known.top(1).heads == (Head(0, 1),)
    assert about_rank(known.top(1)) == {"rank": "above-chance", "rank_note": None}
    assert about_rank(known.top(1, "score")) == {"rank": "score", "rank_note": None}
    partly = translation((0.5, 0.4, 0, 0, 0), (0.3, 0, 0, 0, np.nan))
    other = scores(0.5, 0.4, 0, 0, 0)
    for s, why in ((partly, "chance is not known"), (other, "have no chance")):
        assert s.top(1).heads == (Head(0, 0),)
        told = about_rank(s.top(1))
        assert told["rank"] == "score" and why in str(told["rank_note"])
    assert about_rank(known.select(0.1)) == {"rank": None, "rank_note": None}
    others = [replace(other, method=name).top(1) for name in ("lahis", "patching")]
    note = str(about_rank(known.top(1), *others)["rank_note"])
    assert note.count("have no chance") == 1 and "(lahis, patching)" in note
    both = about_rank(known.top(1), other.top(1), None)
    assert both["rank"] == "above-chance" and "have no chance" in str(both["rank_note"])
    assert rank_words(about_rank(known.top(1))) == "score minus chance"
    assert rank_words(about_rank(partly.top(1))) == "score (chance is not known at every head)"
    assert rank_words({"rank": None, "k": 1}) is None
    assert rank_words({"heads": ["0.1"]}) is None
    with pytest.raises(InputError, match="ranked by above-chance or score"):
        known.top(1, "chance")  # type: ignore[arg-type]  # what a script may pass
    # A direction without chance leaves that of the mean unknown, though others have it.
    mean = HeadScores.mean({"en-de": known, "de-en": partly})
    assert np.isfinite(mean.extra["chance"][GEOMETRY.mask()]).all()
    assert mean.rank_used() == "score" and mean.classes_above_chance() is None


directions = st.lists(st.tuples(five, five), min_size=1, max_size=4)


@given(directions, st.sampled_from([0.0, 0.1, 0.3]), st.sampled_from([0.0, 0.1]))
def test_classes_of_a_mean_are_means_of_the_classes(
    parts: list[tuple[list[float], list[float]]], active: float, inactive: float
) -> None:
    inactive = min(inactive, active)
    made = {f"d{n}": translation(*part) for n, part in enumerate(parts)}
    mean = HeadScores.mean(made)
    assert mean.counted_over == len(parts)
    for ours, values in (
        (mean.classes(active, inactive), [np.array(flat) for flat, _ in parts]),
        (
            mean.classes_above_chance(active, inactive),
            [np.array(flat) - np.array(chance) for flat, chance in parts],
        ),
    ):
        assert ours is not None
        assert ours["token_alignment"] == pytest.approx(
            np.mean([(v > active).sum() for v in values])
        )
        assert ours["inactive"] == pytest.approx(np.mean([(v <= inactive).sum() for v in values]))
        assert sum(ours.values()) == pytest.approx(GEOMETRY.total)
    layers = [one.token_alignment for one in mean.layer_profile(active)]
    assert sum(layers) == pytest.approx(mean.classes(active)["token_alignment"])


def test_thresholds_of_classes_that_cross_are_refused() -> None:
    with pytest.raises(InputError, match="inactive not above --threshold"):
        scores(0, 0, 0, 0, 1).classes(0.1, 0.2)


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
        {"layer": 2, "head": 1, "score": 4.0, "low": 1.0, "high": 9.0, "chance": 0.5}
        | {"above_chance": 3.5, "rank": 1},
        {"layer": 2, "head": 0, "score": 3.0, "low": 0.0, "high": 9.0, "chance": None}
        | {"above_chance": None, "rank": 2},
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


def test_sets_remember_the_scores_they_come_from() -> None:
    s = scores(0, 1, 2, 3, 4, signature="headscope-1|x|y", provenance={"model": "m"})
    assert s.top(2).origin.signature == "headscope-1|x|y"
    assert s.top(2).removed().origin.provenance == {"model": "m"}
