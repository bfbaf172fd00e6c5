"""Folders of passing use, which can be told from others and are found again when a process that
was killed has left them."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

#: What the names of such folders begin with, and of files that are written under another name.
PREFIX, UNFINISHED = "headscope-", ".tmp-"
#: A file that the process which made the folder holds a lock on.
_LOCK = "in use"
#: Seconds after which something that nobody holds is left over, and not just being made.
_BEING_MADE = 60.0


@contextmanager
def scratch(kind: str, inside: str | os.PathLike[str] | None = None) -> Iterator[Path]:
    """An empty folder that is gone when the block ends.

    `inside` a folder, by default the system's for temporary files. What is left of it where this
    process is killed is found by `left_over`.
    """
    import fcntl

    made = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{kind}-", dir=inside))
    handle = os.open(made / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        with suppress(OSError):  # a file system without locks, where nothing is found again
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        place = made / "made"
        place.mkdir()
        yield place
    finally:
        shutil.rmtree(made, ignore_errors=True)
        os.close(handle)


def left_over(folders: Iterable[Path]) -> dict[Path, int]:
    """What processes that were killed have left in these folders, not deeper, and its bytes.

    Folders of `scratch` that nobody holds, and files that were not written to their end.
    """
    found: dict[Path, int] = {}
    for folder in folders:
        for place in sorted(folder.glob(f"{PREFIX}*")):
            if place.is_dir() and _is_left(place / _LOCK):
                found[place] = size_of(place)
        for pattern in (f"{UNFINISHED}*", "*.part"):
            for file in sorted(folder.glob(pattern)):
                if file.is_file() and time.time() - file.stat().st_mtime > _BEING_MADE:
                    found[file] = size_of(file)
    return found


def size_of(place: Path) -> int:
    """The bytes of a file, or of all files in a folder."""
    files = place.rglob("*") if place.is_dir() else [place]
    return sum(file.lstat().st_size for file in files if not file.is_dir())


def _is_left(lock: Path) -> bool:
    """Whether a file of locks is there that no process holds."""
    import fcntl

    try:
        if time.time() - lock.stat().st_mtime < _BEING_MADE:
            return False
        handle = os.open(lock, os.O_RDWR)
    except OSError:  # of somebody else, or none of ours
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(handle)
    return True


def sweep(places: Iterable[Path]) -> None:
    """Remove what `left_over` found."""
    for place in places:
        if place.is_dir():
            shutil.rmtree(place, ignore_errors=True)
        else:
            place.unlink(missing_ok=True)
