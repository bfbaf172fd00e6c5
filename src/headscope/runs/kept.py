"""What is computed is kept beside the runs, too, for any other run that needs the same.

A unit of work lies there under a digest of all that its numbers follow from: the model,
the packages and the code, the rows of tokens or the prompts, the gates and what replaces removed
heads, and what is measured. So another run that comes to the same unit takes it from there.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from headscope.errors import InputError
from headscope.heads.store import write_bytes
from headscope.runs.plain import dump_json

#: Where numbers are kept if nobody says otherwise, and what says that they are not.
PLACE: Path | None = Path("runs", "kept")
NOWHERE = "none"


@dataclass(frozen=True)
class KeptNumbers:
    """Units of work beside the runs, each a file under the digest of what it follows from.

    Attributes:
        model: the name that entries are listed under.
        about: all that numbers follow from beside what `digest` is given.
        waiting: of a model that may change while it is measured, what is written by `settle` once
            it is known that it did not; None: of any other, each entry is written at once.
    """

    folder: Path
    model: str
    about: Mapping[str, Any]
    waiting: dict[str, Any] | None = None

    def digest(self, part: str, of: Any) -> str:
        """The digest of a unit of a part, of which `of` says all that decides its numbers."""
        return digest({"about": self.about, "code": _code(), "part": part, "of": of})

    def read(self, key: str) -> Any:
        """The numbers of a unit; None where there are none, or others than were written."""
        file = self._file(key)
        try:
            head, _, numbers = file.read_bytes().partition(b"\n")
            header = json.loads(head)
            if (header["key"], header["digest"]) != (key, hashlib.sha256(numbers).hexdigest()):
                return None
            kept = json.loads(numbers)
        except (OSError, ValueError, LookupError, TypeError, RecursionError):
            return None  # what is not there, or is damaged, is computed again
        with suppress(OSError):  # of somebody else; the time only tells what has not been used
            os.utime(file)
        return kept

    def write(self, key: str, numbers: Any) -> None:
        """Keep the numbers of a unit, if they wait, once `settle` is called."""
        if self.waiting is None:
            self._write(key, numbers)
        else:
            self.waiting[key] = numbers

    def settle(self) -> None:
        """Keep what waits."""
        for key, numbers in (self.waiting or {}).items():
            self._write(key, numbers)

    def _write(self, key: str, numbers: Any) -> None:
        """A line that says whose numbers they are, and a line of them."""
        line = dump_json(numbers).encode()
        header = {"key": key, "model": self.model, "digest": hashlib.sha256(line).hexdigest()}
        file = self._file(key)
        file.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(file, dump_json(header).encode() + b"\n" + line)

    def _file(self, key: str) -> Path:
        return self.folder / key[:2] / f"{key}.jsonl"


def kept_numbers(folder: Path) -> Iterator[tuple[Path, str]]:
    """The entries of a folder of `KeptNumbers`, each with the name of its model, or "" where it is
    damaged."""
    for file in sorted(folder.glob("??/*.jsonl")):
        with file.open("rb") as lines:
            try:
                model = str(json.loads(lines.readline())["model"])
            except (ValueError, LookupError, TypeError, RecursionError):
                model = ""
        yield file, model


def place_of_kept(kept: str | None) -> Path | None:
    """The folder that an option names; None: numbers are not kept beside the runs.

    Raises `InputError` for a folder that is named and cannot be written to.
    """
    folder = PLACE if kept is None else None if kept == NOWHERE else Path(kept)
    if folder is None:
        return None
    # It is made when something is kept.
    there = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    writable = there.is_dir() and os.access(there, os.W_OK)
    if not writable and kept is not None:
        raise InputError(
            f"--kept {kept}: is no folder that can be written to; name another, or none"
        )
    return folder if writable else None


def digest(value: Any) -> str:
    """SHA-256 (hexadecimal) of a value as JSON."""
    return hashlib.sha256(dump_json(value).encode()).hexdigest()


@cache
def _code() -> str:
    """A digest of the package's code, which its version alone does not tell."""
    total = hashlib.sha256()
    for file in sorted(Path(__file__).parents[1].rglob("*.py")):
        total.update(file.read_bytes())
    return total.hexdigest()
