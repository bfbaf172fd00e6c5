"""What is rated in which chunk, what of it is done and what it adds up to, and a process's model.

A chunk is so many records of one input file, whose ratings make one output file. Which records it
holds follows from the input alone, so whoever rates it, and however often, the same file comes out.
A chunk is done when two files stand: its documents, and after them its part, which holds its counts
and its rejects. Both are written whole or not at all.
"""

from __future__ import annotations

import heapq
import json
import math
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from headscope.errors import InputError
from headscope.heads import Gate
from headscope.heads.store import write_bytes, writing
from headscope.results.rate import (
    LanguageScores,
    RatedFigures,
    RatedLanguage,
    ScoreHistogram,
    TopDocument,
)
from headscope.runs import decode
from headscope.use.corpus.files import CorpusFile
from headscope.use.corpus.records import Columns, RawRecord, Written
from headscope.use.rating import Rating

if TYPE_CHECKING:
    from headscope.lm import LanguageModel
    from headscope.lm.replacement import Replacement
    from headscope.use.rating import Rated


DOCUMENTS, PARTS = "documents", "parts/chunks"


_held: dict[ModelLoader, LanguageModel] = {}
_inside = 0
TOP = 20
SHOWN = 400  # characters of a top document
NORMAL_95 = 1.959964
BINS = 60  # a histogram has at most so many
_WIDTH = 0.001  # nats: bins are counted so finely that any scale can be made of them


class ModelLoader(Protocol):
    """What loads a model; can be pickled, compared and hashed."""

    def load(self) -> LanguageModel:
        """The model."""


@dataclass(frozen=True)
class Plan:
    """All that a worker must know; can be pickled. Chunks go by the names of their files.

    `folder` is the run folder, absolute, and `files` are surveyed; `columns` says which fields hold
    what, `model` loads the model, `gate` is 0 at removed heads, and `rating` and `written` say how
    texts are rated and written. `threads` are those of each worker; None leaves them as they are.
    `replacement` stands in the place of removed heads' outputs; None: zero.
    """

    folder: Path
    files: tuple[CorpusFile, ...]
    columns: Columns
    model: ModelLoader
    gate: Gate
    rating: Rating
    written: Written
    threads: int | None = None
    replacement: Replacement | None = field(default=None, compare=False)

    def chunks(self) -> dict[str, int]:
        """How many records each chunk holds, in the order of the corpus."""
        return {
            _name(file, number): self._records(file, number)
            for file in self.files
            for number in self._numbers(file)
        }

    def chunk_of(self, record: RawRecord) -> tuple[str, int]:
        """The chunk that a record belongs to, and how many records that holds."""
        number = record.place // self.written.chunk
        return _name(record.file, number), self._records(record.file, number)

    def left(self, rank: int, tasks: int) -> Iterator[tuple[CorpusFile, frozenset[int]]]:
        """What task ``rank`` of ``tasks`` still has to do: files, and numbers of their chunks.

        Where there are many more files than tasks each takes whole files, so that it need not read
        those of others; else chunks go round, so that a single file keeps all tasks busy.
        """
        done = self.done()
        by_file = len(self.files) >= 4 * tasks
        for at, file in enumerate(self.files):
            numbers = frozenset(
                number
                for number in self._numbers(file)
                if (at if by_file else at + number) % tasks == rank
                and _name(file, number) not in done
            )
            if numbers:
                yield file, numbers

    def done(self) -> set[str]:
        """The chunks that are done."""
        ending = self.written.ending
        parts = {name.removesuffix(".jsonl") for name in _file_names(self.folder / PARTS)}
        files = _file_names(self.folder / DOCUMENTS)
        return parts & {name.removesuffix(ending) for name in files if name.endswith(ending)}

    def finish(
        self, chunk: str, documents: bytes, counts: dict[str, Any], rejects: Sequence[str]
    ) -> None:
        """Write the files of a chunk; ``counts`` gets the size of the documents' file."""
        first = json.dumps({**counts, "bytes": len(documents)}, ensure_ascii=False)
        part = "".join(f"{line}\n" for line in (first, *rejects))
        _write(self._documents(chunk), documents)
        _write(self._part(chunk), part.encode("utf-8"))

    def counts(self, chunk: str) -> dict[str, Any]:
        """What was counted of a chunk that is done.

        InputError if its files are not as they were written; they are then made again.
        """
        part, documents = self._part(chunk), self._documents(chunk)
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

    def rejects(self, chunk: str) -> bytes:
        """The lines of a finished chunk's rejects."""
        return self._part(chunk).read_bytes().partition(b"\n")[2]

    def _numbers(self, file: CorpusFile) -> range:
        return range(-(-file.records // self.written.chunk))

    def _records(self, file: CorpusFile, number: int) -> int:
        return min(self.written.chunk, file.records - number * self.written.chunk)

    def _documents(self, chunk: str) -> Path:
        return self.folder / DOCUMENTS / f"{chunk}{self.written.ending}"

    def _part(self, chunk: str) -> Path:
        """The file of a chunk's counts (first line) and rejects (all others)."""
        return self.folder / PARTS / f"{chunk}.jsonl"


def _name(file: CorpusFile, number: int) -> str:
    return f"{file.name}-{number:06d}"


def _file_names(folder: Path) -> set[str]:
    if not folder.is_dir():
        return set()
    with os.scandir(folder) as entries:
        return {entry.name for entry in entries if not entry.name.startswith(".")}


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        write_bytes(path, data)
    except FileNotFoundError:
        # A command begun meanwhile may have cleared the unfinished file away as a left-over.
        write_bytes(path, data)


def model_of(loader: ModelLoader) -> LanguageModel:
    """The model of this process; loaded when it is first needed."""
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
def following_chunk() -> Iterator[Callable[[int, int], None]]:
    """A progress for the texts of one chunk; `inside_chunk` says how far it is."""

    def update(done: int, total: int) -> None:
        global _inside
        _inside = done

    try:
        yield update
    finally:
        update(0, 0)


def inside_chunk() -> int:
    """How many documents of its present chunk this process has rated."""
    return _inside


def count_chunk(
    rated: Sequence[tuple[RawRecord, Rated]], rejects: Iterable[str], columns: Columns
) -> dict[str, Any]:
    """The counts of one chunk: by language, and of the reasons for rejects."""
    languages: dict[str, list[tuple[RawRecord, Rated]]] = {}
    for record, losses in rated:
        languages.setdefault(record.language(columns), []).append((record, losses))
    reasons = Counter(reason.partition(":")[0] for reason in rejects)
    return {
        "documents": len(rated),
        "rejected": reasons.total(),
        "tokens": sum(losses.tokens for _, losses in rated),
        "reasons": dict(reasons),
        "languages": {code: _language(some, columns) for code, some in languages.items()},
    }


def _language(rated: Sequence[tuple[RawRecord, Rated]], columns: Columns) -> dict[str, Any]:
    scores = [losses.score for _, losses in rated]
    top = sorted(rated, key=lambda pair: -pair[1].score)[:TOP]
    return {
        "documents": len(rated),
        "tokens": sum(losses.tokens for _, losses in rated),
        "sum": math.fsum(scores),
        "squares": math.fsum(score**2 for score in scores),
        "bins": dict(Counter(str(math.floor(score / _WIDTH)) for score in scores)),
        "top": [
            {
                "id": record.identity(columns),
                "score": losses.score,
                "nll_full": losses.nll_full,
                "tokens": losses.tokens,
                "text": record.text(columns)[:SHOWN],
            }
            for record, losses in top
        ],
    }


@dataclass
class _Language:
    documents: int = 0
    tokens: int = 0
    sum: float = 0.0
    squares: float = 0.0
    bins: Counter[int] = field(default_factory=Counter)
    top: list[tuple[float, int, Mapping[str, Any]]] = field(default_factory=list)

    def add(self, counts: Mapping[str, Any], order: int) -> None:
        self.documents += counts["documents"]
        self.tokens += counts["tokens"]
        self.sum += counts["sum"]
        self.squares += counts["squares"]
        for place, count in counts["bins"].items():
            self.bins[int(place)] += count
        for number, document in enumerate(counts["top"]):
            # Of equal scores the earlier document comes first.
            heapq.heappush(self.top, (document["score"], -(order * TOP + number), document))
            if len(self.top) > TOP:
                heapq.heappop(self.top)

    def result(self, edges: tuple[int, int]) -> RatedLanguage:
        """Figures of the language; `low` and `high` bound the mean with 95 % confidence, by the
        normal approximation over documents. The histogram reaches over fine bins `edges`."""
        mean = self.sum / self.documents
        deviation = math.sqrt(max(0.0, self.squares / self.documents - mean**2))
        margin = NORMAL_95 * deviation / math.sqrt(self.documents)
        ordered = sorted(self.top, key=lambda item: item[:2], reverse=True)
        return RatedLanguage(
            scores=LanguageScores(
                documents=self.documents,
                tokens=self.tokens,
                mean=mean,
                low=mean - margin,
                high=mean + margin,
            ),
            deviation=deviation,
            histogram=_histogram(self.bins, *edges),
            top=tuple(decode(TopDocument, document) for _, _, document in ordered),
        )


@dataclass
class Tally:
    """Adds up the counts of chunks; needs memory for languages, not for documents.

    `seconds` is the time of scoring alone: a chunk's seconds count divided by the number of workers
    that ran beside each other then, so a run that was continued is measured over all its parts.
    """

    documents: int = 0
    rejected: int = 0
    tokens: int = 0
    seconds: float = 0.0
    reasons: Counter[str] = field(default_factory=Counter)
    _languages: dict[str, _Language] = field(default_factory=dict)
    _chunks: int = 0

    def add(self, counts: Mapping[str, Any]) -> None:
        """Take in the next chunk, in the order of the corpus."""
        self.documents += counts["documents"]
        self.rejected += counts["rejected"]
        self.tokens += counts["tokens"]
        self.seconds += counts["seconds"] / counts["workers"]
        self.reasons.update(counts["reasons"])
        for code, some in counts["languages"].items():
            self._languages.setdefault(code, _Language()).add(some, self._chunks)
        self._chunks += 1

    @property
    def figures(self) -> RatedFigures:
        """What there is to say of all of it."""
        return RatedFigures(
            documents=self.documents,
            rejected=self.rejected,
            tokens=self.tokens,
            tokens_per_second=self.tokens / self.seconds if self.seconds else None,
            reasons=dict(sorted(self.reasons.items(), key=lambda item: (-item[1], item[0]))),
        )

    def languages(self) -> dict[str, RatedLanguage]:
        """What there is to say of each language, those with most documents first."""
        if not self._languages:
            return {}
        ordered = sorted(self._languages.items(), key=lambda item: (-item[1].documents, item[0]))
        # The same bins for all, so that languages can be compared bin by bin.
        low = min(min(language.bins) for _, language in ordered)
        high = max(max(language.bins) for _, language in ordered)
        return {code: language.result((low, high)) for code, language in ordered}


def add_up(plan: Plan, rejects: Path, progress: Callable[[int, int], None] | None = None) -> Tally:
    """Add up the finished chunks in the order of the corpus and write the file of rejects."""
    totals = Tally()
    chunks = list(plan.chunks())
    with writing(rejects) as file:
        for number, chunk in enumerate(chunks):
            if progress:
                progress(number, len(chunks))
            totals.add(plan.counts(chunk))
            file.write(plan.rejects(chunk))
    if progress:
        progress(len(chunks), len(chunks))
    return totals


def _histogram(fine: Mapping[int, int], low: int, high: int) -> ScoreHistogram:
    """Round steps that need at most `BINS` bins from the fine bin `low` to `high`."""
    steps = (factor * 10**power for power in range(12) for factor in (1, 2, 5))
    step = next(size for size in steps if high // size - low // size < BINS)
    first, last = low // step, high // step
    counts = [0] * (last - first + 1)
    for place, count in fine.items():
        counts[place // step - first] += count
    per_nat = round(1 / _WIDTH)
    edges = (number * step / per_nat for number in range(first, last + 2))
    return ScoreHistogram(tuple(edges), tuple(counts))
