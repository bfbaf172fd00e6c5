"""Chunks: so many records of one input file, whose ratings make one output file.

Which records a chunk holds follows from the input alone, so whoever rates it, and however often,
the same file comes out. A chunk is done when two files stand: its documents, and after them its
part, which holds its counts and its rejects. Both are written whole or not at all.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headscope.errors import InputError
from headscope.heads.store import write_bytes
from headscope.use.corpus.files import CorpusFile

DOCUMENTS, PARTS = "documents", "parts/chunks"


@dataclass(frozen=True)
class Chunk:
    """A chunk by the name of its file and its number there, from 0."""

    file: str
    number: int

    def __str__(self) -> str:
        return f"{self.file}-{self.number:06d}"


@dataclass(frozen=True)
class Shelf:
    """The chunks of a run folder.

    Attributes:
        folder: the run folder.
        files: the surveyed files of the corpus.
        size: records of a chunk.
        ending: of the documents' files, as ``.jsonl.gz``.
    """

    folder: Path
    files: tuple[CorpusFile, ...]
    size: int
    ending: str

    def __iter__(self) -> Iterator[Chunk]:
        for file in self.files:
            for number in range(self.chunks_of(file)):
                yield Chunk(file.name, number)

    def chunks_of(self, file: CorpusFile) -> int:
        """How many chunks a file makes."""
        return -(-file.records // self.size)

    def records_of(self, file: CorpusFile, number: int) -> int:
        """How many records a chunk of a file holds."""
        return min(self.size, file.records - number * self.size)

    def documents(self, chunk: Chunk) -> Path:
        """The file of a chunk's rated documents."""
        return self.folder / DOCUMENTS / f"{chunk}{self.ending}"

    def part(self, chunk: Chunk) -> Path:
        """The file of a chunk's counts (first line) and rejects (all others)."""
        return self.folder / PARTS / f"{chunk}.jsonl"

    def done(self) -> set[str]:
        """The chunks that are done, as their names."""
        parts = {name.removesuffix(".jsonl") for name in _names(self.folder / PARTS)}
        files = _names(self.folder / DOCUMENTS)
        return parts & {
            name.removesuffix(self.ending) for name in files if name.endswith(self.ending)
        }

    def write(
        self, chunk: Chunk, documents: bytes, counts: dict[str, Any], rejects: Sequence[str]
    ) -> None:
        """Finish a chunk; ``counts`` gets the size of the documents' file."""
        head = json.dumps({**counts, "bytes": len(documents)}, ensure_ascii=False)
        part = "".join(f"{line}\n" for line in (head, *rejects))
        for path, data in (
            (self.documents(chunk), documents),
            (self.part(chunk), part.encode("utf-8")),
        ):
            path.parent.mkdir(parents=True, exist_ok=True)
            _write(path, data)

    def counts(self, chunk: Chunk) -> dict[str, Any]:
        """What was counted of a chunk that is done.

        InputError if its files are not as they were written; they are then made again.
        """
        part, documents = self.part(chunk), self.documents(chunk)
        try:
            with part.open("rb") as file:
                counts: dict[str, Any] = json.loads(file.readline())
                whole = sum(line.endswith(b"\n") for line in file) == counts["rejected"]
            whole = whole and documents.stat().st_size == counts["bytes"]
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            whole = False
        if not whole:
            part.unlink(missing_ok=True)
            raise InputError(
                f"{documents}: is not as it was written; run the same command again and this "
                "chunk is rated again"
            )
        return counts

    def rejects(self, chunk: Chunk) -> bytes:
        """The lines of a finished chunk's rejects."""
        return self.part(chunk).read_bytes().partition(b"\n")[2]


def _names(folder: Path) -> set[str]:
    if not folder.is_dir():
        return set()
    with os.scandir(folder) as inside:
        return {one.name for one in inside if not one.name.startswith(".")}


def _write(path: Path, data: bytes) -> None:
    """Write a file whole or not at all, and say which one if there is no room for it."""
    for last in (False, True):
        try:
            write_bytes(path, data)
            return
        except FileNotFoundError:
            # A command begun meanwhile may have cleared the unfinished file away as a left-over.
            if last or not path.parent.is_dir():
                raise
        except OSError as error:
            if error.errno is None:
                raise
            raise OSError(error.errno, error.strerror, str(path)) from error
