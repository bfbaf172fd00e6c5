"""Where the attention heads of a model are, their shape, and how many are meant by `15%`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain
from numbers import Integral, Real
from operator import index
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from headscope.errors import InputError
from headscope.options import Amount

_HEAD = r"(?:[Ll]([0-9]{1,9})\.?[Hh]([0-9]{1,9})|([0-9]{1,9})\.([0-9]{1,9}))"
#: A layer by name, as it stands before its heads, and a list of heads by name.
LAYER = re.compile(r"\s*[Ll]?([0-9]{1,9})\s*")
LIST = re.compile(rf"\s*{_HEAD}\s*(?:,\s*{_HEAD}\s*)*")
_WAYS = "write L5.H3, 5.3 or, in Python, (5, 3), layer and head"


def without_gradients(given: Any) -> Any:
    """The numbers of tensors as an array, wherever they lie and whether or not gradients are taken
    through them; of lists those of each part, and everything else as it is."""
    if hasattr(given, "detach"):
        numbers = given.detach().cpu()
        return (numbers.double() if numbers.is_floating_point() else numbers).numpy()
    return [*map(without_gradients, given)] if isinstance(given, list | tuple) else given


@dataclass(frozen=True, order=True)
class Head:
    """One attention head: the index of its layer and its index among that layer's query heads.

    Both count from 0. Heads sort by layer, then by head, and print as `L5.H3`.
    """

    layer: int
    head: int

    def __post_init__(self) -> None:
        for name in ("layer", "head"):
            value = getattr(self, name)
            try:
                number = index(value)
            except TypeError:
                number = -1
            if number < 0 or isinstance(value, (bool, np.bool_)):
                raise InputError(f"{name} must be a whole number from 0, not {value!r}")
            object.__setattr__(self, name, number)

    @classmethod
    def parse(cls, text: str) -> Head:
        """Read `L5.H3`, `L5H3` or `5.3`: layer 5 and head 3."""
        match = re.fullmatch(rf"\s*{_HEAD}\s*", text)
        if match is None:
            raise InputError(f"{text[:40]!r} is not a head; write LAYER.HEAD: L5.H3 or 5.3")
        return cls(*(int(number) for number in match.groups() if number is not None))

    @classmethod
    def of(cls, head: object) -> Head:
        """A head as people name one: itself, `"L5.H3"`, `"5.3"`, `(5, 3)`, or what has a layer and
        a head, as attributes or entries.

        InputError for anything else, also for a number: 5.1 and 5.10 are the same number, and two
        heads.
        """
        if isinstance(head, Head):
            return head
        if isinstance(head, str):
            return cls.parse(head)
        if isinstance(head, Real) and not isinstance(head, Integral):
            raise InputError(
                f"{head} is not a head but a number, and 5.1 and 5.10 are one number; write '5.1' "
                "or (5, 1)"
            )
        try:
            layer, number = (
                (head["layer"], head["head"])
                if isinstance(head, Mapping)
                else (head.layer, head.head)
                if hasattr(head, "layer") and hasattr(head, "head")
                else cast(Iterable[int], head)
            )
        except (KeyError, TypeError, ValueError):
            raise InputError(f"{head!r:.40} is not a head; {_WAYS}") from None
        return cls(layer, number)

    @property
    def key(self) -> str:
        """`5.3`: the head in files, JSON, keys and signatures."""
        return f"{self.layer}.{self.head}"

    def __str__(self) -> str:
        return f"L{self.layer}.H{self.head}"


#: How a head may be given: see `Head.of`.
HeadLike = Head | str | tuple[int, int] | Mapping[str, Any]


def keys_of(heads: Iterable[Head]) -> tuple[str, ...]:
    """Heads as files, JSON, keys and signatures have them: `5.3`."""
    return tuple(head.key for head in heads)


def spelled(keys: Iterable[str]) -> str:
    """Heads that results name by their keys, as they are written: `L5.H3, L7.H11`."""
    return ", ".join(str(Head.parse(key)) for key in keys)


def heads_in(value: Any) -> list[Head] | None:
    """Heads that are named in memory, in their order; None of what names none.

    One head or several (see `Head.of`) in a text, a list, a set, an array or a series; heads by
    layer, `{"L11": [2]}` or `{11: [2]}`; a frame or columns of `layer` and `head`, of which rows
    whose `selected` is false are left out. A mask needs the shape of its model: see `HeadSet.of`.
    """
    if isinstance(value, str):
        return [*map(Head.parse, value.split(","))] if LIST.fullmatch(value) else None
    if isinstance(value, Head | Real) or is_pair(value):
        return [Head.of(value)]
    rows = head_rows(value)
    if rows is not None:
        return [Head.of(row) for row in rows]
    if isinstance(value, Mapping) and value:
        heads: list[Head] = []
        for name, of_layer in value.items():
            if (layer := LAYER.fullmatch(str(name))) is None:
                return None
            listed = members(of_layer)
            heads += (
                Head(int(layer[1]), head) for head in ([of_layer] if listed is None else listed)
            )
        return heads
    if isinstance(value, Set):
        return sorted(map(Head.of, value))
    listed = members(value)
    if listed is None:
        return None
    if is_pair(listed):
        return [Head.of(listed)]
    named = (heads_in(each) if isinstance(each, str) else None for each in listed)
    return [*chain(*(known or [Head.of(each)] for each, known in zip(listed, named, strict=True)))]


def head_rows(value: Any) -> list[Mapping[str, Any]] | None:
    """The rows of a frame or a table, of columns by name, or of mappings, with `layer` and `head`,
    but for those whose `selected` is false; None of anything else."""
    rows = _rows(value)
    return rows if rows is None else [*filter(_is_selected, rows)]


def _is_selected(row: Mapping[str, Any]) -> bool:
    selected = row.get("selected", True)
    if not isinstance(selected, bool | np.bool_ | Integral):
        raise InputError(f"selected is {selected!r:.40} of a head; it is True or False")
    return bool(selected)


def _rows(value: Any) -> list[Mapping[str, Any]] | None:
    if hasattr(value, "columns") or hasattr(value, "schema"):  # of Polars, Arrow or pandas
        ways = {"to_dicts": (), "to_pylist": (), "to_dict": ("records",)}
        rows = next((way for way in ways if hasattr(value, way)), None)
        if rows is not None:
            return list(getattr(value, rows)(*ways[rows]))
    if isinstance(value, Mapping) and {"layer", "head"} <= value.keys():
        columns = [column for column in map(members, value.values()) if column is not None]
        if len(columns) < len(value):  # one head
            return [value]
        if len({*map(len, columns)}) > 1:
            raise InputError("columns of heads differ in length; give each a layer and a head")
        return [dict(zip(value, row, strict=True)) for row in zip(*columns, strict=True)]
    mappings = isinstance(value, list | tuple) and all(isinstance(row, Mapping) for row in value)
    return list(value) if mappings and value else None


def members(value: Any) -> list[Any] | None:
    """The members of a list, an array, a tensor, a series or an iterator; None of anything else."""
    for listed in ("tolist", "to_pylist"):
        if hasattr(value, listed) and not hasattr(value, "schema"):
            value = getattr(value, listed)()
    several = isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping)
    return list(value) if several else None


def is_mask(value: Any) -> bool:
    """Whether a value is an array or a tensor of bools with two axes."""
    return getattr(value, "ndim", None) == 2 and "bool" in str(getattr(value, "dtype", ""))


def is_pair(value: Any) -> bool:
    """Whether a value is two whole numbers, which are one head."""
    pair = isinstance(value, list | tuple) and len(value) == 2
    return pair and all(isinstance(number, Integral) for number in value)


@dataclass(frozen=True)
class Geometry:
    """How many query heads each decoder layer has.

    `counts[l]` is the number of query heads of layer l, 0 for a layer without softmax attention
    (hybrid models have such layers). Arrays over heads have the shape (L, W) =
    (`layers`, `width`); where a layer has fewer than W heads, `mask()` is False.
    """

    counts: tuple[int, ...]

    def __post_init__(self) -> None:
        try:
            counts = tuple(index(count) for count in self.counts)
        except TypeError:
            counts = (-1,)
        if any(count < 0 for count in counts) or not any(counts):
            raise InputError(
                f"{self.counts!r} is not a head geometry; it needs one number of query heads a "
                "layer, none negative and at least one above 0"
            )
        object.__setattr__(self, "counts", counts)

    @classmethod
    def uniform(cls, layers: int, heads: int) -> Geometry:
        """The geometry of `layers` layers with `heads` query heads each."""
        return cls((heads,) * layers)

    @property
    def layers(self) -> int:
        """L, the number of decoder layers."""
        return len(self.counts)

    @property
    def width(self) -> int:
        """W, the largest number of query heads in a layer."""
        return max(self.counts)

    @property
    def total(self) -> int:
        """N, the number of query heads in the model."""
        return sum(self.counts)

    @property
    def shape(self) -> tuple[int, int]:
        """(L, W), the shape of arrays over heads."""
        return self.layers, self.width

    def heads(self) -> Iterator[Head]:
        """All heads by layer, then head: the order of `array[geometry.mask()]`."""
        return chain.from_iterable(self.by_layer())

    def by_layer(self) -> list[list[Head]]:
        """The heads of every layer."""
        return [[Head(layer, at) for at in range(heads)] for layer, heads in enumerate(self.counts)]

    def mask(self) -> NDArray[np.bool_]:
        """A bool array (L, W), True where there is a head."""
        return np.asarray(np.arange(self.width) < np.asarray(self.counts)[:, None])

    def __contains__(self, head: object) -> bool:
        return (
            isinstance(head, Head)
            and head.layer < self.layers
            and head.head < self.counts[head.layer]
        )

    def check(self, head: HeadLike) -> Head:
        """The head that is named (see `Head.of`); InputError if the model has no such head."""
        head = Head.of(head)
        if head in self:
            return head
        if head.layer >= self.layers:
            known = f"layers are numbered 0 to {self.layers - 1}"
        elif self.counts[head.layer] == 0:
            known = f"layer {head.layer} has no attention heads"
        else:
            known = f"layer {head.layer} has heads 0 to {self.counts[head.layer] - 1}"
        raise InputError(f"there is no head {head} in a model of {self}: {known}")

    def as_dict(self) -> dict[str, Any]:
        """A JSON object from which `from_dict` makes this geometry again."""
        return {"layers": self.layers, "heads": self.total, "counts": list(self.counts)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Geometry:
        """The geometry that `as_dict` wrote; InputError if `data` is something else."""
        counts = data.get("counts") if isinstance(data, Mapping) else None
        if not isinstance(counts, (list, tuple)):
            raise InputError("a head geometry needs 'counts', one number of query heads a layer")
        return cls(tuple(counts))

    def __str__(self) -> str:
        distinct = sorted(set(self.counts))
        if len(distinct) == 1:
            return f"{self.layers} layers × {distinct[0]} heads"
        return f"{self.layers} layers with {'/'.join(map(str, self.counts))} heads"


@dataclass(frozen=True)
class GroupedGeometry:
    """A geometry with the number of key-value heads of each layer, None where it is not known.

    Query head h of a layer with H query and G key-value heads reads key-value head h // (H / G).
    """

    geometry: Geometry
    key_value_heads: int | None = None

    @classmethod
    def parse(cls, text: str) -> GroupedGeometry:
        """Read `28x16` or `28x16:8`: layers, query heads a layer and key-value heads a layer."""
        match = re.fullmatch(r"([0-9]{1,6})[x×]([0-9]{1,6})(?::([0-9]{1,6}))?", text.strip())
        layers, heads, groups = (int(n) if n else 0 for n in match.groups()) if match else (0, 0, 0)
        if match is None or not layers * heads or (match[3] and not groups):
            raise InputError(
                f"--geometry {text} is not LAYERSxHEADS[:KEY_VALUE_HEADS]; write it like 28x16 or "
                "28x16:8"
            )
        made = cls(Geometry.uniform(layers, heads), groups or None)
        made.group(groups or heads)
        return made

    def group(self, key_value_heads: int) -> int:
        """How many query heads share one of so many key-value heads a layer.

        InputError where they do not divide evenly, layers differ, or another number is known.
        """
        distinct = set(self.geometry.counts)
        known = self.key_value_heads in (None, key_value_heads)
        if not known or len(distinct) > 1 or self.geometry.width % key_value_heads:
            of = "" if known else f" and {self.key_value_heads} key-value heads"
            raise InputError(
                f"{key_value_heads} key-value heads a layer do not fit {self.geometry}{of}; name "
                "the model that they are of"
            )
        return self.geometry.width // key_value_heads


class _HasGeometry(Protocol):
    @property
    def geometry(self) -> Geometry: ...


def check_geometry(artifact: _HasGeometry, geometry: Geometry, name: str | None = None) -> None:
    """Raise InputError unless `artifact` (scores, a set, a gate) was made for `geometry`.

    `name` says in the message what the artifact is, for example the folder it came from.
    """
    if artifact.geometry != geometry:
        what = name if name is not None else f"this {type(artifact).__name__}"
        raise InputError(
            f"{what} was made for a model of {artifact.geometry}, but this model has {geometry}; "
            "use the model it was made with or find the heads of this model"
        )


# No amount needs more digits, and a fraction with millions of them would never be done.
_NUMBER = re.compile(
    r"(?P<number>\d{0,30}(?P<point>\.)?\d{1,30}(?P<exponent>[eE][-+]?\d{1,3})?)\s*(?P<percent>%)?",
    re.ASCII,
)


def count_of(k: Amount, total: int) -> int:
    """The number of heads that `k` stands for among `total` heads.

    A whole number is that many heads. A number below 1 or a percentage is a share of `total`,
    rounded to the nearest whole number (halves to even) and at least 1. Anything else, and more
    heads than there are, raises InputError.
    """
    known = read_amount(k)
    if known is None:
        raise InputError(
            f"k = {k} is not a number of heads; write a whole number from 1 (20), "
            "a share between 0 and 1 (0.15) or a percentage (15%)"
        )
    number, is_share = known
    count = max(1, round(number * total)) if is_share else int(number)
    if count > total:
        raise InputError(
            f"k = {k} asks for more heads than the {total} there are; use at most {total} or 100%"
        )
    return count


def default_amount(geometry: Geometry) -> Amount:
    """The usual size of a top set: 20 heads, or 15 % of them in models below 256 heads."""
    return 20 if geometry.total >= 256 else "15%"


def count_words(number: float) -> str:
    """A number of heads as it is shown: `14`, and a mean of numbers with one decimal, `14.5`."""
    number = round(number, 6)
    return f"{number:.0f}" if number == int(number) else f"{number:.1f}"


def read_amount(amount: Amount) -> tuple[Fraction, bool] | None:
    """The number that is written, a percentage as its share, and whether it is a share.

    None for what is neither a whole number from 1 nor a share above 0 and, but for 100%, below 1.
    """
    match = None if isinstance(amount, bool) else _NUMBER.fullmatch(str(amount).strip())
    if match is not None:
        number = Fraction(match["number"])
        if match["percent"] and 0 < number <= 100:
            return number / 100, True
        whole = match["point"] is None and match["exponent"] is None
        if not match["percent"] and whole and number >= 1:
            return number, False
        if not match["percent"] and not whole and 0 < number < 1:
            return number, True
    return None
