"""JSON back into the dataclasses that it was written from; `plain` is the other direction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache
from math import inf
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

__all__ = ["decode"]

_PLAIN: dict[Any, tuple[str, tuple[type, ...]]] = {
    str: ("a text", (str,)),
    int: ("a whole number", (int,)),
    float: ("a number", (int, float)),
    bool: ("true or false", (bool,)),
}


def decode(kind: Any, value: Any, where: str = "result") -> Any:
    """The JSON `value` as `kind`: a dataclass, or what the fields of one may be.

    Fields have their names in JSON; other names there are ignored. A field that is absent, or null
    where that is no value of it, takes its default. Of several dataclasses the one is made whose
    `kind` stands in the object. Whole numbers stay whole where a number is asked for.

    Raises:
        KeyError: a field without a default is absent; its place, as `result.rows[0].cells`.
        ValueError: a value does not fit; one sentence that begins with its place.
    """
    origin, inside = get_origin(kind), get_args(kind)
    if kind is Any:
        return value
    if origin in (Union, UnionType):
        if value is None and NoneType in inside:
            return None
        return _one_of([each for each in inside if each is not NoneType], value, where)
    if origin is Literal:
        return _need(value in inside, value, where, f"one of {', '.join(map(str, inside))}")
    if origin is tuple:
        _need(isinstance(value, list), value, where, "a list")
        kinds = inside if inside[-1] is not ... else inside[:1] * len(value)
        _need(len(kinds) == len(value), value, where, f"a list of {len(kinds)}")
        return tuple(
            decode(each, item, f"{where}[{at}]")
            for at, (each, item) in enumerate(zip(kinds, value, strict=True))
        )
    if origin in (dict, Mapping):
        _need(isinstance(value, dict), value, where, "an object")
        return {key: decode(inside[1], item, f"{where}.{key}") for key, item in value.items()}
    if is_dataclass(kind):
        return _dataclass(kind, value, where)
    words, types = _PLAIN[kind]
    fits = isinstance(value, types) and isinstance(value, bool) == (kind is bool)
    return _need(fits and (kind is not float or abs(value) < inf), value, where, words)


def _dataclass(kind: Any, value: Any, where: str) -> Any:
    _need(isinstance(value, dict), value, where, "an object")
    given = {}
    for field, hint in _fields(kind):
        name, place = field.name, f"{where}.{field.name}"
        stands = name in value and (value[name] is not None or NoneType in get_args(hint))
        if not stands and (field.default, field.default_factory) != (MISSING, MISSING):
            continue
        if name not in value:
            raise KeyError(place)
        given[name] = decode(hint, value[name], place)
    try:
        return kind(**given)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error


@cache
def _fields(kind: Any) -> list[tuple[Field[Any], Any]]:
    """The fields that a dataclass is made of, with their types."""
    hints = get_type_hints(kind)
    return [(field, hints[field.name]) for field in fields(kind) if field.init]


def _one_of(kinds: list[Any], value: Any, where: str) -> Any:
    """The value as the first type that it fits; of dataclasses as the one of its `kind`."""
    if len(kinds) > 1 and all(map(is_dataclass, kinds)):
        _need(isinstance(value, dict), value, where, "an object")
        name, by_name = value.get("kind"), {kind.kind: kind for kind in kinds}
        _need(name in list(by_name), name, f"{where}.kind", f"one of {', '.join(by_name)}")
        return decode(by_name[name], value, where)
    errors = []
    for kind in kinds:
        try:
            return decode(kind, value, where)
        except ValueError as error:
            errors.append(error)
    raise errors[-1]


def _need(fits: bool, value: Any, where: str, wanted: str) -> Any:
    if not fits:
        raise ValueError(f"{where}: {str(value)[:40]!r} is not {wanted}")
    return value
