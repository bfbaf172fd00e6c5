"""What a report says of a rated corpus, counted chunk by chunk and added up."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headscope.results.rating import (
    Histogram,
    LanguageScores,
    RatedFigures,
    RatedLanguage,
    TopDocument,
)
from headscope.runs import decode
from headscope.use.corpus.records import Columns, Record

if TYPE_CHECKING:
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
    for record, one in rated:
        languages.setdefault(record.language(columns), []).append((record, one))
    reasons: dict[str, int] = {}
    for reason in rejects:
        kind = reason.partition(":")[0]
        reasons[kind] = reasons.get(kind, 0) + 1
    return {
        "documents": len(rated),
        "rejected": sum(reasons.values()),
        "tokens": sum(one.tokens for _, one in rated),
        "reasons": reasons,
        "languages": {code: _language(some, columns) for code, some in languages.items()},
    }


def _language(rated: Sequence[tuple[Record, Rated]], columns: Columns) -> dict[str, Any]:
    bins: dict[str, int] = {}
    for _, one in rated:
        place = str(math.floor(one.score / _WIDTH))
        bins[place] = bins.get(place, 0) + 1
    top = sorted(rated, key=lambda pair: -pair[1].score)[:TOP]
    return {
        "documents": len(rated),
        "tokens": sum(one.tokens for _, one in rated),
        "sum": math.fsum(one.score for _, one in rated),
        "squares": math.fsum(one.score**2 for _, one in rated),
        "bins": bins,
        "top": [
            {
                "id": record.identity(columns),
                "score": one.score,
                "nll_full": one.nll_full,
                "tokens": one.tokens,
                "text": record.text(columns)[:SHOWN],
            }
            for record, one in top
        ],
    }


@dataclass
class _Language:
    documents: int = 0
    tokens: int = 0
    sum: float = 0.0
    squares: float = 0.0
    bins: dict[int, int] = field(default_factory=dict)
    top: list[tuple[float, int, Mapping[str, Any]]] = field(default_factory=list)

    def add(self, counts: Mapping[str, Any], order: int) -> None:
        self.documents += counts["documents"]
        self.tokens += counts["tokens"]
        self.sum += counts["sum"]
        self.squares += counts["squares"]
        for place, count in counts["bins"].items():
            self.bins[int(place)] = self.bins.get(int(place), 0) + count
        for number, one in enumerate(counts["top"]):
            # Of equal scores the earlier document comes first.
            heapq.heappush(self.top, (one["score"], -(order * TOP + number), one))
            if len(self.top) > TOP:
                heapq.heappop(self.top)

    def result(self, edges: tuple[int, int]) -> RatedLanguage:
        """Figures of the language; `low` and `high` bound the mean with 95 % confidence, by the
        normal approximation over documents. The histogram reaches over fine bins `edges`."""
        mean = self.sum / self.documents
        deviation = math.sqrt(max(0.0, self.squares / self.documents - mean**2))
        margin = NORMAL_95 * deviation / math.sqrt(self.documents)
        top = [one for _, _, one in sorted(self.top, key=lambda item: item[:2], reverse=True)]
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
            top=tuple(decode(TopDocument, one) for one in top),
        )


@dataclass
class Tally:
    """Adds up the counts of chunks; needs memory for languages, not for documents."""

    documents: int = 0
    rejected: int = 0
    tokens: int = 0
    seconds: float = 0.0
    reasons: dict[str, int] = field(default_factory=dict)
    _languages: dict[str, _Language] = field(default_factory=dict)
    _chunks: int = 0

    def add(self, counts: Mapping[str, Any]) -> None:
        """Take in the next chunk, in the order of the corpus."""
        self.documents += counts["documents"]
        self.rejected += counts["rejected"]
        self.tokens += counts["tokens"]
        self.seconds += counts["seconds"] / counts["workers"]
        for reason, count in counts["reasons"].items():
            self.reasons[reason] = self.reasons.get(reason, 0) + count
        for code, some in counts["languages"].items():
            self._languages.setdefault(code, _Language()).add(some, self._chunks)
        self._chunks += 1

    @property
    def tokens_per_second(self) -> float | None:
        """Predicted tokens over the time of scoring alone, of all workers together.

        A chunk's seconds count divided by the number of workers that ran beside each other then,
        so a run that was continued is measured over all its parts.
        """
        return self.tokens / self.seconds if self.seconds else None

    @property
    def figures(self) -> RatedFigures:
        """What there is to say of all of it."""
        return RatedFigures(
            documents=self.documents,
            rejected=self.rejected,
            tokens=self.tokens,
            tokens_per_second=self.tokens_per_second,
            reasons=dict(sorted(self.reasons.items(), key=lambda item: (-item[1], item[0]))),
        )

    def languages(self) -> dict[str, RatedLanguage]:
        """What there is to say of each language, those with most documents first."""
        ordered = sorted(self._languages.items(), key=lambda item: (-item[1].documents, item[0]))
        # The same bins for all, so that languages can be compared bin by bin.
        places = [
            place for one in self._languages.values() for place in (min(one.bins), max(one.bins))
        ]
        return {code: one.result((min(places), max(places))) for code, one in ordered}


def _histogram(fine: Mapping[int, int], low: int, high: int) -> Histogram:
    """Round steps that need at most `BINS` bins from the fine bin `low` to `high`."""
    steps = (factor * 10**power for power in range(12) for factor in (1, 2, 5))
    step = next(one for one in steps if high // one - low // one < BINS)
    first, last = low // step, high // step
    counts = [0] * (last - first + 1)
    for place, count in fine.items():
        counts[place // step - first] += count
    per_nat = round(1 / _WIDTH)
    edges = (number * step / per_nat for number in range(first, last + 2))
    return Histogram(tuple(edges), tuple(counts))
