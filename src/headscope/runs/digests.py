"""Content hashes of files and folders."""

from __future__ import annotations

import hashlib
from os import PathLike
from pathlib import Path

from headscope.errors import InputError


def file_digest(path: str | PathLike[str]) -> str:
    """The SHA-256 of a file's content, in hexadecimal."""
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
