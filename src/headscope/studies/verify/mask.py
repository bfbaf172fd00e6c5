"""A learned mask on held-out examples beside its controls, in a run folder."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

from headscope import options
from headscope.data.tasks import Task
from headscope.errors import InputError
from headscope.evidence.blocks import moved, uncertainty
from headscope.evidence.controls import SHUFFLES, Controlled
from headscope.evidence.rows import Condition
from headscope.measure.baseline import Rules
from headscope.progress import Progress
from headscope.results.common import Leakage
from headscope.results.mask_tests import MaskDetails, MaskedTask, MaskTests, OtherMask
from headscope.runs import Run
from headscope.settings import UNSIGNED, Nested, Option
from headscope.shown.blocks import METHOD, Section, Shown
from headscope.shown.words import count, sentence_of, tasks_of
from headscope.studies.baseline import check_tasks
from headscope.studies.leakage import check_task_leakage
from headscope.studies.models import PROMPTED, ModelChoice, run_with_model
from headscope.studies.shows import model_facts
from headscope.studies.study import Study
from headscope.studies.tasks import (
    TaskChoice,
    TaskSides,
    basis_of,
    read_tasks,
    resolved_tasks,
    task_inputs,
)
from headscope.studies.verify.masked_shows import (
    concluded,
    effect,
    few_examples,
    mask_sections,
    masks_of,
    trained_on_caution,
)
from headscope.verify.masks.asking import (
    NEW_TOKENS,
    Asking,
    Mask,
    ask,
    asked,
    read_mask,
    write_samples,
)
from headscope.verify.masks.conditions import OWN, mask_conditions
from headscope.verify.masks.evidence import masks_evidence, own_heads

COMMAND = "verify mask"


@dataclass(frozen=True)
class MasksOnTasks(Controlled):
    """Masks, the tasks and the model that they are tested on, and random masks beside them."""

    masks: options.Masks = field(metadata=UNSIGNED)
    tasks: TaskChoice = field(default_factory=TaskChoice)
    model: Annotated[ModelChoice, PROMPTED] = field(default_factory=ModelChoice)
    # Random masks of each kind.
    draws: options.Draws = 5
    controls: options.MaskControls = SHUFFLES
    seed: options.Seed = 0
    allow_overlap: options.AllowOverlap = False
    baseline: Annotated[Rules, Nested(without=("errors",))] = field(default_factory=Rules)


@dataclass(frozen=True)
class VerifyMask(MasksOnTasks):
    """Test a mask: the original model, instructed, masked, and under random and foreign masks.

    On held-out examples: the loss of the right outputs, and the outputs. With --shots every prompt
    begins with as many examples.
    """

    # None where a paper compares other masks alone.
    draws: Annotated[int, Option("Draws of random heads.", min=1, checked=False)] = 5
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
    asking: Asking = field(default_factory=Asking)


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
    lm = config.model.load_for()
    config = replace(config, tasks=resolved_tasks(lm, config.tasks, config.model.model))
    own = {name: read_mask(place, lm.geometry) for name, place in named.items()}
    foreign = [read_mask(place, lm.geometry) for place in config.foreign]
    hybrid = None if config.hybrid is None else read_mask(config.hybrid, lm.geometry)
    basis = basis_of(lm, tasks)
    planned = {
        name: mask_conditions(
            own[name],
            foreign,
            hybrid,
            sides.test.instruction is not None,
            config,
            basis,
        )
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
        most, records = config.asking.max_new_tokens or NEW_TOKENS, {}
        for name, sides in tasks.items():
            question = asked(sides.test, sides.pool, shots, config.seed)
            records[name] = ask(lm, question, planned[name], config.asking, run, progress)
            write_samples(run, "samples", sides.test, records[name])
        tests = {name: sides.test for name, sides in tasks.items()}
        evidence = masks_evidence(tests, records, config.seed, progress=progress)
        shown = {}
        for name, task in tests.items():
            mask, leakage = own[name], leaks[name]
            tokens = next(iter(records[name].values())).tokens

            def other(mask: Mask, condition: str, name: str = name) -> OtherMask:
                return OtherMask(mask.about(), mask.unseen(name), leaks[name][condition])

            shown[name] = MaskedTask(
                **about_task(task),
                tokens=sum(tokens),
                at_start=task.at_start,
                # Answers that no model can get right.
                too_long=0 if task.is_translation else sum(length > most for length in tokens),
                bare=task.bare,
                mask=mask.about(),
                unseen=mask.unseen(name),
                leakage=leakage["masked"],
                hybrid=None if hybrid is None else other(hybrid, "hybrid"),
                foreign=tuple(other(each, f"foreign {at}") for at, each in enumerate(foreign)),
                heads=own_heads(evidence, records[name]),
            )
        result = MaskTests(
            baseline_works=works["baseline_works"],
            evidence=evidence,
            details=MaskDetails(
                tasks=shown,
                shots=shots,
                draws=config.draws,
                baseline_check=works["baseline_check"],
            ),
        )
        return concluded(result, _main(result), _cautions)

    data, seed = task_inputs(tasks), config.seed
    return run_with_model(
        lm, COMMAND, out, settings, data, compute, began, kind=MaskTests, seed=seed
    )


def about_task(task: Task) -> dict[str, Any]:
    """What results say of any task that is tested, as `TestedTask` has it."""
    return {
        "examples": len(task.examples),
        "language": task.language,
        "translation": task.is_translation,
        "instruction": task.instruction,
    }


def masks_by_task(masks: Sequence[str], tasks: Mapping[str, TaskSides]) -> dict[str, Path]:
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
        "removed": [str(head) for head in mask.removed],
        "on": mask.place,
        "feed_forward": None if parts is None else parts.tolist(),
    }


def _leaks(
    config: VerifyMask, tasks: Mapping[str, TaskSides], own: Mapping[str, Path]
) -> dict[str, dict[str, Leakage]]:
    """By task and condition how many of its examples the condition's mask was trained on.

    Raises `InputError` if those of its own mask or a hybrid were, unless allowed. What another
    task's mask has seen makes the comparison harder for the task's own, so it is only counted.
    """
    others = {"hybrid": config.hybrid} if config.hybrid is not None else {}
    others |= {f"foreign {number}": place for number, place in enumerate(config.foreign)}
    leaks: dict[str, dict[str, Leakage]] = {}
    for name, sides in tasks.items():
        leaks[name] = {}
        for condition, place in {"masked": str(own[name]), **others}.items():
            allowed = config.allow_overlap or condition.startswith("foreign")
            leaks[name][condition] = check_task_leakage(place, [sides.test], allowed)
    return leaks


def _main(result: MaskTests) -> Condition:
    return next(each for each in result.evidence.selected if each.of == OWN)


def _show(result: MaskTests, run: Path) -> Shown:
    """The loss under the mask against random masks, measures of outputs, and the first outputs."""
    evidence, tasks, main = result.evidence, result.details.tasks, _main(result)
    examples = sum(task.examples for task in tasks.values())
    new = [name for name, task in tasks.items() if task.unseen]
    lead = "Under the mask" if len(tasks) == 1 else "Under each task's mask"
    return Shown(
        "Mask test",
        f"Does {result.model_name} do a task without an instruction when only the heads of its "
        "mask are left?",
        [sentence_of(result.verdict), *moved(evidence, "nll", main, lead)],
        *uncertainty(evidence, "nll", main, count(examples, "held-out example")),
        result.cautions,
        [
            *model_facts(result.model_name),
            ("tasks", str(len(tasks))),
            ("heads kept", ", ".join(str(task.mask.kept) for task in tasks.values())),
            *([("shots", str(result.details.shots))] if result.details.shots else []),
        ],
        [
            masks_of(main, tasks),
            *mask_sections(run, evidence, main, tasks),
            Section(METHOD, [], after=_method(tasks)),
        ],
        effect(evidence, main, f"Not trained on: {tasks_of(new)}" if new else ""),
    )  # fmt: skip


def _cautions(result: MaskTests) -> Iterator[str]:
    tasks = result.details.tasks
    yield from few_examples(tasks)
    for name, task in tasks.items():
        yield from trained_on_caution(task.leakage, f"the mask of {tasks_of([name])}")
        others = {f"foreign {at}": each for at, each in enumerate(task.foreign)}
        others |= {"hybrid": task.hybrid} if task.hybrid else {}
        for word, each in others.items():
            if each.leakage.overlap:
                yield from trained_on_caution(each.leakage, f"{word} ({tasks_of([name])})")
        if task.too_long:
            yield (
                f"{count(task.too_long, 'answer')} of {tasks_of([name])} have more tokens than the "
                "model may write, so no output is right there."
            )
    starts = [name for name, task in tasks.items() if task.at_start]
    if starts:
        yield (
            f"{tasks_of(starts)}: an output is right if it begins with the answer, so a model "
            "that repeats the input can be right where the answer is a letter; \u201cright as "
            "whole words\u201d does not count that."
        )
    yield "A mask is one training run: another seed can keep other heads."


def _method(tasks: Mapping[str, MaskedTask]) -> list[str]:
    """What is compared, and when an output is right."""
    starts = {task.at_start for task in tasks.values() if not task.translation}
    rules = {False: "the answer is in its first 10 tokens", True: "it begins with the answer"}
    return [
        "The loss is that of the right output in nats a token: the mean over examples of each "
        "one's mean over its tokens. Random masks (shuffled) remove as many heads of the model, or "
        "of each layer. Of a translation the part before its first line break is measured.",
        *(f"An output is right if {rules[start]}." for start in sorted(starts)),
    ]


command = Study(VerifyMask, verify_mask, result=MaskTests, show=_show)
