"""Heads outside a mask scaled by α: chosen on some held-out examples, measured on others."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated

from headscope import options
from headscope.data.tasks import Task, translation_task
from headscope.errors import InputError
from headscope.measure.baseline import Rules
from headscope.progress import Progress
from headscope.results.mask_tests import AlphaShare, Measure, Outcome, ScaledTask, ScalingTests
from headscope.runs import Run
from headscope.settings import GIVEN, UNSIGNED, Nested, Option, Settings
from headscope.shown.blocks import (
    Block,
    Cell,
    Lines,
    Section,
    Series,
    Shown,
    Table,
    table_of,
)
from headscope.shown.words import count, enumeration, fixed, percent
from headscope.studies.baseline import check_tasks
from headscope.studies.comparison import Comparison, draws_remedy, draws_words
from headscope.studies.leakage import apart, check_task_leakage
from headscope.studies.models import PROMPTED, ModelChoice, run_with_model
from headscope.studies.pairs import PairsChoice, read_directions
from headscope.studies.shows import model_facts
from headscope.studies.study import Study
from headscope.studies.tasks import TaskChoice, TaskSides, read_tasks, resolved_tasks, task_inputs
from headscope.studies.verify.mask import digest_of, masks_by_task
from headscope.studies.verify.masked_shows import (
    UNITS,
    Conditions,
    bars,
    compared_by,
    conditions_of,
    conditions_table,
    few_examples,
    outputs_table,
    trained_on_caution,
)
from headscope.verify.masks.asking import Asking, ask_all, asked, read_mask
from headscope.verify.masks.conditions import (
    GRID,
    alpha_outcomes,
    best_alpha,
    check_apart,
    check_conditions,
    check_grid,
    chosen_again,
    grid_conditions,
    halves_of,
)
from headscope.verify.masks.evidence import describe, statistics, together

COMMAND = "verify scaling"
MEASURED: tuple[Measure, ...] = (
    "nll",
    "bleu",
    "chrf",
    "bleu_published",
    "rouge_l",
    "accuracy",
    "accuracy_words",
)


@dataclass(frozen=True)
class VerifyScaling(Settings):
    """Scale the heads outside a mask and do the instructed task.

    The best strength is selected by the loss on some held-out examples; outputs are measured on
    others and compared with the original model, the mask alone, and random masks.
    """

    masks: options.Masks = field(metadata=UNSIGNED)
    tasks: TaskChoice = field(default_factory=TaskChoice)
    model: Annotated[ModelChoice, PROMPTED] = field(default_factory=ModelChoice)
    check_data: Annotated[
        str | None,
        Option(
            "Sentence pairs to measure translations on; without it half of the held-out examples.",
            metavar="DATA",
        ),
    ] = field(default=None, metadata=UNSIGNED)
    check_limit: Annotated[
        int | None, Option("The first so many pairs of --check-data.", min=1)
    ] = None
    grid: Annotated[
        tuple[float, ...],
        Option(
            "Strength of the heads outside the mask that is tried, from 0 to 1; repeatable; "
            "without it 0, 0.1, … 1.",
            flag="--alpha",
            metavar="A",
        ),
    ] = GRID
    # Shuffled masks.
    draws: Annotated[int, Option("Draws of random heads.", min=0)] = 3
    seed: options.Seed = 0
    asking: Annotated[Asking, Nested(make=partial(Asking, paragraphs=True))] = field(
        default_factory=lambda: Asking(paragraphs=True)
    )
    allow_overlap: options.AllowOverlap = False
    baseline: Annotated[Rules, Nested(without=("errors",))] = field(default_factory=Rules)
    # How many draws are tried at every α; None: all.
    grid_draws: int | None = field(default=None, metadata=GIVEN)


def verify_scaling(
    config: VerifyScaling, out: Path | None = None, progress: Progress | None = None
) -> ScalingTests:
    """Choose α, measure, keep what came, and return the command's result.

    Beside the result the run holds `grid/TASK.jsonl` and `samples/TASK.jsonl`: what every condition
    did with every example that α was chosen on, and that it was measured on.
    """
    began = time.monotonic()
    grid = check_grid(config.grid)
    tasks = read_tasks(config.tasks, config.model.model, config.seed)
    parts = {name: _parts(sides, tasks, config) for name, sides in tasks.items()}
    named = masks_by_task(config.masks, tasks)
    leaks = {
        name: check_task_leakage(str(named[name]), parts[name][:2], config.allow_overlap)
        for name in tasks
    }
    lm = config.model.load_for()
    config = replace(config, tasks=resolved_tasks(lm, config.tasks, config.model.model))
    masks = {name: read_mask(place, lm.geometry) for name, place in named.items()}
    settings = {
        "settings": config,
        "masks": {name: digest_of(mask) for name, mask in masks.items()},
    }
    data = task_inputs(tasks)
    data |= {f"check {name}": check.digest for name, (_, check, _) in parts.items()}

    def compute(run: Run) -> ScalingTests:
        shots = config.tasks.shots
        works = check_tasks(lm, tasks, shots, config.seed, run, config.baseline, progress)
        shown = {}
        how, seed = config.asking, config.seed
        draws = config.draws if config.grid_draws is None else config.grid_draws
        for name, sides in tasks.items():
            choose, check, left_out = parts[name]
            mask = masks[name]
            planned = grid_conditions(mask, grid, draws, seed)
            question = asked(choose, sides.pool, shots, seed)
            tried = ask_all(
                lm, question, planned, how, run, progress, False, part="grid", prefix="grid: "
            )
            numbers = [statistics(choose, record) for record in tried]
            outcomes = describe(planned, numbers, seed, beside=("α 0",))
            alphas = alpha_outcomes(grid, outcomes)
            best = best_alpha({outcome.alpha: outcome.nll for outcome in alphas})
            losses = {each.name: own["nll"] for each, own in zip(planned, numbers, strict=True)}
            again = chosen_again({each.alpha: losses[each.name][:, 0] for each in alphas}, seed)
            final = check_conditions(mask, best, config.draws, seed)
            question = asked(check, sides.pool, shots, seed)
            made = ask_all(lm, question, final, how, run, progress, prefix="samples: ")
            scored = [statistics(check, record) for record in made]
            shown[name] = ScaledTask(
                chosen_on=len(choose.examples),
                examples=len(check.examples),
                language=check.language,
                translation=check.is_translation,
                instruction=check.instruction,
                mask=mask.about(),
                alphas=alphas,
                best=best,
                chosen_again=tuple(AlphaShare(alpha, again[alpha]) for alpha in sorted(again)),
                uninstructed=tuple(outcome for outcome in outcomes if not outcome.instructed),
                conditions=describe(final, scored, seed, beside=("masked and instructed",)),
                leakage=leaks[name],
                left_out=left_out or None,
            )
        return ScalingTests(
            **works,
            tasks=shown,
            conditions=together([task.conditions for task in shown.values()]),
            grid=grid,
            draws=config.draws,
        )

    return run_with_model(
        lm, COMMAND, out, settings, data, compute, began, kind=ScalingTests, seed=config.seed
    )


def _parts(
    sides: TaskSides, tasks: dict[str, TaskSides], config: VerifyScaling
) -> tuple[Task, Task, int]:
    """The examples to choose α on, those to measure on, and how many of these are left out.

    Of other sentences those are left out that a mask of this task is trained on, or α chosen on.
    """
    task = sides.test
    if task.instruction is None:
        raise InputError(f"the task {task.name!r} has no instruction to scale under; give one")
    if config.check_data is None:
        return *halves_of(task, config.seed), 0
    if len(tasks) > 1 or not task.is_translation:
        raise InputError("--check-data is for one translation direction; test one --pair")
    choice = PairsChoice(
        (task.name,),
        (config.check_data,),
        source_column=config.tasks.source_column,
        target_column=config.tasks.target_column,
        limit=config.check_limit,
    )
    pairs = next(iter(read_directions(choice, config.model.model, "test").values()))
    made = translation_task(pairs, task.instruction, task.bare, task.name, task.chat)
    new = apart(made, [task] if sides.train is None else [task, sides.train])
    if not new:
        check_apart(task, made)
        return task, made, 0
    return task, replace(made, examples=new), len(made.examples) - len(new)


def _show(result: ScalingTests, run: Path) -> Shown:
    """The loss by \u03b1, and the best \u03b1 on other examples, against random masks."""
    tasks = result.tasks
    conditions = {name: conditions_of(task) for name, task in tasks.items()}
    published = any(task.translation for task in tasks.values())
    outputs = [table for name, task in tasks.items() for table in outputs_table(run, name, task)]
    comparison = _compared(tasks)
    draws = comparison.distinct
    cautions = few_examples(tasks)
    for name, task in tasks.items():
        cautions += trained_on_caution(task.leakage, f"the mask of {name}")
        if task.left_out:
            cautions.append(
                f"{count(task.left_out, 'example')} of {name} left out: the mask or the selection "
                "of \u03b1 had seen them."
            )
    return Shown(
        "Scaled mask",
        f"Does {result.model_name}, instructed, get better at {enumeration([*tasks])} when the "
        "heads outside a mask keep a part \u03b1 of their strength?",
        [sentence for name, task in tasks.items()
         for sentence in _finding(name, task, comparison)],
        "Intervals are over held-out examples; \u03b1 was selected on other examples than it was "
        f"measured on; {draws_words(draws)}.",
        draws_remedy(draws, wanted=19),
        [*cautions, "A mask is one training run: another seed can keep other heads."],
        [
            *model_facts(result.model_name),
            ("values of \u03b1", str(len(result.grid))),
            ("random masks", str(result.draws)),
        ],
        [
            Section("Strength of the other heads", list(map(_alphas, tasks, tasks.values())),
                    brief=True),
            Section("Loss by \u03b1", list(map(_curve, tasks, tasks.values()))),
            Section(
                "The best \u03b1 on other examples",
                [
                    conditions_table(
                        f"{name} at \u03b1 = {task.best:g}",
                        conditions[name],
                        ("nll", *task.output_measures),
                        f"{count(task.examples, 'example')}, all instructed",
                    )
                    for name, task in tasks.items()
                ],
                brief=True,
            ),
            Section(
                "Compared with the original",
                [comparison.table("The scaled mask compared"), *_bars(tasks, conditions)],
                "\u201cBLEU as published\u201d counts characters without punctuation in the best "
                "paragraph of an output: it is high, and compares with that paper alone."
                if published
                else "",
            ),
            Section(
                "Every measure",
                [
                    conditions_table(f"{name}, single draws", own, MEASURED, single=True)
                    for name, own in conditions.items()
                ],
            ),
            *([Section("Outputs", outputs)] if outputs else []),
        ],
    )  # fmt: skip


def _scaled(task: ScaledTask) -> Outcome:
    (scaled,) = task.of_kind("scaled")
    return scaled


def _finding(name: str, task: ScaledTask, comparison: Comparison) -> list[str]:
    share = next(share for outcome, share in task.shares if outcome.alpha == task.best)
    helps = "so scaling does not help" if task.best == 1 else f"{task.mask.removed} heads scaled"
    sentences = [
        f"{name}: the loss is lowest at \u03b1 = {task.best:g}, {helps}; {percent(share)} of "
        f"resamples of {count(task.chosen_on, 'example')} select it again."
    ]
    measure = task.first_taken(*task.output_measures)
    for each in ("nll", *([] if measure is None else [measure])):
        row = f"{name}: {UNITS[each].words}"
        sentences += comparison.said(row, f"On {count(task.examples, 'other example')}")
    return sentences


def _alphas(name: str, task: ScaledTask) -> Table:
    plain = " and ".join(
        f"{fixed(each.nll, 3)} {'under the mask' if each.kind == 'masked' else 'of the original'}"
        for each in task.uninstructed
    )
    note = (
        f"{count(task.chosen_on, 'example')}. \u03b1 = 1: the original model; \u03b1 = 0: the mask "
        f"alone. Without the instruction the loss is {plain}"
    )
    return table_of(
        f"{name}: loss by \u03b1",
        [
            (f"{row[0].alpha:g}{', lowest loss' * (row[0].alpha == task.best)}", row)
            for row in task.shares
        ],
        {
            "loss, nats a token": lambda row: Cell.of(row[0].level("nll"), 4),
            "random masks": lambda row: Cell(row[0].shuffled_mean, digits=4),
            "lowest in resamples": lambda row: Cell.share(row[1], 0),
        },
        note,
    )


def _curve(name: str, task: ScaledTask) -> Lines:
    losses = [(outcome.alpha, outcome.level("nll")) for outcome in task.alphas]
    series = [
        Series(
            "masked",
            tuple((alpha, loss.value) for alpha, loss in losses),
            tuple(loss.low for _, loss in losses),
            tuple(loss.high for _, loss in losses),
        )
    ]
    drawn = tuple(
        (each.alpha, mean) for each in task.alphas if (mean := each.shuffled_mean) is not None
    )
    if drawn:
        series.append(Series("random masks, mean", drawn))
    x = "\u03b1, strength of the heads outside the mask"
    return Lines(f"{name}: loss by \u03b1", tuple(series), x, "loss, nats a token")


def _compared(tasks: Mapping[str, ScaledTask]) -> Comparison:
    """The scaled mask against the original and the mask alone."""
    rows = {}
    for name, task in tasks.items():
        scaled = _scaled(task)
        alone = scaled.against_masked_and_instructed
        for measure in ("nll", *task.output_measures):
            if measure in (scaled.change or {}):
                row = compared_by(task, scaled, measure, mask_alone=alone)
                rows[f"{name}: {UNITS[measure].words}"] = row
    return Comparison(rows, "examples", "random masks at the same \u03b1")


def _bars(tasks: Mapping[str, ScaledTask], conditions: Mapping[str, Conditions]) -> list[Block]:
    taken = {name: task.first_taken(*task.output_measures) for name, task in tasks.items()}
    return [
        bars(
            f"Outputs at the best \u03b1: {UNITS[measure].words}",
            {name: conditions[name] for name in tasks if taken[name] == measure},
            measure,
        )
        for measure in dict.fromkeys(taken.values())
        if measure is not None
    ]


command = Study(VerifyScaling, verify_scaling, result=ScalingTests, show=_show)
