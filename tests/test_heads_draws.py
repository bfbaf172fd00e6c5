"""Random heads: their number, where they come from, and that they can be drawn again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import combinations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from headscope.errors import InputError
from headscope.evidence.controls import (
    DEFAULT,
    SHUFFLES,
    Draws,
    SelectedHeads,
    planned,
    sets_of,
)
from headscope.evidence.headline import few_sets
from headscope.evidence.rows import Statistic
from headscope.evidence.table import evidence as evidence_of
from headscope.heads import Geometry, Head, HeadSet
from headscope.heads.draws import Choices, Way, distinct_sets, draw_sets
from headscope.measure import least_p, p_draws

counts = st.lists(st.integers(0, 5), min_size=1, max_size=5).filter(lambda c: sum(c) >= 2)


@st.composite
def cases(draw: st.DrawFn) -> tuple[HeadSet, HeadSet]:
    """A set of at most half the heads of some model, and heads to avoid."""
    geometry = Geometry(tuple(draw(counts)))
    heads = list(geometry.heads())
    order = draw(st.permutations(heads))
    size = draw(st.integers(1, len(heads) // 2))
    avoid = draw(st.lists(st.sampled_from(heads), unique=True))
    return HeadSet(geometry, tuple(order[:size])), HeadSet(geometry, tuple(avoid))


def profile(heads: HeadSet) -> Counter[int]:
    return Counter(head.layer for head in heads)


def test_a_set_that_is_hard_to_hit_is_found() -> None:
    """What draws leave out is looked up among the choices, without those that are excluded."""
    groups = [[Head(0, n) for n in range(3)], [Head(1, n) for n in range(2)]]
    choices = Choices(groups, {(1, 1), (2, 0)})
    every = {frozenset(one) for one in choices}
    assert len(every) == choices.count == 3 * 2 + 3
    stuck = min(every, key=sorted)
    without = max(every, key=sorted)
    found = distinct_sets(choices, lambda _: stuck, 100, "stuck", [without])
    assert len(found) == 8 and {frozenset(one) for one in found} == every - {without}
    assert found[:3] == distinct_sets(choices, lambda _: stuck, 3, "stuck", [without])


@settings(max_examples=60)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.booleans(), st.data())
def test_shuffled_masks_are_all_others_of_the_size(
    counts: list[int], matched: bool, data: st.DataObject
) -> None:
    geometry = Geometry(tuple(counts))
    heads = list(geometry.heads())
    assume(len(heads) > 1)
    gone = data.draw(st.lists(st.sampled_from(heads), unique=True, min_size=1,
                              max_size=len(heads) - 1))  # fmt: skip
    removed = HeadSet(geometry, tuple(gone))
    possible = {
        frozenset(one)
        for one in combinations(heads, len(gone))
        if not matched or profile(HeadSet(geometry, one)) == profile(removed)
    } - {frozenset(gone)}
    name = SHUFFLES[matched]
    sets = [frozenset(one) for one in sets_of(name, removed, 80, 3)]
    assert len(set(sets)) == len(sets) == min(80, len(possible))
    assert set(sets) <= possible
    assert sets[:4] == [frozenset(one) for one in sets_of(name, removed, 4, 3)]


def test_conditions_hold_each_possible_set_once_and_results_say_so() -> None:
    """Of two layers of four heads: any other 2 of the 8, and the 5 other pairs of the layer."""
    heads = HeadSet.parse("0.0,0.1", Geometry((4, 4)))
    conditions = planned([SelectedHeads(heads)], Draws(30, DEFAULT))
    drawn = Counter(condition.kind for condition in conditions)
    assert (drawn["random"], drawn["same layers"]) == (27, 5)
    assert (least_p(27), least_p(5)) == (1 / 28, 1 / 6)
    assert p_draws(0.0, [1.0] * 27) == least_p(27)
    counts = {"a": {"chrf": [np.ones((3, 2))] * len(conditions)}}
    evidence = evidence_of(conditions, counts, {"chrf": Statistic("chrF++")})
    (said,) = few_sets(evidence, 30)
    assert "27 random heads" in said and "5 random heads of the same layers" in said
    assert "too few" in said and few_sets(evidence, 5) == []


WAYS: tuple[Way, ...] = ("random", "same layers", "outside")


def every_set(heads: HeadSet, avoid: HeadSet, way: Way) -> set[frozenset[Head]]:
    """All sets that a way to draw may give, by going through every set of as many heads."""
    selected, avoided = frozenset(heads), frozenset(avoid)
    sets = map(frozenset, combinations(heads.geometry.heads(), len(heads)))
    fits: dict[Way, Callable[[frozenset[Head]], bool]] = {
        "random": lambda drawn: drawn != selected,
        "same layers": lambda drawn: (
            drawn != selected and profile(HeadSet(heads.geometry, tuple(drawn))) == profile(heads)
        ),
        "outside": lambda drawn: not drawn & (selected | avoided),
    }
    return {drawn for drawn in sets if fits[way](drawn)}


@settings(max_examples=150, deadline=None)
@given(cases(), st.sampled_from(WAYS), st.integers(0, 3))
def test_sets_are_different_and_all_there_are_where_those_are_few(
    case: tuple[HeadSet, HeadSet], way: Way, seed: int
) -> None:
    heads, avoid = case
    possible = every_set(heads, avoid, way)
    if way == "outside" and len(heads.complement() - avoid) < len(heads):
        with pytest.raises(InputError, match="too few to draw"):
            draw_sets(heads, 4, seed, way, avoid)
        return
    drawn = draw_sets(heads, 60, seed, way, avoid)
    sets = {frozenset(each) for each in drawn}
    assert len(sets) == len(drawn) == min(60, len(possible)) and sets <= possible
    assert all(list(each) == sorted(each) for each in drawn)
    # A draw does not depend on how many there are.
    assert draw_sets(heads, 3, seed, way, avoid) == drawn[:3]


@pytest.mark.parametrize("way", ["random", "same layers"])
@pytest.mark.parametrize("lacking", ["", "0.1,2.2"])
def test_selected_sets_that_are_nothing_special_have_every_p_equally_often(
    way: Way, lacking: str
) -> None:
    """Of all sets of one size each is once the selected one: its p are 1/n, 2/n, ... 1.

    Heads that the model lacks already are in none of them.
    """
    geometry = Geometry((3, 2, 3))
    harm = dict(zip(geometry.heads(), 2.0 ** np.arange(8), strict=True))  # every set's is another
    first = HeadSet.parse("0.0,2.0,2.1", geometry)
    gone = HeadSet.parse(lacking, geometry) if lacking else HeadSet(geometry, ())
    sets = every_set(first, HeadSet(geometry, ()), way) | {frozenset(first)}
    every = sorted(sorted(drawn) for drawn in sets if not drawn & {*gone})
    found = []
    for selected in (HeadSet(geometry, tuple(heads)) for heads in every):
        drawn = draw_sets(selected, 100, 0, way, gone=gone)
        assert not any(own & gone for own in drawn)
        others = [-sum(harm[head] for head in own) for own in drawn]
        found.append(p_draws(-sum(harm[head] for head in selected), others) * len(every))
    assert sorted(found) == pytest.approx(range(1, len(every) + 1))


@pytest.mark.parametrize("way", ["random", "same layers"])
@pytest.mark.parametrize(("layers", "width", "k"), [(6, 12, 11), (6, 16, 14), (32, 32, 30)])
def test_p_over_draws_of_arbitrary_sets_is_small_as_often_as_it_says(
    layers: int, width: int, k: int, way: Way
) -> None:
    """P(p <= 0.05) of sets drawn by chance, where 0, 1 or 4 heads or all matter; 19 draws.

    Most selected heads are in the last layer, as those of real models. From outside the selected
    set draws gave up to 0.15.
    """
    random = np.random.default_rng([layers, width])
    last = [Head(layers - 1, n) for n in range(min(width - 2, 2 * k // 3))]
    above = [Head(n // width, n % width) for n in range((layers - 2) * width)]
    heads = HeadSet(Geometry((width,) * layers), (*last, *above[len(last) - k :]))
    counts = np.array([profile(heads)[layer] for layer in range(layers)])
    repeats, seeds = 1000, 40
    small = dict.fromkeys(("none", "one", "four", "all"), 0)
    for seed in range(seeds):
        drawn = np.array([each.mask().ravel() for each in draw_sets(heads, 19, seed, way)])
        keys = random.random((repeats, layers, width), dtype=np.float32)
        if way == "same layers":
            ranked = np.sort(keys, axis=2)
            most = np.take_along_axis(ranked, np.maximum(counts - 1, 0)[None, :, None], 2)
            selected = ((keys <= most) & (counts > 0)[:, None]).reshape(repeats, -1)
        else:
            keys = keys.reshape(repeats, -1)
            selected = keys <= np.partition(keys, k - 1, axis=1)[:, k - 1 : k]
        for number, name in enumerate(small):
            if name == "all":
                effects = random.exponential(size=selected.shape) ** 2
            else:
                places = random.integers(selected.shape[1], size=(repeats, (0, 1, 4)[number]))
                effects = np.zeros(selected.shape)
                np.add.at(effects, (np.arange(repeats)[:, None], places), 1.0)
            noise = random.normal(scale=0.1 * (name != "all"), size=(repeats, 20))
            own = (selected * effects).sum(axis=1) + noise[:, 0]
            others = effects @ drawn.T.astype(float) + noise[:, 1:]
            p = (1 + (others >= own[:, None]).sum(axis=1)) / 20
            small[name] += int((p <= 0.05 + 1e-9).sum())
    # Five standard deviations of 40,000 trials are 0.0055.
    for name, number in small.items():
        assert 0.044 < number / (repeats * seeds) <= 0.055, name


def test_where_no_other_set_exists() -> None:
    geometry = Geometry((2, 3))
    whole = HeadSet.parse("0.0,0.1", geometry)
    assert draw_sets(whole, 5, way="same layers") == []
    assert len(draw_sets(whole, 50)) == 10 - 1
    with pytest.raises(InputError, match=r"all 5 heads .* no other set .* smaller k"):
        draw_sets(HeadSet(geometry, tuple(geometry.heads())), 1)
    with pytest.raises(InputError, match="empty"):
        draw_sets(HeadSet(geometry, ()), 1)
    with pytest.raises(InputError, match=r"2 of the model's 5 heads are not selected, too few"):
        draw_sets(HeadSet.parse("0.0,0.1,1.0", geometry), 1, way="outside")
    with pytest.raises(InputError, match=r"all 2 heads .* no other set"):
        draw_sets(whole, 1, gone=whole.complement())
    with pytest.raises(InputError, match="1 layers × 4 heads"):
        draw_sets(whole, 1, avoid=HeadSet.parse("0.3", Geometry((4,))))
