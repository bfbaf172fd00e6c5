"""A learned mask on held-out examples beside its controls, in a run folder."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

from headscope import options
from headscope.errors import InputError
from headscope.measure.baseline import Rules
from headscope.progress import Progress
from headscope.results.common import Leakage
from headscope.results.mask_tests import MaskedTask, MaskTests, Measure, OtherMask, Outcome
from headscope.runs import Run
from headscope.settings import UNSIGNED, Nested, Option, Settings
from headscope.shown.blocks import Bars, Section, Shown, Table
from headscope.shown.words import count, enumeration
from headscope.studies.baseline import check_tasks
from headscope.studies.comparison import Comparison, clear, draws_remedy, draws_words
from headscope.studies.leakage import check_task_leakage
from headscope.studies.models import PROMPTED, ModelChoice, run_with_model
from headscope.studies.shows import model_facts
from headscope.studies.study import Study
from headscope.studies.tasks import TaskChoice, TaskSides, read_tasks, resolved_tasks, task_inputs
from headscope.studies.verify.masked_shows import (
    UNITS,
    bars,
    compared_by,
    conditions_of,
    conditions_table,
    few_examples,
    outputs_table,
    overview,
    trained_on_caution,
)
from headscope.verify.masks.asking import NEW_TOKENS, Asking, Mask, ask_all, asked, read_mask
from headscope.verify.masks.conditions import mask_conditions
from headscope.verify.masks.evidence import describe, statistics, together

COMMAND = "verify mask"
#: Tasks that get a table each in a terminal; of more, one table has them all.
TABLES = 3
MEASURED: tuple[Measure, ...] = (
    "nll",
    "nll_tokens",
    "perplexity",
    "rouge_l",
    "chrf",
    "bleu",
    "accuracy",
    "accuracy_words",
)


@dataclass(frozen=True)
class VerifyMask(Settings):
    """Test a mask: the original model, instructed, masked, and under random and foreign masks.

    On held-out examples: the loss of the right outputs, and the outputs. With --shots every prompt
    begins with as many examples.
    """

    masks: options.Masks = field(metadata=UNSIGNED)
    tasks: TaskChoice = field(default_factory=TaskChoice)
    model: Annotated[ModelChoice, PROMPTED] = field(default_factory=ModelChoice)
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
    baseline: Annotated[Rules, Nested(without=("errors",))] = field(default_factory=Rules)


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
    planned = {
        name: mask_conditions(
            own[name],
            foreign,
            hybrid,
            sides.test.instruction is not None,
            config.draws,
            config.seed,
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
        shown = {}
        most = config.asking.max_new_tokens or NEW_TOKENS
        for name, sides in tasks.items():
            task, mask, leakage = sides.test, own[name], leaks[name]
            question = asked(task, sides.pool, shots, config.seed)
            records = ask_all(lm, question, planned[name], config.asking, run, progress)
            numbers = [statistics(task, record) for record in records]
            others = {
                each.name: OtherMask(each.mask.about(), each.mask.unseen(name), leakage[each.name])
                for each in planned[name]
                if each.kind in ("foreign", "hybrid") and each.mask is not None
            }
            tokens = records[0].tokens
            shown[name] = MaskedTask(
                examples=len(task.examples),
                tokens=sum(tokens),
                language=task.language,
                translation=task.is_translation,
                at_start=task.at_start,
                # Answers that no model can get right.
                too_long=0 if task.is_translation else sum(length > most for length in tokens),
                instruction=task.instruction,
                bare=task.bare,
                mask=mask.about(),
                unseen=mask.unseen(name),
                leakage=leakage["masked"],
                conditions=describe(planned[name], numbers, config.seed, ("instructed",), others),
            )
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
    others |= {f"foreign {number}": place for number, place in enumerate(config.foreign, 1)}
    leaks: dict[str, dict[str, Leakage]] = {}
    for name, sides in tasks.items():
        leaks[name] = {}
        for condition, place in {"masked": str(own[name]), **others}.items():
            allowed = config.allow_overlap or condition.startswith("foreign")
            leaks[name][condition] = check_task_leakage(place, [sides.test], allowed)
    return leaks


def _show(result: MaskTests, run: Path) -> Shown:
    """Every task under every condition, against random masks, and the first outputs."""
    tasks = result.tasks
    conditions = {name: conditions_of(task) for name, task in tasks.items()}
    comparison = _compared(tasks)
    draws = comparison.distinct
    compared = comparison.table(
        "The mask compared, by loss", "Loss in nats a token: below 0, the mask does better"
    )
    sections = [
        Section("Conditions", _tables(tasks), brief=True),
        Section("Compared with random masks", [compared, *_bars(tasks)], lead=_new(tasks)),
        Section(
            "Every measure",
            [
                conditions_table(f"{name}, single draws", conditions[name], MEASURED, single=True)
                for name in tasks
            ],
            lead="The mean loss is what Heads Up! prints as PPL; perplexity here is the "
            "exponential of the loss over all tokens.",
        ),
    ]
    outputs = [table for name, task in tasks.items() for table in outputs_table(run, name, task)]
    if outputs:
        sections.append(Section("Outputs", outputs))
    return Shown(
        "Mask test",
        f"Does {result.model_name} do a task without an instruction when only the heads of its "
        "mask are left?",
        _finding(tasks, comparison),
        f"Intervals are over held-out examples; {draws_words(draws)}.",
        draws_remedy(draws, wanted=19),
        _cautions(tasks),
        [
            *model_facts(result.model_name),
            ("tasks", str(len(tasks))),
            ("examples", str(sum(task.examples for task in tasks.values()))),
            *([("shots", str(result.shots))] if result.shots else []),
            ("random masks", f"{result.draws} free, {result.draws} of the same layers"),
        ],
        sections,
    )


def _masked(task: MaskedTask) -> Outcome:
    (masked,) = task.of_kind("masked")
    return masked


def _finding(tasks: Mapping[str, MaskedTask], comparison: Comparison) -> list[str]:
    tests = [row.tests[0] for row in comparison.rows.values()]
    gaps = [test.difference for test in tests if test is not None]
    below = clear(gaps, "task", sign=-1)
    sentences = [f"The loss under the mask is lower than under random masks in {below}."]
    for name, task in list(tasks.items())[:6]:
        unseen = ", a task its mask was not trained on" if task.unseen else ""
        heads = f"with {task.mask.removed} of {task.mask.removed + task.mask.kept} heads removed"
        sentences += comparison.said(_named(name, task), f"{name}{unseen}: {heads}")
        if (measure := task.main_measure) is not None:
            scale, of = UNITS[measure], (task.base, _masked(task), *task.of_kind("instructed"))
            values = [
                f"{words} {scale.number(each.value(measure))}"
                for words, each in zip(("original", "masked", "instructed"), of, strict=False)
            ]
            sentences.append(f"Outputs, {scale.words}: {', '.join(values)}.")
    return sentences


def _cautions(tasks: Mapping[str, MaskedTask]) -> list[str]:
    cautions = few_examples(tasks)
    for name, task in tasks.items():
        cautions += trained_on_caution(task.leakage, f"the mask of {name}")
        for each in task.undrawn:
            if each.other is not None and each.other.leakage.overlap:
                cautions += trained_on_caution(each.other.leakage, f"{each.name} ({name})")
        if task.too_long:
            cautions.append(
                f"{count(task.too_long, 'answer')} of {name} have more tokens than the model may "
                "write, so no output is right there."
            )
    starts = [name for name, task in tasks.items() if task.at_start]
    if starts:
        cautions.append(
            f"{enumeration(starts)}: an output is right if it begins with the answer, so a model "
            "that repeats the input can be right where the answer is a letter; \u201cright as "
            "whole words\u201d does not count that."
        )
    return [*cautions, "A mask is one training run: another seed can keep other heads."]


def _tables(tasks: Mapping[str, MaskedTask]) -> list[Table]:
    """A table a task, or of many tasks one of losses and one of outputs."""
    conditions = {name: conditions_of(task) for name, task in tasks.items()}
    main = {name: measure for name, task in tasks.items() if (measure := task.main_measure)}
    if len(tasks) > TABLES:
        losses = overview("Loss, nats a token", conditions, dict.fromkeys(tasks, "nll"))
        return [losses, *([overview("Outputs", conditions, main)] if main else [])]
    made = []
    for name, task in tasks.items():
        measures: list[Measure] = ["nll", "perplexity", *([main[name]] if name in main else [])]
        note = (
            f"{count(task.examples, 'held-out example')}; the mask keeps {task.mask.kept} heads "
            f"and removes {task.mask.removed}"
        )
        made.append(conditions_table(_named(name, task), conditions[name], measures, note))
    return made


def _named(name: str, task: MaskedTask) -> str:
    return f"{name}, not trained on" if task.unseen else name


def _new(tasks: Mapping[str, MaskedTask]) -> str:
    """Which tasks a mask of several tasks was not trained on."""
    names = [
        name
        for name, task in tasks.items()
        if any(each.other is not None and each.other.unseen for each in task.of_kind("hybrid"))
    ]
    return f"The mask of several tasks was not trained on {enumeration(names)}." if names else ""


def _compared(tasks: Mapping[str, MaskedTask]) -> Comparison:
    """The loss under each mask against the original, the instructed model and random masks."""
    rows = {}
    for name, task in tasks.items():
        masked = _masked(task)
        instructed = masked.against_instructed
        rows[_named(name, task)] = compared_by(task, masked, instructed=instructed)
    return Comparison(rows, "examples", "random masks")


def _bars(tasks: Mapping[str, MaskedTask]) -> list[Bars]:
    def groups(measure: Measure | None) -> dict[str, Any]:
        return {
            _named(name, task): conditions_of(task)
            for name, task in tasks.items()
            if measure in (None, task.main_measure)
        }

    rules = {
        "an output is right if it begins with the answer"
        if task.at_start
        else "an output is right if the answer is in its first 10 tokens"
        for task in tasks.values()
        if task.main_measure == "accuracy"
    }
    made = [bars("Loss of the right outputs", groups(None), "nll", "Lower is better")]
    for measure in dict.fromkeys(m for task in tasks.values() if (m := task.main_measure)):
        note = "; ".join(sorted(rules)) if measure == "accuracy" else "Outputs end at a line break"
        made.append(bars(f"Outputs: {UNITS[measure].words}", groups(measure), measure, note))
    return made


command = Study(VerifyMask, verify_mask, result=MaskTests, show=_show)
