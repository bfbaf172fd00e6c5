"""What mixing needs to know of every record, in a file that is read block by block.

Texts, records and scores stand there as numbers of 64 bits. Every draw is an order of the records
by a number that depends on the seed, the purpose and the record's content, so that neither the
order nor the number of files changes what is drawn.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from headscope.errors import InputError
from headscope.heads.store import write_bytes
from headscope.progress import Progress
from headscope.use.mixing.plan import MixPlan
from headscope.use.mixing.reading import RatedFile, RatedRecord, check_unchanged, read_records

U64 = NDArray[np.uint64]
Mask = NDArray[np.bool_]

BLOCK = 1 << 18
"""So many records are read at a time."""
KEPT = 1 << 18
"""After so many records it is noted which files are done."""
PART = 1 << 19
"""So many records lie in one file of equal texts, about; each takes 24 bytes."""
#: What the index holds of a record.
RECORD = np.dtype(
    [
        ("language", np.int64),
        ("score", np.float64),
        ("tokens", np.int64),
        ("text", np.uint64),
        ("record", np.uint64),
        ("bytes", np.int64),
    ]
)
_RECORDS = "records"
_STATE = "index.json"
_BUFFER = 1 << 14
_SIGN = np.uint64(1 << 63)
_TEXT_ROW = np.dtype([("text", np.uint64), ("order", np.uint64), ("row", np.int64)])


def record_keys(text: str, language: str, identifier: object) -> tuple[int, int]:
    """Two numbers below 2⁶⁴: one for the text, one for the text with its language and id.

    The first 8 bytes of BLAKE2b digests.  Different texts share a number with a chance of about
    n² / 2⁶⁵ among n texts.
    """
    # Half of a surrogate pair can stand in JSON as an escape.
    whole = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
    more = json.dumps([language, identifier], sort_keys=True, default=str).encode()
    record = hashlib.blake2b(whole + more, digest_size=8).digest()
    return int.from_bytes(whole[:8], "big"), int.from_bytes(record, "big")


def mixed(keys: U64, seed: int, purpose: str) -> U64:
    """The keys in another order, drawn by seed and purpose (the finalizer of SplitMix64)."""
    salt = hashlib.blake2b(f"{seed}|{purpose}".encode(), digest_size=8).digest()
    z = keys ^ np.uint64(int.from_bytes(salt, "big"))
    z = z + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def score_order(scores: NDArray[np.float64]) -> U64:
    """Numbers that ascend where finite scores descend, equal for equal scores."""
    bits = (scores + 0.0).view(np.uint64)  # -0.0 + 0.0 is 0.0
    return ~np.where(bits & _SIGN, ~bits, bits | _SIGN)


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
    text: U64
    record: U64
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

    def extremes(self, low: Mask, high: Mask) -> list[tuple[float | None, float | None]]:
        """Of each language the lowest score of some records and the highest of others, if any."""
        lowest = np.full(len(self.languages), np.inf)
        highest = np.full(len(self.languages), -np.inf)
        for block in self.blocks():
            some, others = low[block.rows], high[block.rows]
            np.minimum.at(lowest, block.language[some], block.score[some])
            np.maximum.at(highest, block.language[others], block.score[others])
        return [
            (
                float(least) if np.isfinite(least) else None,
                float(most) if np.isfinite(most) else None,
            )
            for least, most in zip(lowest, highest, strict=True)
        ]

    def blocks(self) -> Iterator[Block]:
        """All records, `BLOCK` at a time, read from disk."""
        with (self.folder / _RECORDS).open("rb") as handle:
            for start in range(0, len(self), BLOCK):
                records = np.fromfile(handle, RECORD, min(BLOCK, len(self) - start))
                yield Block(start, **{name: records[name] for name in RECORD.fields or ()})


def build_index(
    folder: Path, files: Sequence[RatedFile], plan: MixPlan, progress: Progress | None = None
) -> Index:
    """Read all records once and keep their columns in `folder`.

    Files that an earlier call finished are not read again. InputError as of `read_records`; also if
    some records tell their tokens and others do not, if there are no records at all, or if a file
    is not what it was.
    """
    folder.mkdir(parents=True, exist_ok=True)
    state = _State.load(folder)
    done = len(state.rows)
    numbers = {code: number for number, code in enumerate(state.languages)}
    kept: list[tuple[int, float, int, int, int, int]] = []
    unsaved = 0
    path = folder / _RECORDS
    with path.open("r+b" if path.exists() else "w+b") as handle:
        handle.truncate(sum(state.rows) * RECORD.itemsize)  # what follows was half-written
        handle.seek(0, os.SEEK_END)

        for at, file in enumerate(files[done:], done):
            if progress:
                progress("reading", at, len(files))
            rows = 0
            for number, line, record in read_records(file.path, plan):
                state.check_tokens(record, f"{file.path}, line {number}")
                keys = record_keys(record.text, record.language, record.id)
                language = numbers.setdefault(record.language, len(numbers))
                kept.append((language, record.score, record.tokens or 0, *keys, len(line)))
                rows += 1
                if len(kept) == _BUFFER:
                    _flush(handle, kept)
            check_unchanged(file)
            state.rows.append(rows)
            unsaved += rows
            if unsaved >= KEPT or at + 1 == len(files):
                _flush(handle, kept)
                handle.flush()
                state.languages = list(numbers)
                write_bytes(folder / _STATE, json.dumps(vars(state)).encode())
                unsaved = 0
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
        records = folder / _RECORDS
        if not records.exists() or records.stat().st_size < sum(state.rows) * RECORD.itemsize:
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


def _flush(handle: BinaryIO, kept: list[tuple[int, float, int, int, int, int]]) -> None:
    handle.write(np.array(kept, RECORD).tobytes())
    kept.clear()


@dataclass(frozen=True)
class SameTexts:
    """The records of an index by their texts, without holding all texts in memory.

    The keys of the texts are dealt out into files by their first bits, so that copies of a text lie
    in the same file (of `parts`) and each file fits in memory.
    """

    parts: tuple[Path, ...]

    @classmethod
    def of(cls, index: Index, folder: Path, seed: int) -> SameTexts:
        """Deal out the records of an index; `seed` draws the order of copies of one text."""
        count = -(-len(index) // PART)
        folder.mkdir(parents=True, exist_ok=True)
        parts = tuple(folder / str(number) for number in range(count))
        for path in parts:
            path.write_bytes(b"")
        for block in index.blocks():
            rows = np.empty(len(block.text), _TEXT_ROW)
            rows["text"] = block.text
            rows["order"] = mixed(block.record, seed, "reserve")
            rows["row"] = np.arange(block.rows.start, block.rows.stop)
            part = ((block.text >> np.uint64(32)) * np.uint64(count)) >> np.uint64(32)
            for number in np.unique(part).tolist():
                with parts[number].open("ab") as handle:
                    rows[part == number].tofile(handle)
        return cls(parts)

    def groups(self) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """Part by part: rows with copies of a text side by side, and the number of the text.

        Copies of one text are in the order of the draw they were dealt out with.
        """
        for path in self.parts:
            rows = np.fromfile(path, _TEXT_ROW)
            rows.sort(order=("text", "order", "row"))
            if len(rows):
                new = np.append(False, rows["text"][1:] != rows["text"][:-1])
                yield rows["row"], np.cumsum(new)

    def closed(self, baseline: Mask, selected: Mask) -> tuple[Mask, Mask]:
        """The selected records with copies of their texts, and what the reserve can give.

        All copies that the baseline has of a text selected in it are selected, too. Of a text of
        the reserve that neither the baseline nor a selected record has, one record can be given.
        """
        closed, fresh = selected.copy(), np.zeros_like(selected)
        for rows, text in self.groups():
            texts = int(text[-1]) + 1
            based, chosen = baseline[rows], selected[rows]
            whole = np.bincount(text, based & chosen, texts)[text] > 0
            closed[rows[based & whole]] = True
            taken = np.bincount(text, based | chosen, texts)[text] > 0
            first = np.append(True, text[1:] != text[:-1])
            fresh[rows[first & ~taken]] = True
        return closed, fresh

    def duplicates(self, copies: NDArray[Any]) -> int:
        """How many of the records, taken so many times each, have a text that came before."""
        total = distinct = 0
        for rows, text in self.groups():
            counts = np.bincount(text, copies[rows])
            total += int(counts.sum())
            distinct += int(np.count_nonzero(counts))
        return total - distinct
