"""Heads outside a mask scaled by α: chosen on some held-out examples, measured on others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from headscope.data.tasks import Task, TaskSides, translation_task
from headscope.errors import InputError
from headscope.estimates import Floats
from headscope.evidence.blocks import dose_lines, levels_table
from headscope.evidence.controls import Draws
from headscope.evidence.headline import Case
from headscope.evidence.rows import ORIGINAL, SELECTED, Basis, Condition, Evidence
from headscope.evidence.table import own_heads
from headscope.results.masked_tasks import ScaledTask, ScalingDetails, ScalingTests
from headscope.settings import GIVEN, UNSIGNED, Option
from headscope.shown.blocks import (
    Cell,
    Lines,
    Row,
    Section,
    Series,
    Table,
)
from headscope.shown.words import arrow, count, percent, tasks_of
from headscope.studies.comparison import Bench, Comparison, Examples, Measured
from headscope.studies.comparison_page import Extras, Words
from headscope.studies.leakage import apart, check_task_leakage
from headscope.studies.masked_tasks import (
    AskedUnderMasks,
    TaskUnderMask,
    about_task,
    answers_under,
    chosen_masks,
    examples_of,
    masks_by_task,
    masks_for,
    with_chat,
)
from headscope.studies.pairs import PairsChoice, read_directions
from headscope.studies.tasks import read_tasks
from headscope.studies.verify.masked_tasks_show import (
    few_examples,
    mask_heads,
    outputs_section,
    trained_on_caution,
)
from headscope.verify.masked_tasks.asking import MaskRecord, Planned
from headscope.verify.masked_tasks.conditions import (
    GRID,
    TaskMasks,
    best_alpha,
    check_apart,
    check_conditions,
    check_grid,
    chosen_again,
    grid_conditions,
    halves_of,
    losses_by_alpha,
)
from headscope.verify.masked_tasks.evidence import in_table, masks_evidence, numbers_of

if TYPE_CHECKING:
    pass

#: The share of resamples whose lowest loss lies at a candidate for the best α.
COVERED = 0.95


@dataclass(frozen=True, kw_only=True)
class VerifyScaling(AskedUnderMasks):
    """Scale the heads outside a mask and do the instructed task.

    The best strength is selected by the loss on some held-out examples; outputs are measured on
    others and compared with the original model, the mask alone, and random masks.

    Beside the result the run holds `grid/TASK.jsonl` and `samples/TASK.jsonl`: what every condition
    did with every example that α was chosen on, and that it was measured on.
    """

    draws: Annotated[int, Option("Draws of random heads.", min=0, panel="Test")] = 3
    check_data: Annotated[
        str | None,
        Option(
            "Sentence pairs to measure translations on; without it half of the held-out examples.",
            metavar="DATA",
            panel="Data",
        ),
    ] = field(default=None, metadata=UNSIGNED)
    check_limit: Annotated[
        int | None, Option("The first so many pairs of --check-data.", min=1, panel="Expert")
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
    paragraphs: bool = True
    # How many draws of the first control are tried at every α; None: all.
    grid_draws: int | None = field(default=None, metadata=GIVEN)

    def __post_init__(self) -> None:
        object.__setattr__(self, "grid", check_grid(self.grid))
        super().__post_init__()


@dataclass(frozen=True, kw_only=True)
class ScaledSides(TaskUnderMask):
    """A task with the examples to choose α on, and those to measure on.

    `left_out` of these are not measured on, since the mask or the choice of α had seen them.
    """

    choose: Task
    check: Task
    left_out: int


def _read(config: VerifyScaling) -> Examples[ScaledSides]:
    tasks = read_tasks(config.tasks, config.model.model, config.seed)
    halves = {name: _parts(sides, tasks, config) for name, sides in tasks.items()}
    named = masks_by_task(config.masks, tasks)
    parts = {}
    for name, (choose, check, left_out) in halves.items():
        leakage = check_task_leakage(str(named[name]), [choose, check], config.allow_overlap)
        parts[name] = ScaledSides(
            **vars(tasks[name]), leakage=leakage, choose=choose, check=check, left_out=left_out
        )
    examples = examples_of(parts, config.tasks.shots)
    checks = {f"check {name}": part.check.digest for name, part in parts.items()}
    return replace(examples, digests={**examples.digests, **checks})


def _grid(masks: Sequence[TaskMasks], config: VerifyScaling, basis: Basis) -> Planned:
    draws = config.draws if config.grid_draws is None else config.grid_draws
    once = Draws(draws, config.controls[:1], config.seed)
    return grid_conditions(masks[0].mask, config.grid, once, basis)


def _measure(bench: Bench[VerifyScaling, ScaledSides]) -> Measured:
    config, parts = bench.config, bench.parts
    masks = {name: masks.mask for name, masks in bench.chosen.known.items()}
    grids = {name: part.choose for name, part in parts.items()}
    checks = {name: part.check for name, part in parts.items()}
    losses = answers_under(bench, grids, bench.plans, "grid", write=False, prefix="grid: ")
    tried = masks_evidence(grids, losses, config.seed, by_gate=True)
    best = {
        name: best_alpha({at: row.value for at, row in losses_by_alpha(tried, name).items()})
        for name in parts
    }
    final = {
        name: check_conditions(mask, best[name], config, bench.basis)
        for name, mask in masks.items()
    }
    records = answers_under(bench, checks, final, prefix="samples: ")
    table = masks_evidence(checks, records, config.seed, progress=bench.progress)
    heads = own_heads(in_table(records), table)
    tasks = {}
    for name, part in parts.items():
        again = chosen_again(_losses(part.choose, losses[name]), config.seed)
        tasks[name] = ScaledTask(
            **about_task(part.check),
            chosen_on=len(part.choose.examples),
            mask=masks[name].about(),
            best=best[name],
            chosen_again={f"{alpha:g}": again[alpha] for alpha in sorted(again)},
            leakage=part.leakage,
            left_out=part.left_out or None,
            heads=heads.get(name, {}),
        )
    return Measured(table, {"tasks": tasks, "grid": config.grid, "tried": tried})


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


def _losses(task: Task, records: Mapping[Condition, MaskRecord]) -> dict[float, Floats]:
    """The loss of every example by α, (examples,); 1 is the model as it is."""
    return {
        1.0 if each.kind == ORIGINAL else each.gate: own["nll"][:, 0]
        for each, own in numbers_of(task, records).items()
        if each.gate is not None and each.kind in (ORIGINAL, SELECTED)
    }


def _cases(table: Evidence, details: ScalingDetails) -> list[Case]:
    main = table.selected[0]
    outside = "the heads outside the mask"
    lead = f"With {outside} {main.done}" if main.gate else f"Without {outside}"
    return [Case("nll", main, lead=lead)]


def _extras(result: ScalingTests, run: Path) -> Extras:
    """The loss by α beside random masks, how the choice of α varies, and the first outputs."""
    details, tasks = result.details, result.details.tasks
    curves = [curve for name in tasks for curve in _by_strength(result, name)]
    figure = curves.pop(0) if len(tasks) == 1 and curves else None
    main = result.evidence.selected[0]
    return Extras(
        conditions=[main],
        sentences=[_sentence(tasks)],
        heads=mask_heads(main, tasks),
        facts=[("tasks", str(len(tasks))), ("values of α", str(len(details.grid)))],
        sections=[
            Section("Choice of α", [_choice(result)], brief=True),
            Section(
                "Loss by α",
                [*curves, levels_table(details.tried, ["nll"], "Loss by α", [*tasks])],
            ),
            *outputs_section(run, result.evidence),
        ],
        figure=figure,
    )  # fmt: skip


def candidates(shares: Mapping[str, float]) -> list[str]:
    """The fewest values of α that together have the lowest loss in 95 % of resamples."""
    covered, chosen = 0.0, list[str]()
    for alpha, share in sorted(shares.items(), key=lambda item: -item[1]):
        if covered < COVERED:
            covered += share
            chosen.append(alpha)
    return sorted(chosen, key=float)


def _sentence(tasks: Mapping[str, ScaledTask]) -> str:
    """Which values of α may be the best, or in how many tasks one value alone may be."""
    if len(tasks) > 1:
        decided = sum(len(candidates(task.chosen_again)) == 1 for task in tasks.values())
        return f"The best α is decided in {decided} of {len(tasks)} tasks."
    (task,) = tasks.values()
    found = candidates(task.chosen_again)
    if len(found) == 1:
        helps = "; scaling does not help" if found == ["1"] else ""
        return f"Candidates for the best α: {found[0]}{helps}."
    many = f"{len(found)} of {len(task.chosen_again)}"
    return f"Candidates for the best α: {many}, from {found[0]} to {found[-1]}."


def _by_strength(result: ScalingTests, name: str) -> Iterator[Lines]:
    """The loss of a task by α, beside random masks and the original model; none of a single α."""
    tried = result.details.tried
    base = tried.level("nll", None, name)
    level = [Series(ORIGINAL, ((0.0, base.value), (1.0, base.value)))] if base else []
    for lines in dose_lines(tried, "nll", name):
        yield replace(
            lines,
            title=f"{arrow(name)}: loss by α",
            series=(*lines.series, *level),
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


def _cautions(table: Evidence, details: ScalingDetails) -> Iterator[str]:
    tasks = details.tasks
    yield from few_examples(tasks)
    for name, task in tasks.items():
        yield from trained_on_caution(task.leakage, f"the mask of {tasks_of([name])}")
        if task.left_out:
            yield (
                f"{count(task.left_out, 'example')} of {tasks_of([name])} left out: the mask or "
                "the selection of α had seen them."
            )
    yield "A mask is one training run: another seed can keep other heads."


WORDS = Words(
    "Scaled mask",
    "Does the instructed model get better at a task when the heads outside a mask keep a part α "
    "of their strength?",
    "other example",
    "α is chosen by the loss on some held-out examples and measured on others. 1: the original "
    "model; 0: the mask alone. A value is a candidate for the best α if it is among the values "
    f"with the lowest loss in {percent(COVERED)} of resamples of the examples that it is chosen "
    "on. BLEU as published counts characters without punctuation in the best paragraph of an "
    "output: it is high, and compares with that paper alone.",
)

comparison = Comparison(
    command="verify scaling",
    settings=VerifyScaling,
    result=ScalingTests,
    details=ScalingDetails,
    read=_read,
    ready=with_chat,
    heads=lambda lm, config, examples: chosen_masks(masks_for(lm, config, examples)),
    plan=_grid,
    measure=_measure,
    cases=_cases,
    cautions=_cautions,
    words=WORDS,
    extras=_extras,
    examples="",
    usage="--heads runs/plural --task plural-en",
)
command = comparison.study
