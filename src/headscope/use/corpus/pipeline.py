"""Rating a corpus of any size: what is to be done, doing what is left of it, adding it up."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from headscope.data.extras import need
from headscope.heads import Gate
from headscope.heads.store import writing
from headscope.use.corpus.chunks import Chunk, Shelf
from headscope.use.corpus.executors import Execution, Launched, execute
from headscope.use.corpus.files import CorpusFile
from headscope.use.corpus.records import Columns, Record
from headscope.use.corpus.tally import Tally
from headscope.use.corpus.worker import ModelLoader, inside_chunk
from headscope.use.corpus.writing import Written
from headscope.use.rating import Rating

if TYPE_CHECKING:
    from headscope.runs import Run
    from headscope.use.rating.passes import Means

__all__ = ["Plan", "add_up", "rate_left"]

#: Told documents done, how many there are, and predicted tokens so far.
Watch = Callable[[int, int, int], None]


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


def rate_left(
    plan: Plan, how: Execution, logs: Path, watch: Watch | None = None
) -> Launched | None:
    """Rate the chunks that are not done, if there are any; what is done already is kept.

    Returns None when all are done, and what was submitted where others go on with it. An error
    leaves finished chunks as they are, and the same call goes on from there.
    """
    if next(plan.left(0, 1), None) is None:
        return None
    need("datatrove", "rating a corpus", "corpus")
    from headscope.use.corpus.steps import steps

    seen = _Progress(plan, how, watch) if watch else None
    return execute(steps(plan), how, logs, seen)


def add_up(plan: Plan, run: Run, progress: Callable[[int, int], None] | None = None) -> Tally:
    """Add up the finished chunks in the order of the corpus and write ``rejects.jsonl``."""
    tally = Tally()
    chunks = list(plan.shelf)
    with writing(run.path / "rejects.jsonl") as rejects:
        for number, chunk in enumerate(chunks):
            if progress:
                progress(number, len(chunks))
            tally.add(plan.shelf.counts(chunk))
            rejects.write(plan.shelf.rejects(chunk))
    if progress:
        progress(len(chunks), len(chunks))
    return tally


class _Progress:
    """Looks which chunks stand and tells how far the corpus is, in whatever process it is rated."""

    def __init__(self, plan: Plan, how: Execution, watch: Watch) -> None:
        self._shelf = plan.shelf
        self._sizes = {
            str(Chunk(file.name, number)): self._shelf.records_of(file, number)
            for file in plan.files
            for number in range(self._shelf.chunks_of(file))
        }
        self._here = how.executor == "local" and how.workers == 1
        self._watch = watch
        self._tokens: dict[str, int] = {}
        self._next = 0.0

    def __call__(self) -> None:
        began = time.monotonic()
        if began < self._next:
            return
        done = self._shelf.done()
        for name in done - self._tokens.keys():
            file, _, number = name.rpartition("-")
            self._tokens[name] = self._shelf.counts(Chunk(file, int(number)))["tokens"]
        records = sum(self._sizes.get(name, 0) for name in done)
        inside = inside_chunk() if self._here else 0
        total = sum(self._sizes.values())
        self._watch(min(total, records + inside), total, sum(self._tokens.values()))
        # A folder of very many chunks takes its time: look less often then.
        self._next = time.monotonic() + 10 * (time.monotonic() - began)
