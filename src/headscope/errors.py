"""The errors that headscope raises for input it cannot use."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any


class Caution(UserWarning):
    """What a result does not show, told while it is made; the command line prints it."""


class InputError(ValueError):
    """Input that cannot be used: a file, a flag, a model, an artifact.

    The message is one sentence that names the file, the line (from 1) where there is one, what is
    wrong and how to put it right. The command line prints it and exits with `exit_code`.
    """

    exit_code = 2


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


def first_line(error: BaseException) -> str:
    """The first line of another library's error, to stand in a sentence; its type if it is bare."""
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__


def clause(error: BaseException) -> str:
    """What an error of a stranger's program says, in one short line of characters that print."""
    lines = str(error).strip().splitlines()
    said = "".join(char if char.isprintable() else " " for char in (lines or [""])[0])[:200]
    said = said.rstrip(". ")
    if said and (isinstance(error, TypeError | ValueError) or not _builtin(error)):
        return said
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


def foreign(error: BaseException) -> bool:
    """Whether an error says that a stranger's program failed; a panic of Rust is no `Exception`."""
    panic = type(error).__module__ == "pyo3_runtime"
    return panic or (isinstance(error, Exception) and not isinstance(error, InputError))


def _builtin(error: BaseException) -> bool:
    return type(error).__module__ == "builtins"


class ModelError(InputError):
    """A model cannot be loaded."""


class MissingExtra(InputError):
    """A package that only one part of headscope needs is not installed.

    The message carries the line that installs it.
    """

    @classmethod
    def needed(cls, purpose: str, package: str, extra: str) -> MissingExtra:
        """The error for `purpose`, which needs `package`, installed by the extra named `extra`."""
        return cls(
            f"{purpose} needs the package {package}, which is not installed; "
            f"install it with: pip install 'headscope[{extra}]'"
        )


def need(module: str, purpose: str, extra: str) -> Any:
    """Import a module, or raise `MissingExtra` with the line that installs it."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        package = module.partition(".")[0]
        if error.name is None or error.name.partition(".")[0] != package:
            raise
        raise MissingExtra.needed(purpose, package, extra) from None
