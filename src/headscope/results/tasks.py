"""Tasks under removal: metrics with the heads, without them, and without random ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from headscope.estimates import Against, Estimate
from headscope.results.common import Ablation, Checked, ModelResult, Ranking, against
from headscope.results.removal import Controls, Kind, Label
from headscope.runs import Record, entry


@dataclass(frozen=True, kw_only=True)
class Value(Record):
    """A metric's value."""

    value: float


@dataclass(frozen=True, kw_only=True)
class Measured(Value):
    """A metric's value over examples.

    Attributes:
        stderr: of a mean over examples, s / √n; else None.
        low, high: the 95 % interval over examples, Wilson's of a share, else the bootstrap's.
        above_chance: (value − chance) / (1 − chance), of accuracies of a choice.
    """

    stderr: float | None = None
    low: float | None = None
    high: float | None = None
    above_chance: float | None = entry(absent=True)

    @property
    def interval(self) -> tuple[float, float] | None:
        """The bounds, where they are known."""
        return None if self.low is None or self.high is None else (self.low, self.high)


@dataclass(frozen=True, kw_only=True)
class ValueCondition(Value):
    """A metric's value without heads."""

    label: Label = entry(flat="")


@dataclass(frozen=True, kw_only=True)
class TaskCondition(ValueCondition, Measured):
    """A metric without heads; the change is that to the untouched model, paired over examples.

    Chosen heads are tested against random ones: both p are small where the chosen hurt more. Where
    a metric is no mean over examples only its value and p over draws are known.
    """

    heads: tuple[str, ...]
    filled_up: int
    change: Estimate
    free: Against | None = against("", "examples")
    matched: Against | None = against("_layer_matched", "examples")

    def than(self, kind: Kind) -> Against | None:
        """The test against random heads of one kind."""
        return self.free if kind == "random" else self.matched


@dataclass(frozen=True, kw_only=True)
class TaskComparison(Record):
    """A metric under every condition."""

    metric: str
    baseline: Value
    conditions: tuple[ValueCondition, ...]

    def drawn(self, top: ValueCondition, kind: Kind = "random") -> list[float]:
        """The values under the random draws of one kind for chosen heads."""
        labels = ((row.label, row.value) for row in self.conditions)
        return [value for label, value in labels if label.kind == kind and label.matches(top.label)]


@dataclass(frozen=True, kw_only=True)
class Metric(TaskComparison):
    """A metric of one task; `chance` is guessing among the choices, None where it has none."""

    higher_is_better: bool
    chance: float | None
    examples: int
    baseline: Measured
    conditions: tuple[TaskCondition, ...]


@dataclass(frozen=True, kw_only=True)
class Task(Metric):
    """A task by its first metric; `truncated` prompts lost their beginning."""

    groups: tuple[str, ...] = ()
    shots: int | None = None
    truncated: int = 0
    other_metrics: Mapping[str, Metric] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class TaskGroup(TaskComparison):
    """Plain means over tasks that share a metric."""

    tasks: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class TasksResult(ModelResult, Ranking, Checked, Ablation, Controls):
    """The result of `verify tasks`; `heads` are those of the largest k.

    Older runs name no rank: they cut by score.
    """

    k: tuple[int, ...]
    rank: str | None = "score"
    gates: tuple[float, ...] = ()
    draws: int
    seed: int = 0
    heads: tuple[str, ...] = ()
    harness: str
    tasks: Mapping[str, Task]
    groups: Mapping[str, TaskGroup]


AnyCondition = TypeVar("AnyCondition", bound=ValueCondition)


def tops(conditions: Sequence[AnyCondition]) -> Iterator[AnyCondition]:
    """The conditions of chosen heads."""
    return (condition for condition in conditions if condition.label.kind == "top")
