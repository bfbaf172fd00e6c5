"""The result of making a training mixture, its manifest, and what its page shows of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headscope.results.rate import ScoreHistogram
from headscope.runs import Record, Result


@dataclass(frozen=True)
class Count:
    """Documents and their predicted tokens (None where the records lack them)."""

    documents: int
    tokens: int | None

    def by(self, unit: str) -> int:
        """The number of documents, or of tokens."""
        return self.documents if unit == "documents" else self.tokens or 0


@dataclass(frozen=True)
class LanguageMix:
    """One language of a mixture.

    Attributes:
        corpus, baseline, mixture: what there was, what the baseline has, what was written.
        share_before, share_after: of the language in baseline and mixture, by what the plan counts.
        share_difference: after minus before.
        selected: documents of the baseline with the highest scores, once each; copies of a
            selected text are selected too.
        selected_share: of the baseline, by what the plan counts; `wanted` documents or tokens were
            requested.
        threshold: the least score before the cut; None where the selection is random.
        next_score: the highest score of the baseline behind the cut; None likewise.
        cut: where the order by score and draw was cut: 32 hexadecimal digits; see
            `headscope.use.mixing.choose.score_places`.
        copies: how often each selected document stands in the mixture.
        kept: what is there of the baseline's other documents.
        reserve: what the rest of the corpus could give: documents below the cut whose text is not
            in the baseline, each text once.  `refilled`: what it gave.
    """

    corpus: Count
    baseline: Count
    mixture: Count
    share_before: float
    share_after: float
    share_difference: float
    selected: Count
    selected_share: float
    wanted: int
    threshold: float | None
    next_score: float | None
    cut: str | None
    copies: int
    kept: Count
    reserve: Count
    refilled: Count


@dataclass(frozen=True)
class WrittenFile:
    """A file of the mixture, its place below the output folder, and what it holds.

    `bytes` and `sha256` are of the file as it lies.
    """

    file: str
    documents: int
    bytes: int
    sha256: str


@dataclass(frozen=True)
class MixManifest:
    """What a mixture was made of and how, as `manifest.json` says it.

    `inputs` hold name, SHA-256, bytes and records of each input file; `files` of each written one.
    `digest` is the SHA-256 over names and digests of the written files.  `factor` is what all
    budgets were multiplied by: below 1 where *remove* had too little to refill from.
    `duplicates` counts records whose text stands in an earlier record: in the `baseline`, in the
    `mixture` with each record taken once, and those `by_copies` that *enhance* wants.
    """

    plan: Mapping[str, Any]
    inputs: tuple[Mapping[str, Any], ...]
    documents: int
    tokens: int | None
    languages: Mapping[str, LanguageMix]
    largest_difference: float
    factor: float
    duplicates: Mapping[str, int]
    files: tuple[WrittenFile, ...]
    digest: str

    @property
    def kind(self) -> str:
        """`baseline`, `remove` or `enhance`."""
        return str(self.plan["kind"])

    @property
    def unit(self) -> str:
        """What shares and budgets count: `documents` or `tokens`."""
        return str(self.plan["by"])

    @property
    def random(self) -> bool:
        """Whether documents were selected at random, as a control."""
        return bool(self.plan["select"] == "random")


@dataclass(frozen=True, kw_only=True)
class MixedCorpus(Result):
    """A mixture, with the figures of its `manifest` (see `MixManifest`)."""

    kind: str
    documents: int
    tokens: int | None
    languages: Mapping[str, LanguageMix]
    largest_difference: float
    factor: float
    duplicates: Mapping[str, int]
    manifest: str
    digest: str


@dataclass(frozen=True)
class ShownDocument(Record):
    """A document near the cut and why it is shown: `highest`, `last selected`, `first not …`."""

    id: str
    score: float
    place: str
    text: str
    cut: bool
    tokens: int | None = None


@dataclass(frozen=True)
class ShownLanguage(Record):
    """Scores of a language's baseline by the edges of their bins, and some of its documents."""

    edges: tuple[float, ...]
    baseline: tuple[int, ...]
    selected: tuple[int, ...]
    documents: tuple[ShownDocument, ...]

    @property
    def scores(self) -> ScoreHistogram | None:
        """Those of the baseline, if it has any."""
        return ScoreHistogram(self.edges, self.baseline) if self.edges else None


@dataclass(frozen=True)
class MixSummary(Record):
    """What `summary.json` of a finished run holds."""

    languages: Mapping[str, ShownLanguage]
