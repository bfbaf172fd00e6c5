"""A learned mask on held-out examples beside its controls, in a run folder."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from headscope import options
from headscope.errors import InputError
from headscope.measure.baseline import Rules
from headscope.results.common import Leakage
from headscope.results.mask_tests import MaskedTask, MaskTests, OtherMask
from headscope.runs import Run
from headscope.settings import UNSIGNED, Option, Part, Settings
from headscope.studies.baseline import check_tasks
from headscope.studies.inputs import ModelChoice, Progress, run_with_model
from headscope.studies.leakage import check_task_leakage
from headscope.studies.tasks import TaskChoice, TaskSides, read_tasks, resolved_tasks, task_inputs
from headscope.verify.masks.asking import NEW_TOKENS, Asked, Asking, Condition, Record, ask, asked
from headscope.verify.masks.evidence import describe, statistics, together
from headscope.verify.masks.mask import Mask, read_mask, shuffled

if TYPE_CHECKING:
    from headscope.lm import LanguageModel

__all__ = ["COMMAND", "VerifyMask", "digest_of", "masks_by_task", "sample_rows", "verify_mask"]

COMMAND = "verify mask"


@dataclass(frozen=True)
class VerifyMask(Settings):
    """Ask a model without instruction, instructed, masked, and under shuffled and foreign masks.

    On held-out examples: the loss of the right outputs, and what the model writes. With --shots
    every prompt begins with as many examples.
    """

    masks: options.Masks = field(metadata=UNSIGNED)
    tasks: TaskChoice = field(default_factory=TaskChoice)
    model: ModelChoice = field(default_factory=ModelChoice)
    foreign: Annotated[
        tuple[str, ...],
        Option(
            "A mask found for another task or on another model of the same geometry; repeatable.",
            metavar="RUN",
        ),
    ] = field(default=(), metadata=UNSIGNED)
    hybrid: Annotated[
        str | None, Option("A mask found on several tasks at once.", metavar="RUN")
    ] = field(default=None, metadata=UNSIGNED)
    # Shuffled masks, free and layer-matched each; none where a paper compares other masks alone.
    draws: Annotated[int, Option("Draws of random heads.", min=1, checked=False)] = 5
    seed: options.Seed = 0
    asking: Asking = field(default_factory=Asking)
    allow_overlap: options.AllowOverlap = False
    baseline: Annotated[Rules, Part(without=("errors",))] = field(default_factory=Rules)


def verify_mask(
    config: VerifyMask, out: Path | None = None, progress: Progress | None = None
) -> MaskTests:
    """Ask under every condition, keep what came, and return the command's result.

    Beside the result the run holds `samples/TASK.jsonl`: of every condition and example the loss
    of the right output, its tokens, and what the model wrote.
    """
    began = time.monotonic()
    tasks = read_tasks(config.tasks, config.model.model, config.seed)
    named = masks_by_task(config.masks, tasks)
    leaks = _leaks(config, tasks, named)
    lm = config.model.load_for(out)
    config = replace(config, tasks=resolved_tasks(lm, config.tasks, config.model.model))
    own = {name: read_mask(place, lm.geometry) for name, place in named.items()}
    foreign = [read_mask(place, lm.geometry) for place in config.foreign]
    hybrid = None if config.hybrid is None else read_mask(config.hybrid, lm.geometry)
    planned = {
        name: _conditions(sides, own[name], foreign, hybrid, config)
        for name, sides in tasks.items()
    }
    settings = {
        "settings": config,
        "masks": {name: digest_of(mask) for name, mask in own.items()},
        "others": [digest_of(mask) for mask in (*foreign, *([hybrid] if hybrid else []))],
    }

    def compute(run: Run) -> MaskTests:
        shots = config.tasks.shots
        works = check_tasks(lm, tasks, shots, config.seed, run, config.baseline, progress)
        shown = {
            name: _task(lm, run, sides, own[name], planned[name], leaks[name], config, progress)
            for name, sides in tasks.items()
        }
        return MaskTests(
            **works,
            tasks=shown,
            conditions=together([task.conditions for task in shown.values()]),
            shots=shots,
            draws=config.draws,
            distinct_draws={
                name: {
                    kind: sum(condition.kind == kind for condition in conditions)
                    for kind in ("shuffled", "shuffled-layer-matched")
                }
                for name, conditions in planned.items()
            },
        )

    data, seed = task_inputs(tasks), config.seed
    return run_with_model(
        lm, COMMAND, out, settings, data, compute, began, kind=MaskTests, seed=seed
    )


def masks_by_task(masks: Sequence[str], tasks: Mapping[str, TaskSides]) -> dict[str, Path]:
    """The run of each task's mask, from `RUN` for all tasks or `TASK=RUN` for each.

    Raises `InputError` if a task has none, or a name is no task's.
    """
    found: dict[str, Path] = {}
    for one in masks:
        name, equals, place = one.partition("=")
        if not equals or Path(one).exists():
            for task in tasks:
                found.setdefault(task, Path(one))
            continue
        if name not in tasks:
            raise InputError(
                f"--heads {one} is for a task {name!r} that is not tested; tested are "
                f"{', '.join(tasks)}"
            )
        found[name] = Path(place)
    missing = [name for name in tasks if name not in found]
    if missing:
        raise InputError(f"the task {missing[0]} has no mask; add --heads {missing[0]}=RUN")
    return {name: found[name] for name in tasks}


def digest_of(mask: Mask) -> dict[str, Any]:
    """What of a mask decides results, for a run's signature."""
    parts = mask.feed_forward
    return {
        "removed": [str(head) for head in mask.removed],
        "on": mask.place,
        "feed_forward": None if parts is None else parts.tolist(),
    }


def sample_rows(
    task: Asked, conditions: Sequence[Condition], records: Sequence[Record]
) -> Iterator[dict[str, Any]]:
    """One row an example and condition, as they are kept in `samples/TASK.jsonl`."""
    for condition, record in zip(conditions, records, strict=True):
        for at, example in enumerate(task.task.examples):
            yield {
                "task": task.task.name,
                "condition": condition.name,
                "id": example.id,
                "line": example.line,
                "nll": record.nll[at],
                "tokens": record.tokens[at],
                "input": example.input,
                "reference": example.output,
                "output": record.texts[at] if record.texts else None,
            }


def _conditions(
    sides: TaskSides,
    mask: Mask,
    foreign: Sequence[Mask],
    hybrid: Mask | None,
    config: VerifyMask,
) -> list[Condition]:
    planned = [Condition("as-is", "as is")]
    if sides.test.instruction is not None:
        planned.append(Condition("instructed", "instructed", instructed=True))
    planned.append(Condition("masked", "masked", mask))
    if hybrid is not None:
        planned.append(Condition("hybrid", "hybrid", hybrid))
    planned += [
        Condition("foreign", f"foreign {number}", one) for number, one in enumerate(foreign, 1)
    ]
    # Of the size of the task's own mask alone, so no other mask is compared with them.
    own = "masked"
    for number, one in enumerate(shuffled(mask, config.draws, config.seed)):
        planned.append(Condition("shuffled", f"shuffled {number}", one, draw=number, of=own))
    for number, one in enumerate(shuffled(mask, config.draws, config.seed, layer_matched=True)):
        name = f"shuffled-layer-matched {number}"
        planned.append(Condition("shuffled-layer-matched", name, one, draw=number, of=own))
    return planned


def _leaks(
    config: VerifyMask, tasks: Mapping[str, TaskSides], own: Mapping[str, Path]
) -> dict[str, dict[str, Leakage]]:
    """By task and condition how many of its examples the condition's mask was trained on.

    Raises `InputError` if those of its own mask or a hybrid were, unless allowed. What another
    task's mask has seen makes the comparison harder for the task's own, so it is only counted.
    """
    found: dict[str, dict[str, Leakage]] = {}
    for name, sides in tasks.items():
        places = {"masked": own[name], "hybrid": config.hybrid}
        places |= {f"foreign {number}": place for number, place in enumerate(config.foreign, 1)}
        found[name] = {
            condition: Leakage(
                **check_task_leakage(
                    str(place),
                    [sides.test],
                    config.allow_overlap or condition.startswith("foreign"),
                )
            )
            for condition, place in places.items()
            if place is not None
        }
    return found


def _task(
    lm: LanguageModel,
    run: Run,
    sides: TaskSides,
    mask: Mask,
    planned: Sequence[Condition],
    leaks: Mapping[str, Leakage],
    config: VerifyMask,
    progress: Progress | None,
) -> MaskedTask:
    question = asked(sides.test, sides.pool, config.tasks.shots, config.seed)
    records = [
        ask(lm, question, condition, config.asking, run, progress=progress) for condition in planned
    ]
    task = sides.test
    run.write_jsonl(f"samples/{task.name}.jsonl", sample_rows(question, planned, records))
    numbers = [statistics(task, record) for record in records]
    others = {
        condition.name: OtherMask(
            condition.mask.about(), condition.mask.unseen(task.name), leaks[condition.name]
        )
        for condition in planned
        if condition.kind in ("foreign", "hybrid") and condition.mask is not None
    }
    most = config.asking.max_new_tokens or NEW_TOKENS
    return MaskedTask(
        examples=len(task.examples),
        tokens=sum(records[0].tokens),
        language=task.language,
        translation=task.is_translation,
        at_start=task.at_start,
        # Answers that no model can get right.
        too_long=0 if task.is_translation else sum(count > most for count in records[0].tokens),
        instruction=task.instruction,
        bare=task.bare,
        mask=mask.about(),
        unseen=mask.unseen(task.name),
        leakage=leaks["masked"],
        conditions=describe(planned, numbers, config.seed, ("instructed",), others),
    )
