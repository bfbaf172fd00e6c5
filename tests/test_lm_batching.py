"""Buckets and padding."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headscope.errors import InputError
from headscope.lm.batching import collate, length_buckets

lengths = st.lists(st.integers(0, 40), max_size=40)


@given(lengths, st.integers(1, 100), st.integers(0, 100))
def test_buckets_hold_every_row_once_within_the_bound(
    rows: list[int], bound: int, overhead: int
) -> None:
    buckets = length_buckets(rows, bound, overhead)
    assert sorted(i for bucket in buckets for i in bucket) == list(range(len(rows)))
    for bucket in buckets:
        assert len(bucket) == 1 or len(bucket) * max(rows[i] for i in bucket) <= bound
    tops = [max(rows[i] for i in bucket) for bucket in buckets]
    assert tops == sorted(tops, reverse=True)


@given(lengths, st.integers(1, 100))
def test_where_batches_are_dear_there_are_as_few_as_can_be(rows: list[int], bound: int) -> None:
    fewest, room = 0, 0
    for length in sorted((max(1, length) for length in rows), reverse=True):
        if not room:  # a batch takes as many rows as its first one leaves room for
            fewest, room = fewest + 1, max(1, bound // length)
        room -= 1
    assert len(length_buckets(rows, bound, 10_000)) == fewest


@given(st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=6), min_size=1, max_size=5))
def test_padding_stands_on_the_left_and_is_masked(rows: list[list[int]]) -> None:
    batch = collate(rows, pad_id=0)
    for row, ids, mask, positions, padding in zip(
        rows,
        batch.input_ids.tolist(),
        batch.attention_mask.tolist(),
        batch.position_ids.tolist(),
        batch.padding,
        strict=True,
    ):
        assert ids == [0] * padding + row
        assert mask == [0] * padding + [1] * len(row)
        assert positions == [0] * padding + list(range(len(row)))


def test_impossible_batches_are_refused() -> None:
    with pytest.raises(InputError, match="at least 1"):
        length_buckets([3], 0, 0)
    with pytest.raises(InputError, match="at least one row"):
        collate([], 0)
    with pytest.raises(InputError, match="Row 1 of a batch holds no token"):
        collate([[1], []], 0)


@given(
    st.lists(st.integers(1, 30), max_size=7),
    st.integers(1, 80),
    st.integers(0, 40),
)
def test_buckets_cost_least_of_all_groupings(
    lengths: list[int], batch_tokens: int, overhead: int
) -> None:
    found = length_buckets(lengths, batch_tokens, overhead)

    def cost(buckets: list[list[int]]) -> int:
        return sum(len(one) * max(lengths[i] for i in one) + overhead for one in buckets)

    assert sorted(i for one in found for i in one) == list(range(len(lengths)))
    for one in found:
        assert len(one) == 1 or len(one) * max(lengths[i] for i in one) <= batch_tokens
    flat = [lengths[i] for one in found for i in one]
    assert flat == sorted(lengths, reverse=True)
    # Every way to cut the sorted rows, by brute force.
    order = [i for one in found for i in one]
    ways = []
    for cuts in itertools.product((False, True), repeat=max(0, len(order) - 1)):
        ends = [at for at, cut in enumerate(cuts, 1) if cut]
        bounds = [0, *ends, len(order)] if order else [0]
        groups = [order[a:b] for a, b in itertools.pairwise(bounds)]
        fit = (len(g) == 1 or len(g) * max(lengths[i] for i in g) <= batch_tokens for g in groups)
        if all(fit):
            ways.append(cost(groups))
    assert cost(found) == min(ways)


def test_buckets_refuse_numbers_without_sense() -> None:
    for tokens, overhead in ((0, 0), (1, -1)):
        with pytest.raises(InputError):
            length_buckets([1], tokens, overhead)
