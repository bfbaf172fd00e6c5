"""What `compare release` returns: what each language lost from one checkpoint to the next."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from headscope.estimates import Estimate
from headscope.results.common import DataRead, ModelFacts
from headscope.runs import Record, Result, entry

Answer = Literal["kept", "lost", "cannot tell"]


@dataclass(frozen=True, kw_only=True)
class Change(Record):
    """One number of a language or direction, in both checkpoints on the same examples.

    Attributes:
        part: a language, or a direction such as `en-de`.
        statistic: `loss` of documents and `reference_loss` of translations (nats a token),
            `off_target` (the share of outputs in another language), `chrf` (chrF++, 0 to 100).
        old, new: its values.
        change: new − old with the interval that holds for all changes together.
        margin: by how much it may get worse.
        answer: *lost* where the whole interval is worse than the margin, *kept* where none of it
            is, else *cannot tell*.
        examples: documents or sentences.
    """

    part: str
    statistic: str
    old: float
    new: float
    change: Estimate = entry(flat="", names={"value": "change"})
    margin: float
    answer: Answer
    examples: int


@dataclass(frozen=True, kw_only=True)
class ReleaseResult(Result):
    """The result: both checkpoints, every change, and the level of each one's interval.

    `same`: whether both have the same weights, so that everything is kept, whatever texts say.
    """

    old: ModelFacts = field(default_factory=ModelFacts)
    new: ModelFacts = field(default_factory=ModelFacts)
    level: float = 0.95
    same: bool = False
    changes: tuple[Change, ...] = ()
    identifier: str | None = None
    data: Mapping[str, DataRead] = field(default_factory=dict)

    def answered(self, answer: Answer) -> tuple[Change, ...]:
        """The changes with this answer."""
        return tuple(change for change in self.changes if change.answer == answer)
