"""The errors that headscope raises for input it cannot use."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import stat
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

#: What errors of torch say that are of no type of their own: allocators of CPUs, and libraries.
_NO_MEMORY = (
    "DefaultCPUAllocator: ",
    "can't allocate memory",
    "not enough memory",
    "out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
)


#: The longest message: a few lines, however long a name or value is that it repeats.
_LONGEST = 2_000


def bounded(message: str) -> str:
    """A message without the middle of what makes it longer than a few lines."""
    if len(message) <= _LONGEST:
        return message
    begin, end = message[: _LONGEST * 2 // 3], message[-_LONGEST // 4 :]
    left = len(message) - len(begin) - len(end)
    return f"{begin} … ({left:,} characters left out) … {end}"


class Caution(UserWarning):
    """What a result does not show, told while it is made; the command line prints it."""

    def __init__(self, message: str = "") -> None:
        super().__init__(bounded(message))


#: What stands between a warning and the line that it is about: this package, and what calls it,
#: such as the `__init__` of a dataclass.
_BETWEEN = (
    f"{Path(__file__).parent}{os.sep}",
    contextlib.__file__,
    functools.__file__,
    "<frozen ",
    "<string>",
)


def caution(message: str) -> None:
    """Warn (`Caution`) of something, at the line outside this package that asked for it."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_BETWEEN):
        frame = frame.f_back
    seen = frame.f_globals.setdefault("__warningregistry__", {})
    # Not by its level, of which `warnings` leaves out frames of imports.
    where = frame.f_code.co_filename, frame.f_lineno, frame.f_globals.get("__name__"), seen
    warnings.warn_explicit(Caution(message), Caution, *where)


class InputError(ValueError):
    """Input that cannot be used: a file, a flag, a model, an artifact.

    The message is one sentence that names the file, the line (from 1) where there is one, what is
    wrong and how to put it right, without the middle of a very long one. The command line prints
    it and exits with `exit_code`.
    """

    exit_code = 2

    def __init__(self, message: str = "") -> None:
        super().__init__(bounded(message))


@contextmanager
def naming(place: object) -> Iterator[None]:
    """Put the name of a file before the message of an InputError raised inside the block.

    An error that names the file already, or has little to do with it, stays as it is.
    """
    try:
        yield
    except InputError as error:
        if type(error) is not InputError or str(place) in str(error):
            raise
        raise InputError(f"{place}: {error}") from error


@contextmanager
def placed(path: object) -> Iterator[None]:
    """Give an error of a full disk, or of a file's name until it is whole (`.tmp-`), this name."""
    try:
        yield
    except OSError as error:
        if error.errno is None or ".tmp-" not in str(error.filename or ".tmp-"):
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error


def refuse_pipes(path: str | os.PathLike[str]) -> None:
    """InputError for a pipe, a socket or a device: opening it may wait for ever, and it gives what
    it has once. Of a name that leads to nothing, the one who opens it tells."""
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):
        return
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise InputError(
            f"{path} is a pipe or a device, and is read more than once; write what it gives to a "
            "file, and name that"
        )


def check_unicode(text: str, what: str) -> None:
    """InputError, naming `what` holds it, for a text with half of a surrogate pair."""
    if not text.isascii() and any("\ud800" <= sign <= "\udfff" for sign in text):
        raise InputError(
            f"{what} holds half of a surrogate pair, which is no character; correct the text"
        )


def nearest(name: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """`did you mean …? ` with the known name that is most like this one, else nothing."""
    close = get_close_matches(name, list(known), 1, cutoff)
    return f"did you mean {close[0]}? " if close else ""


def first_line(error: BaseException) -> str:
    """The first line of another library's error, to stand in a sentence; its type if it is bare."""
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__


def clause(error: BaseException) -> str:
    """What an error of another program says, in one short line of characters that print; its type
    too where the words alone would not say what happened."""
    lines = str(error).strip().splitlines() or [""]
    # Behind a colon, what is wrong comes later.
    said = " ".join(lines) if lines[0].rstrip().endswith(":") else lines[0]
    said = "".join(char if char.isprintable() else " " for char in said)[:200].rstrip(". ")
    plain = isinstance(error, OSError | ValueError | TypeError | RuntimeError)
    if said and (plain or type(error).__module__ != "builtins") and not _panic(error):
        return said
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


def _panic(error: BaseException) -> bool:
    """Whether a library in Rust gave up, which is no `Exception`."""
    return type(error).__name__ == "PanicException"


def out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory does not suffice, on a GPU, for torch on a CPU, or at all.

    Loads no torch where none is loaded.
    """
    torch = sys.modules.get("torch")
    if isinstance(error, MemoryError) or (
        torch is not None and isinstance(error, torch.OutOfMemoryError)
    ):
        return True
    return isinstance(error, RuntimeError) and any(sign in str(error) for sign in _NO_MEMORY)


@contextmanager
def telling(sentence: Callable[[str], str]) -> Iterator[None]:
    """Raise `InputError` for whatever another program raises over the user's files or model.

    Panics of libraries in Rust are told too; want of memory stays what it is. `sentence` makes the
    message from a few words on what was raised.
    """
    try:
        yield
    except InputError:
        raise
    except BaseException as error:
        if not (isinstance(error, Exception) or _panic(error)) or out_of_memory(error):
            raise
        raise InputError(sentence(clause(error))) from error


class ModelError(InputError):
    """A model cannot be loaded."""


class OptionalPart(NamedTuple):
    """What only one part of headscope needs.

    Attributes:
        purpose: what it is for, such as `reading model.gguf`.
        extra: the extra that installs it.
        packages: those of it, as they are imported.
        note: what is to be known before they are installed.
    """

    purpose: str
    extra: str
    packages: tuple[str, ...]
    note: str = ""

    @property
    def missing(self) -> list[str]:
        """Its packages that are not installed."""
        return [name for name in self.packages if importlib.util.find_spec(name) is None]


class MissingExtra(InputError):
    """Packages that only parts of headscope need are not installed.

    The message carries the line that installs them all; `parts` are what it tells of.
    """

    parts: tuple[OptionalPart, ...] = ()

    @classmethod
    def of(cls, *parts: OptionalPart) -> MissingExtra:
        """The error for these parts, each with the packages of it that are missing."""
        needs = [
            f"{part.purpose} needs {' and '.join(part.missing or part.packages)}{part.note}"
            for part in parts
        ]
        several = len(parts) > 1 or len(parts[0].missing) > 1
        extras = ",".join(sorted({part.extra for part in parts}))
        error = cls(
            f"{', '.join(needs)}, which {'are' if several else 'is'} not installed; install "
            f"{'them' if several else 'it'} with: pip install 'headscope[{extras}]'"
        )
        error.parts = parts
        return error

    @classmethod
    def needed(cls, purpose: str, package: str, extra: str) -> MissingExtra:
        """The error for `purpose`, which needs `package`, installed by the extra named `extra`."""
        return cls.of(OptionalPart(purpose, extra, (package,)))


def check_parts(parts: Iterable[OptionalPart]) -> None:
    """Raise `MissingExtra`, in one sentence, for all of these that are not installed."""
    if missing := [part for part in dict.fromkeys(parts) if part.missing]:
        raise MissingExtra.of(*missing)


def need(module: str, purpose: str, extra: str) -> Any:
    """Import a module, or raise `MissingExtra` with the line that installs it."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        package = module.partition(".")[0]
        if error.name is None or error.name.partition(".")[0] != package:
            raise
        raise MissingExtra.needed(purpose, package, extra) from None
