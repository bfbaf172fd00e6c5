"""Parts that the results of several commands have; a command's own stand in its file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headscope.heads import Head, HeadScores, rank_words
from headscope.runs import Record, Result, decode, entry

__all__ = [
    "Ablation",
    "Checked",
    "Leakage",
    "ModelFacts",
    "ModelResult",
    "Ranking",
    "ReferenceText",
    "ScoredHead",
    "against",
]


def against(ending: str = "", examples: str = "sentences") -> Any:
    """A field for an `Against` that stands flat: `against_random`, `p_EXAMPLES`, `p_draws`, ….

    All names end in `ending`, such as `_layer_matched`.
    """
    names = {"difference": "against_random", "p_examples": f"p_{examples}"}
    return entry(flat=ending, names=names | {"distinct": "distinct_draws"})


@dataclass(frozen=True)
class ModelFacts(Record):
    """The model that a result is about; runs of old versions may lack some."""

    name: str | None = entry(absent=True)
    revision: str | None = None
    digest: str | None = entry(absent=True)
    parameters: int | None = entry(absent=True)
    dtype: str | None = entry(absent=True)
    device: str | None = entry(absent=True)
    heads: int | None = entry(absent=True)
    geometry: Mapping[str, Any] | None = entry(absent=True)


@dataclass(frozen=True, kw_only=True)
class ModelResult(Result):
    """The result of a command with a model."""

    model: ModelFacts | None = entry(absent=True)


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
class Checked(Record):
    """Whether the original model does the task, and of each direction or task what was judged."""

    baseline_works: bool | None = None
    baseline_check: Mapping[str, Any] = field(default_factory=dict)


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
    """The texts that mean ablation takes its means over: where they come from, and how many."""

    source: str | None = None
    texts: int | None = None
    digest: str | None = None


@dataclass(frozen=True, kw_only=True)
class Ablation(Record):
    """What removed heads give: zero, or their mean output over a reference text."""

    ablate: str = "zero"
    reference_text: ReferenceText | None = None


@dataclass(frozen=True)
class ScoredHead(Record):
    """A head with its score, its 95 % interval and its place in the ranking.

    The method's other numbers of a head stand in `unknown`, by their names in JSON.
    """

    layer: int
    head: int
    score: float | None
    low: float | None = None
    high: float | None = None
    chance: float | None = entry(absent=True)
    above_chance: float | None = None
    rank: int | None = entry(absent=True)

    @property
    def place(self) -> Head:
        """The head itself."""
        return Head(self.layer, self.head)

    @classmethod
    def all_of(cls, scores: HeadScores) -> tuple[ScoredHead, ...]:
        """All heads of these scores, highest first."""
        return tuple(decode(cls, row) for row in scores.records())
