"""Attention on the right one of an example's candidates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Annotated

import numpy as np

from headscope import options
from headscope.data.tasks import Task
from headscope.errors import InputError
from headscope.estimates import Floats
from headscope.evidence.headline import NOT_SHOWN, SHOWN, Case, verdicts
from headscope.evidence.rows import LEVEL, WHOLE, Basis, Condition, Evidence
from headscope.evidence.table import own_heads
from headscope.results.attention import (
    AttendedTask,
    AttentionDetails,
    AttentionResult,
)
from headscope.results.states import KeptHeads
from headscope.runs import decode, encode
from headscope.settings import GIVEN, Option
from headscope.shown.blocks import (
    Cell,
    Forest,
    Gap,
    Row,
    Section,
    Table,
)
from headscope.shown.words import arrow, between, enumeration, fixed, percent
from headscope.studies.comparison import Bench, Comparison, Examples, Measured
from headscope.studies.comparison_page import Extras, Words
from headscope.studies.masked_tasks import (
    MasksOnTasks,
    TaskUnderMask,
    chosen_masks,
    masks_for,
    read_under_masks,
    with_chat,
)
from headscope.studies.shows import few_parts
from headscope.studies.verify.masked_tasks_show import mask_heads
from headscope.verify.attention_shares import (
    SETS,
    STATISTICS,
    Placed,
    beside_random_sets,
    numbers_of,
    place_candidates,
    target_shares,
)
from headscope.verify.masked_tasks.asking import Planned, Way
from headscope.verify.masked_tasks.conditions import OWN, TaskMasks, condition_of, mask_conditions
from headscope.verify.masked_tasks.evidence import in_table, of_tasks

if TYPE_CHECKING:
    from headscope.lm import LanguageModel

#: What random masks are compared in.
TESTED = ("share_in", "in_minus_out")
#: Whose heads are kept where the prompt says what to do.
INSTRUCTED = f"{OWN}, instructed"


@dataclass(frozen=True, kw_only=True)
class VerifyAttention(MasksOnTasks):
    """Measure the last token's attention on the right word, for heads inside and outside a mask.

    For tasks whose inputs are words such as "a, b, c" and whose output is one of them.

    The run keeps `attention/TASK.safetensors`: for each condition the share on the target and the
    attention on all candidates, of every sample and head.
    """

    controls: options.MaskControls = ("shuffled",)
    pooled: Annotated[
        bool | None,
        Option(
            "Add attention up over heads before its share is taken, not each head's share.",
            panel="Expert",
        ),
    ] = field(default=None, metadata=GIVEN)


@dataclass(frozen=True)
class Seen:
    """Of every sample and head the share on the target and the attention on all candidates, and of
    every sample the share of even attention."""

    share: Floats
    mass: Floats
    even: Sequence[float]


def _read(config: VerifyAttention) -> Examples[TaskUnderMask]:
    if config.tasks.shots:
        raise InputError("attention is read in prompts without examples; leave --shots out")
    return read_under_masks(config)


def _ready(
    lm: LanguageModel, config: VerifyAttention, examples: Examples[TaskUnderMask]
) -> tuple[VerifyAttention, Examples[TaskUnderMask]]:
    config, examples = with_chat(lm, config, examples)
    prompts = {name: _prompts(lm, part.test) for name, part in examples.parts.items()}
    return config, replace(examples, prompted=prompts)


def _prompts(lm: LanguageModel, task: Task) -> dict[bool, list[Placed]]:
    """The prompts of the examples: bare (False) and, where there is an instruction, instructed."""
    ways = (False,) if task.instruction is None else (False, True)
    return {way: [place_candidates(lm, task, item, way) for item in task.examples] for way in ways}


def _plan(masks: Sequence[TaskMasks], config: VerifyAttention, basis: Basis) -> Planned:
    (of_task,) = masks
    planned = mask_conditions(of_task, config, basis)
    if of_task.instructed:
        instructed = replace(condition_of(of_task.mask), of=INSTRUCTED)
        planned[instructed] = Way(of_task.mask, instructed=True)
    return planned


def _measure(bench: Bench[VerifyAttention, TaskUnderMask]) -> Measured:
    config, masks = bench.config, bench.chosen.known
    seen = {name: _seen(bench, name) for name in bench.parts}
    kept = {name: of_task.mask.kept.mask() for name, of_task in masks.items()}
    numbers = {
        name: {
            condition: numbers_of(each.share, each.mass, each.even, kept[name], bool(config.pooled))
            for condition, each in of_task.items()
        }
        for name, of_task in seen.items()
    }
    table = of_tasks(
        numbers, STATISTICS, tested=TESTED, helps=lambda condition: True, by_size=False
    )
    conditions = in_table(seen)
    heads = own_heads(conditions, table)
    tasks = {
        name: AttendedTask(
            examples=len(part.test.examples),
            path=part.test.path,
            digest=part.test.digest,
            leakage=part.leakage,
            mask=decode(KeptHeads, encode(masks[name].mask.about())),
            random={
                condition.id: beside_random_sets(
                    each.share,
                    kept[name],
                    ~np.isnan(each.mass[0]),
                    config.seed,
                    each.mass if config.pooled else None,
                )
                for condition, each in zip(conditions[name], seen[name].values(), strict=True)
                if condition.draw is None
            },
            heads=heads.get(name, {}),
        )
        for name, part in bench.parts.items()
    }
    return Measured(table, {"tasks": tasks, "pooled": config.pooled})


def _seen(bench: Bench[VerifyAttention, TaskUnderMask], name: str) -> dict[Condition, Seen]:
    """What is seen of a task under every condition, from the run where it is done already."""
    planned, prompts = bench.plans[name], bench.prompted[name]
    kept = bench.run.read_tensors(f"attention {name}")
    for number, (condition, way) in enumerate(planned.items(), 1):
        if condition.id not in kept:
            with way.applied(bench.lm):
                share, mass = target_shares(
                    bench.lm, prompts[way.instructed], bench.config.batch_tokens
                )
            kept[condition.id] = {"share": share, "mass": mass}
            bench.run.append_tensors(f"attention {name}", condition.id, kept[condition.id])
        if bench.progress:
            bench.progress(f"attention: {name}", number, len(planned))
    stored = {f"{kind}.{condition.id}": kept[condition.id][kind]
              for condition in planned for kind in ("share", "mass")}  # fmt: skip
    bench.run.write_tensors(f"attention/{name}.safetensors", stored)
    return {
        condition: Seen(
            **kept[condition.id], even=[prompt.uniform for prompt in prompts[way.instructed]]
        )
        for condition, way in planned.items()
    }


def _main(table: Evidence) -> Condition:
    return next(condition for condition in table.selected if condition.of == OWN)


def _answer(table: Evidence, details: AttentionDetails) -> str:
    """In which tasks the heads of the mask look at the right word more than random sets."""
    main, words = _main(table), dict[str, str]()
    said = _effect(table, details)
    for name, task in details.tasks.items():
        random, level = task.random[main.id], table.level("share_in", main, name)
        more = (
            random.p_value is not None and random.mean is not None and level is not None
            and random.p_value <= LEVEL and level.value > random.mean
        )  # fmt: skip
        words[arrow(name)] = SHOWN if more else NOT_SHOWN
        if len(details.tasks) == 1 and random.as_far:
            words[arrow(name)] += f" ({random.as_far} random sets lie as far)"
    return f"{said}: {verdicts(words)}"


def _effect(table: Evidence, details: AttentionDetails) -> str:
    """The share of attention that the mask's heads pay to the right word, beside random sets."""
    main, own = _main(table), table.statistics["share_in"]
    level = table.level("share_in", main)
    means = [task.random[main.id].mean for task in details.tasks.values()]
    known = [mean for mean in means if mean is not None]
    if level is None:
        return "The attention of the mask's heads was not measured"
    said = f"The mask's heads pay {own.number(level)} to the right word"
    if len(known) < len(means):
        return said
    gap = own.shown(level.value - fmean(known)).value
    side = "more" if gap >= 0 else "less"
    return f"{said}, {fixed(abs(gap), own.digits)} {own.points} {side} than random sets of heads"


def _extras(result: AttentionResult, run: Path) -> Extras:
    """The share of the mask's heads beside even attention and random sets of heads."""
    tasks, main = result.details.tasks, _main(result.evidence)
    return Extras(
        conditions=[main],
        sentences=_beside_even(result),
        heads=mask_heads(main, tasks),
        facts=[
            ("tasks", str(len(tasks))),
            ("heads in the mask", ", ".join(str(task.mask.kept) for task in tasks.values())),
            ("random sets of heads", str(SETS)),
            *([("attention of heads", "added up")] if result.details.pooled else []),
        ],
        sections=[Section("Random sets of heads", [_random(result)])],
        figure=_figure(result),
    )


def _beside_even(result: AttentionResult) -> list[str]:
    """The share of the main condition in words, and on which side of even attention it lies."""
    evidence, main = result.evidence, _main(result.evidence)
    level, even = (evidence.level(name, main) for name in ("share_in", "uniform"))
    if level is None or even is None:
        return []
    own = evidence.statistics["share_in"]
    if level.low > even.value:
        side = "more than"
    elif level.high < even.value:
        side = "less than"
    else:
        side = "not shown to differ from"
    return [f"That is {side} even attention ({own.number(even)})."]


def _figure(result: AttentionResult) -> Forest:
    """By task the share of the mask's heads minus even attention and random sets."""
    return Forest(
        "Attention on the right word: the mask's heads minus chance",
        tuple((arrow(name), tuple(_chances(result, name))) for name in result.details.tasks),
        "Difference in pp",
        ("less on the right word", "more on the right word"),
        over="examples, of random sets the range of the central 95 % of them",
    )


def _chances(result: AttentionResult, name: str) -> Iterator[Gap]:
    """The share of a task minus even attention and minus random sets of heads, in pp."""
    evidence, main = result.evidence, _main(result.evidence)
    random = result.details.tasks[name].random[main.id]
    level, even = (evidence.level(each, main, name) for each in ("share_in", "uniform"))
    if level is None or even is None:
        return
    ends = (level.low, level.high) if level.bounded else ()
    yield Gap("even attention", *(100 * (end - even.value) for end in (level.value, *ends)))
    if random.mean is not None and random.low is not None and random.high is not None:
        mean, low, high = (
            100 * (level.value - chance) for chance in (random.mean, random.high, random.low)
        )
        yield Gap("random sets", mean, low, high, as_far=random.as_far)


def _cautions(table: Evidence, details: AttentionDetails) -> Iterator[str]:
    sizes = {arrow(name): task.examples for name, task in details.tasks.items()}
    yield from few_parts(sizes, "examples", 50)
    rows = [row for row in table.levels if row.statistic == "undefined" and row.part != WHOLE]
    most = {part: max(row.value for row in rows if row.part == part) for part in table.single}
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
            random = task.random[each.id]
            low, high = (None if end is None else 100 * end for end in (random.low, random.high))
            own = share.cell(evidence.level("share_in", each, name))
            cells = (own, Cell.share(random.mean), Cell(between(low, high, 1)),
                     Cell(random.as_far))  # fmt: skip
            rows.append(Row(f"{arrow(name)}, {each.of or each.kind}", cells))
    columns = "in the mask", "random sets", "central 95\u00a0%", "sets that lie as far"
    return Table("Right word, heads in the mask and random sets", columns, tuple(rows))


WORDS = Words(
    "Attention on the right word",
    "Does more of the attention of heads that a mask keeps go to the right one of several words "
    "than chance gives?",
    "example",
    "Share of the attention on the candidates that goes to the right word, from the last input "
    "token: exact weights, mean over heads (or added up over them) and examples. Even attention: "
    "the share of tokens that are the right word's. Random sets: as many heads, drawn from all, "
    "of the same model; those are counted that lie as far from their mean, on either side. "
    "Random masks "
    "(shuffled) change the model. The masked model computes heads outside the mask but does not "
    "use them.",
)

comparison = Comparison(
    command="verify attention",
    settings=VerifyAttention,
    result=AttentionResult,
    details=AttentionDetails,
    read=_read,
    ready=_ready,
    heads=lambda lm, config, examples: chosen_masks(masks_for(lm, config, examples)),
    plan=_plan,
    measure=_measure,
    cases=lambda table, details: [Case("share_in", _main(table))],
    answer=_answer,
    cautions=_cautions,
    words=WORDS,
    extras=_extras,
    examples="examples",
    usage="--heads runs/plural --task plural-en",
)
command = comparison.study
