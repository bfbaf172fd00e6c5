"""The result of `pocket trater`: what models trained on each mixture can do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headscope.results.common import ModelResult
from headscope.runs import Record, entry

#: What is shown of every mixture: its name in results, its heading, its digits.
MEASURES = (
    ("chrf_prompt", "chrF++, prompt", 1),
    ("chrf_document", "chrF++, document", 1),
    ("words_across", "words translated %", 1),
    ("words_within", "word tasks %", 1),
    ("questions", "questions %", 1),
    ("gain", "gain, nats", 2),
    ("plain_nll", "NLL of plain text", 2),
)


@dataclass(frozen=True)
class Measured(Record):
    """What is measured of a model, means over several, or standard deviations.

    chrF++ from 0 to 100, `gain` in nats a token by which the true translation is likelier after its
    own text than after another one, `nll` of the true translation, `plain_nll` of documents in one
    language, and per cent of items answered right.
    """

    chrf_prompt: float | None = None
    chrf_document: float | None = None
    gain: float | None = None
    nll: float | None = None
    plain_nll: float | None = None
    words_across: float | None = None
    words_within: float | None = None
    questions: float | None = None

    def value(self, measure: str) -> float | None:
        """One of `MEASURES`."""
        number: float | None = getattr(self, measure)
        return number


@dataclass(frozen=True, kw_only=True)
class Trained(Record):
    """One training: what its mixture holds, and what the model can do."""

    kind: str
    share: float | None
    seed: int
    documents: int
    tokens: int
    bilingual_documents: int | None = entry(absent=True)
    bilingual_share_of_tokens: float
    languages: Mapping[str, float] | None = entry(absent=True)
    largest_difference_of_shares: float
    steps: int
    measured: Measured = entry(Measured(), flat="")


@dataclass(frozen=True, kw_only=True)
class Difference(Record):
    """Between models of the same seeds, with a 95 % interval over sentences or items, if any."""

    value: float
    low: float | None = entry(absent=True)
    high: float | None = entry(absent=True)
    by_seed: tuple[float, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Condition(Record):
    """One kind of mixture: means and standard deviations over seeds, and differences.

    Those to the corpus as it is, and of selections by score those to random ones.
    """

    kind: str
    share: float | None
    seeds: tuple[int, ...]
    bilingual: float | None = None
    mean: Measured = entry(Measured(), flat="")
    sd: Measured = entry(Measured(), flat="_sd")
    differences: Mapping[str, Difference] | None = entry(absent=True)
    against_random: Mapping[str, Difference] | None = entry(absent=True)


@dataclass(frozen=True, kw_only=True)
class Corpus(Record):
    """How many documents and tokens of each kind there are, and the rating."""

    documents: Mapping[str, int]
    tokens: Mapping[str, int] | None = entry(absent=True)
    bilingual_share_of_tokens: float
    heads: tuple[str, ...] | None = entry(absent=True)
    signature: str | None = entry(absent=True)


@dataclass(frozen=True)
class Power(Record):
    """What as many trainings at the paper's share could show: a change of chrF++."""

    kind: str
    change: float
    sd: float
    power: float
    enough: bool


@dataclass(frozen=True)
class PublishedTable(Record):
    """Table 1 of the paper: its measures, and their figures by kind of mixture."""

    source: str
    measures: tuple[str, ...]
    baseline: tuple[float, ...] = ()
    remove: tuple[float, ...] = ()
    enhance: tuple[float, ...] = ()


@dataclass(frozen=True, kw_only=True)
class TraterResult(ModelResult):
    """The result of `pocket trater`."""

    corpus: Corpus
    models: tuple[Trained, ...]
    conditions: tuple[Condition, ...]
    chance: Mapping[str, float] = field(default_factory=dict)
    power: tuple[Power, ...] = ()
    paper: PublishedTable
