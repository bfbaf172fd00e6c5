"""What a rating process holds: the plan, its model (loaded once), and how far its chunk is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from headscope.heads import Gate
from headscope.use.corpus.chunks import Chunk, Shelf
from headscope.use.corpus.files import CorpusFile
from headscope.use.corpus.records import Columns, Record
from headscope.use.corpus.writing import Written
from headscope.use.rating import Rating

if TYPE_CHECKING:
    from headscope.lm import LanguageModel
    from headscope.use.rating.passes import Means


class ModelLoader(Protocol):
    """What loads a model; can be pickled, compared and hashed."""

    def load(self) -> LanguageModel:
        """The model."""


@dataclass(frozen=True)
class Plan:
    """All that a worker must know; can be pickled.

    Attributes:
        folder: the run folder, absolute.
        files: the surveyed files.
        columns: which fields hold what.
        model: loads the model.
        gate: the gate, 0 at removed heads.
        rating: how texts are rated.
        written: how documents are written.
        threads: of each worker; None leaves them as they are.
        means: what takes the place of removed heads' outputs; None: zero.
    """

    folder: Path
    files: tuple[CorpusFile, ...]
    columns: Columns
    model: ModelLoader
    gate: Gate
    rating: Rating
    written: Written
    threads: int | None = None
    means: Means | None = field(default=None, compare=False)

    @property
    def shelf(self) -> Shelf:
        """The chunks of the run."""
        return Shelf(self.folder, self.files, self.written.chunk, self.written.ending)

    def chunk_of(self, record: Record) -> tuple[Chunk, int]:
        """The chunk that a record belongs to, and how many records that holds."""
        number = record.place // self.written.chunk
        return Chunk(record.file.name, number), self.shelf.records_of(record.file, number)

    def left(self, rank: int, tasks: int) -> Iterator[tuple[CorpusFile, frozenset[int]]]:
        """What task ``rank`` of ``tasks`` still has to do: files, and numbers of their chunks.

        Where there are many more files than tasks each takes whole files, so that it need not read
        those of others; else chunks go round, so that a single file keeps all tasks busy.
        """
        done = self.shelf.done()
        by_file = len(self.files) >= 4 * tasks
        for at, file in enumerate(self.files):
            numbers = frozenset(
                number
                for number in range(self.shelf.chunks_of(file))
                if (at if by_file else at + number) % tasks == rank
                and str(Chunk(file.name, number)) not in done
            )
            if numbers:
                yield file, numbers


_held: dict[ModelLoader, LanguageModel] = {}
_inside = 0


def model_of(loader: ModelLoader) -> LanguageModel:
    """The model of this process; loaded when it is first asked for."""
    if loader not in _held:
        _held.clear()
        _held[loader] = loader.load()
    return _held[loader]


@contextmanager
def holding(loader: ModelLoader, lm: LanguageModel) -> Iterator[None]:
    """Let work in this process take a model that is loaded already, for as long as the block."""
    _held.clear()
    _held[loader] = lm
    try:
        yield
    finally:
        _held.clear()


@contextmanager
def told() -> Iterator[Callable[[int, int], None]]:
    """A progress for the texts of one chunk; `inside_chunk` says how far it is."""

    def update(done: int, total: int) -> None:
        global _inside
        _inside = done

    try:
        yield update
    finally:
        update(0, 0)


def inside_chunk() -> int:
    """Documents of the chunk that this process is at which the model has done with."""
    return _inside
