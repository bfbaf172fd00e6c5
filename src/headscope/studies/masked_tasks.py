"""A learned mask and the task it is looked at with: what several commands begin from."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from headscope.data.tasks import Task
from headscope.errors import InputError
from headscope.heads import Geometry, resolve_heads
from headscope.heads.adaptation import read_object
from headscope.heads.resolve import place_of
from headscope.heads.store import kind_of
from headscope.results.common import Leakage
from headscope.runs import Result, encode
from headscope.runs.reading import result_of
from headscope.studies.leakage import check_task_leakage
from headscope.studies.models import POCKET, ModelChoice
from headscope.studies.tasks import TaskChoice, read_tasks, task_inputs
from headscope.studies.verify.mask import digest_of
from headscope.verify.masks.asking import Mask, read_mask


@dataclass(frozen=True)
class TaskForMask:
    """The held-out examples of one task, and where a mask for it is to be found.

    `heads` is what `--heads` said, `inputs` the task's content hash for a run's signature, and
    `leakage` says how many of the examples the mask was trained on.
    """

    heads: str
    task: Task
    inputs: dict[str, str]
    leakage: Leakage

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

    def signature(self, mask: Mask) -> dict[str, Any]:
        """What a run's signature says about mask and task beside the settings."""
        return {
            "mask": digest_of(mask),
            "task": {"name": self.task.name, "prompts": [self.task.bare, self.task.instruction]},
            "examples": [example.id for example in self.task.examples],
            "leakage": encode(self.leakage),
        }

    def data(self) -> dict[str, Any]:
        """What a result says about the task's file."""
        task = self.task
        source = {"path": task.path, "digest": task.digest, "sentences": len(task.examples)}
        return {task.name: source}

    def about(self, mask: Mask) -> dict[str, Any]:
        """What a result says about mask and task."""
        task = self.task
        return {
            "task": task.name,
            "prompts": {"bare": task.bare, "instructed": task.instruction},
            "data": self.data(),
            "mask": {**encode(mask.about()), "place": self.heads},
            "leakage": encode(self.leakage),
        }


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
    return TaskForMask(heads, task, task_inputs(tasks), leakage)


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
