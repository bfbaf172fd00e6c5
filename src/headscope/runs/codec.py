"""Results as dataclasses: their fields are the names in JSON, and one codec writes and reads them.

A field is written under its own name. `entry` says what is different: another name, left out where
it is None, or its own fields standing in the object around it, with an ending to their names.
Blocks, which know no codec, have fields whose metadata says `spared`: left out at their default.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from functools import cache
from math import inf
from types import NoneType, UnionType
from typing import (
    Any,
    Literal,
    NamedTuple,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    overload,
)

from headscope.display import Displayed
from headscope.heads.store import RUN_FORMAT
from headscope.runs.plain import plain, plain_key


@dataclass(frozen=True, kw_only=True)
class Record:
    """A part of a result; what JSON says beyond its fields stays with it in `unknown`."""

    unknown: Mapping[str, Any] = field(
        default_factory=dict, repr=False, metadata={"written": False}
    )


@dataclass(frozen=True, kw_only=True)
class Result(Displayed, Record):
    """What every command returns: its format and name, the run's signature and folder, the seconds
    it took, and in sentences the answer and what weakens it.

    A command leaves them to the run protocol, unless it has a signature or an answer of its own;
    the command line tells the seconds of commands without a run. In JSON the fields that only one
    command has stand in `details`, all others (`SHARED`) under their own names.
    """

    format: int = field(default=RUN_FORMAT, repr=False)
    command: str = field(default="", repr=False)
    signature: str = field(default="", repr=False)
    run: str | None = None
    seconds: float = 0.0
    verdict: str = ""
    cautions: tuple[str, ...] = ()
    #: Whether the same command goes on, so that the run stays unfinished.
    pending: bool = field(default=False, repr=False, metadata={"written": False})


#: What results hold under its own name, in this order; what is not here stands in `details`.
SHARED = (
    "format", "command", "signature", "run", "seconds", "model", "baseline_works",
    "baseline_check", "verdict", "next", "cautions", "alpha", "statistics", "controls",
    "conditions", "levels", "tests", "scores",
)  # fmt: skip


class _Entry(NamedTuple):
    """How a field stands in JSON (see `entry`)."""

    name: str = ""
    absent: bool = False
    flat: str | None = None
    names: Mapping[str, str] = {}
    others: bool = False


def entry(
    default: Any = MISSING,
    *,
    name: str = "",
    absent: bool = False,
    flat: str | None = None,
    names: Mapping[str, str] | None = None,
    others: bool = False,
) -> Any:
    """A field of a result that does not just stand under its own name.

    Args:
        default: its value where JSON has none; of `absent` and `flat` fields None.
        name: its name in JSON, such as `as`.
        absent: it is left out where it is None.
        flat: its type is a dataclass whose fields stand in the object around it, each name with
            this ending; where that has none of them it is None, if its type says that it may be.
        names: of `flat`, names in JSON instead of the fields', such as `p_examples`: `p_sentences`;
            the ending follows them.
        others: it is a mapping, the last field, of all that the object holds under other names.
    """
    if others:
        return field(default_factory=dict, metadata={_Entry: _Entry(others=True)})
    if default is MISSING and (absent or flat is not None):
        default = None
    how = _Entry(name, absent, flat, names or {})
    return field(default=default, metadata={_Entry: how})


@overload
def encode(value: Record) -> dict[str, Any]: ...


@overload
def encode(value: Any) -> Any: ...


def encode(value: Any) -> Any:
    """`value` as JSON knows it, dataclasses by their fields; see `plain` for all else."""
    if not is_dataclass(value) or isinstance(value, type):
        if isinstance(value, Mapping):
            return {plain_key(key): encode(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [encode(item) for item in value]
        return plain(value)
    written: dict[str, Any] = {}
    for field_ in fields(value):
        content, how = getattr(value, field_.name), _how(field_)
        if not _written(field_) or (field_.metadata.get("spared") and content == field_.default):
            continue
        if how.flat is not None:
            inside = {} if content is None else encode(content)
            written |= {f"{how.names.get(key, key)}{how.flat}": inside[key] for key in inside}
        elif how.others:
            written |= encode(content)
        elif not (how.absent and content is None):
            written[how.name or field_.name] = encode(content)
    if isinstance(value, Record):
        written |= encode(value.unknown)
    if isinstance(value, Result):
        shared = {name: written.pop(name) for name in SHARED if name in written}
        details = written.pop("details", None) or {}
        return {**shared, "details": {**written, **details}}
    return written


def _written(field_: Field[Any]) -> bool:
    return bool(field_.metadata.get("written", True))


def _how(field_: Field[Any]) -> _Entry:
    found: _Entry = field_.metadata.get(_Entry, _Entry())
    return found


_PLAIN: dict[Any, tuple[str, tuple[type, ...]]] = {
    str: ("a text", (str,)),
    int: ("a whole number", (int,)),
    float: ("a number", (int, float)),
    bool: ("true or false", (bool,)),
}


def decode(kind: Any, value: Any, where: str = "result") -> Any:
    """The JSON `value` as `kind`: a dataclass, or what the fields of one may be.

    Other names in an object than those of the fields are kept by a `Record`, else ignored. A field
    that is absent, or null where that is no value of it, takes its default. Of several dataclasses
    the one is made whose `kind` stands in the object, without kinds the one with most of its names
    there. Whole numbers stay whole where a float is expected.

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
        return _one_of([choice for choice in inside if choice is not NoneType], value, where)
    if origin is Literal:
        return _need(value in inside, value, where, f"one of {', '.join(map(str, inside))}")
    if origin is tuple:
        _need(isinstance(value, list), value, where, "a list")
        kinds = inside if inside[-1] is not ... else inside[:1] * len(value)
        _need(len(kinds) == len(value), value, where, f"a list of {len(kinds)}")
        return tuple(
            decode(hint, item, f"{where}[{at}]")
            for at, (hint, item) in enumerate(zip(kinds, value, strict=True))
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
    if issubclass(kind, Result):
        value = _without_details(kind, value, where)
    given: dict[str, Any] = {}
    known = {field_.name for field_ in fields(kind) if not field_.init}
    for field_, hint in _fields(kind):
        how = _how(field_)
        name = how.name or field_.name
        place = f"{where}.{name}"
        if not _written(field_):
            continue
        if how.others:
            rest = {key: item for key, item in value.items() if key not in known}
            given[field_.name] = decode(hint, rest, where)
            known |= rest.keys()
            continue
        if how.flat is not None:
            inner = next(inside for inside in (*get_args(hint), hint) if is_dataclass(inside))
            inside = {key: f"{how.names.get(key, key)}{how.flat}" for key in _names(inner)}
            known |= set(inside.values())
            around = {key: value[outer] for key, outer in inside.items() if outer in value}
            if around or not _may_be_none(hint):
                given[field_.name] = decode(inner, around, where)
            continue
        known.add(name)
        stands = name in value and (value[name] is not None or _may_be_none(hint))
        if not stands and (field_.default, field_.default_factory) != (MISSING, MISSING):
            continue
        if name not in value:
            raise KeyError(place)
        given[field_.name] = decode(hint, value[name], place)
    if issubclass(kind, Record):
        given["unknown"] = {key: content for key, content in value.items() if key not in known}
    try:
        return kind(**given)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error


def _without_details(kind: Any, value: dict[str, Any], where: str) -> dict[str, Any]:
    """The object of a result with what is in `details` beside it, where its own fields are looked
    for; `details` keeps what a field of that name has, or what nothing else takes."""
    details = value.get("details", {})
    _need(isinstance(details, dict), details, f"{where}.details", "an object")
    inside = next((hint for known, hint in _fields(kind) if known.name == "details"), None)
    if inside is None:
        return {**details, **{name: value[name] for name in value if name != "details"}}
    own, inner = _names(kind), _names(inside) if is_dataclass(inside) else set()
    kept = {name: details[name] for name in details if name in inner or name not in own}
    return {**{name: details[name] for name in details if name in own}, **value, "details": kept}


def _names(kind: Any) -> set[str]:
    """The names in JSON of the fields of a dataclass, of flat ones those of their own."""
    found = set[str]()
    for field_, hint in _fields(kind):
        how = _how(field_)
        if not _written(field_) or how.others:
            continue
        if how.flat is None:
            found.add(how.name or field_.name)
        else:
            inner = next(inside for inside in (*get_args(hint), hint) if is_dataclass(inside))
            found |= {f"{how.names.get(key, key)}{how.flat}" for key in _names(inner)}
    return found


def _may_be_none(hint: Any) -> bool:
    return hint is Any or NoneType in get_args(hint)


@cache
def _fields(kind: Any) -> list[tuple[Field[Any], Any]]:
    hints = get_type_hints(kind)
    return [(field_, hints[field_.name]) for field_ in fields(kind) if field_.init]


def _one_of(kinds: list[Any], value: Any, where: str) -> Any:
    """The value as the first type that it fits; of dataclasses as the one of its `kind`.

    Of dataclasses without a kind as the one with most of its names.
    """
    if len(kinds) > 1 and all(map(is_dataclass, kinds)):
        _need(isinstance(value, dict), value, where, "an object")
        if not all(hasattr(kind, "kind") for kind in kinds):
            details = value.get("details")
            given = {*value, *(details if isinstance(details, dict) else ())}
            return decode(max(kinds, key=lambda kind: len(_names(kind) & given)), value, where)
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
