"""What a report says of a rated corpus, counted chunk by chunk and added up."""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headscope.heads.store import writing
from headscope.results.rating import (
    LanguageScores,
    RatedFigures,
    RatedLanguage,
    ScoreHistogram,
    TopDocument,
)
from headscope.runs import decode
from headscope.use.corpus.records import Columns, Record

if TYPE_CHECKING:
    from headscope.use.corpus.plan import Plan
    from headscope.use.rating import Rated

TOP = 20
SHOWN = 400  # characters of a top document
NORMAL_95 = 1.959964
BINS = 60  # a histogram has at most so many
_WIDTH = 0.001  # nats: bins are counted so finely that any scale can be made of them


def count_chunk(
    rated: Sequence[tuple[Record, Rated]], rejects: Iterable[str], columns: Columns
) -> dict[str, Any]:
    """The counts of one chunk: by language, and of the reasons for rejects."""
    languages: dict[str, list[tuple[Record, Rated]]] = {}
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


def _language(rated: Sequence[tuple[Record, Rated]], columns: Columns) -> dict[str, Any]:
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
    tally = Tally()
    chunks = list(plan.chunks())
    with writing(rejects) as file:
        for number, chunk in enumerate(chunks):
            if progress:
                progress(number, len(chunks))
            tally.add(plan.counts(chunk))
            file.write(plan.rejects(chunk))
    if progress:
        progress(len(chunks), len(chunks))
    return tally


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
