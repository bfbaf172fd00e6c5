"""Digests of the files and folders that were named as data, for a run's signature."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from headscope.runs import file_digest

__all__ = ["place_digests"]


def place_digests(places: Iterable[str]) -> dict[str, str]:
    """A content hash for each place, given as a path or as `NAME=PATH`.

    A folder's is that of the names and contents of its files; what is no path here, such as a
    dataset of the Hub, stands for itself.
    """
    found = {}
    for place in places:
        path = Path(place)
        if "=" in place and not path.exists():
            path = Path(place.partition("=")[2])
        found[f"data {place}"] = _digest(path, place)
    return found


def _digest(path: Path, place: str) -> str:
    if path.is_file():
        return file_digest(path)
    if not path.is_dir():
        return place
    total = hashlib.sha256()
    for file in sorted(one for one in path.rglob("*") if one.is_file()):
        total.update(f"{file.relative_to(path)}\0{file_digest(file)}\n".encode())
    return total.hexdigest()
