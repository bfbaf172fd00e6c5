"""`headscope pocket tasks`: task files of the bundled model's world."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from headscope import options
from headscope.runs import Result, Signature
from headscope.settings import Option, Settings
from headscope.studies.study import Study


@dataclass(frozen=True)
class PocketTasks(Settings):
    """Write tasks in the format of lm-evaluation-harness, for `headscope verify tasks --task DIR`.

    Some need a mapping from one language to another, some do not.
    """

    split: Annotated[options.WorldSplit, Option("Of the items.", panel="Data")] = "test"
    n: Annotated[int, Option("Most items of a task.", min=1)] = 200
    seed: options.Seed = 0


@dataclass(frozen=True, kw_only=True)
class WrittenTasks(Result):
    """How many items each task has, by its name."""

    tasks: Mapping[str, int]


def write(settings: PocketTasks, out: Path) -> WrittenTasks:
    """Write the tasks, and count their items."""
    from headscope.pocket.tasks import write_tasks

    return WrittenTasks(
        signature=str(Signature.of("pocket tasks", settings, {})),
        run=str(out),
        tasks=write_tasks(out, settings.split, settings.n, settings.seed),
    )


def _text(result: WrittenTasks) -> str:
    lines = [f"{name}: {count} items" for name, count in result.tasks.items()]
    return "\n".join([*lines, f"task files: {result.run}"])


command = Study(
    PocketTasks,
    write,
    _text,
    out=Option("Where the task files go.", metavar="DIR"),
    usage="--out runs/tasks",
)
