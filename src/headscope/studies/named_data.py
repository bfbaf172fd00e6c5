"""What people name as data, as a place or as `NAME=PLACE`, and its digests."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from headscope.data.files import files_below
from headscope.runs import file_digest


def data_digests(places: Iterable[str]) -> dict[str, str]:
    """A content hash for each place, given as a path or as `NAME=PATH`.

    A folder's is that of the names and contents of its files; what is no path here, such as a
    dataset of the Hub, stands for itself.

    Raises:
        InputError: for pipes and devices.
    """
    digests = {}
    for place in places:
        named = place.partition("=")[2] if "=" in place and not Path(place).exists() else place
        # without a name it would be the folder that one happens to be in
        digests[f"data {place}"] = _digest(Path(named), place) if named.strip() else place
    return digests


def _digest(path: Path, place: str) -> str:
    if not path.exists():
        return place
    if not path.is_dir():
        return file_digest(path)
    total = hashlib.sha256()
    for file in files_below(path):
        total.update(f"{file.relative_to(path)}\0{file_digest(file)}\n".encode())
    return total.hexdigest()


def split_named(data: Iterable[str]) -> tuple[list[tuple[str, str]], list[str]]:
    """What is written as `NAME=DATA`, with its name, and what is data without one."""
    named, plain = [], []
    for given in data:
        name, equals, place = given.partition("=")
        if equals and "/" not in name and not Path(given).exists():
            named.append((name, place))
        else:
            plain.append(given)
    return named, plain
