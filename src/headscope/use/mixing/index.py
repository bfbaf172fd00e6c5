"""What mixing needs to know of every record, in columns on disk that are read block by block."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headscope.errors import InputError
from headscope.heads.store import write_bytes
from headscope.use.mixing.keys import record_keys
from headscope.use.mixing.reading import Fields, RatedFile, RatedRecord, read_records

Progress = Callable[[str, int, int], None]

BLOCK = 1 << 18
"""So many records are read at a time."""
COLUMNS: dict[str, np.dtype[Any]] = {
    "language": np.dtype(np.uint32),
    "score": np.dtype(np.float64),
    "tokens": np.dtype(np.int64),
    "text": np.dtype(np.uint64),
    "record": np.dtype(np.uint64),
    "bytes": np.dtype(np.uint32),
}
KEPT = 1 << 18
"""After so many records it is noted which files are done."""
_STATE = "index.json"
_BUFFER = 1 << 14


@dataclass(frozen=True)
class Block:
    """Records `start` to `start` + n of an index.

    `language` (n,) numbers into the index's languages, `score` (n,) in nats a token, `tokens` (n,),
    `text` and `record` (n,) the keys of `record_keys`, `bytes` (n,) the length of the line.
    """

    start: int
    language: NDArray[np.int64]
    score: NDArray[np.float64]
    tokens: NDArray[np.int64]
    text: NDArray[np.uint64]
    record: NDArray[np.uint64]
    bytes: NDArray[np.int64]

    @property
    def rows(self) -> slice:
        """Where these records stand in an array with one entry a record."""
        return slice(self.start, self.start + len(self.score))


@dataclass(frozen=True)
class Index:
    """The records of some files in order; `rows` says how many each file has.

    `languages` are the codes, sorted by first appearance; `has_tokens` whether records tell them.
    """

    folder: Path
    languages: tuple[str, ...]
    rows: tuple[int, ...]
    has_tokens: bool

    def __len__(self) -> int:
        return sum(self.rows)

    def blocks(self) -> Iterator[Block]:
        """All records, `BLOCK` at a time, read from disk."""
        handles = {name: (self.folder / name).open("rb") for name in COLUMNS}
        try:
            for start in range(0, len(self), BLOCK):
                count = min(BLOCK, len(self) - start)
                read = {
                    name: np.fromfile(handle, COLUMNS[name], count)
                    for name, handle in handles.items()
                }
                yield Block(
                    start,
                    read["language"].astype(np.int64),
                    read["score"],
                    read["tokens"],
                    read["text"],
                    read["record"],
                    read["bytes"].astype(np.int64),
                )
        finally:
            for handle in handles.values():
                handle.close()


def build_index(
    folder: Path, files: Sequence[RatedFile], fields: Fields, progress: Progress | None = None
) -> Index:
    """Read all records once and keep their columns in `folder`.

    Files that an earlier call finished are not read again.

    Raises:
        InputError: see `read_records`; also if some records tell their tokens and others do not,
            if there are no records at all, or if a file is not what it was.
    """
    folder.mkdir(parents=True, exist_ok=True)
    state = _State.load(folder)
    done = len(state.rows)
    handles = {name: _appending(folder / name, COLUMNS[name], sum(state.rows)) for name in COLUMNS}
    numbers = {code: number for number, code in enumerate(state.languages)}
    columns: dict[str, list[Any]] = {name: [] for name in COLUMNS}
    unsaved = 0
    try:
        for at, file in enumerate(files[done:], done):
            if progress:
                progress("reading", at, len(files))
            rows = 0
            for number, line, record in read_records(file.path, fields):
                state.check_tokens(record, f"{file.path}, line {number}")
                text, key = record_keys(record.text, record.language, record.id)
                language = numbers.setdefault(record.language, len(numbers))
                values = (language, record.score, record.tokens or 0, text, key, len(line))
                for column, value in zip(columns.values(), values, strict=True):
                    column.append(value)
                rows += 1
                if len(columns["text"]) == _BUFFER:
                    _flush(handles, columns)
            state.rows.append(rows)
            unsaved += rows
            if unsaved >= KEPT or at + 1 == len(files):
                _flush(handles, columns)
                for handle in handles.values():
                    handle.flush()
                state.languages = list(numbers)
                state.save(folder)
                unsaved = 0
    finally:
        for handle in handles.values():
            handle.close()
    if progress:
        progress("reading", len(files), len(files))
    if not sum(state.rows):
        raise InputError(f"{files[0].path} holds no records; name files of rated documents")
    return Index(folder, tuple(state.languages), tuple(state.rows), bool(state.has_tokens))


@dataclass
class _State:
    """How far the index is, written now and then after a file."""

    rows: list[int]
    languages: list[str]
    has_tokens: bool | None

    @classmethod
    def load(cls, folder: Path) -> _State:
        path = folder / _STATE
        if not path.exists():
            return cls([], [], None)
        state = cls(**json.loads(path.read_bytes()))
        for name, dtype in COLUMNS.items():
            column = folder / name
            if not column.exists() or column.stat().st_size < sum(state.rows) * dtype.itemsize:
                return cls([], [], None)  # the machine stopped before all was on disk
        return state

    def check_tokens(self, record: RatedRecord, place: str) -> None:
        """InputError if a record tells its tokens and those before it do not, or the reverse."""
        there = record.tokens is not None
        if self.has_tokens is None:
            self.has_tokens = there
        if self.has_tokens != there:
            raise InputError(
                f"{place} has {'' if there else 'no '}'tokens', unlike the records before it; give "
                "them in every record or in none"
            )

    def save(self, folder: Path) -> None:
        write_bytes(folder / _STATE, json.dumps(vars(self)).encode())


def _appending(path: Path, dtype: np.dtype[Any], rows: int) -> Any:
    """A column opened to go on after so many records; what stands behind them was half-written."""
    handle = path.open("r+b" if path.exists() else "w+b")
    handle.truncate(rows * dtype.itemsize)
    handle.seek(0, os.SEEK_END)
    return handle


def _flush(handles: dict[str, Any], columns: dict[str, list[Any]]) -> None:
    for name, values in columns.items():
        handles[name].write(np.array(values, dtype=COLUMNS[name]).tobytes())
        values.clear()
