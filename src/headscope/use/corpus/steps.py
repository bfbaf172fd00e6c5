"""The three steps of the pipeline, as datatrove runs them: read, rate, write.

datatrove hands one `Document` a record from step to step; its `metadata` holds the `RawRecord`. Its
own readers are not used beneath: they pass over lines that are no JSON, over the rest of a file
that is damaged and over records without text, move fields about, and read whole numbers of more
than 64 bits as fractions.
"""

from __future__ import annotations

import contextlib
import time
from abc import abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from datatrove.data import Document
from datatrove.pipeline.base import PipelineStep
from datatrove.pipeline.readers.base import BaseReader

from headscope.use.corpus.plan import Plan, count_chunk, following_chunk, model_of
from headscope.use.corpus.reading import read_records
from headscope.use.corpus.records import RawRecord
from headscope.use.rating import Rated, Unrated, rate_texts

RECORD, RATED, SECONDS = "record", "rated", "seconds"


class ReadCorpus(BaseReader):  # type: ignore[misc]  # BaseReader is Any to mypy: datatrove ships no types
    """Yields the records of a task's chunks that are not done yet, as documents."""

    name = "corpus"

    def __init__(self, plan: Plan) -> None:
        super().__init__(text_key=plan.columns.text, id_key=plan.columns.id)
        self.plan = plan

    def run(
        self, data: Iterable[Document] | None = None, rank: int = 0, world_size: int = 1
    ) -> Iterator[Document]:
        """The documents of task ``rank`` of ``world_size``, chunk by chunk, none twice."""
        plan = self.plan
        for file, numbers in plan.left(rank, world_size):

            def wanted(place: int, numbers: frozenset[int] = numbers) -> bool:
                return place // plan.written.chunk in numbers

            for record in read_records(file, wanted):
                unfit = record.why_not(plan.columns)
                text = "" if unfit else record.text(plan.columns)
                yield Document(text, str(record.identity(plan.columns)), metadata={RECORD: record})


class _ByChunk(PipelineStep):  # type: ignore[misc]  # PipelineStep is Any to mypy: datatrove ships no types
    """A step that takes documents chunk by chunk and hands them on."""

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.plan = plan

    def run(
        self, data: Iterable[Document], rank: int = 0, world_size: int = 1
    ) -> Iterator[Document]:
        """Each chunk as soon as its last record is there: to wait for the first of the next would
        leave a rated chunk unwritten while the next one is rated."""
        held: list[Document] = []
        for document in data:
            held.append(document)
            chunk, size = self.plan.chunk_of(document.metadata[RECORD])
            if len(held) == size:
                self.work(chunk, held, world_size)
                yield from held
                held = []

    @abstractmethod
    def work(self, chunk: str, documents: list[Document], workers: int) -> None:
        """Do the step for one chunk."""


class RateChunks(_ByChunk):
    """Puts what the model says of a chunk's documents, or why it cannot, beside each.

    Chunk by chunk, so that batches never depend on what was done before.
    """

    type, name = "🔢 - RATING", "heads removed"

    def work(self, chunk: str, documents: list[Document], workers: int) -> None:
        plan = self.plan
        unfit = [document.metadata[RECORD].why_not(plan.columns) for document in documents]
        texts = [
            document.text for document, why in zip(documents, unfit, strict=True) if why is None
        ]
        lm = model_of(plan.model)
        with _threads(plan.threads), following_chunk() as progress:
            began = time.monotonic()
            rated = iter(rate_texts(lm, texts, plan.gate, plan.rating, progress, plan.replacement))
            seconds = time.monotonic() - began
        for document, why in zip(documents, unfit, strict=True):
            document.metadata[RATED] = next(rated) if why is None else Unrated(why)
            document.metadata[SECONDS] = seconds / len(documents)


class WriteChunks(_ByChunk):
    """Writes each chunk's rated documents and its rejects."""

    type, name = "💽 - WRITER", "chunks"

    def work(self, chunk: str, documents: list[Document], workers: int) -> None:
        plan = self.plan
        rated: list[tuple[RawRecord, Rated]] = []
        rejects, reasons = [], []
        for document in documents:
            record, losses = document.metadata[RECORD], document.metadata[RATED]
            if isinstance(losses, Unrated):
                rejects.append(record.rejected(losses.reason))
                reasons.append(losses.reason)
            else:
                rated.append((record, losses))
        counts = {
            **count_chunk(rated, reasons, plan.columns),
            "seconds": sum(document.metadata[SECONDS] for document in documents),
            "workers": workers,
        }
        content = plan.written.encode(rated, documents[0].metadata[RECORD], plan.columns)
        plan.finish(chunk, content, counts, rejects)


def steps(plan: Plan) -> list[Any]:
    """The pipeline of a plan; its steps can be pickled and run by any executor of datatrove."""
    return [ReadCorpus(plan), RateChunks(plan), WriteChunks(plan)]


@contextlib.contextmanager
def _threads(number: int | None) -> Iterator[None]:
    """Let torch compute with so many threads inside the block; None leaves it alone."""
    before = torch.get_num_threads()
    if number is not None:
        torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)
