"""Parallel sentences from a FLORES folder: one file a language, one sentence a line.

Files are named as in FLORES-101 (``eng.dev``, ``deu.devtest``) or FLORES-200 (``eng_Latn.dev``),
in the folder itself or in a folder named after the split.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from headscope.data.files import drain, open_bytes, text_lines
from headscope.data.languages import Direction, is_known, language_name, language_tag
from headscope.errors import InputError

_FILE = re.compile(r"([a-z]{2,3}(?:[-_][A-Za-z0-9]+)*)\.(dev|devtest|test)")


@dataclass(frozen=True)
class FloresText:
    """Aligned sentences as (line, source, target); ``digest`` is the SHA-256 of both files'."""

    sentences: tuple[tuple[int, str, str], ...]
    digest: str


def is_flores(folder: Path) -> bool:
    """Whether a folder holds files in FLORES naming."""
    places = [folder, *(folder / split for split in ("dev", "devtest", "test"))]
    return any(
        _FILE.fullmatch(path.name) and is_known(path.name.split(".")[0])
        for place in places
        if place.is_dir()
        for path in place.iterdir()
    )


def directions_in(folder: Path, directions: Iterable[Direction], split: str) -> list[Direction]:
    """Those of some directions for whose languages the folder has files of a split.

    Raises ``InputError`` if it has no files of the split at all.
    """
    files = _files(folder, split)
    return [
        one for one in directions if all(_fitting(files, code) for code in (one.source, one.target))
    ]


def read_flores(
    folder: Path, direction: Direction, split: str = "dev", limit: int | None = None
) -> FloresText:
    """The sentences of two languages of one split.

    Raises ``InputError`` if a language or the split is not there, if several files fit a code, or
    if the files differ in length.
    """
    files = _files(folder, split)
    paths = [_choose(folder, files, code, split) for code in (direction.source, direction.target)]
    read = [_sentences(path) for path in paths]
    (first, first_digest), (second, second_digest) = read
    if len(first) != len(second):
        raise InputError(
            f"{paths[0]} has {len(first)} lines but {paths[1]} has {len(second)}; line n of one "
            "must translate line n of the other, so give files of equal length"
        )
    rows = [(line, a, b) for (line, a), (_, b) in zip(first, second, strict=True)]
    digest = hashlib.sha256(f"{first_digest} {second_digest}".encode()).hexdigest()
    return FloresText(tuple(rows[:limit]), digest)


def _files(folder: Path, split: str) -> dict[str, Path]:
    """The files of a split by the code they are named with."""
    found: dict[str, Path] = {}
    splits = set()
    for place in (folder, *sorted(path for path in folder.iterdir() if path.is_dir())):
        for path in sorted(place.iterdir()):
            match = _FILE.fullmatch(path.name)
            if match and is_known(match[1]):
                splits.add(match[2])
                if match[2] == split:
                    found.setdefault(match[1], path)
    if not found:
        raise InputError(
            f"{folder} has no files of the split {split!r}; found: {', '.join(sorted(splits))}; "
            "name one with --split"
        )
    return found


def _choose(folder: Path, files: dict[str, Path], code: str, split: str) -> Path:
    """The file of a language, however either side spells its code."""
    if code in files:
        return files[code]
    fitting = _fitting(files, code)
    in_script = [name for name in fitting if language_tag(name).script == language_tag(code).script]
    if len(in_script) == 1:
        return files[in_script[0]]
    if fitting:
        raise InputError(
            f"{folder} has {', '.join(sorted(fitting))} for {code} ({language_name(code)}); name "
            "one of them by its full code"
        )
    raise InputError(
        f"{folder} has no file for {code} ({language_name(code)}) in the split {split!r}; found: "
        f"{', '.join(sorted(files))}"
    )


def _fitting(files: dict[str, Path], code: str) -> list[str]:
    """The names of a language's files: its own, else those that stand for its macrolanguage."""
    if code in files:
        return [code]
    wanted = language_tag(code)
    tags = {name: language_tag(name) for name in files}
    own = [name for name, tag in tags.items() if tag.language == wanted.language]
    return own or [  # such as arb for ar
        name
        for name, tag in tags.items()
        if wanted.language == tag.macro or wanted.macro == tag.language
    ]


def _sentences(path: Path) -> tuple[list[tuple[int, str]], str]:
    hasher = hashlib.sha256()
    with open_bytes(path) as handle:
        lines = list(text_lines(handle, path, hasher))
        drain(handle, hasher)
    return lines, hasher.hexdigest()
