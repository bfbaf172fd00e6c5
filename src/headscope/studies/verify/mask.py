"""A learned mask on held-out examples beside its controls."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from headscope.evidence.headline import Case
from headscope.evidence.rows import Condition, Evidence
from headscope.evidence.table import own_heads
from headscope.results.common import Leakage
from headscope.results.masked_tasks import MaskDetails, MaskedTask, MaskTests, OtherMask
from headscope.settings import UNSIGNED, Option
from headscope.shown.words import count, tasks_of
from headscope.studies.comparison import Bench, Chosen, Comparison, Examples, Measured
from headscope.studies.comparison_page import Extras, Words
from headscope.studies.leakage import check_task_leakage
from headscope.studies.masked_tasks import (
    AskedUnderMasks,
    TaskUnderMask,
    about_task,
    answers_under,
    chosen_masks,
    examples_of,
    masks_for,
    read_under_masks,
    with_chat,
)
from headscope.studies.verify.masked_tasks_show import (
    few_examples,
    mask_heads,
    outputs_section,
    trained_on_caution,
)
from headscope.verify.masked_tasks.asking import NEW_TOKENS, Mask, read_mask
from headscope.verify.masked_tasks.conditions import OWN, TaskMasks, mask_conditions
from headscope.verify.masked_tasks.evidence import in_table, masks_evidence

if TYPE_CHECKING:
    from headscope.lm import LanguageModel


@dataclass(frozen=True, kw_only=True)
class VerifyMask(AskedUnderMasks):
    """Test a mask: the original model, instructed, masked, and under random and foreign masks.

    On held-out examples: the loss of the right outputs, and the outputs. With --shots every prompt
    begins with as many examples.

    Beside the result the run holds `samples/TASK.jsonl`: of every condition and example the loss
    of the right output, its tokens, and what the model wrote.
    """

    # None where a paper compares other masks alone.
    draws: Annotated[int, Option("Draws of random heads.", min=1, checked=False, panel="Test")] = 5
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


@dataclass(frozen=True, kw_only=True)
class TaskUnderMasks(TaskUnderMask):
    """The same with how many of its examples other masks were trained on."""

    hybrid: Leakage | None
    foreign: tuple[Leakage, ...]


def _read(config: VerifyMask) -> Examples[TaskUnderMasks]:
    examples, parts = read_under_masks(config), dict[str, TaskUnderMasks]()
    for name, part in examples.parts.items():
        test, hybrid = [part.test], None
        if config.hybrid:
            hybrid = check_task_leakage(config.hybrid, test, config.allow_overlap)
        # What another task's mask has seen makes the comparison harder for the task's own.
        foreign = tuple(check_task_leakage(place, test, True) for place in config.foreign)
        parts[name] = TaskUnderMasks(**vars(part), hybrid=hybrid, foreign=foreign)
    return examples_of(parts, config.tasks.shots)


def _heads(lm: LanguageModel, config: VerifyMask, examples: Examples[TaskUnderMasks]) -> Chosen:
    hybrid = read_mask(config.hybrid, lm.geometry) if config.hybrid else None
    foreign = tuple(read_mask(place, lm.geometry) for place in config.foreign)
    masks = masks_for(lm, config, examples)
    return chosen_masks(
        {name: replace(mask, hybrid=hybrid, foreign=foreign) for name, mask in masks.items()}
    )


def _measure(bench: Bench[VerifyMask, TaskUnderMasks]) -> Measured:
    tests = {name: part.test for name, part in bench.parts.items()}
    records = answers_under(bench, tests, bench.plans)
    table = masks_evidence(tests, records, bench.config.seed, progress=bench.progress)
    heads = own_heads(in_table(records), table)
    tasks = {
        name: _about(
            part,
            bench.chosen.known[name],
            next(iter(records[name].values())).tokens,
            bench.config.max_new_tokens or NEW_TOKENS,
            heads.get(name, {}),
        )
        for name, part in bench.parts.items()
    }
    return Measured(table, {"tasks": tasks, "shots": bench.config.tasks.shots})


def _about(
    part: TaskUnderMasks,
    masks: TaskMasks,
    tokens: Sequence[int],
    most: int,
    heads: Mapping[str, tuple[str, ...]],
) -> MaskedTask:
    """What a result says of a task whose right outputs have so many `tokens`."""
    task = part.test

    def other(mask: Mask, leakage: Leakage) -> OtherMask:
        return OtherMask(mask.about(), mask.unseen(task.name), leakage)

    return MaskedTask(
        **about_task(task),
        tokens=sum(tokens),
        at_start=task.at_start,
        # Answers that no model can get right.
        too_long=0 if task.is_translation else sum(length > most for length in tokens),
        bare=task.bare,
        mask=masks.mask.about(),
        unseen=masks.mask.unseen(task.name),
        leakage=part.leakage,
        hybrid=other(masks.hybrid, part.hybrid) if masks.hybrid and part.hybrid else None,
        foreign=tuple(map(other, masks.foreign, part.foreign)),
        heads=heads,
    )


def _main(table: Evidence) -> Condition:
    return next(condition for condition in table.selected if condition.of == OWN)


def _cases(table: Evidence, details: MaskDetails) -> list[Case]:
    lead = "Under the mask" if len(details.tasks) == 1 else "Under each task's mask"
    return [Case("nll", _main(table), lead=lead)]


def _extras(result: MaskTests, run: Path) -> Extras:
    """What each task's mask removes, and the first outputs."""
    tasks, main = result.details.tasks, _main(result.evidence)
    new = [name for name, task in tasks.items() if task.unseen]
    return Extras(
        conditions=[main],
        heads=mask_heads(main, tasks),
        facts=[
            ("tasks", str(len(tasks))),
            ("heads kept", ", ".join(str(task.mask.kept) for task in tasks.values())),
            *([("not trained on", tasks_of(new))] if new else []),
            *([("shots", str(result.details.shots))] if result.details.shots else []),
        ],
        sections=outputs_section(run, result.evidence),
    )


def _cautions(table: Evidence, details: MaskDetails) -> Iterator[str]:
    tasks = details.tasks
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


#: The loss, which the verdict is of, and what is claimed of the outputs beside it.
LEADS = ("nll", "rouge_l", "accuracy")
WORDS = Words(
    "Mask test",
    "Does the model do a task without an instruction when only the heads of its mask are left?",
    "held-out example",
    "The loss is that of the right output in nats a token: the mean over examples of each one's "
    "mean over its tokens. Random masks (shuffled) remove as many heads of the model, or of each "
    "layer. Of a translation the part before its first line break is measured. An output is right "
    "if the answer is in its first 10 tokens, or, where a task says so, if it begins with it.",
)

comparison = Comparison(
    command="verify mask",
    settings=VerifyMask,
    result=MaskTests,
    details=MaskDetails,
    read=_read,
    ready=with_chat,
    heads=_heads,
    plan=lambda masks, config, basis: mask_conditions(masks[0], config, basis),
    measure=_measure,
    leads=lambda table: [name for name in LEADS if name in table.statistics],
    cases=_cases,
    cautions=_cautions,
    words=WORDS,
    extras=_extras,
    examples="",
    usage="--heads runs/plural --task plural-en",
)
command = comparison.study
