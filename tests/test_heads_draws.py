"""Random heads: their number, where they come from, and that they can be drawn again."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from headscope.errors import InputError
from headscope.evidence.controls.shuffled import shuffled
from headscope.heads import Geometry, Head, HeadSet
from headscope.heads.draws import Choices, distinct_sets, draw_heads
from headscope.measure import least_p, p_draws
from headscope.results.common import few_draws
from headscope.verify.translation import Removal, conditions

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


@settings(max_examples=150)
@given(cases(), st.booleans(), st.integers(0, 3))
def test_laws_of_every_draw(case: tuple[HeadSet, HeadSet], matched: bool, seed: int) -> None:
    heads, avoid = case
    drawn = draw_heads(heads, 4, seed, avoid, matched)
    assert len({one.heads for one in drawn}) == len(drawn) > 0
    for one in drawn:
        assert len(one.heads) == len(heads)
        assert not len(one.heads & heads)
        assert list(one.heads) == sorted(one.heads)
        pool = heads.complement() - avoid
        # Heads to be avoided only come in when no other is left.
        if len(one.heads & avoid):
            assert not len(pool - one.heads)
        if matched:
            # As many of each layer as there are in the set, or all the pool has of it.
            there, wanted = profile(one.heads), profile(heads)
            short = 0
            for layer, count in wanted.items():
                least = min(count, profile(pool)[layer])
                assert there[layer] >= least
                short += count - least
            assert one.filled_up == short
        else:
            assert one.filled_up == len(one.heads & avoid)
    assert draw_heads(heads, 4, seed, avoid, matched) == drawn


@given(cases(), st.booleans())
def test_a_draw_does_not_depend_on_how_many_there_are(
    case: tuple[HeadSet, HeadSet], matched: bool
) -> None:
    heads, avoid = case
    assert draw_heads(heads, 2, 5, avoid, matched) == draw_heads(heads, 7, 5, avoid, matched)[:2]


def every_free(heads: HeadSet, avoid: HeadSet) -> set[frozenset[Head]]:
    """All sets of as many heads outside: with none to avoid, else with no more than is needed."""
    outside = [head for head in heads.geometry.heads() if head not in set(heads)]
    sets = [frozenset(one) for one in combinations(outside, len(heads))]
    fewest = min(len(one & set(avoid)) for one in sets)
    return {one for one in sets if len(one & set(avoid)) == fewest}


def every_matched(heads: HeadSet, avoid: HeadSet) -> set[frozenset[Head]]:
    """Every outcome of drawing head after head from its layer, or where that has none left from
    the nearest; those to avoid when there is no other."""
    outside = [head for head in heads.geometry.heads() if head not in set(heads)]
    good = [head for head in outside if head not in set(avoid)]
    # Each layer first takes what it has, then the rest is looked for nearby.
    ways: set[frozenset[Head]] = {frozenset()}
    short: list[int] = []
    for layer, count in sorted(profile(heads).items()):
        there = [head for head in good if head.layer == layer]
        taken = min(count, len(there))
        ways = {way | set(one) for way in ways for one in combinations(there, taken)}
        short += [layer] * (count - taken)
    for layer in short:
        further = set()
        for way in ways:
            left = [head for head in good if head not in way]
            left = left or [head for head in outside if head not in way]
            nearest = min(abs(head.layer - layer) for head in left)
            further |= {way | {head} for head in left if abs(head.layer - layer) == nearest}
        ways = further
    return ways


@settings(max_examples=100)
@given(cases(), st.booleans())
def test_where_few_sets_are_possible_all_of_them_are_drawn_once(
    case: tuple[HeadSet, HeadSet], matched: bool
) -> None:
    heads, avoid = case
    possible = (every_matched if matched else every_free)(heads, avoid)
    assume(len(possible) <= 60)
    drawn = [frozenset(one.heads) for one in draw_heads(heads, 100, 1, avoid, matched)]
    assert len(drawn) == len(set(drawn)) and set(drawn) == possible


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
    sets = [frozenset(one) for one in shuffled(removed, 80, 3, matched)]
    assert len(set(sets)) == len(sets) == min(80, len(possible))
    assert set(sets) <= possible
    assert sets[:4] == [frozenset(one) for one in shuffled(removed, 4, 3, matched)]


def test_too_few_in_a_layer_come_from_the_nearest() -> None:
    geometry = Geometry((4, 4, 4, 4))
    heads = HeadSet.parse("3.0,3.1,3.2", geometry)
    for one in draw_heads(heads, 20, 3, layer_matched=True):
        assert profile(one.heads) == {3: 1, 2: 2}
        assert one.filled_up == 2
    # Half the way there is nothing to be had: both neighbours are equally near.
    heads = HeadSet.parse("1.0,1.1,1.2,1.3", geometry)
    layers = {head.layer for one in draw_heads(heads, 20, 3, layer_matched=True)
              for head in one.heads}  # fmt: skip
    assert layers == {0, 2}


def test_what_leaves_no_control_is_refused() -> None:
    geometry = Geometry((3,))
    with pytest.raises(InputError, match=r"2 of the model's 3 heads .* leaves 1 .* smaller k"):
        draw_heads(HeadSet.parse("0.0,0.1", geometry), 1)
    with pytest.raises(InputError, match="empty"):
        draw_heads(HeadSet(geometry, ()), 1)
    with pytest.raises(InputError, match="1 layers × 4 heads"):
        draw_heads(HeadSet.parse("0.0", geometry), 1, avoid=HeadSet.parse("0.3", Geometry((4,))))


def test_conditions_hold_each_possible_set_once_and_results_say_so() -> None:
    """Of two layers of four heads: any 2 of the other 6, and one pair of the same layer."""
    heads = HeadSet.parse("0.0,0.1", Geometry((4, 4)))
    planned = conditions([heads], Removal(draws=20))
    drawn = Counter(one.kind for one in planned)
    assert (drawn["random"], drawn["same layers"]) == (15, 1)
    assert (least_p(15), least_p(1)) == (1 / 16, 1 / 2)
    assert p_draws(0.0, [1.0] * 15) == least_p(15)
    top = {"distinct_draws": 15, "distinct_draws_layer_matched": 1, "p_draws": 0.5}
    said = few_draws({"draws": 20, "tasks": [{"conditions": [top, {"draws": 3}]}]})
    assert said is not None and "15 and 1 from the same layers" in said and "0.500" in said
    assert few_draws({"draws": 1, "tasks": [top]}) is None
