"""Strict JSON from the values that a run holds, and content hashes of files and folders."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import fields, is_dataclass
from enum import Enum
from os import PathLike
from pathlib import Path, PurePath
from typing import Any

import numpy as np

from headscope.errors import InputError, refuse_pipes

#: Types whose values JSON knows as they are.
_READY = {int, str, bool, type(None)}


def plain(value: Any) -> Any:
    """`value` as JSON knows it: object, array, string, number, true, false or null.

    Dataclasses, but for fields that are not written, and mappings become objects, sequences arrays,
    sets sorted arrays, numpy numbers and arrays their Python values, paths and enumerations
    strings; NaN and infinity, which JSON lacks, become null. TypeError for anything else: nothing
    is written by its `repr`.
    """
    if type(value) in _READY:  # most of what there is
        return value
    match value:
        case Enum():
            return plain(value.value)
        case str():
            return value
        case np.generic() | np.ndarray():
            return plain(value.tolist())
        case int():
            return value
        case float():
            return value if math.isfinite(value) else None
        case PurePath():
            return str(value)
        case Mapping():
            return {plain_key(key): plain(item) for key, item in value.items()}
        case AbstractSet():
            return sorted((plain(item) for item in value), key=dump_json)
        case list() | tuple():
            return [plain(item) for item in value]
    if is_dataclass(value) and not isinstance(value, type):
        written = [field_.name for field_ in fields(value) if field_.metadata.get("written", True)]
        return {name: plain(getattr(value, name)) for name in written}
    raise TypeError(f"{type(value).__name__} cannot be written as JSON: {value!r}")


def dump_json(value: Any, indent: int | None = None) -> str:
    """`plain(value)` as JSON text, numbers unrounded, without a line end."""
    return json.dumps(plain(value), indent=indent, ensure_ascii=False, allow_nan=False)


def dump_jsonl(rows: Iterable[Any]) -> str:
    """One JSON text a line."""
    return "".join(f"{dump_json(row)}\n" for row in rows)


def plain_key(key: Any) -> str:
    """A key of a mapping as JSON has it."""
    if isinstance(key, str) and not isinstance(key, Enum):
        return key
    if isinstance(key, (int, float, Enum, PurePath)) and not isinstance(key, bool):
        return str(plain(key))
    raise TypeError(f"{type(key).__name__} cannot be a name in JSON: {key!r}")


def file_digest(path: str | PathLike[str]) -> str:
    """The SHA-256 of a file's content, in hexadecimal."""
    refuse_pipes(path)
    try:
        with Path(path).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); name a file") from error


def folder_digest(path: str | PathLike[str], pattern: str = "**/*") -> str:
    """The SHA-256 over the names and contents of a folder's files that match `pattern`.

    Files and folders whose name begins with a dot are left out; neither the folder's own place nor
    the order in which its files are listed matters.
    """
    root = Path(path)
    if not root.is_dir():
        raise InputError(f"{path}: is not a folder")
    names = sorted(
        file.relative_to(root).as_posix()
        for file in root.glob(pattern)
        if file.is_file() and not any(p.startswith(".") for p in file.relative_to(root).parts)
    )
    total = hashlib.sha256()
    for name in names:
        total.update(f"{file_digest(root / name)}  {name}\n".encode())
    return total.hexdigest()
