"""Functions of the user's own, and what identifies them in a run's signature.

A run is found again by what it computes, so a function counts with its code: its instructions and
constants, its defaults, the values it closes over, and the functions and modules that it names or
imports, those of the user's own in the same way, as they are in memory, those of installed packages
by their version. A class counts with all of its members, an object with what `pickle` would write
of it, and what stands behind a wrapper (`lru_cache`, `partial`, `cached_property`, …) with the
wrapper. What a function reads while it runs, such as a file or the time, is not seen: it must
depend on its arguments alone. A value that cannot be read so makes every call a run of its own, and
so does a function that reads by names it makes (`eval`, `exec`, `globals`, …).
"""

from __future__ import annotations

import builtins
import copyreg
import hashlib
import re
import sys
import sysconfig
import uuid
import warnings
from abc import ABC
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from dis import get_instructions
from functools import cached_property, lru_cache, partial, singledispatch
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from inspect import signature
from pathlib import Path
from types import (
    BuiltinFunctionType,
    CodeType,
    FunctionType,
    GetSetDescriptorType,
    MappingProxyType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
)
from typing import Any, Literal, cast
from weakref import WeakKeyDictionary

from headscope.errors import InputError, caution
from headscope.estimates import UNWRITTEN
from headscope.settings import UNSIGNED

_INSTALLED = [Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib", "platlib")]
_PLAIN = (type(None), bool, int, float, complex, str, bytes)
#: Values of which equal ones are the same, whether they are one object or two.
_VALUES = (tuple, frozenset, CodeType)
#: What code does and how it is called; not where it stands.
_CODE = (
    "co_code",
    "co_consts",
    "co_names",
    "co_varnames",
    "co_freevars",
    "co_cellvars",
    "co_argcount",
    "co_posonlyargcount",
    "co_kwonlyargcount",
    "co_flags",
    "co_exceptiontable",
)
#: What reads a global or a built-in name; other names in a code are attributes.
_LOADS = ("LOAD_GLOBAL", "LOAD_NAME")
#: Members that every class has, or that say where it stands.
_NO_MEMBERS = {
    "__dict__",
    "__weakref__",
    "__slotnames__",  # which `copyreg` keeps once an object of the class was read
    "__module__",
    "__qualname__",
    "__firstlineno__",
    "__static_attributes__",
}
#: What reads by names that are made while a function runs, so that nobody can say what.
_BY_NAME = (eval, exec, globals, __import__, import_module)
#: What is set of a class unless it is part of the interpreter or of a compiled package.
_MADE_BY_CODE = 1 << 9
#: The code of the functions that `singledispatch` makes, and what they close over that comes and
#: goes with the types that were asked for.
_DISPATCHING = {each for each in singledispatch.__code__.co_consts if isinstance(each, CodeType)}
_DISPATCHED = {"cache_token", "dispatch_cache"}
#: The type of functions that `lru_cache` makes, and that of what all abstract classes hold.
_CACHED = type(lru_cache(abs))
_ABSTRACT = type(vars(ABC)["_abc_impl"])


@dataclass(frozen=True)
class OwnFunction:
    """A function of the user's; two are equal if their names and digests are."""

    name: str
    digest: str
    function: Callable[..., Any] = field(
        compare=False, repr=False, metadata={**UNSIGNED, **UNWRITTEN}
    )

    @classmethod
    def of(cls, function: Callable[..., Any]) -> OwnFunction:
        """The function with its name and its digest."""
        inner: Any = function
        while isinstance(inner, partial):
            inner = inner.func
        name = getattr(inner, "__name__", type(inner).__name__)
        return cls(name, digest_of(function), function)

    def tell_change(self) -> None:
        """Warn where the function has changed what it holds since its digest was taken."""
        with warnings.catch_warnings(record=True) as untold:  # which was said before
            warnings.simplefilter("always")
            now = digest_of(self.function)
        if now != self.digest and not untold:
            caution(
                f"{self.name} changes what it holds or names when it is called, so a run with "
                "it is not found again; keep that elsewhere, as functools.cache does"
            )


@dataclass(frozen=True)
class OwnMeasure:
    """A measure of texts: a function of outputs and references that gives a number for each."""

    function: OwnFunction
    better: Literal["higher", "lower"] = "higher"

    @classmethod
    def of(cls, function: Callable[..., Any]) -> OwnMeasure:
        """A measure by the function's name, and of a lambda also by its code; less is better where
        its `better` says `lower`."""
        better: Any = getattr(function, "better", "higher")
        if better not in ("higher", "lower"):
            raise InputError(f"better is {better!r} of a measure; it is one of higher, lower")
        own = OwnFunction.of(function)
        try:
            signature(function).bind([], [])
        except TypeError as error:
            raise InputError(
                f"the measure {own.name} cannot be given outputs and references ({error}); "
                "let it take these two lists"
            ) from None
        except ValueError:  # of a function in C, whose arguments nobody knows
            pass
        if not own.name.isidentifier():  # of a lambda
            name = re.sub(r"\W", "", own.name)
            own = replace(own, name=f"{name}_{own.digest[:8]}")
        return cls(own, better)

    @property
    def name(self) -> str:
        """What the measure is called in results."""
        return self.function.name


def digest_of(value: Any) -> str:
    """SHA-256 (hexadecimal) of a function or a value, by what it does and holds."""
    total, seen = hashlib.sha256(), dict[int, tuple[int, Any]]()
    waiting: list[Iterator[Any]] = [iter([value])]
    while waiting:  # no recursion, since values may lie deep in one another
        for each in waiting[-1]:
            name, inside = _read(each, seen)
            total.update(f"{len(name)}:".encode() + name)
            if inside is not None:
                waiting.append(iter(inside))
                break
        else:
            waiting.pop()
            total.update(b"3:end")
    return total.hexdigest()


def _read(value: Any, seen: dict[int, tuple[int, Any]]) -> tuple[bytes, Iterable[Any] | None]:
    """What identifies a value: bytes, and further values; `seen` are numbers of those before."""
    kind = type(value)
    if kind in _PLAIN:
        text = hex(value) if kind is int else repr(value)
        return f"{kind.__name__} {text}".encode("utf-8", "backslashreplace"), None
    if kind not in _VALUES:  # whether equal ones are one object is up to the compiler
        if id(value) in seen:
            return f"again {seen[id(value)][0]}".encode(), None
        seen[id(value)] = len(seen), value
    return f"{kind.__module__}.{kind.__qualname__}".encode(), _inside(value)


def _inside(value: Any) -> Iterable[Any]:
    """The values that make up one that is not plain."""
    kind = type(value)
    if any(value is each for each in _BY_NAME):
        return _untold(f"{value.__name__}, and what it reads by that cannot be told")
    if isinstance(value, FunctionType):
        return _of_function(value)
    if isinstance(value, CodeType):
        return [getattr(value, name) for name in _CODE]
    if isinstance(value, MethodType) and value.__func__ is WeakKeyDictionary.clear:
        return [kind]  # of the cache of `singledispatch`
    if isinstance(value, MethodType):
        return [value.__func__, value.__self__]
    if isinstance(value, BuiltinFunctionType):
        return [value.__qualname__, value.__self__]
    if isinstance(value, partial):
        return [value.func, value.args, value.keywords, vars(value)]
    if isinstance(value, _CACHED):
        return [value.__wrapped__, value.cache_parameters(), vars(value)]
    if isinstance(value, cached_property):  # which holds a lock, too
        return [kind, value.func, value.attrname]
    if isinstance(value, property):
        return [kind, value.fget, value.fset, value.fdel]
    if isinstance(value, _ABSTRACT):  # which classes count as one, asked so far
        return []
    if isinstance(value, GetSetDescriptorType | MemberDescriptorType):
        return [value.__name__]
    if isinstance(value, staticmethod | classmethod):
        return [kind, value.__func__, vars(value)]
    if isinstance(value, ModuleType):
        return [value.__name__, *_of_module(value)]
    if isinstance(value, type):
        return _of_class(value)
    if kind in (list, tuple):
        return cast(Iterable[Any], value)
    if kind in (set, frozenset):
        return sorted(map(digest_of, value))
    if kind in (dict, MappingProxyType):
        return [part for entry in value.items() for part in entry]
    return _reduced(value)


def _of_function(function: FunctionType) -> list[Any]:
    """A function's code, what it holds and names; of an installed one its place instead of these.

    A decorator may give its function the name of another one, so the name alone says nothing.
    """
    held = [function.__defaults__, function.__kwdefaults__, vars(function)]
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    if function.__code__ in _DISPATCHING:
        cells = {name: cell for name, cell in cells.items() if name not in _DISPATCHED}
    around = [_content(cell) for cell in cells.values()]
    place = _place(function, function.__qualname__)
    if place is not None and _installed(function.__globals__.get("__name__")) is not None:
        return [place, *around]
    return [function.__code__, *held, *_named(function), *around]


def _of_class(own: type) -> list[Any]:
    """A class's bases and all of its members; of an installed one its place."""
    place = _place(own, own.__qualname__)
    if place is not None or not own.__flags__ & _MADE_BY_CODE:
        return [place, _installed(own.__module__), own.__module__, own.__qualname__]
    members = {name: each for name, each in vars(own).items() if name not in _NO_MEMBERS}
    parts = [part for name in sorted(members) for part in (name, members[name])]
    return [own.__module__, own.__qualname__, type(own), *own.__bases__, *parts]


def _place(value: Any, name: str) -> str | None:
    """Package, version and name of what an installed package has under its own name."""
    module = getattr(value, "__module__", None)
    installed = _installed(module)
    if installed is None:
        return None
    found: Any = sys.modules.get(str(module))
    for part in name.split("."):
        found = getattr(found, part, None)
    return f"{installed} {module} {name}" if found is value else None


def _named(function: FunctionType) -> Iterator[Any]:
    """The globals that a function names, those in functions inside it too, the modules that it
    imports, and what it names of modules of the user's own, as they are in memory."""
    names, codes, space = set[str](), [function.__code__], function.__globals__
    modules, by_name = dict[str, Any](), {each.__name__: each for each in _BY_NAME}
    built_in = dict[str, Any]()
    while codes:
        code = codes.pop()
        names.update(code.co_names)
        modules |= _imported(code, space)
        loaded = {each.argval for each in get_instructions(code) if each.opname in _LOADS}
        built_in |= {name: by_name[name] for name in loaded & {*by_name} if hasattr(builtins, name)}
        codes += [each for each in code.co_consts if isinstance(each, CodeType)]
    found = built_in | {name: space[name] for name in names if name in space} | modules
    looked_at = set[int]()
    while found:
        further = dict[str, Any]()
        for place in sorted(found):
            value = found[place]
            yield place
            yield value
            if isinstance(value, ModuleType) and id(value) not in looked_at:
                looked_at.add(id(value))
                own, held = _installed(value.__name__) is None, vars(value)
                further |= {
                    f"{place}.{name}": held[name]
                    for name in names
                    if name in held and (own or any(held[name] is each for each in _BY_NAME))
                }
        found = further


def _imported(code: CodeType, space: Mapping[str, Any]) -> dict[str, Any]:
    """The modules that a function imports when it is called, by name; None where there is none."""
    found, before = dict[str, Any](), list[Any]()
    for each in get_instructions(code):
        if each.opname == "IMPORT_NAME":
            level = next((value for value in before[-2:] if type(value) is int), 0)
            name = "." * level + str(each.argval)
            if not level and (installed := _installed(name)) is not None:
                # The same before and after it is loaded, as a call of the function does.
                found[f"import {name}"] = installed
                for by_name in _BY_NAME if name in (builtins.__name__, "importlib") else ():
                    if by_name.__name__ in code.co_names:
                        found[f"import {name} {by_name.__name__}"] = by_name
                continue
            try:
                found[f"import {name}"] = import_module(name, space.get("__package__"))
            except Exception:  # as it will when the function is called, which may expect it
                found[f"import {name}"] = None
        before.append(each.argval)
    return found


def _content(cell: Any) -> Any:
    """What a function closes over; None where it has no value yet."""
    try:
        return cell.cell_contents
    except ValueError:
        return None


def _installed(module: str | None) -> str | None:
    """An installed package with its version; None for a module of the user's own."""
    top = str(module).partition(".")[0]
    if top == "__main__":  # which may be a program of a package that runs the user's code
        return None
    if top not in sys.modules:
        file = getattr(find_spec(top) if top.isidentifier() else None, "origin", None)
    else:
        file = getattr(sys.modules[top], "__file__", None)
    if top == builtins.__name__ or top in sys.builtin_module_names:
        return top
    if top != "headscope" and not any(file and Path(file).is_relative_to(p) for p in _INSTALLED):
        return None
    try:
        return f"{top} {version(top)}"
    except PackageNotFoundError:  # of the standard library, or under another name
        return f"{top} {getattr(sys.modules.get(top), '__version__', sys.version)}"


def _of_module(module: ModuleType) -> Iterator[Any]:
    """The version of an installed module; of one's own the file, and the own modules it uses; of
    one without a file its members."""
    installed, file = _installed(module.__name__), getattr(module, "__file__", None)
    yield installed
    if installed is not None:
        return
    if file is None or not Path(file).is_file():
        held = {name: each for name, each in vars(module).items() if not name.startswith("__")}
        yield from (part for name in sorted(held) for part in (name, held[name]))
        return
    yield Path(file).read_bytes()
    names = {getattr(value, "__module__", None) for value in [*vars(module).values()]}
    used = [value for value in [*vars(module).values()] if isinstance(value, ModuleType)]
    used += [sys.modules[name] for name in names if isinstance(name, str) and name in sys.modules]
    yield from sorted(used, key=lambda each: each.__name__)


def _reduce(value: Any) -> Any:
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):  # which would name an address
        numbers: Any = value.detach().cpu().contiguous().flatten()
        return str(value.dtype), tuple(value.shape), bytes(numbers.view(torch.uint8).tolist())
    return value.__reduce_ex__(4)


def _reduced(value: Any) -> list[Any]:
    """What `pickle` would write of an object, as values, so that functions and classes in it count
    with their code; nothing is ever made of it again. Where that says nothing, or for a model,
    bytes that are never the same, with a warning."""
    kind = type(value)
    reduced: Any = None
    if not hasattr(value, "state_dict"):
        with suppress(Exception):  # a stranger's method; what it does not give is told below
            by: Callable[[Any], Any] = copyreg.dispatch_table.get(kind, _reduce)
            reduced = by(value)
    if isinstance(reduced, tuple):
        # Its function, arguments and state; then iterators, over items of lists and of dicts.
        return [kind, *reduced[:3], *(each and list(each) for each in reduced[3:5])]
    if isinstance(reduced, str):  # the name that it has in its module
        if place := _place(value, reduced):
            return [place]
        if kind.__module__ == "typing":  # of annotations, such as a variable for types
            return [reduced]
    return _untold(f"a {kind.__name__}, whose content cannot be told from another's")


def _untold(what: str) -> list[Any]:
    """Bytes that are never the same, with a warning of what a function uses."""
    caution(f"a function uses {what}, so a run with it is not found again")
    return [uuid.uuid4().bytes]
