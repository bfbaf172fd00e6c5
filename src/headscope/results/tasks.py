"""Tasks under removal: what `verify tasks` tells beside its rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headscope.results.common import ComparedDetails, ComparedResult
from headscope.runs import Record


@dataclass(frozen=True, kw_only=True)
class Task(Record):
    """A task: its main `metric`, and `chance`, guessing among choices, None where it has none.

    `truncated` prompts lost their beginning, since they exceed the context.
    """

    metric: str
    chance: float | None
    examples: int
    groups: tuple[str, ...] = ()
    shots: int | None = None
    truncated: int = 0


@dataclass(frozen=True, kw_only=True)
class TasksDetails(ComparedDetails):
    """What was asked; `heads` are those of the largest k, `groups` tasks that share a metric."""

    k: tuple[int, ...] = ()
    gates: tuple[float, ...] = ()
    heads: tuple[str, ...] = ()
    harness: str = ""
    tasks: Mapping[str, Task] = field(default_factory=dict)
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class TasksResult(ComparedResult):
    """The result of `verify tasks`; its parts are tasks, and groups of them."""

    details: TasksDetails = field(default_factory=TasksDetails)
