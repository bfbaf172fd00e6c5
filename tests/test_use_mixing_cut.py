"""Cutting an order: against sorting, and the bound of the streaming cut."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headscope.use.mixing import choose as cutting
from headscope.use.mixing.choose import BITS, Blocks, Places, cut, streaming_cut
from headscope.use.mixing.index import mixed, record_keys, score_order

# Places close to each other as well as far apart: their first bits agree or they do not.
half = st.integers(0, 2**64 - 1) | st.integers(0, 3) | st.integers(2**63 - 2, 2**63 + 2)
rows = st.lists(st.tuples(st.integers(0, 2), half, half, st.integers(0, 9)), max_size=40)


def blocks_of(found: Sequence[tuple[int, int, int, int]], size: int = 7) -> Blocks:
    def blocks() -> Iterator[Places]:
        for start in range(0, max(1, len(found)), size):
            some = found[start : start + size]
            yield Places(
                np.array([one[0] for one in some], np.int64),
                np.array([one[1] for one in some], np.uint64),
                np.array([one[2] for one in some], np.uint64),
                np.array([one[3] for one in some], np.int64),
            )

    return blocks


def by_sorting(
    found: Sequence[tuple[int, int, int, int]], group: int, target: int, at_least_one: bool
) -> set[tuple[int, int]]:
    """The places before the cut, from the definition."""
    here = sorted((high, low, weight) for one, high, low, weight in found if one == group)
    places = sorted({(high, low) for high, low, _ in here})
    sums = [0, *accumulate(sum(w for *one, w in here if tuple(one) == at) for at in places)]
    if target <= 0:
        return set()
    if sums[-1] <= target:
        return set(places)
    best = min(range(len(sums)), key=lambda n: (abs(sums[n] - target), sums[n]))
    chosen = set(places[:best])
    if at_least_one and sums[best] == 0:
        chosen = set(places[: next(n for n, total in enumerate(sums) if total > 0)])
    return chosen


def taken(found: Sequence[tuple[int, int, int, int]], cuts: cutting.Cuts, group: int) -> int:
    (places,) = [blocks_of([one for one in found if one[0] == group], 10**6)()]
    total = 0
    for block in places:
        total += int(block.weight[cuts.before(block)].sum())
    return total


@settings(max_examples=60)
@given(
    rows,
    st.lists(st.integers(-1, 60), min_size=3, max_size=3),
    st.booleans(),
    st.integers(0, 9),
    st.sampled_from((0, 0, 64)),
)
def test_a_cut_takes_what_sorting_takes(
    found: list[tuple[int, int, int, int]], targets: list[int], one: bool, in_memory: int, few: int
) -> None:
    """The same weight, whether few or many records may be sorted or bits be counted at a time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cutting, "SORTED", in_memory)
        patch.setattr(cutting, "FEW", few)
        cuts = cut(blocks_of(found), targets, one)
    for group, target in enumerate(targets):
        expected = by_sorting(found, group, target, one)
        wanted = sum(w for g, *at, w in found if g == group and tuple(at) in expected)
        assert taken(found, cuts, group) == wanted


@settings(max_examples=40)
@given(
    st.lists(st.tuples(st.floats(-1e3, 1e3), st.integers(1, 9)), min_size=1, max_size=80),
    st.integers(1, 200),
)
def test_the_streaming_cut_misses_by_half_a_class_at_most(
    scored: list[tuple[float, int]], target: int
) -> None:
    high = score_order(np.array([score for score, _ in scored]))
    found = [
        (0, int(h), number, weight)
        for number, (h, (_, weight)) in enumerate(zip(high, scored, strict=True))
    ]
    total = taken(found, streaming_cut(blocks_of(found), [target]), 0)
    everything = sum(weight for _, weight in scored)
    classes: dict[int, int] = {}
    for _, h, _, weight in found:
        classes[h >> (64 - BITS)] = classes.get(h >> (64 - BITS), 0) + weight
    sums = list(accumulate(classes[name] for name in sorted(classes)))
    around = next((n for n, s in enumerate(sums) if s >= target), len(sums) - 1)
    assert total in sums
    if target >= everything:
        assert total == everything
    elif around:
        assert abs(total - target) <= classes[sorted(classes)[around]] / 2
    else:  # nothing at all is never taken
        assert total == sums[0]


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=2, max_size=30))
def test_the_order_of_scores_is_the_reverse_of_theirs(scores: list[float]) -> None:
    order = score_order(np.array(scores))
    for a, first in zip(scores, order, strict=True):
        for b, second in zip(scores, order, strict=True):
            assert (first < second) == (a > b)
            assert (first == second) == (a == b)


def test_draws_for_different_purposes_and_seeds_differ() -> None:
    keys = np.arange(4000, dtype=np.uint64)
    orders = [mixed(keys, 0, "baseline"), mixed(keys, 0, "order 0"), mixed(keys, 1, "baseline")]
    ranks = np.array([np.argsort(np.argsort(one)) for one in orders], dtype=float)
    together = np.corrcoef(np.vstack([ranks, np.arange(4000)]))
    assert np.abs(together[~np.eye(4, dtype=bool)]).max() < 0.08
    assert all(len(np.unique(one)) == 4000 for one in orders)


def test_keys_tell_texts_languages_and_ids_apart() -> None:
    text, record = record_keys("a", "en", 1)
    assert record_keys("a", "de", 2)[0] == text != record_keys("b", "en", 1)[0]
    others = {record_keys("a", "en", one)[1] for one in ("1", 2, None)}
    assert len(others) == 3 and record not in others
    assert record_keys("\ud800", "en", None) != record_keys("\ud801", "en", None)
