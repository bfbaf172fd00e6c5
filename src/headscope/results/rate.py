"""The result of rating a corpus by what heads are worth on its documents, and its summary."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from headscope.estimates import UNWRITTEN
from headscope.results.common import Ablation, ModelResult, Ranking
from headscope.runs import Record, entry


@dataclass(frozen=True)
class ScoreHistogram:
    """How many documents have a score from one edge to the next; one edge more than counts.

    Raises `ValueError` for edges that do not rise, and for negative counts.
    """

    edges: tuple[float, ...]
    counts: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.edges) != len(self.counts) + 1 or any(a >= b for a, b in pairwise(self.edges)):
            raise ValueError("the histogram has no rising edges")
        if min(self.counts, default=0) < 0:
            raise ValueError("the histogram counts fewer than none")


@dataclass(frozen=True)
class TopDocument(Record):
    """A document with one of the highest scores, and how its text begins."""

    id: str | int | float
    score: float
    text: str


@dataclass(frozen=True, kw_only=True)
class LanguageScores:
    """Scores of a language's documents: their mean with its 95 % interval over documents."""

    documents: int
    tokens: int
    mean: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, kw_only=True)
class RatedLanguage(Record):
    """The rated documents of one language: scores, their deviation, and the highest first."""

    scores: LanguageScores = entry(flat="")
    deviation: float | None = None
    histogram: ScoreHistogram
    top: tuple[TopDocument, ...]


@dataclass(frozen=True, kw_only=True)
class RatedFigures:
    """What was rated and rejected, with the `reasons`, the most frequent first.

    `tokens_per_second` are predicted tokens over the time of scoring; None where that is not known.
    """

    documents: int
    rejected: int
    tokens: int
    tokens_per_second: float | None
    reasons: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class RatingSummary(Record):
    """What `summary.json` of a finished run holds, languages with most documents first.

    A language is an empty text where the data has none.
    """

    figures: RatedFigures = entry(flat="")
    scoring_seconds: float = 0.0
    heads: tuple[str, ...] = ()
    ranked: Ranking | None = entry(flat="")
    format: str = ""
    languages: Mapping[str, RatedLanguage]


@dataclass(frozen=True, kw_only=True)
class RatingResult(ModelResult, Ablation):
    """Documents rated by `heads`, by so many workers under an executor."""

    heads: tuple[str, ...] = ()
    ranked: Ranking | None = entry(flat="")
    workers: int | None = entry(absent=True)
    executor: str | None = entry(absent=True)


@dataclass(frozen=True, kw_only=True)
class RatingJob(RatingResult):
    """Work that a cluster does: `job` was `submitted` now or before, and writes its `logs`."""

    job: str
    submitted: bool
    logs: str
    chunks: int
    chunks_done: int
    pending: bool = field(default=True, repr=False, metadata=UNWRITTEN)


@dataclass(frozen=True, kw_only=True)
class RatedCorpus(RatingResult):
    """A rated corpus: figures of all of it, by language, and the files that were read."""

    figures: RatedFigures = entry(flat="")
    languages: Mapping[str, LanguageScores] = field(default_factory=dict)
    files: Mapping[str, Mapping[str, str | int]] = field(default_factory=dict)
