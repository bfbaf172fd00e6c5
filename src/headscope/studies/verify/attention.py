"""Attention on the right one of an example's candidates, in a run folder."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from headscope import options
from headscope.data.tasks import Task
from headscope.errors import InputError
from headscope.estimates import Floats
from headscope.evidence.blocks import (
    LEVEL,
    MORE,
    NO_MORE,
    bars,
    levels_table,
    moved,
    table_of_tests,
)
from headscope.evidence.rows import WHOLE, Basis, Condition
from headscope.progress import Progress
from headscope.results.attention import (
    AttendedTask,
    AttentionDetails,
    AttentionResult,
)
from headscope.results.states import KeptHeads
from headscope.runs import Run, decode, encode
from headscope.settings import UNSIGNED
from headscope.shown.blocks import Cell, Row, Section, Shown, Table, p_cell
from headscope.shown.words import (
    arrow,
    between,
    count,
    enumeration,
    p_value,
    percent,
    sentence_of,
)
from headscope.studies.baseline import check_tasks
from headscope.studies.leakage import check_task_leakage
from headscope.studies.models import run_with_model
from headscope.studies.shows import few_parts, leakage_caution, model_facts
from headscope.studies.study import Study
from headscope.studies.tasks import basis_of, read_tasks, resolved_tasks, task_inputs
from headscope.studies.verify.mask import MasksOnTasks, digest_of, masks_by_task
from headscope.verify.looking import (
    STATISTICS,
    Placed,
    beside_random_sets,
    numbers_of,
    place_candidates,
    target_shares,
)
from headscope.verify.masks.asking import Mask, Way, read_mask
from headscope.verify.masks.conditions import OWN, beside_controls, condition_of
from headscope.verify.masks.evidence import ids_in, of_tasks, own_heads

if TYPE_CHECKING:
    from headscope.lm import LanguageModel

COMMAND = "verify attention"
#: What random masks are compared in.
TESTED = ("share_in", "in_minus_out")
#: Whose heads are kept where the prompt says what to do.
INSTRUCTED = f"{OWN}, instructed"


@dataclass(frozen=True)
class VerifyAttention(MasksOnTasks):
    """Measure the last token's attention on the right word, for heads inside and outside a mask.

    For tasks whose inputs are words such as "a, b, c" and whose output is one of them.
    """

    controls: options.MaskControls = ("shuffled",)
    batch_tokens: options.BatchTokens = field(default=8192, metadata=UNSIGNED)


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
    basis = basis_of(lm, tasks)
    settings = {
        "settings": config,
        "masks": {name: digest_of(mask) for name, mask in masks.items()},
    }

    def compute(run: Run) -> AttentionResult:
        works = check_tasks(lm, tasks, 0, config.seed, run, config.baseline, progress)
        kept = {
            name: _observed(lm, run, name, masks[name], prompts[name], config, basis, progress)
            for name in tasks
        }
        heads = {name: mask.kept.mask() for name, mask in masks.items()}
        numbers = {
            name: {
                each: numbers_of(share, mass, even, heads[name])
                for each, (share, mass, even) in own.items()
            }
            for name, own in kept.items()
        }
        evidence = of_tasks(
            numbers, STATISTICS, tested=TESTED, helps=lambda condition: True, by_size=False
        )
        random = {
            name: {
                ids_in(evidence, own)[each]: beside_random_sets(
                    share, heads[name], ~np.isnan(mass[0]), config.seed
                )
                for each, (share, mass, _) in own.items()
                if each.draw is None
            }
            for name, own in kept.items()
        }
        details = AttentionDetails(
            tasks={
                name: AttendedTask(
                    examples=len(sides.test.examples),
                    path=sides.test.path,
                    digest=sides.test.digest,
                    leakage=leaks[name],
                    mask=decode(KeptHeads, encode(masks[name].about())),
                    random=random[name],
                    heads=own_heads(evidence, numbers[name]),
                )
                for name, sides in tasks.items()
            },
            draws=config.draws,
            baseline_check=works["baseline_check"],
        )
        result = AttentionResult(
            baseline_works=works["baseline_works"], evidence=evidence, details=details
        )
        cautions = tuple(_cautions(result))
        return replace(result, verdict=_verdict(result), cautions=cautions)

    return run_with_model(
        lm, COMMAND, out, settings, task_inputs(tasks), compute, began, kind=AttentionResult
    )


def _prompts(lm: LanguageModel, task: Task) -> dict[bool, list[Placed]]:
    """Every example's prompts, bare (False) and, where there is an instruction, instructed."""
    ways = (False,) if task.instruction is None else (False, True)
    return {way: [place_candidates(lm, task, item, way) for item in task.examples] for way in ways}


def _observed(
    lm: LanguageModel,
    run: Run,
    name: str,
    mask: Mask,
    prompts: Mapping[bool, Sequence[Placed]],
    config: VerifyAttention,
    basis: Basis,
    progress: Progress | None,
) -> dict[Condition, tuple[Floats, Floats, list[float]]]:
    """Shares on the target, attention on all candidates and even shares under all conditions of a
    task; those of an earlier try come from the run's parts."""
    own = condition_of(mask)
    planned = {Condition(): Way()}
    if True in prompts:
        planned[Condition("instructed")] = Way(instructed=True)
    planned |= beside_controls(own, Way(mask), config.controls, config.draws, config.seed, basis)
    if True in prompts:
        planned[replace(own, of=INSTRUCTED)] = Way(mask, instructed=True)
    kept = run.read_tensors(f"attention {name}")
    for number, (each, way) in enumerate(planned.items(), 1):
        if each.id not in kept:
            with way.applied(lm):
                share, mass = target_shares(lm, prompts[way.instructed], config.batch_tokens)
            kept[each.id] = {"share": share, "mass": mass}
            run.append_tensors(f"attention {name}", each.id, kept[each.id])
        if progress:
            progress(f"attention: {name}", number, len(planned))
    stored = {f"{kind}.{each.id}": kept[each.id][kind]
              for each in planned for kind in ("share", "mass")}  # fmt: skip
    run.write_tensors(f"attention/{name}.safetensors", stored)
    return {
        each: (
            kept[each.id]["share"],
            kept[each.id]["mass"],
            [prompt.uniform for prompt in prompts[way.instructed]],
        )
        for each, way in planned.items()
    }


def _main(result: AttentionResult) -> Condition:
    return next(each for each in result.evidence.selected if each.of == OWN)


def _verdict(result: AttentionResult) -> str:
    """In how many tasks the heads of the mask look at the right word more than random sets."""
    main, tasks, more = _main(result), result.details.tasks, 0
    for name, task in tasks.items():
        random, level = task.random[main.id], result.evidence.level("share_in", main, name)
        if random.p_value is not None and random.mean is not None and level is not None:
            more += random.p_value <= LEVEL and level.value > random.mean
    some = MORE if more == len(tasks) else f"{MORE} in {more} of {count(len(tasks), 'task')}"
    return some if more else NO_MORE


def _show(result: AttentionResult, run: Path) -> Shown:
    """Shares by condition and task, beside random masks and random sets of heads."""
    evidence, tasks, main = result.evidence, result.details.tasks, _main(result)
    known = evidence.statistics
    examples, draws = sum(task.examples for task in tasks.values()), result.details.draws
    note = (
        "Share of the attention on the candidates that goes to the right word, from the last input "
        "token: exact weights, mean over heads and examples. Even attention: the share of tokens "
        "that are the right word's. The masked model computes heads outside the mask but does not "
        "use them"
    )
    levels = [levels_table(evidence, [*STATISTICS], arrow(part), note, part)
              for part in evidence.single]  # fmt: skip
    shares = [name for name in STATISTICS if name.startswith("share") and name in known]
    effect = [bars(evidence, name, main, known[name].words) for name in shares]
    tested = table_of_tests(evidence, TESTED, title="Under the mask and under random masks")
    sentences = [
        sentence
        for name, task in tasks.items()
        for sentence in (
            *moved(evidence, "share_in", main, lead=f"{arrow(name)}: under the mask", part=name),
            f"Random sets of as many heads of the masked model: p\u00a0=\u00a0"
            f"{p_value(task.random[main.id].p_value)}.",
        )
    ]
    return Shown(
        "Attention on the answer",
        "Do the heads that a mask keeps look at the right one of several words?",
        [sentence_of(result.verdict), *sentences],
        f"Intervals are over {count(examples, 'example')}, p over random sets of as many heads; "
        f"random masks: {count(draws, 'draw')}.",
        "--draws 20" if draws < 20 else "",
        result.cautions,
        [
            *model_facts(result.model_name),
            ("tasks", str(len(tasks))),
            ("examples", str(examples)),
            ("heads in the mask", ", ".join(str(task.mask.kept) for task in tasks.values())),
        ],
        [
            Section("Effect", effect),
            Section("Heads in the mask and random sets", [_random(result)], brief=True),
            Section("Shares by task", levels),
            *([Section("Random masks", [tested])] if tested.rows else []),
        ],
    )


def _cautions(result: AttentionResult) -> Iterator[str]:
    evidence, tasks = result.evidence, result.details.tasks
    leaks = (
        words for task in tasks.values() for words in leakage_caution(task.leakage, "examples")
    )
    yield from dict.fromkeys(leaks)
    yield from few_parts({arrow(n): task.examples for n, task in tasks.items()}, "examples", 50)
    rows = [row for row in evidence.levels if row.statistic == "undefined" and row.part != WHOLE]
    most = {part: max(row.value for row in rows if row.part == part) for part in evidence.single}
    named = [f"{arrow(part)} {percent(share, 1)}" for part, share in most.items() if share > 0]
    if named:
        yield (
            "Some heads pay the candidates no attention in some examples, which are left out: up "
            f"to {enumeration(named)} of heads and examples."
        )


def _random(result: AttentionResult) -> Table:
    """The heads of the mask beside random sets of heads under every condition."""
    evidence, rows = result.evidence, []
    share = evidence.statistics["share_all"]
    for name, task in result.details.tasks.items():
        for each in (each for each in evidence.conditions if each.id in task.random):
            random, gap = task.random[each.id], evidence.level("in_minus_out", each, name)
            low, high = (None if end is None else 100 * end for end in (random.low, random.high))
            own = share.cell(evidence.level("share_in", each, name))
            cells = (share.gap(gap), own, Cell.share(random.mean), Cell(between(low, high, 1)),
                     p_cell(random.p_value))  # fmt: skip
            rows.append(Row(f"{arrow(name)}, {each.of or each.kind}", cells))
    columns = "in minus outside", "in the mask", "random sets", "central 95\u00a0%", "p"
    note = (
        "Random sets: the share of as many heads, drawn from all; p, two-sided: how often such a "
        "set lies as far from their mean as the heads of the mask"
    )
    return Table("Heads in and outside the mask", columns, tuple(rows), note=note)


command = Study(VerifyAttention, verify_attention, result=AttentionResult, show=_show)
