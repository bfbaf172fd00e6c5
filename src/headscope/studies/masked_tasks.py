"""Masks and the tasks that they are tested on: what several commands begin from."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from headscope import options
from headscope.data.tasks import Task, TaskSides
from headscope.errors import InputError
from headscope.evidence.controls import SHUFFLES
from headscope.evidence.rows import Condition
from headscope.heads import Geometry, resolve_heads
from headscope.heads.adaptation import read_object
from headscope.heads.resolve import place_of
from headscope.heads.store import kind_of
from headscope.measure.baseline import Rules
from headscope.results.common import Leakage
from headscope.runs import Result
from headscope.runs.reading import result_of
from headscope.settings import UNSIGNED, Nested
from headscope.studies.comparison import Bench, Chosen, Comparing, Examples
from headscope.studies.leakage import check_task_leakage, together
from headscope.studies.models import POCKET, ModelChoice
from headscope.studies.tasks import TaskChoice, read_tasks, resolved_tasks, task_examples
from headscope.verify.masked_tasks.asking import (
    Asking,
    Mask,
    MaskRecord,
    Planned,
    ask,
    asked,
    read_mask,
    write_samples,
)
from headscope.verify.masked_tasks.conditions import TaskMasks

if TYPE_CHECKING:
    from headscope.lm import LanguageModel


@dataclass(frozen=True, kw_only=True)
class OnTasks(Comparing):
    """Settings of a comparison that puts masks on a model: tasks, and random masks beside them."""

    tasks: TaskChoice = field(default_factory=TaskChoice)
    # Random masks of each kind.
    draws: options.Draws = 5
    controls: options.MaskControls = SHUFFLES
    allow_overlap: options.AllowOverlap = field(default=False, metadata=UNSIGNED)
    baseline: Annotated[Rules, Nested(without=("errors",))] = field(default_factory=Rules)


@dataclass(frozen=True, kw_only=True)
class MasksOnTasks(OnTasks):
    """The same where masks are said by `--heads`, for all tasks or for each."""

    masks: options.Masks = field(metadata=UNSIGNED)


@dataclass(frozen=True, kw_only=True)
class AskedUnderMasks(MasksOnTasks, Asking):
    """The same where the model is asked to do the tasks."""


@dataclass(frozen=True, kw_only=True)
class TaskUnderMask(TaskSides):
    """A task, and how many of its examples its mask was trained on."""

    leakage: Leakage


AnyOnTasks = TypeVar("AnyOnTasks", bound=OnTasks)
AnyAsked = TypeVar("AnyAsked", bound=AskedUnderMasks)
AnyTask = TypeVar("AnyTask", bound=TaskUnderMask)


def examples_of(tasks: Mapping[str, AnyTask], shots: int = 0, **more: Any) -> Examples[AnyTask]:
    """Tasks as what is measured; `more` goes to `Examples`."""
    return task_examples(tasks, together(task.leakage for task in tasks.values()), shots, **more)


def read_under_masks(config: MasksOnTasks) -> Examples[TaskUnderMask]:
    """The tasks, each under its mask; InputError for a mask trained on any, unless allowed."""
    tasks = read_tasks(config.tasks, config.model.model, config.seed)
    named = masks_by_task(config.masks, tasks)
    leaks = {
        name: check_task_leakage(str(named[name]), [sides.test], config.allow_overlap)
        for name, sides in tasks.items()
    }
    parts = {name: TaskUnderMask(**vars(own), leakage=leaks[name]) for name, own in tasks.items()}
    return examples_of(parts, config.tasks.shots)


def with_chat(
    lm: LanguageModel, config: AnyOnTasks, examples: Examples[AnyTask]
) -> tuple[AnyOnTasks, Examples[AnyTask]]:
    """The settings with what `chat` comes to for this model."""
    tasks = resolved_tasks(lm, config.tasks, config.model.model)
    return replace(config, tasks=tasks), examples


def masks_for(
    lm: LanguageModel, config: MasksOnTasks, examples: Examples[AnyTask]
) -> dict[str, TaskMasks]:
    """The mask of each task."""
    return {
        name: TaskMasks(
            read_mask(place, lm.geometry), examples.parts[name].test.instruction is not None
        )
        for name, place in masks_by_task(config.masks, examples.parts).items()
    }


def chosen_masks(masks: Mapping[str, TaskMasks]) -> Chosen:
    """The masks of each task as the heads that a command changes; `known` are they."""
    signed = {name: list(map(digest_of, of_task)) for name, of_task in masks.items()}
    sets = {name: [of_task] for name, of_task in masks.items()}
    return Chosen(sets, signed={"masks": signed}, known=masks)


def answers_under(
    bench: Bench[AnyAsked, AnyTask],
    tests: Mapping[str, Task],
    planned: Mapping[str, Planned],
    part: str = "samples",
    write: bool = True,
    prefix: str = "",
) -> dict[str, dict[Condition, MaskRecord]]:
    """What the model does with each task under every condition, kept as `PART/TASK.jsonl`."""
    config, records = bench.config, {}
    for name, task in tests.items():
        pool = bench.parts[name].pool
        question = asked(task, pool, config.tasks.shots, config.seed)
        records[name] = ask(
            bench.lm, question, planned[name], config, bench.run, bench.progress, write, prefix
        )
        write_samples(bench.run, part, task, records[name])
    return records


def about_task(task: Task) -> dict[str, Any]:
    """What results say of any task that is tested, as `TestedTask` has it."""
    return {
        "examples": len(task.examples),
        "language": task.language,
        "translation": task.is_translation,
        "instruction": task.instruction,
    }


def masks_by_task(masks: Sequence[str], tasks: Collection[str]) -> dict[str, Path]:
    """The run of each task's mask, from `RUN` for all tasks or `TASK=RUN` for each.

    Raises `InputError` if a task has none, or a name is no task's.
    """
    places: dict[str, Path] = {}
    for text in masks:
        name, place = named_place(text)
        if name is None:
            for task in tasks:
                places.setdefault(task, place)
            continue
        if name not in tasks:
            raise InputError(
                f"--heads {text} is for a task {name!r} that is not tested; tested are "
                f"{', '.join(tasks)}"
            )
        places[name] = place
    missing = [name for name in tasks if name not in places]
    if missing:
        raise InputError(f"the task {missing[0]} has no mask; add --heads {missing[0]}=RUN")
    return {name: places[name] for name in tasks}


def named_place(text: str) -> tuple[str | None, Path]:
    """The name given to a mask as `NAME=RUN`, if any, and its run."""
    name, equals, place = text.partition("=")
    return (name, Path(place)) if equals and not Path(text).exists() else (None, Path(text))


def digest_of(mask: Mask) -> dict[str, Any]:
    """What of a mask decides results, for a run's signature."""
    parts = mask.feed_forward
    return {
        "removed": [*mask.removed.keys],
        "on": mask.place,
        "feed_forward": None if parts is None else parts.tolist(),
    }


@dataclass(frozen=True, kw_only=True)
class TaskForMask(TaskUnderMask):
    """The held-out examples of one task, and where a mask for it is: what `--heads` said."""

    heads: str

    def mask(self, geometry: Geometry) -> Mask:
        """The mask for a model of this geometry: of a mask run, a saved gate, or heads to keep.

        Raises:
            InputError: if it is of another geometry, or keeps all heads or none.
        """
        place = place_of(self.heads)
        folders = () if place is None else (place / "gate", place)
        if any(kind_of(folder) == "gate" for folder in folders) and place is not None:
            mask = read_mask(place, geometry)
        else:
            kept = resolve_heads(self.heads, None, geometry)
            mask = Mask(kept.complement().removed(), name=self.heads)
        if not 0 < len(mask.removed) < geometry.total:
            raise InputError(
                f"{self.heads}: keeps {len(mask.kept)} of {geometry.total} heads, so there is "
                "nothing to compare; name a mask that keeps some heads and drops others"
            )
        return mask

    @property
    def signed(self) -> dict[str, Any]:
        """What a run's signature says about the task beside the settings."""
        return {
            "task": {"name": self.name, "prompts": [self.test.bare, self.test.instruction]},
            "examples": [example.id for example in self.test.examples],
        }

    def data(self) -> dict[str, Any]:
        """What a result says about the task's file."""
        task = self.test
        source = {"path": task.path, "digest": task.digest, "sentences": len(task.examples)}
        return {task.name: source}


def read_task_for_mask(
    heads: str,
    choice: TaskChoice,
    model: ModelChoice,
    seed: int = 0,
    allow_overlap: bool = False,
) -> TaskForMask:
    """The one task chosen, or else the one that the mask run says it was trained on.

    Raises:
        InputError: if there is no task or several, it has no instruction to be compared with, or
            its examples are among those the mask was trained on.
    """
    wanted = choice if choice.task or choice.pair or choice.data else own_task(heads, choice, model)
    tasks = read_tasks(wanted, model.model, seed)
    if len(tasks) > 1:
        raise InputError(
            f"one task at a time is looked at, but {len(tasks)} are named ({', '.join(tasks)}); "
            "name one of them"
        )
    task = next(iter(tasks.values())).test
    if task.instruction is None:
        raise InputError(
            f"the task {task.name!r} has no instruction to compare with; give one with "
            '--instruction, such as "Say what to do.\\nInput: {input}\\nAnswer:"'
        )
    leakage = check_task_leakage(heads, [task], allow_overlap)
    return TaskForMask(None, task, heads=heads, leakage=leakage)


def place_of_example(task: Task, example: str) -> int:
    """Where the example of an id stands in its task; InputError if there is none."""
    ids = [each.id for each in task.examples]
    if example not in ids:
        raise InputError(
            f"--example {example} is none of the {len(ids)} held-out examples of {task.name!r}; "
            f"there are {', '.join(ids[:8])}{' …' if len(ids) > 8 else ''}"
        )
    return ids.index(example)


def own_task(heads: str, choice: TaskChoice, model: ModelChoice) -> TaskChoice:
    """The choice of the pocket model's task that a mask run was trained on; else as it was."""
    result = mask_result(heads)
    if result is None or result.task is None or model.model != POCKET:
        return choice
    name = result.task
    from headscope.pocket.sample import task_names
    from headscope.pocket.world.languages import DIRECTIONS

    if name in DIRECTIONS:
        return dataclasses.replace(choice, pair=(name,))
    return dataclasses.replace(choice, task=(name,)) if name in task_names() else choice


@dataclass(frozen=True, kw_only=True)
class MaskRun(Result):
    """What is asked of a mask's run: its task."""

    task: str | None = None


def mask_result(heads: str) -> MaskRun | None:
    """The result of the mask run that `heads` names; None if it is anything else."""
    place = place_of(heads)
    if place is None or not (place / "result.json").is_file():
        return None
    command = read_object(place / "run.json").get("command")
    return result_of(place, MaskRun, "find mask") if command == "find mask" else None
