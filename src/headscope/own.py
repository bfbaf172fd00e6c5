"""Functions of the user's own, and what identifies them in a run's signature.

A run is found again by what it computes, so a function counts with its code: its instructions and
constants, its defaults, the values it closes over, and the functions and modules that it names,
those of the user's own in the same way, those of installed packages by their version. What a
function reads while it runs, such as a file or the time, is not seen: it must depend on its
arguments alone. A value that cannot be read so makes every call a run of its own.
"""

from __future__ import annotations

import builtins
import hashlib
import pickle
import sys
import sysconfig
import uuid
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, Literal

from headscope.errors import Caution, InputError
from headscope.estimates import UNWRITTEN
from headscope.settings import UNSIGNED

_INSTALLED = [Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib", "platlib")]
_PLAIN = (type(None), bool, int, float, complex, str, bytes)
#: What `pickle` raises for what it cannot write; bytes are made for a digest and never read.
_NO_PICKLE = (
    pickle.PicklingError,  # such as a class that is not found under its name
    TypeError,  # an open file, a lock
    AttributeError,  # a class inside a function
    NotImplementedError,  # what says itself that it has no state, such as some tensors
    RecursionError,  # what is nested too deeply
)


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


@dataclass(frozen=True)
class OwnMeasure:
    """A measure of texts: a function of outputs and references that gives a number for each."""

    function: OwnFunction
    better: Literal["higher", "lower"] = "higher"

    @classmethod
    def of(cls, function: Callable[..., Any]) -> OwnMeasure:
        """A measure by the function's name; less is better where its `better` says `lower`."""
        better: Any = getattr(function, "better", "higher")
        if better not in ("higher", "lower"):
            raise InputError(f"better is {better!r} of a measure; it is one of higher, lower")
        own = OwnFunction.of(function)
        if not own.name.isidentifier():
            raise InputError(f"a measure is called by its name, not {own.name}; use def")
        return cls(own, better)

    @property
    def name(self) -> str:
        """What the measure is called in results."""
        return self.function.name


def digest_of(value: Any) -> str:
    """SHA-256 (hexadecimal) of a function or a value, by what it does and holds."""
    total = hashlib.sha256()
    for part in _parts(value, {}):
        total.update(f"{len(part)}:".encode() + part)
    return total.hexdigest()


def _parts(value: Any, seen: dict[int, Any]) -> Iterator[bytes]:
    """What identifies a value; `seen` are those that came before, by their ids."""
    if isinstance(value, _PLAIN):
        yield f"{type(value).__name__} {value!r}".encode("utf-8", "backslashreplace")
        return
    if id(value) in seen:
        yield f"again {[*seen].index(id(value))}".encode()
        return
    seen[id(value)] = value
    kind = type(value)
    yield f"{kind.__module__}.{kind.__qualname__}".encode()
    inside: Iterable[Any]
    if isinstance(value, FunctionType):
        if (name := _installed(value.__module__)) is not None:
            yield f"{name} {value.__qualname__}".encode()
            return
        inside = [value.__code__, value.__defaults__, value.__kwdefaults__, *_named(value)]
        inside = [*inside, *(_content(cell) for cell in value.__closure__ or ())]
    elif isinstance(value, CodeType):
        inside = [value.co_code, value.co_names, value.co_consts]
    elif isinstance(value, MethodType):
        inside = [value.__func__, value.__self__]
    elif isinstance(value, BuiltinFunctionType):
        owner = value.__self__
        inside = [value.__qualname__, None if isinstance(owner, ModuleType) else owner]
    elif isinstance(value, partial):
        inside = [value.func, value.args, value.keywords]
    elif isinstance(value, ModuleType):
        inside = [value.__name__, *_of_module(value)]
    elif isinstance(value, type):
        inside = [value.__module__, value.__qualname__, _installed(value.__module__)]
        if inside[-1] is None:
            members = [vars(value)[name] for name in sorted(vars(value))]
            methods = [getattr(each, "__func__", getattr(each, "fget", each)) for each in members]
            own = [each for each in methods if isinstance(each, (FunctionType, *_PLAIN))]
            inside = [*inside, *value.__bases__, *own]
    elif kind in (list, tuple):
        inside = value
    elif kind in (set, frozenset):
        inside = sorted(map(digest_of, value))
    elif kind is dict:
        inside = [part for entry in value.items() for part in entry]
    else:
        inside = [kind, _pickled(value)]
    for each in inside:
        yield from _parts(each, seen)
    yield b"end"


def _named(function: FunctionType) -> Iterator[Any]:
    """The globals that a function names, those in functions inside it too."""
    names, codes = set[str](), [function.__code__]
    while codes:
        code = codes.pop()
        names.update(code.co_names)
        codes += [each for each in code.co_consts if isinstance(each, CodeType)]
    for name in sorted(names):
        if name in function.__globals__:
            yield name
            yield function.__globals__[name]


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
    file = getattr(sys.modules.get(top), "__file__", None)
    if top == builtins.__name__ or top in sys.builtin_module_names:
        return top
    if top != "headscope" and not any(file and Path(file).is_relative_to(p) for p in _INSTALLED):
        return None
    try:
        return f"{top} {version(top)}"
    except PackageNotFoundError:  # of the standard library, or under another name
        return f"{top} {getattr(sys.modules[top], '__version__', sys.version)}"


def _of_module(module: ModuleType) -> Iterator[Any]:
    """The version of an installed module; of one's own the file, and the own modules it uses."""
    installed, file = _installed(module.__name__), getattr(module, "__file__", None)
    yield installed
    if installed is None and file is not None:
        yield Path(file).read_bytes()
        names = {getattr(value, "__module__", None) for value in [*vars(module).values()]}
        used = [value for value in [*vars(module).values()] if isinstance(value, ModuleType)]
        used += [
            sys.modules[name] for name in names if isinstance(name, str) and name in sys.modules
        ]
        yield from sorted(used, key=lambda each: each.__name__)


def _pickled(value: Any) -> bytes:
    """The value as bytes; where it has none, or is a model, bytes that are never the same."""
    try:
        if not hasattr(value, "state_dict"):
            return pickle.dumps(value, protocol=4)
    except _NO_PICKLE:
        pass
    warnings.warn(
        Caution(
            f"a function uses a {type(value).__name__}, whose content cannot be told from "
            "another's, so a run with it is not found again"
        ),
        stacklevel=2,
    )
    return uuid.uuid4().bytes
