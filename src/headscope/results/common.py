"""Parts that the results of several commands have; a command's own stand in its file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headscope.estimates import UNWRITTEN, Baseline, PlannedPart
from headscope.evidence.rows import Evidence, Level, Tested
from headscope.heads import Head, HeadScores, Rank, rank_words
from headscope.runs import Record, Result, decode, entry
from headscope.shown.blocks import Next


@dataclass(frozen=True)
class ModelFacts(Record):
    """The model that a result is about; runs of old versions may lack some.

    `adapter`: what lies beside its weights and is applied to them, such as ``LORA (rank 4)``.
    """

    name: str | None = entry(absent=True)
    revision: str | None = None
    digest: str | None = entry(absent=True)
    parameters: int | None = entry(absent=True)
    dtype: str | None = entry(absent=True)
    device: str | None = entry(absent=True)
    heads: int | None = entry(absent=True)
    geometry: Mapping[str, Any] | None = entry(absent=True)
    adapter: str | None = entry(absent=True)


@dataclass(frozen=True)
class BaselineCheck(Record):
    """What was judged of each direction or task, under its name, and what may help."""

    tries: str | None = entry(name="try", absent=True)
    judged: Mapping[str, Baseline] = entry(others=True)


@dataclass(frozen=True)
class Checked(Record):
    """Whether the original model does the task, of every direction or task; None: not tried."""

    baseline_works: bool | None = None
    baseline_check: BaselineCheck | None = None


@dataclass(frozen=True, kw_only=True)
class ModelResult(Checked, Result):
    """The result of a command with a model.

    `first_prompts`: the first prompt of each part, shots included, as the model read it; None where
    it reads texts as they are.
    """

    model: ModelFacts | None = entry(absent=True)
    first_prompts: Mapping[str, str] | None = entry(absent=True)

    @property
    def model_name(self) -> str:
        """The model as a page calls it."""
        return (self.model.name if self.model else None) or "model"


@dataclass(frozen=True, kw_only=True)
class ComparedResult(ModelResult):
    """The result of a command that compares a model with and without heads.

    Its rows stand in JSON beside `verdict` and `cautions`, and with a verdict that is open what
    decides it, `next`; `details`, whose type a subclass declares, are what only this command has.
    """

    next: Next | None = entry(absent=True)

    evidence: Evidence = entry(Evidence(), flat="")
    details: Any = None

    @property
    def levels(self) -> tuple[Level, ...]:
        """Every statistic under every condition, by part."""
        return self.evidence.levels

    @property
    def tests(self) -> tuple[Tested, ...]:
        """Selected heads beside the draws of every control."""
        return self.evidence.tests


@dataclass(frozen=True, kw_only=True)
class ClusterJob(ModelResult):
    """A run that a cluster works on: `job` was `submitted` now or before and writes its `logs`; so
    many `workers` compute `units_left` parts of the run."""

    job: str
    submitted: bool
    logs: str
    workers: int
    units_left: int
    pending: bool = field(default=True, repr=False, metadata=UNWRITTEN)


@dataclass(frozen=True, kw_only=True)
class PlannedWork(ModelResult):
    """How long a comparison takes here, by part of the work."""

    plan: tuple[PlannedPart, ...]
    pending: bool = field(default=True, repr=False, metadata=UNWRITTEN)


@dataclass(frozen=True)
class Ranking(Record):
    """What heads are ranked by, None where they are not the top of scores; why not, a note."""

    rank: str | None = None
    rank_note: str | None = None

    @property
    def ranked_by(self) -> str | None:
        """The same in words; None if by nothing."""
        return rank_words({"rank": self.rank, "rank_note": self.rank_note})


@dataclass(frozen=True)
class DataRead(Record):
    """The data that was read: how much, and how words were linked."""

    examples: int | None = entry(absent=True)
    aligner: str | None = entry(absent=True)
    units: str | None = entry(absent=True)


@dataclass(frozen=True)
class Leakage(Record):
    """`overlap` of `of` test examples are among those that the heads were found on.

    `known` is False, and `overlap` None, where the heads do not say what they were found on.
    """

    known: bool
    overlap: int | None
    of: int


@dataclass(frozen=True)
class ReferenceText(Record):
    """The texts that replacements are made from: where they come from, and how many; `everywhere`:
    what heads give at every token is of the answers alone."""

    source: str | None = None
    texts: int | None = None
    digest: str | None = None
    everywhere: bool = False


@dataclass(frozen=True, kw_only=True)
class Ablation(Record):
    """What removed heads give, one of `headscope.ablations.KINDS`: zero, or made from texts."""

    ablate: str = "zero"
    reference_text: ReferenceText | None = None


@dataclass(frozen=True, kw_only=True)
class ComparedDetails(Ranking, Ablation):
    """What every comparison tells beside its rows.

    `leakage` is None where no data chose the heads; `outside_note` says what the control `outside`
    could not leave out.
    """

    draws: int = 0
    seed: int = 0
    leakage: Leakage | None = None
    outside_note: str | None = None


@dataclass(frozen=True, kw_only=True)
class TableResult(ComparedResult):
    """The result of a comparison that has nothing of its own beside its table."""

    details: ComparedDetails = ComparedDetails()


@dataclass(frozen=True)
class OneHead(Record):
    """One head with its numbers."""

    layer: int
    head: int

    @property
    def place(self) -> Head:
        """The head itself."""
        return Head(self.layer, self.head)


@dataclass(frozen=True)
class ScoredHead(OneHead):
    """A head with its score, its 95 % interval and its place in the ranking.

    The method's other numbers of a head, such as `chance`, stand in `unknown`; see `number`.
    """

    score: float | None
    low: float | None = None
    high: float | None = None
    above_chance: float | None = None
    rank: int | None = entry(absent=True)

    def number(self, name: str) -> float | None:
        """The head's number of this name in JSON; None where it is not known."""
        number: float | None = {**vars(self), **self.unknown}.get(name)
        return number

    @classmethod
    def all_of(cls, scores: HeadScores, by: Rank = "above-chance") -> tuple[ScoredHead, ...]:
        """All heads of these scores, highest first; their `rank` is by `by`."""
        return tuple(decode(cls, row) for row in scores.records(by))


@dataclass(frozen=True)
class SetOverlap(Record):
    """How far two sets of heads are the same: their Jaccard index, and what chance gives.

    `expected` is the papers' ratio, `expected_exact` the mean index of random sets of these sizes,
    `p_value` the probability that such sets share as many heads.
    """

    jaccard: float
    expected: float
    expected_exact: float
    p_value: float


@dataclass(frozen=True)
class LanguagesOverlap(Record):
    """How far the sets called `a` and `b` are the same."""

    a: str
    b: str
    overlap: SetOverlap = entry(flat="")
