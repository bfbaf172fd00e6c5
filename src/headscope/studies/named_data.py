"""What people name as data, as a place or as `NAME=PLACE`, and its digests."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from headscope.data.files import files_below
from headscope.data.formats import file_parts
from headscope.data.tables import data_parts
from headscope.errors import OptionalPart, check_parts
from headscope.runs import file_digest
from headscope.settings import Option, Settings, marked


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


def check_parts_of(settings: Any) -> None:
    """Raise `MissingExtra`, in one sentence, for all that these settings and their data need and
    that is not installed."""
    if isinstance(settings, Settings):
        check_parts((*settings.parts(), *_parts_of_data(settings)))


def _parts_of_data(settings: Settings) -> Iterator[OptionalPart]:
    owner: Any = type(settings)
    for name, (_, mark) in marked(owner).items():
        value = getattr(settings, name)
        if isinstance(value, Settings):
            yield from _parts_of_data(value)
        elif isinstance(mark, Option) and mark.held in ("pairs", "documents", "examples") and value:
            named, plain = split_named([value] if isinstance(value, str) else value)
            # Tasks are called by names that datasets could have.
            parts = file_parts if mark.held == "examples" else data_parts
            for place in (*(place for _, place in named), *plain):
                yield from parts(place)


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
