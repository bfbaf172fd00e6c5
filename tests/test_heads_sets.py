"""Laws of heads, geometries, head sets and gates."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headscope.errors import InputError
from headscope.heads import Gate, Geometry, Head, HeadScores, HeadSet, check_geometry, count_of

GEOMETRY = Geometry((3, 0, 5, 2))
HEADS = list(GEOMETRY.heads())

geometries = (
    st.lists(st.integers(0, 6), min_size=1, max_size=6)
    .filter(any)
    .map(lambda counts: Geometry(tuple(counts)))
)
sets = st.lists(st.sampled_from(HEADS), unique=True).map(lambda h: HeadSet(GEOMETRY, tuple(h)))
# Powers of two multiply without rounding, so that composition is associative to the bit.
gates = st.dictionaries(st.sampled_from(HEADS), st.sampled_from([0.0, 0.5, 1.0, 2.0, -4.0])).map(
    lambda values: Gate.of(GEOMETRY, values)
)


@given(st.integers(0, 10_000), st.integers(0, 10_000))
def test_head_prints_as_it_is_read_and_keeps_its_key(layer: int, head: int) -> None:
    place = Head(layer, head)
    ways = (str(place), f"{place}", place.key, f"L{layer}H{head}", f" l{layer}.h{head} ")
    assert {Head.parse(text) for text in ways} == {place}
    assert (str(place), place.key) == (f"L{layer}.H{head}", f"{layer}.{head}")


@pytest.mark.parametrize(
    "text", ["", "5", "5.", "5.3.1", "L5", "L5.3", "-1.2", "5,3", "a.b", "5.٣"]
)
def test_malformed_head_says_how_to_write_one(text: str) -> None:
    with pytest.raises(InputError, match=r"LAYER\.HEAD.*5\.3"):
        Head.parse(text)


@pytest.mark.parametrize("layer", [-1, 1.0, "1", None, True])
def test_head_takes_whole_numbers_only(layer: object) -> None:
    with pytest.raises(InputError, match="layer must be a whole number"):
        Head(layer, 0)


@pytest.mark.parametrize(
    ("named", "keys"),
    [
        ({"L2": [1, 0], "l0": [], 3: 1}, ["2.1", "2.0", "3.1"]),
        (pd.DataFrame({"layer": [2, 3], "head": [1, 0], "selected": [False, True]}), ["3.0"]),
        (pd.DataFrame({"layer": [], "head": []}), []),
        ({"layer": [2, 3], "head": [1, 0]}, ["2.1", "3.0"]),
        ({"layer": 2, "head": 1}, ["2.1"]),
        (np.arange(10).reshape(2, 5) < 0, []),
    ],
)
def test_heads_are_named_by_layer_in_frames_and_in_masks(named: Any, keys: list[str]) -> None:
    geometry = Geometry.uniform(2, 5) if isinstance(named, np.ndarray) else GEOMETRY
    assert list(HeadSet.of(geometry, named).keys) == keys


@pytest.mark.parametrize(
    ("named", "words"),
    [
        (5.10, "5.1 and 5.10 are one number"),
        ({"layer": [2, 3], "head": [1]}, "differ in length"),
        ({"layer": [2, None], "head": [1, 0]}, "layer must be a whole number"),
        ({"layer": [2], "head": [1], "selected": [float("nan")]}, "selected is nan"),
        ({"L-2": [1]}, "is not a head"),
        (np.zeros((3, 5), bool), r"shape \(4, 5\), not bool of shape \(3, 5\)"),
    ],
)
def test_what_names_no_heads_is_refused(named: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        HeadSet.of(GEOMETRY, named)


def test_head_takes_numpy_integers_and_equals_plain_ones() -> None:
    assert Head(np.int64(2), np.int32(1)) == Head(2, 1)
    assert type(Head(np.int64(2), 0).layer) is int


@given(geometries)
def test_geometry_agrees_with_itself(geometry: Geometry) -> None:
    heads = list(geometry.heads())
    assert heads == sorted(heads)
    assert len(heads) == geometry.total == geometry.mask().sum()
    assert all(head in geometry and geometry.mask()[head.layer, head.head] for head in heads)
    assert geometry.mask().shape == (geometry.layers, geometry.width)
    assert Geometry.from_dict(geometry.as_dict()) == geometry
    assert Head(geometry.layers, 0) not in geometry
    assert all(Head(i, count) not in geometry for i, count in enumerate(geometry.counts))


@pytest.mark.parametrize("counts", [(), (0, 0), (2, -1), (1.5,), ("4",)])
def test_geometry_without_heads_or_with_odd_counts_is_refused(counts: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match="not a head geometry"):
        Geometry(counts)


@given(sets, sets, sets)
def test_set_algebra_is_that_of_sets(a: HeadSet, b: HeadSet, c: HeadSet) -> None:
    x, y = set(a), set(b)
    assert set(a | b) == x | y
    assert set(a & b) == x & y
    assert set(a - b) == x - y
    assert set(a ^ b) == x ^ y
    assert set(a.complement()) == set(HEADS) - x
    assert (a | b).complement() == a.complement() & b.complement()
    assert a & (b | c) == (a & b) | (a & c)
    assert (a == b) == (x == y)
    assert a != b or hash(a) == hash(b)


@given(sets, sets)
def test_sets_keep_the_order_of_the_left_side(a: HeadSet, b: HeadSet) -> None:
    assert (a | b).heads[: len(a)] == a.heads
    for result in (a & b, a - b):
        assert list(result) == [head for head in a if head in result]


@given(sets, sets)
def test_jaccard(a: HeadSet, b: HeadSet) -> None:
    union = set(a) | set(b)
    assert a.jaccard(b) == (len(set(a) & set(b)) / len(union) if union else 1.0)
    assert a.jaccard(a) == 1


@given(sets)
def test_mask_parse_and_print_round_trip(a: HeadSet) -> None:
    assert HeadSet.from_mask(GEOMETRY, a.mask()) == a
    if len(a):
        assert HeadSet.parse(str(a), GEOMETRY).heads == a.heads


def test_set_refuses_duplicates_strangers_and_other_geometries() -> None:
    with pytest.raises(InputError, match=r"L2\.H1 is listed twice"):
        HeadSet.parse("2.1,2.1", GEOMETRY)
    with pytest.raises(InputError, match="layer 2 has heads 0 to 4"):
        HeadSet.parse("2.5", GEOMETRY)
    with pytest.raises(InputError, match="layer 1 has no attention heads"):
        HeadSet.parse("1.0", GEOMETRY)
    with pytest.raises(InputError, match="layers are numbered 0 to 3"):
        HeadSet.parse("4.0", GEOMETRY)
    one, other = HeadSet(GEOMETRY, ()), HeadSet(Geometry.uniform(4, 5), ())
    assert one != other
    with pytest.raises(InputError, match=r"4 layers × 5 heads.*3/0/5/2"):
        one | other


def test_check_geometry_names_artifact_and_both_geometries() -> None:
    with pytest.raises(InputError, match=r"^my/set was made for .*3/0/5/2.*2 layers × 2 heads"):
        check_geometry(HeadSet(GEOMETRY, ()), Geometry.uniform(2, 2), "my/set")
    check_geometry(HeadSet(GEOMETRY, ()), Geometry((3, 0, 5, 2)))


@given(gates, gates, gates)
def test_gates_compose(a: Gate, b: Gate, c: Gate) -> None:
    identity = Gate.identity(GEOMETRY)
    assert a * identity == a == identity * a
    assert a * b == b * a
    assert (a * b) * c == a * (b * c)
    assert hash(a * b) == hash(b * a)
    assert a.is_identity == (a == identity)
    for head in HEADS:
        assert (a * b)[head] == a[head] * b[head]


@given(sets, sets)
def test_removal_of_a_union_is_the_product_of_removals(a: HeadSet, b: HeadSet) -> None:
    assert (a | b).removed() == a.removed() * b.removed()
    assert a.removed().removed_heads() == a
    assert a.removed().is_identity == (len(a) == 0)
    assert a.scaled(1).is_identity
    assert a.scaled(3).removed_heads() == HeadSet(GEOMETRY, ())
    assert a.scaled(3).changed_heads() == a


def test_gate_is_read_only_and_its_own_copy() -> None:
    values = np.ones(GEOMETRY.shape, dtype=np.float32)
    gate = Gate(GEOMETRY, values)
    values[0, 0] = 7
    assert gate.is_identity
    with pytest.raises(ValueError, match="read-only"):
        gate.values[0, 0] = 7


def test_tensors_that_have_gradients_are_numbers() -> None:
    torch = pytest.importorskip("torch")
    there = GEOMETRY.mask()
    values = torch.rand(GEOMETRY.shape, requires_grad=True).bfloat16()
    values = torch.where(torch.from_numpy(there), values, 1)
    gate = Gate(GEOMETRY, values)
    assert torch.equal(torch.from_numpy(gate.values.copy()), values.detach().float())
    rows = [list(row) for row in values]
    scores = HeadScores(GEOMETRY, rows, "own")  # type: ignore[arg-type]
    assert np.array_equal(scores.values[there], values.detach().double().numpy()[there])
    mask = values > 0.5
    assert HeadSet.from_mask(GEOMETRY, mask & torch.from_numpy(there)).heads


def test_gate_refuses_what_is_no_gate() -> None:
    with pytest.raises(InputError, match="shape"):
        Gate(GEOMETRY, np.ones((2, 2), dtype=np.float32))
    with pytest.raises(InputError, match="must be 1 where the model has no head"):
        Gate(GEOMETRY, np.zeros(GEOMETRY.shape, dtype=np.float32))
    with pytest.raises(InputError, match="finite"):
        Gate.of(GEOMETRY, {Head(0, 0): float("nan")})
    with pytest.raises(InputError, match=r"no head L1\.H0"):
        Gate.of(GEOMETRY, {Head(1, 0): 0.0})


def test_minus_zero_is_zero_in_hashes_too() -> None:
    one, other = (Gate.of(GEOMETRY, {HEADS[0]: value}) for value in (0.0, -0.0))
    assert one == other
    assert hash(one) == hash(other)


@pytest.mark.parametrize(
    ("k", "total", "count"),
    [
        (20, 96, 20),
        ("20", 96, 20),
        (0.15, 96, 14),
        ("0.15", 96, 14),
        ("15%", 96, 14),
        (" 15 % ", 96, 14),
        (".5", 9, 4),
        ("1e-1", 100, 10),
        (0.001, 96, 1),
        ("100%", 96, 96),
        (1, 96, 1),
        ("1%", 300, 3),
        (np.int64(3), 96, 3),
    ],
)
def test_amounts(k: float | str, total: int, count: int) -> None:
    assert count_of(k, total) == count


@pytest.mark.parametrize(
    "k",
    [
        *(0, -1, "0", "-0.5", 0.0, 1.0, 1.5, "101%", "0%", "", "many", True, "1/2", "nan", "inf"),
        *("1e-999999999", "9" * 5000, "0." + "1" * 5000),
    ],
)
def test_amounts_that_mean_nothing_are_refused(k: float | str) -> None:
    with pytest.raises(InputError, match="whole number from 1"):
        count_of(k, 96)


def test_more_heads_than_there_are() -> None:
    with pytest.raises(InputError, match="more heads than the 96"):
        count_of(97, 96)
    with pytest.raises(InputError, match="has only 2"):
        HeadSet.parse("0.0,0.1", GEOMETRY).top(3)
    assert HeadSet.parse("2.4,0.1", GEOMETRY).top(1).heads == (Head(2, 4),)


def test_a_mask_of_another_shape_or_of_numbers_is_refused() -> None:
    for mask in (np.ones(GEOMETRY.shape), np.ones((2, 2), dtype=bool)):
        with pytest.raises(InputError, match="is a bool array of shape"):
            HeadSet.from_mask(GEOMETRY, mask)


def test_values_equal_nothing_of_another_kind() -> None:
    heads = HeadSet.parse("0.1", GEOMETRY)
    assert heads != "0.1" and heads.removed() != heads
