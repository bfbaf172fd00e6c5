"""The three steps of the pipeline, as datatrove runs them: read, rate, write.

datatrove hands one `Document` a record from step to step; its `metadata` holds the `Record`. Its
own readers are not used beneath: they pass over lines that are no JSON, over the rest of a file
that is damaged and over records without text, move fields about, and read whole numbers of more
than 64 bits as fractions.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from datatrove.data import Document
from datatrove.pipeline.base import PipelineStep
from datatrove.pipeline.readers.base import BaseReader

from headscope.use.corpus import worker
from headscope.use.corpus.chunks import Chunk
from headscope.use.corpus.reading import read_records
from headscope.use.corpus.records import Record
from headscope.use.corpus.tally import count_chunk
from headscope.use.corpus.worker import Plan
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
            size = plan.written.chunk

            def wanted(place: int, numbers: frozenset[int] = numbers, size: int = size) -> bool:
                return place // size in numbers

            for record in read_records(file, wanted):
                unfit = record.why_not(plan.columns)
                text = "" if unfit else record.text(plan.columns)
                yield Document(text, str(record.identity(plan.columns)), metadata={RECORD: record})


class RateChunks(PipelineStep):  # type: ignore[misc]  # PipelineStep is Any to mypy: datatrove ships no types
    """Puts what the model says of a chunk's documents, or why it cannot, beside each."""

    type, name = "🔢 - RATING", "heads removed"

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.plan = plan

    def run(
        self, data: Iterable[Document], rank: int = 0, world_size: int = 1
    ) -> Iterator[Document]:
        """Rate chunk by chunk, so that batches never depend on what was done before."""
        plan = self.plan
        for _, documents in _chunks(data, plan):
            unfit = [one.metadata[RECORD].why_not(plan.columns) for one in documents]
            fit = [one for one, why in zip(documents, unfit, strict=True) if why is None]
            lm = worker.model_of(plan.model)
            with _threads(plan.threads), worker.told() as progress:
                began = time.monotonic()
                texts = [one.text for one in fit]
                found = iter(rate_texts(lm, texts, plan.gate, plan.rating, progress, plan.means))
                seconds = time.monotonic() - began
            for one, why in zip(documents, unfit, strict=True):
                one.metadata[RATED] = next(found) if why is None else Unrated(why)
                one.metadata[SECONDS] = seconds / len(documents)
            yield from documents


class WriteChunks(PipelineStep):  # type: ignore[misc]  # PipelineStep is Any to mypy: datatrove ships no types
    """Writes each chunk's rated documents and its rejects."""

    type, name = "💽 - WRITER", "chunks"

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.plan = plan

    def run(
        self, data: Iterable[Document], rank: int = 0, world_size: int = 1
    ) -> Iterator[Document]:
        """Finish chunk by chunk, and hand the documents on."""
        plan = self.plan
        for chunk, documents in _chunks(data, plan):
            rated: list[tuple[Record, Rated]] = []
            lines, reasons = [], []
            for one in documents:
                record, found = one.metadata[RECORD], one.metadata[RATED]
                if isinstance(found, Unrated):
                    lines.append(record.rejected(found.reason))
                    reasons.append(found.reason)
                else:
                    rated.append((record, found))
            counts = {
                **count_chunk(rated, reasons, plan.columns),
                "seconds": sum(one.metadata[SECONDS] for one in documents),
                "workers": world_size,
            }
            data_of_file = plan.written.encode(rated, documents[0].metadata[RECORD], plan.columns)
            plan.shelf.write(chunk, data_of_file, counts, lines)
            yield from documents


def steps(plan: Plan) -> list[Any]:
    """The pipeline of a plan; its steps can be pickled and run by any executor of datatrove."""
    return [ReadCorpus(plan), RateChunks(plan), WriteChunks(plan)]


def _chunks(data: Iterable[Document], plan: Plan) -> Iterator[tuple[Chunk, list[Document]]]:
    """Documents chunk by chunk, each as soon as its last record is there: to wait for the first
    of the next would leave a rated chunk unwritten while the next one is rated."""
    held: list[Document] = []
    for document in data:
        held.append(document)
        chunk, size = plan.chunk_of(document.metadata[RECORD])
        if len(held) == size:
            yield chunk, held
            held = []


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
