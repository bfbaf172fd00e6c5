"""Attention on the right one of an example's candidates, in a run folder."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np

from headscope import options
from headscope.data.tasks import Task
from headscope.errors import InputError
from headscope.estimates import Floats
from headscope.evidence.blocks import (
    LEVEL,
    MORE,
    NO_MORE,
    forest,
    levels_table,
    table_of_tests,
    verdicts,
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
from headscope.settings import GIVEN, UNSIGNED, Option
from headscope.shown.blocks import (
    Cell,
    Forest,
    Gap,
    Row,
    Section,
    Shown,
    Table,
    method_section,
    p_cell,
)
from headscope.shown.words import (
    arrow,
    between,
    count,
    enumeration,
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
from headscope.studies.verify.masked_shows import masks_of
from headscope.verify.looking import (
    SETS,
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
    pooled: Annotated[
        bool | None,
        Option("Add attention up over heads before its share is taken, not each head's share."),
    ] = field(default=None, metadata=GIVEN)
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
                each: numbers_of(share, mass, even, heads[name], bool(config.pooled))
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
                    share,
                    heads[name],
                    ~np.isnan(mass[0]),
                    config.seed,
                    mass if config.pooled else None,
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
            pooled=config.pooled,
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
    planned |= beside_controls(own, Way(mask), config, basis)
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
    """In which tasks the heads of the mask look at the right word more than random sets."""
    main, words = _main(result), dict[str, str]()
    for name, task in result.details.tasks.items():
        random, level = task.random[main.id], result.evidence.level("share_in", main, name)
        more = (
            random.p_value is not None and random.mean is not None and level is not None
            and random.p_value <= LEVEL and level.value > random.mean
        )  # fmt: skip
        words[arrow(name)] = MORE if more else NO_MORE
    return verdicts(words)


def _show(result: AttentionResult, run: Path) -> Shown:
    """Attention on the right word minus even attention and controls, and every share."""
    evidence, tasks, main = result.evidence, result.details.tasks, _main(result)
    examples, draws = sum(task.examples for task in tasks.values()), result.details.draws
    shares = [levels_table(evidence, [*STATISTICS], arrow(part), part=part)
              for part in evidence.single]  # fmt: skip
    tested = table_of_tests(evidence, TESTED, title="Under the mask and under random masks")
    return Shown(
        "Attention on the right word",
        "Does more of the attention of heads that a mask keeps go to the right one of several "
        "words than chance gives?",
        [sentence_of(result.verdict), *_beside_even(result)],
        f"Intervals are over {count(examples, 'example')}, p over {SETS} random sets of heads; "
        f"{count(draws, 'random mask')}.",
        "--draws 20" if draws < 20 else "",
        result.cautions,
        [
            *model_facts(result.model_name),
            ("tasks", str(len(tasks))),
            ("heads in the mask", ", ".join(str(task.mask.kept) for task in tasks.values())),
        ],
        [
            masks_of(main, tasks),
            Section("Values and tests", [_random(result), *shares, tested]),
            method_section(
                "Share of the attention on the candidates that goes to the right word, from the "
                "last input token: exact weights, "
                + (
                    "added up over heads, mean over "
                    if result.details.pooled
                    else "mean over heads and "
                )
                + "examples. Even attention: "
                "the share of tokens that are the right word's. Random sets: as many heads, drawn "
                "from all, of the same model; p, two-sided: how often they lie as far from their "
                "mean. Random masks (shuffled) "
                "change the model. The masked model computes heads outside the mask but does not "
                "use them."
            ),
        ],
        _figure(result),
    )


def _beside_even(result: AttentionResult) -> list[str]:
    """The share of the main condition in words, and on which side of even attention it lies."""
    evidence, main = result.evidence, _main(result)
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
    return [
        f"The mask's heads pay {own.number(level)} to the right word, {side} even attention "
        f"({own.number(even)})."
    ]


def _figure(result: AttentionResult) -> Forest:
    """By task the share of the mask's heads minus even attention, random sets and random masks."""
    evidence, main, tasks = result.evidence, _main(result), result.details.tasks
    title = "Attention on the right word: the mask's heads minus chance"
    tested = forest(evidence, [(name, "share_in", main, name) for name in tasks], title)
    beside = dict(tested.rows) if tested else {}
    return Forest(
        title,
        tuple((arrow(name), (*_chances(result, name), *beside.get(name, ()))) for name in tasks),
        "Difference in pp",
        ("less on the right word", "more on the right word"),
        note="Random sets: with the central 95 % of sets",
    )


def _chances(result: AttentionResult, name: str) -> Iterator[Gap]:
    """The share of a task minus even attention and minus random sets of heads, in pp."""
    evidence, main = result.evidence, _main(result)
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
        yield Gap("random sets", mean, low, high, p=random.p_value)


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
    return Table("Heads in and outside the mask", columns, tuple(rows))


command = Study(VerifyAttention, verify_attention, result=AttentionResult, show=_show)
