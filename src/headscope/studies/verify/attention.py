"""Attention on the right one of an example's candidates, in a run folder."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Annotated

from headscope import options
from headscope.data.tasks import Task
from headscope.errors import InputError
from headscope.measure.baseline import Rules
from headscope.results.attention import (
    AttendedCondition,
    AttendedTask,
    AttentionResult,
    GroupShare,
    MeanShares,
)
from headscope.results.common import Leakage
from headscope.results.states import KeptHeads
from headscope.runs import Run, decode, encode
from headscope.settings import UNSIGNED, Part, Settings
from headscope.studies.baseline import check_tasks
from headscope.studies.inputs import ModelChoice, Progress, run_with_model
from headscope.studies.leakage import check_task_leakage
from headscope.studies.tasks import TaskChoice, read_tasks, resolved_tasks, task_inputs
from headscope.studies.verify.mask import digest_of, masks_by_task
from headscope.verify.attention.evidence import describe
from headscope.verify.attention.places import Placed, place_candidates
from headscope.verify.masks.mask import Mask, read_mask, shuffled

if TYPE_CHECKING:
    from headscope.lm import LanguageModel

__all__ = ["COMMAND", "VerifyAttention", "verify_attention"]

COMMAND = "verify attention"


@dataclass(frozen=True)
class VerifyAttention(Settings):
    """Measure the last token's attention on the right one of several words, in and out of a mask.

    For tasks whose inputs are words such as "a, b, c" and whose output is one of them.
    """

    masks: options.Masks = field(metadata=UNSIGNED)
    model: ModelChoice = field(default_factory=ModelChoice)
    tasks: TaskChoice = field(default_factory=TaskChoice)
    # Shuffled masks of the same size under which attention is measured, too.
    draws: options.Draws = 5
    seed: options.Seed = 0
    batch_tokens: options.BatchTokens = field(default=8192, metadata=UNSIGNED)
    allow_overlap: options.AllowOverlap = field(default=False, metadata=UNSIGNED)
    baseline: Annotated[Rules, Part(without=("errors",))] = field(default_factory=Rules)


@dataclass(frozen=True, eq=False)
class _Condition:
    """A prompt and a mask: `instructed` or bare, under `mask` or as the model is."""

    name: str
    instructed: bool = False
    mask: Mask | None = None

    @contextlib.contextmanager
    def on(self, lm: LanguageModel) -> Iterator[None]:
        with contextlib.nullcontext() if self.mask is None else lm.adapted(self.mask):
            yield


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
    lm = config.model.load_for(out)
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
                leakage=Leakage(**leaks[name]),
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
    return {way: [place_candidates(lm, task, one, way) for one in task.examples] for way in ways}


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
    from headscope.verify.attention.reading import target_shares

    planned = [_Condition("as is"), _Condition("masked", mask=mask)]
    if True in prompts:
        planned[1:1] = [_Condition("instructed", True)]
        planned.append(_Condition("masked, instructed", True, mask))
    drawn = shuffled(mask, config.draws, config.seed)
    planned += [_Condition(f"shuffled {n}", mask=one) for n, one in enumerate(drawn)]
    kept = run.read_tensors(f"attention {name}")
    for number, condition in enumerate(planned):
        if condition.name not in kept:
            with condition.on(lm):
                share, mass = target_shares(lm, prompts[condition.instructed], config.batch_tokens)
            kept[condition.name] = {"share": share, "mass": mass}
            run.append_tensors(f"attention {name}", condition.name, kept[condition.name])
        if progress:
            progress(f"attention: {name}", number + 1, len(planned))
    own = {condition.name: kept[condition.name] for condition in planned}
    stored = {f"{kind}.{name}": a for name, both in own.items() for kind, a in both.items()}
    run.write_tensors(f"attention/{name}.safetensors", stored)
    inside = mask.kept.mask()
    uniform = {one.name: [prompt.uniform for prompt in prompts[one.instructed]] for one in planned}
    return _gathered(
        describe(
            {name: both["share"] for name, both in own.items()},
            {name: both["mass"] for name, both in own.items()},
            uniform,
            inside,
            config.seed,
        )
    )


def _gathered(conditions: Sequence[AttendedCondition]) -> tuple[AttendedCondition, ...]:
    """Shuffled masks as one condition: the mean of their draws, whose own means stay beside it."""
    plain = [row for row in conditions if not row.condition.startswith("shuffled ")]
    drawn = [row for row in conditions if row.condition.startswith("shuffled ")]
    if not drawn:
        return tuple(plain)
    groups = {}
    for group, first in drawn[0].heads.items():
        means = tuple(row.heads[group].mean for row in drawn)
        attention = fmean(row.heads[group].attention for row in drawn)
        groups[group] = GroupShare(
            mean=_mean(means), draws=means, attention=attention, count=first.count
        )
    shuffled = AttendedCondition(condition="shuffled", heads=groups, uniform=drawn[0].uniform)
    return (*plain, shuffled)


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
