"""Masks of attention, and batches."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headscope.errors import InputError
from headscope.lm.attention.plans import Mask, is_additive_bias, kernel_of
from headscope.lm.batching import collate, length_buckets

MIN = torch.finfo(torch.float32).min


@st.composite
def calls(draw):
    """Sizes of a call and some of its rows and columns: (batch, T, S, rows, (start, end))."""
    batch = draw(st.integers(1, 3))
    queries = draw(st.integers(1, 6))
    keys = queries + draw(st.integers(0, 5))
    count = draw(st.integers(1, queries))
    rows = [
        sorted(draw(st.sets(st.integers(0, queries - 1), min_size=count, max_size=count)))
        for _ in range(batch)
    ]
    start = draw(st.integers(0, keys - 1))
    end = draw(st.integers(start + 1, keys))
    return batch, queries, keys, rows, (start, end)


def brute(batch, rows, columns, may_see):
    """bool (B, R, C) from a function of one batch row, one query and one key."""
    return torch.tensor(
        [[[bool(may_see(b, q, k)) for k in range(*columns)] for q in rows[b]] for b in range(batch)]
    )


def decoded(mask, rows, columns, **options):
    result = Mask(mask, **options).decode(torch.tensor(rows), columns)
    return result.allowed.expand(len(rows), -1, -1, -1)


@settings(deadline=None, max_examples=60)
@given(calls(), st.randoms(use_true_random=False))
def test_boolean_and_float_matrices_say_the_same(call, random):
    batch, queries, keys, rows, columns = call
    table = torch.tensor(
        [[[random.random() < 0.6 for _ in range(keys)] for _ in range(queries)] for _ in rows]
    )[:, None]
    expected = brute(batch, rows, columns, lambda b, q, k: table[b, 0, q, k])
    floats = torch.where(table, 0.0, MIN)
    for kernel in ("sdpa", "eager", "flash", "flex", "unknown"):
        for mask in (table, floats, floats * 2):  # twice the smallest number is minus infinity
            got = decoded(mask, rows, columns, kernel=kernel, queries=queries, keys=keys, window=1)
            assert torch.equal(got[:, 0], expected)


@settings(deadline=None, max_examples=60)
@given(calls(), st.booleans())
def test_no_mask_under_sdpa_is_upper_left_unless_one_query(call, causal):
    batch, queries, keys, rows, columns = call
    expected = brute(batch, rows, columns, lambda b, q, k: queries == 1 or not causal or k <= q)
    got = decoded(None, rows, columns, kernel="sdpa", queries=queries, keys=keys, causal=causal)
    assert torch.equal(got[:, 0], expected)


@settings(deadline=None, max_examples=60)
@given(calls(), st.one_of(st.none(), st.integers(1, 7)), st.booleans(), st.randoms())
def test_flash_is_lower_right_with_window_and_padding(call, window, padded, random):
    batch, queries, keys, rows, columns = call
    padding = torch.tensor([[random.random() < 0.7 for _ in range(keys)] for _ in rows])

    def may_see(b, q, k):
        place = q + keys - queries
        inside = window is None or k > place - window
        return k <= place and inside and (not padded or padding[b, k])

    got = decoded(
        padding.long() if padded else None,
        rows,
        columns,
        kernel="flash",
        queries=queries,
        keys=keys,
        window=window,
    )
    assert torch.equal(got[:, 0], brute(batch, rows, columns, may_see))


def test_flash_mask_narrower_than_a_static_cache_cuts_the_keys():
    padding = torch.tensor([[0, 1, 1, 1]])
    got = decoded(padding, [[0, 1]], (0, 7), kernel="flash", queries=2, keys=7)
    assert got[0, 0].long().tolist() == [[0, 1, 1, 0, 0, 0, 0], [0, 1, 1, 1, 0, 0, 0]]


@settings(deadline=None, max_examples=25)
@given(calls(), st.integers(1, 4))
def test_block_masks_are_asked_by_index(call, window):
    from torch.nn.attention.flex_attention import create_block_mask

    batch, queries, keys, rows, columns = call
    padding = torch.arange(keys)[None] >= torch.arange(batch)[:, None]

    def rule(b, h, q, k):
        place = q + keys - queries
        return (k <= place) & (k > place - window - h) & padding[b, k]

    for heads in (None, 2):
        mask = create_block_mask(rule, B=batch, H=heads, Q_LEN=queries, KV_LEN=keys, device="cpu")
        got = decoded(mask, rows, columns, kernel="flex", queries=queries, keys=keys, heads=2)
        assert got.shape[1] == (heads or 1)
        for head in range(heads or 1):
            expected = brute(
                batch,
                rows,
                columns,
                lambda b, q, k, h=head: rule(b, h, torch.tensor(q), torch.tensor(k)),
            )
            assert torch.equal(got[:, head], expected)


@settings(deadline=None, max_examples=80)
@given(
    calls(),
    st.sampled_from(["sdpa", "flash", "eager", "flex"]),
    st.booleans(),
    st.one_of(st.none(), st.integers(1, 4)),
)
def test_outline_bounds_what_is_decoded(call, kernel, causal, window):
    _, queries, keys, rows, _ = call
    window = window if kernel == "flash" and causal else None
    options = {"kernel": kernel, "queries": queries, "keys": keys, "causal": causal}
    chosen = torch.tensor(rows)
    mask = Mask(None, window=window, **options)
    start, end, clear = mask.outline(int(chosen.min()), int(chosen.max()))
    allowed = decoded(None, rows, (0, keys), window=window, **options)[:, 0]
    assert not allowed[..., :start].any()
    assert not allowed[..., end:].any()
    assert allowed[..., start:clear].all()


def test_masks_differing_by_head_and_shared_by_rows():
    table = torch.rand(1, 3, 4, 5, generator=torch.Generator().manual_seed(0)) < 0.5
    got = Mask(table, "sdpa", 4, 5).decode(torch.tensor([[0, 3], [1, 2]]), (1, 4))
    assert torch.equal(got.allowed[0], table[0, :, [0, 3], 1:4])
    assert torch.equal(got.allowed[1], table[0, :, [1, 2], 1:4])


def test_keys_beyond_a_matrix_are_not_seen():
    got = decoded(
        torch.ones(1, 1, 2, 3, dtype=torch.bool), [[1]], (1, 5), kernel="sdpa", queries=2, keys=5
    )
    assert got[0, 0].tolist() == [[True, True, False, False]]


def test_additive_keeps_a_bias_only_where_asked():
    mask = torch.tensor([[[[0.5, -1.0, MIN]]]])
    part = Mask(mask, "eager", 1, 3).decode(torch.tensor([[0]]), (0, 3))
    infinity = float("-inf")
    assert part.additive(keep_bias=True).flatten().tolist() == [0.5, -1.0, infinity]
    assert part.additive(keep_bias=False).flatten().tolist() == [0.0, 0.0, infinity]


def test_what_counts_as_a_bias():
    assert is_additive_bias(torch.tensor([0.0, -0.1]))
    assert not is_additive_bias(torch.tensor([0.0, MIN, 2 * MIN, float("-inf")]))
    assert not is_additive_bias(torch.tensor([True, False]))
    assert not is_additive_bias(None)


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("sdpa", "sdpa"),
        ("eager", "eager"),
        ("flash_attention_2", "flash"),
        ("kernels-community/flash-attn3", "flash"),
        ("flex_attention", "flex"),
        ("something_else", "unknown"),
    ],
)
def test_families_of_kernels(name, family):
    assert kernel_of(name) == family


@pytest.mark.parametrize(
    ("kernel", "mask"), [("unknown", None), ("sdpa", torch.ones(1, 3)), ("flex", torch.ones(3, 3))]
)
def test_masks_of_unknown_meaning_are_refused(kernel, mask):
    with pytest.raises(InputError, match='attn_implementation="sdpa" or "eager"'):
        Mask(mask, kernel, 3, 3).decode(torch.tensor([[0]]), (0, 3))


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


#: One very long row among short ones, all alike, growing by a factor, and anything.
pathological = st.one_of(
    st.builds(lambda n, long: [long] + [3] * n, st.integers(0, 60), st.integers(1, 2000)),
    st.builds(lambda n, length: [length] * n, st.integers(1, 60), st.integers(1, 300)),
    st.builds(
        lambda n, factor: [int(factor**k) for k in range(n)], st.integers(1, 12), st.floats(1, 2)
    ),
    st.lists(st.integers(1, 500), min_size=1, max_size=60),
).flatmap(st.permutations)


@given(
    pathological,
    st.integers(1, 4000),
    st.sampled_from([0, 1, 64, 1024, 1 << 20]),
    st.integers(1, 40),
)
def test_no_buckets_cost_more_than_one_or_than_fixed_ones(
    lengths: list[int], batch_tokens: int, overhead: int, rows: int
) -> None:
    def cost(buckets: list[list[int]]) -> int:
        return sum(len(rows) * max(lengths[i] for i in rows) + overhead for rows in buckets)

    def fixed(order: list[int]) -> list[list[int]]:
        return [order[at : at + rows] for at in range(0, len(order), rows)]

    found = cost(length_buckets(lengths, batch_tokens, overhead))
    order = list(range(len(lengths)))
    by_length = sorted(order, key=lambda i: -lengths[i])
    for others in ([order], fixed(order), fixed(by_length), [[i] for i in order]):
        if all(len(b) == 1 or len(b) * max(lengths[i] for i in b) <= batch_tokens for b in others):
            assert found <= cost(others)


def test_buckets_refuse_numbers_without_sense() -> None:
    for tokens, overhead in ((0, 0), (1, -1)):
        with pytest.raises(InputError):
            length_buckets([1], tokens, overhead)
