"""Heads outside a mask scaled by α: chosen on some held-out examples, measured on others."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated

from headscope.data.tasks import Task, translation_task
from headscope.errors import InputError
from headscope.estimates import Floats
from headscope.evidence.blocks import dose_lines, levels_table, uncertainty
from headscope.evidence.controls import Draws
from headscope.evidence.rows import ORIGINAL, SELECTED, Condition
from headscope.progress import Progress
from headscope.results.mask_tests import ScaledTask, ScalingDetails, ScalingTests
from headscope.runs import Run
from headscope.settings import GIVEN, UNSIGNED, Nested, Option
from headscope.shown.blocks import (
    Cell,
    Lines,
    Row,
    Section,
    Series,
    Shown,
    Table,
    method_section,
)
from headscope.shown.words import arrow, count, percent, sentence_of, tasks_of
from headscope.studies.baseline import check_tasks
from headscope.studies.leakage import apart, check_task_leakage
from headscope.studies.models import run_with_model
from headscope.studies.pairs import PairsChoice, read_directions
from headscope.studies.shows import model_facts
from headscope.studies.study import Study
from headscope.studies.tasks import TaskSides, basis_of, read_tasks, resolved_tasks, task_inputs
from headscope.studies.verify.mask import MasksOnTasks, about_task, digest_of, masks_by_task
from headscope.studies.verify.masked_shows import (
    concluded,
    effect,
    few_examples,
    mask_sections,
    masks_of,
    trained_on_caution,
)
from headscope.verify.masks.asking import (
    Asking,
    MaskRecord,
    Planned,
    ask,
    asked,
    read_mask,
    write_samples,
)
from headscope.verify.masks.conditions import (
    GRID,
    best_alpha,
    check_apart,
    check_conditions,
    check_grid,
    chosen_again,
    grid_conditions,
    halves_of,
    losses_by_alpha,
)
from headscope.verify.masks.evidence import masks_evidence, numbers_of, own_heads

COMMAND = "verify scaling"
#: The share of resamples whose lowest loss lies at a candidate for the best α.
COVERED = 0.95
Records = Mapping[Condition, MaskRecord]


@dataclass(frozen=True)
class VerifyScaling(MasksOnTasks):
    """Scale the heads outside a mask and do the instructed task.

    The best strength is selected by the loss on some held-out examples; outputs are measured on
    others and compared with the original model, the mask alone, and random masks.
    """

    draws: Annotated[int, Option("Draws of random heads.", min=0)] = 3
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
    asking: Annotated[Asking, Nested(make=partial(Asking, paragraphs=True))] = field(
        default_factory=lambda: Asking(paragraphs=True)
    )
    # How many draws of the first control are tried at every α; None: all.
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
    basis = basis_of(lm, tasks)
    settings = {
        "settings": config,
        "masks": {name: digest_of(mask) for name, mask in masks.items()},
    }
    data = task_inputs(tasks)
    data |= {f"check {name}": check.digest for name, (_, check, _) in parts.items()}

    def compute(run: Run) -> ScalingTests:
        shots, how, seed = config.tasks.shots, config.asking, config.seed
        works = check_tasks(lm, tasks, shots, seed, run, config.baseline, progress)
        draws = config.draws if config.grid_draws is None else config.grid_draws
        once = Draws(draws, config.controls[:1], seed)
        grids = {name: choose for name, (choose, _, _) in parts.items()}
        checks = {name: check for name, (_, check, _) in parts.items()}

        def made(which: Mapping[str, Task], name: str, planned: Planned, write: bool) -> Records:
            task, part = which[name], "samples" if write else "grid"
            question = asked(task, tasks[name].pool, shots, seed)
            done = ask(lm, question, planned, how, run, progress, write, f"{part}: ")
            write_samples(run, part, task, done)
            return done

        grid_of = {name: grid_conditions(mask, grid, once, basis) for name, mask in masks.items()}
        losses = {name: made(grids, name, planned, False) for name, planned in grid_of.items()}
        tried = masks_evidence(grids, losses, seed, by_gate=True)
        best = {
            name: best_alpha({at: row.value for at, row in losses_by_alpha(tried, name).items()})
            for name in tasks
        }
        again = {name: chosen_again(_losses(grids[name], losses[name]), seed) for name in tasks}
        final = {
            name: check_conditions(mask, best[name], config, basis) for name, mask in masks.items()
        }
        records = {name: made(checks, name, planned, True) for name, planned in final.items()}
        evidence = masks_evidence(checks, records, seed, progress=progress)
        shown = {
            name: ScaledTask(
                **about_task(check),
                chosen_on=len(grids[name].examples),
                mask=masks[name].about(),
                best=best[name],
                chosen_again={f"{alpha:g}": again[name][alpha] for alpha in sorted(again[name])},
                leakage=leaks[name],
                left_out=parts[name][2] or None,
                heads=own_heads(evidence, records[name]),
            )
            for name, check in checks.items()
        }
        result = ScalingTests(
            baseline_works=works["baseline_works"],
            evidence=evidence,
            details=ScalingDetails(
                tasks=shown,
                grid=grid,
                draws=config.draws,
                tried=tried,
                baseline_check=works["baseline_check"],
            ),
        )
        return concluded(result, evidence.selected[0], _cautions)

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
    made = replace(made, answer_end=task.answer_end, answer_only=task.answer_only)
    new = apart(made, [task] if sides.train is None else [task, sides.train])
    if not new:
        check_apart(task, made)
        return task, made, 0
    return task, replace(made, examples=new), len(made.examples) - len(new)


def _losses(task: Task, records: Records) -> dict[float, Floats]:
    """The loss of every example by α, (examples,); 1 is the model as it is."""
    return {
        1.0 if each.kind == ORIGINAL else each.gate: own["nll"][:, 0]
        for each, own in numbers_of(task, records).items()
        if each.gate is not None and each.kind in (ORIGINAL, SELECTED)
    }


def _show(result: ScalingTests, run: Path) -> Shown:
    """The loss by α beside random masks, and the chosen α on other examples."""
    evidence, tasks, main = result.evidence, result.details.tasks, result.evidence.selected[0]
    curves = [_by_strength(result, name) for name in tasks]
    effects = effect(evidence, main)
    figure = effects if len(tasks) > 1 and effects else curves[0]
    left = [block for block in (*curves, effects) if block and block is not figure]
    examples = sum(task.examples for task in tasks.values())
    return Shown(
        "Scaled mask",
        f"Does {result.model_name}, instructed, get better at {tasks_of(tasks)} when the "
        "heads outside a mask keep a part α of their strength?",
        [sentence_of(result.verdict), _finding(tasks)],
        *uncertainty(evidence, "nll", main, f"{count(examples, 'other example')}"),
        result.cautions,
        [
            *model_facts(result.model_name),
            ("values of α", str(len(result.details.grid))),
            ("random masks", str(result.details.draws)),
        ],
        [
            Section("Choice of α", [_choice(result)], brief=True),
            Section("Effect", left),
            masks_of(main, tasks),
            *mask_sections(run, evidence, main, tasks),
            Section(
                "Loss by α in numbers",
                [levels_table(result.details.tried, ["nll"], arrow(name), part=name)
                 for name in tasks],
            ),
            method_section(
                "α is chosen by the loss on some held-out examples and measured on others. "
                "1: the original model; 0: the mask alone. A value is a candidate for the best "
                f"α if it is among the values with the lowest loss in {percent(COVERED)} of "
                "resamples of the examples that it is chosen on. BLEU as published counts "
                "characters without punctuation in the best paragraph of an output: it is high, "
                "and compares with that paper alone."
            ),
        ],
        figure,
    )  # fmt: skip


def candidates(shares: Mapping[str, float]) -> list[str]:
    """The fewest values of α that together have the lowest loss in 95 % of resamples."""
    covered, chosen = 0.0, list[str]()
    for alpha, share in sorted(shares.items(), key=lambda item: -item[1]):
        if covered < COVERED:
            covered += share
            chosen.append(alpha)
    return sorted(chosen, key=float)


def _finding(tasks: Mapping[str, ScaledTask]) -> str:
    """Which values of α may be the best, or in how many tasks one value alone may be."""
    if len(tasks) > 1:
        decided = sum(len(candidates(task.chosen_again)) == 1 for task in tasks.values())
        return (
            f"One value of α alone is a candidate for the best in {decided} of {len(tasks)} tasks."
        )
    (task,) = tasks.values()
    found = candidates(task.chosen_again)
    if len(found) == 1:
        helps = "; scaling does not help" if found == ["1"] else ""
        return f"The only candidate for the best α is {found[0]}{helps}."
    return (
        f"The best α is not decided: {len(found)} of {len(task.chosen_again)} values are "
        f"candidates, from {found[0]} to {found[-1]}."
    )


def _by_strength(result: ScalingTests, name: str) -> Lines:
    """The loss of a task by α, beside random masks and the original model."""
    tried = result.details.tried
    lines = next(dose_lines(tried, "nll", name))
    base = tried.level("nll", None, name)
    level = Series(ORIGINAL, ((0.0, base.value), (1.0, base.value))) if base else None
    return replace(
        lines,
        title=f"{arrow(name)}: loss by α",
        series=(*lines.series, *([level] if level else [])),
        x="α of the heads outside the mask (0: removed, 1: original)",
        note=f"{count(result.details.tasks[name].chosen_on, 'example')} that α is chosen on",
    )


def _choice(result: ScalingTests) -> Table:
    """By task the chosen α, its candidates, and the share of resamples with the lowest loss
    at each."""
    again = [task.chosen_again for task in result.details.tasks.values()]
    alphas = [alpha for alpha in again[0] if any(shares[alpha] for shares in again)]
    rows = tuple(
        Row(
            arrow(name),
            (
                Cell(f"{task.best:g}"),
                Cell(", ".join(candidates(task.chosen_again))),
                Cell(task.chosen_on),
                *(Cell.share(task.chosen_again.get(alpha), 0) for alpha in alphas),
            ),
        )
        for name, task in result.details.tasks.items()
    )
    columns = ("lowest loss at", "candidates", "examples", *(f"resamples, {at}" for at in alphas))
    return Table("Chosen α", columns, rows)


def _cautions(result: ScalingTests) -> Iterator[str]:
    tasks = result.details.tasks
    yield from few_examples(tasks)
    for name, task in tasks.items():
        yield from trained_on_caution(task.leakage, f"the mask of {tasks_of([name])}")
        if task.left_out:
            yield (
                f"{count(task.left_out, 'example')} of {tasks_of([name])} left out: the mask or "
                "the selection of α had seen them."
            )
    yield "A mask is one training run: another seed can keep other heads."


command = Study(VerifyScaling, verify_scaling, result=ScalingTests, show=_show)
