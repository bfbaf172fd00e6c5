"""Sets of heads, and gates over heads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from headscope.display import some
from headscope.errors import InputError
from headscope.heads.geometry import (
    Geometry,
    Head,
    HeadLike,
    check_geometry,
    count_of,
    heads_in,
    is_mask,
    keys_of,
    without_gradients,
)
from headscope.heads.hub import Artifact
from headscope.heads.store import Origin, Saved
from headscope.options import Amount


@dataclass(frozen=True, eq=False)
class HeadSet(Artifact):
    """A set of heads of one model, kept in the order given (best first, where it is a ranking).

    `|`, `&`, `-`, `^` and `complement()` are those of sets and keep the left side's order; two
    sets are equal if they hold the same heads of the same geometry, in whatever order. Sets of
    different geometries do not mix (InputError). `origin` says what made the set and does not
    count in comparisons.
    """

    kind = "heads"
    geometry: Geometry
    heads: tuple[Head, ...]
    origin: Origin = field(default_factory=Origin)

    def __post_init__(self) -> None:
        heads = tuple(map(self.geometry.check, self.heads))
        seen: set[Head] = set()
        for head in heads:
            if head in seen:
                raise InputError(f"head {head} is listed twice; list each head once")
            seen.add(head)
        object.__setattr__(self, "heads", heads)
        object.__setattr__(self, "_members", frozenset(seen))

    _members: frozenset[Head] = field(init=False, repr=False)

    @classmethod
    def parse(cls, text: str, geometry: Geometry) -> HeadSet:
        """Read a list such as `L5.H3,7.11`."""
        return cls(geometry, tuple(Head.parse(part) for part in text.split(",")))

    @classmethod
    def of(cls, geometry: Geometry, heads: Any) -> HeadSet:
        """Heads named in any way: a set, `"L5.H3,7.11"`, `(5, 3)`, several of these, `{"L5": [3]}`,
        a frame of `layer` and `head`, or a mask of bools (L, W)."""
        if isinstance(heads, HeadSet):
            check_geometry(heads, geometry, "the head set")
            return heads
        if isinstance(heads, str):
            return cls.parse(heads, geometry)
        if is_mask(heads):
            return cls.from_mask(geometry, heads)
        named = heads_in(heads)
        return cls(geometry, (Head.of(heads),) if named is None else tuple(named))

    @classmethod
    def from_mask(cls, geometry: Geometry, mask: ArrayLike) -> HeadSet:
        """The heads where the bool array `mask` (L, W) is True, by layer, then head."""
        array = np.asarray(without_gradients(mask))
        if array.shape != geometry.shape or array.dtype != np.bool_:
            raise InputError(
                f"a mask over {geometry} is a bool array of shape {geometry.shape}, "
                f"not {array.dtype} of shape {array.shape}"
            )
        return cls(
            geometry, tuple(head for head in geometry.heads() if array[head.layer, head.head])
        )

    @property
    def keys(self) -> tuple[str, ...]:
        """The heads as files, JSON and signatures have them: `5.3`."""
        return keys_of(self)

    def __len__(self) -> int:
        return len(self.heads)

    def __iter__(self) -> Iterator[Head]:
        return iter(self.heads)

    def __contains__(self, head: object) -> bool:
        return (Head.of(head) if isinstance(head, str | tuple) else head) in self._members

    def __repr__(self) -> str:
        return f"HeadSet({len(self)} of {self.geometry}: {some([*map(str, self)])})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, HeadSet):
            return NotImplemented
        return self.geometry == other.geometry and self._members == other._members

    def __hash__(self) -> int:
        return hash((self.geometry, self._members))

    def __or__(self, other: HeadSet) -> HeadSet:
        self._check(other)
        return self._with([*self, *(head for head in other if head not in self)])

    def __and__(self, other: HeadSet) -> HeadSet:
        self._check(other)
        return self._with(head for head in self if head in other)

    def __sub__(self, other: HeadSet) -> HeadSet:
        self._check(other)
        return self._with(head for head in self if head not in other)

    def __xor__(self, other: HeadSet) -> HeadSet:
        return (self - other) | (other - self)

    def complement(self) -> HeadSet:
        """All heads of the model that are not in this set, by layer, then head."""
        return self._with(head for head in self.geometry.heads() if head not in self)

    def jaccard(self, other: HeadSet) -> float:
        """|A ∩ B| / |A ∪ B|, and 1 for two empty sets, which are equal."""
        union = len(self | other)
        return len(self & other) / union if union else 1.0

    def top(self, k: Amount) -> HeadSet:
        """The first `k` heads in this set's order; `k` is a number or a share of all N heads."""
        count = count_of(k, self.geometry.total)
        if count > len(self):
            raise InputError(
                f"k = {k} asks for {count} heads, but this set has only {len(self)}; "
                "use a smaller k or leave it out to use the whole set"
            )
        return HeadSet(self.geometry, self.heads[:count], self.origin)

    def mask(self) -> NDArray[np.bool_]:
        """A bool array (L, W), True at the heads of this set."""
        mask = np.zeros(self.geometry.shape, dtype=np.bool_)
        for head in self:
            mask[head.layer, head.head] = True
        return mask

    def removed(self) -> Gate:
        """The gate that removes these heads: 0 at them, 1 elsewhere."""
        return self.scaled(0.0)

    def scaled(self, value: float) -> Gate:
        """The gate that multiplies the output of these heads by `value`."""
        return Gate(self.geometry, np.where(self.mask(), np.float32(value), 1), self.origin)

    def _tensors(self) -> dict[str, NDArray[Any]]:
        rows = np.array([(head.layer, head.head) for head in self], dtype=np.int32)
        return {"heads": rows.reshape(-1, 2)}

    @classmethod
    def _of(cls, saved: Saved) -> HeadSet:
        rows = saved.tensor("heads", np.int32, (None, 2))
        heads = tuple(Head(int(layer), int(head)) for layer, head in rows)
        return cls(saved.geometry, heads, saved.origin)

    def _with(self, heads: Iterable[Head]) -> HeadSet:
        return HeadSet(self.geometry, tuple(heads))

    def _check(self, other: HeadSet) -> None:
        check_geometry(other, self.geometry, "the other head set")

    def __str__(self) -> str:
        return ",".join(map(str, self.heads))


@dataclass(frozen=True, eq=False)
class Gate(Artifact):
    """A number for each head, by which its output A·V is multiplied before W_O.

    `values` is a read-only float32 array (L, W): 1 keeps a head bit for bit, 0 removes it, any
    other finite number scales it. Entries where the model has no head must be 1. `a * b` composes
    two gates.
    """

    kind = "gate"
    geometry: Geometry
    values: NDArray[np.float32]
    origin: Origin = field(default_factory=Origin)

    def __post_init__(self) -> None:
        values = np.array(without_gradients(self.values), dtype=np.float32)
        if values.shape != self.geometry.shape:
            raise InputError(
                f"a gate over {self.geometry} has the shape {self.geometry.shape}, "
                f"not {values.shape}"
            )
        if not np.isfinite(values).all():
            raise InputError("a gate holds finite numbers only; this one holds NaN or infinity")
        if (values[~self.geometry.mask()] != 1).any():
            raise InputError("a gate must be 1 where the model has no head")
        values.flags.writeable = False
        object.__setattr__(self, "values", values)

    @classmethod
    def identity(cls, geometry: Geometry) -> Gate:
        """The gate that changes nothing: 1 everywhere."""
        return cls(geometry, np.ones(geometry.shape, dtype=np.float32))

    @classmethod
    def of(
        cls, geometry: Geometry, values: Mapping[HeadLike, float] | Mapping[Head, float]
    ) -> Gate:
        """The gate with the given values at the given heads and 1 elsewhere."""
        array = np.ones(geometry.shape, dtype=np.float32)
        for named, value in values.items():
            head = geometry.check(named)
            array[head.layer, head.head] = value
        return cls(geometry, array)

    def __mul__(self, other: Gate) -> Gate:
        check_geometry(other, self.geometry, "the other gate")
        return Gate(self.geometry, self.values * other.values)

    def __getitem__(self, head: HeadLike) -> float:
        """The gate of a head, which may be named as in `HeadScores`."""
        head = self.geometry.check(head)
        return float(self.values[head.layer, head.head])

    def __repr__(self) -> str:
        changed = [f"{head} × {self[head]:.3g}" for head in self.changed_heads()]
        return f"Gate({self.geometry}: {some(changed) or 'changes nothing'})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Gate):
            return NotImplemented
        return self.geometry == other.geometry and np.array_equal(self.values, other.values)

    def __hash__(self) -> int:
        # Adding 0 turns -0 into 0, which compares equal to it.
        return hash((self.geometry, (self.values + np.float32(0)).tobytes()))

    @property
    def is_identity(self) -> bool:
        """Whether the gate is 1 everywhere."""
        return bool((self.values == 1).all())

    def removed_heads(self) -> HeadSet:
        """The heads whose gate is 0, by layer, then head."""
        return HeadSet.from_mask(self.geometry, (self.values == 0) & self.geometry.mask())

    def changed_heads(self) -> HeadSet:
        """The heads whose gate is not 1, by layer, then head."""
        return HeadSet.from_mask(self.geometry, self.values != 1)

    def _tensors(self) -> dict[str, NDArray[Any]]:
        return {"values": self.values}

    @classmethod
    def _of(cls, saved: Saved) -> Gate:
        values = saved.tensor("values", np.float32, saved.geometry.shape)
        return cls(saved.geometry, values, saved.origin)
