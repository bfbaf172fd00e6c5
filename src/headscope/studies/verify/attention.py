"""Attention on the right one of an example's candidates, in a run folder."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Annotated

from headscope import options
from headscope.data.tasks import Task
from headscope.errors import InputError
from headscope.estimates import Estimate, Mean
from headscope.measure.baseline import Rules
from headscope.progress import Progress
from headscope.results.attention import (
    AttendedCondition,
    AttendedTask,
    AttentionResult,
    GroupShare,
    MeanShares,
    RandomSets,
)
from headscope.results.common import Bounds
from headscope.results.states import KeptHeads
from headscope.runs import Run, decode, encode
from headscope.settings import UNSIGNED, Nested, Settings
from headscope.shown.blocks import Bars, Cell, Row, Section, Shown, Table, p_cell
from headscope.shown.words import arrow, between, count, enumeration, p_value, percent
from headscope.studies.baseline import check_tasks
from headscope.studies.comparison import Bar, Level, Scale, bars_of
from headscope.studies.leakage import check_task_leakage
from headscope.studies.models import PROMPTED, ModelChoice, run_with_model
from headscope.studies.shows import few_parts, interval, leakage_caution, model_facts
from headscope.studies.study import Study
from headscope.studies.tasks import TaskChoice, read_tasks, resolved_tasks, task_inputs
from headscope.studies.verify.mask import digest_of, masks_by_task
from headscope.verify.looking import Placed, describe, place_candidates, target_shares
from headscope.verify.masks.asking import Mask, Masking, random_conditions, read_mask, shuffled

if TYPE_CHECKING:
    from headscope.lm import LanguageModel

COMMAND = "verify attention"
GROUPS = {"in": "heads in the mask", "all": "all heads", "out": "heads outside the mask"}
SHARE = Scale("share of the right word")


@dataclass(frozen=True)
class VerifyAttention(Settings):
    """Measure the last token's attention on the right word, for heads inside and outside a mask.

    For tasks whose inputs are words such as "a, b, c" and whose output is one of them.
    """

    masks: options.Masks = field(metadata=UNSIGNED)
    model: Annotated[ModelChoice, PROMPTED] = field(default_factory=ModelChoice)
    tasks: TaskChoice = field(default_factory=TaskChoice)
    # Shuffled masks of the same size under which attention is measured, too.
    draws: options.Draws = 5
    seed: options.Seed = 0
    batch_tokens: options.BatchTokens = field(default=8192, metadata=UNSIGNED)
    allow_overlap: options.AllowOverlap = field(default=False, metadata=UNSIGNED)
    baseline: Annotated[Rules, Nested(without=("errors",))] = field(default_factory=Rules)


def verify_attention(
    config: VerifyAttention, out: Path | None = None, progress: Progress | None = None
) -> AttentionResult:
    """Measure, and return the command's result; a run that was stopped goes on.

    The run keeps `attention/TASK.safetensors`: for each condition the share on the target and the
    attention on all candidates, of every sample and head.
    """
    began = time.monotonic()
    if config.tasks.shots:
        raise InputError("attention is read in prompts without examples; leave --shots out")
    tasks = read_tasks(config.tasks, config.model.model, config.seed)
    named = masks_by_task(config.masks, tasks)
    leaks = {
        name: check_task_leakage(str(named[name]), [sides.test], config.allow_overlap)
        for name, sides in tasks.items()
    }
    lm = config.model.load_for()
    config = replace(config, tasks=resolved_tasks(lm, config.tasks, config.model.model))
    masks = {name: read_mask(place, lm.geometry) for name, place in named.items()}
    prompts = {name: _prompts(lm, sides.test) for name, sides in tasks.items()}
    settings = {
        "settings": config,
        "masks": {name: digest_of(mask) for name, mask in masks.items()},
    }

    def compute(run: Run) -> AttentionResult:
        works = check_tasks(lm, tasks, 0, config.seed, run, config.baseline, progress)
        shown = {
            name: AttendedTask(
                examples=len(sides.test.examples),
                path=sides.test.path,
                digest=sides.test.digest,
                leakage=leaks[name],
                mask=decode(KeptHeads, encode(masks[name].about())),
                conditions=_task(lm, run, name, masks[name], prompts[name], config, progress),
            )
            for name, sides in tasks.items()
        }
        means = _means([task.by_name for task in shown.values()])
        return AttentionResult(**works, tasks=shown, conditions=means, draws=config.draws)

    return run_with_model(
        lm, COMMAND, out, settings, task_inputs(tasks), compute, began, kind=AttentionResult
    )


def _prompts(lm: LanguageModel, task: Task) -> dict[bool, list[Placed]]:
    """Every example's prompts, bare (False) and, where there is an instruction, instructed."""
    ways = (False,) if task.instruction is None else (False, True)
    return {way: [place_candidates(lm, task, item, way) for item in task.examples] for way in ways}


def _task(
    lm: LanguageModel,
    run: Run,
    name: str,
    mask: Mask,
    prompts: Mapping[bool, Sequence[Placed]],
    config: VerifyAttention,
    progress: Progress | None,
) -> tuple[AttendedCondition, ...]:
    """All conditions of one task; those of an earlier try come from the run's parts."""
    planned = [Masking("as-is", "as is"), Masking("masked", "masked", mask)]
    if True in prompts:
        planned[1:1] = [Masking("instructed", "instructed", instructed=True)]
        planned.append(Masking("masked", "masked, instructed", mask, instructed=True))
    drawn = shuffled(mask, config.draws, config.seed)
    planned += random_conditions("shuffled", drawn, "masked", instructed=False)
    kept = run.read_tensors(f"attention {name}")
    for number, condition in enumerate(planned):
        if condition.name not in kept:
            with condition.applied(lm):
                share, mass = target_shares(lm, prompts[condition.instructed], config.batch_tokens)
            kept[condition.name] = {"share": share, "mass": mass}
            run.append_tensors(f"attention {name}", condition.name, kept[condition.name])
        if progress:
            progress(f"attention: {name}", number + 1, len(planned))
    own = {condition.name: kept[condition.name] for condition in planned}
    stored = {f"{kind}.{name}": a for name, both in own.items() for kind, a in both.items()}
    run.write_tensors(f"attention/{name}.safetensors", stored)
    rows = [
        describe(
            condition.name,
            **own[condition.name],
            uniform=[prompt.uniform for prompt in prompts[condition.instructed]],
            kept=mask.kept.mask(),
            seed=config.seed,
        )
        for condition in planned
    ]
    plain, shuffles = rows[: len(rows) - len(drawn)], rows[len(rows) - len(drawn) :]
    if not shuffles:
        return tuple(plain)
    # Shuffled masks are one condition: the mean of their draws, whose own means stay beside it.
    groups = {}
    for group, first in shuffles[0].heads.items():
        means = tuple(row.heads[group].mean for row in shuffles)
        attention = fmean(row.heads[group].attention for row in shuffles)
        groups[group] = GroupShare(
            mean=_mean(means), draws=means, attention=attention, count=first.count
        )
    together = AttendedCondition(condition="shuffled", heads=groups, uniform=shuffles[0].uniform)
    return (*plain, together)


def _mean(values: Sequence[float | None]) -> float | None:
    """The plain mean; None where one is not defined."""
    known = [value for value in values if value is not None]
    return fmean(known) if known and len(known) == len(values) else None


def _means(tasks: Sequence[Mapping[str, AttendedCondition]]) -> tuple[MeanShares, ...]:
    """Plain means over tasks, of the conditions that all of them have."""
    rows = []
    for name, first in tasks[0].items():
        own = [task[name] for task in tasks if name in task]
        if len(own) == len(tasks):
            heads = {group: _mean([row.heads[group].mean for row in own]) for group in first.heads}
            rows.append(MeanShares(name, heads, fmean(row.uniform.mean for row in own)))
    return tuple(rows)


def _show(result: AttentionResult, run: Path) -> Shown:
    """Shares by condition and task, bars of each task, and differences with their tests."""
    tasks = result.tasks
    examples = sum(task.examples for task in tasks.values())
    return Shown(
        "Attention on the answer",
        "Do the heads that a mask keeps look at the right one of several words?",
        _finding(tasks),
        f"Intervals are over {count(examples, 'example')}, p over random sets of as many heads; "
        f"shuffled masks: {count(result.draws, 'draw')}.",
        "--draws 20" if result.draws < 20 else "",
        _cautions(tasks),
        [
            *model_facts(result.model_name),
            ("tasks", str(len(tasks))),
            ("examples", str(examples)),
            ("heads in the mask", ", ".join(str(task.mask.kept) for task in tasks.values())),
        ],
        [
            Section("Shares by task", [_shares(result)], brief=True),
            Section("Heads in and outside the mask", [_differences(tasks)], brief=True),
            Section("By condition", [_bars(name, task) for name, task in tasks.items()]),
        ],
    )


def _finding(tasks: Mapping[str, AttendedTask]) -> list[str]:
    masked = {name: task.by_name["masked"] for name, task in tasks.items()}
    gaps = {name: row.in_minus_out or Mean() for name, row in masked.items()}
    more = sum(gap.low > 0 for gap in gaps.values())
    less = sum(gap.high < 0 for gap in gaps.values())
    words = []
    if len(tasks) > 1:
        words.append(
            "In the masked model the heads in the mask give the right word more of their attention "
            f"on the candidates than heads outside it in {more} of {len(tasks)} tasks, and "
            f"less in {less} (the 95\u00a0% CI of the difference excludes zero)."
        )
    for name, row in masked.items():
        before, gap = tasks[name].by_name["as is"], gaps[name]
        points = Estimate(100 * gap.mean, 100 * gap.low, 100 * gap.high)
        inside = row.heads["in"].mean if "in" in row.heads else None
        random = row.random or RandomSets()
        words.append(
            f"{arrow(name)}: in the masked model the heads in the mask give the right word "
            f"{percent(inside, 1)} of their attention on the candidates; minus that of heads "
            f"outside the mask: {interval(points, 1, ' pp')}; random sets of as many heads: "
            f"p\u00a0=\u00a0{p_value(random.p_value)}. All heads: "
            f"{percent(before.heads['all'].mean, 1)} in the original model, "
            f"{percent(row.heads['all'].mean, 1)} in the masked model, "
            f"{percent(before.uniform.mean, 1)} with even attention."
        )
    return words


def _cautions(tasks: Mapping[str, AttendedTask]) -> list[str]:
    leaks = [
        words for task in tasks.values() for words in leakage_caution(task.leakage, "examples")
    ]
    cautions = list(dict.fromkeys(leaks))
    sizes = {arrow(name): task.examples for name, task in tasks.items()}
    cautions += few_parts(sizes, "examples", 50)
    undefined = {
        name: share
        for name, task in tasks.items()
        if (share := max(row.undefined or 0.0 for row in task.conditions)) > 0
    }
    if undefined:
        named = [f"{arrow(name)} {percent(share, 1)}" for name, share in undefined.items()]
        cautions.append(
            "Some heads pay the candidates no attention in some examples, which are left out: up "
            f"to {enumeration(named)} of heads and examples."
        )
    return cautions


def _shares(result: AttentionResult) -> Table:
    tasks = result.tasks.values()
    rows = [
        Row(
            f"{_named(row.condition)}, {GROUPS[group]}",
            tuple(SHARE.cell(_level(task.by_name[row.condition].heads[group])) for task in tasks),
        )
        for row in result.conditions
        for group in row.heads
    ]
    even = tuple(Cell.of(task.conditions[0].uniform, 1, "%", 100) for task in tasks)
    note = (
        "Share of the attention on the candidates that goes to the right word, from the last input "
        "token: exact weights, mean over heads and examples. Even attention: the share of tokens "
        "that are the right word's. The masked model computes heads outside the mask but does not "
        "use them"
    )
    title = "The right word's share of the attention on the candidates"
    return Table(
        title, tuple(map(arrow, result.tasks)), (*rows, Row("even attention", even)), note=note
    )


def _named(condition: str) -> str:
    return {"as is": "original", "shuffled": "shuffled masks"}.get(condition, condition)


def _level(share: GroupShare | None) -> Level:
    """A share with its interval."""
    if share is None or share.mean is None:
        return None
    ends = share.bounds or Bounds()
    return Estimate(share.mean, ends.low, ends.high)


def _bars(name: str, task: AttendedTask) -> Bars:
    def bar(share: GroupShare | None) -> Bar:
        draws = (share and share.draws) or ()
        return _level(share), [draw for draw in draws if draw is not None]

    groups = {
        _named(row.condition): {words: bar(row.heads.get(key)) for key, words in GROUPS.items()}
        for row in task.conditions
    }
    return bars_of(f"{arrow(name)}, {count(task.examples, 'example')}", groups, SHARE)


def _differences(tasks: Mapping[str, AttendedTask]) -> Table:
    rows = []
    for name, task in tasks.items():
        for row in task.conditions:
            if row.in_minus_out is None:
                continue
            random = row.random or RandomSets()
            low, high = (None if end is None else 100 * end for end in (random.low, random.high))
            cells = (
                SHARE.gap(row.in_minus_out),
                Cell.share(row.heads["in"].mean if "in" in row.heads else None),
                Cell.share(random.mean),
                Cell(between(low, high, 1)),
                p_cell(random.p_value),
                SHARE.gap(row.above_uniform),
                Cell.share(row.heads["all"].attention),
            )
            rows.append(Row(f"{arrow(name)}, {_named(row.condition)}", cells))
    columns = ("in minus outside", "in the mask", "random sets", "central 95\u00a0%", "p",
               "all heads minus even", "attention on candidates")  # fmt: skip
    note = (
        "Random sets: the share of as many heads, drawn from all; p, two-sided: how often such a "
        "set lies as far from their mean as the heads of the mask. Attention on candidates: the "
        "part of all attention that falls on any of them"
    )
    return Table("Heads in and outside the mask", columns, tuple(rows), note=note)


command = Study(VerifyAttention, verify_attention, result=AttentionResult, show=_show)
