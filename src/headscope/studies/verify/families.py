"""Heads that the masks of a family of tasks share, removed, beside as many random ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Annotated, Any

from headscope import options
from headscope.errors import InputError
from headscope.evidence.controls import DEFAULT
from headscope.evidence.headline import Case
from headscope.evidence.rows import Condition, Evidence
from headscope.heads import Head, HeadSet, read_scores
from headscope.heads.geometry import count_of
from headscope.heads.resolve import MEAN
from headscope.options import Amount
from headscope.results.masked_tasks import FamilyDetails, FamilyHeads, FamilyTests, TestedTask
from headscope.settings import GIVEN, Option
from headscope.shown.blocks import Section, Table, table_of
from headscope.shown.words import enumeration
from headscope.studies.comparison import (
    ALL_PARTS,
    Bench,
    Chosen,
    Comparison,
    Examples,
    Measured,
)
from headscope.studies.comparison_page import Extras, Words
from headscope.studies.leakage import check_task_leakage, together
from headscope.studies.masked_tasks import (
    AskedUnderMasks,
    TaskUnderMask,
    about_task,
    answers_under,
    digest_of,
    examples_of,
    named_place,
    with_chat,
)
from headscope.studies.tasks import read_tasks
from headscope.studies.verify.masked_tasks_show import (
    few_examples,
    outputs_section,
    trained_on_caution,
)
from headscope.verify.masked_tasks.asking import Mask, read_mask
from headscope.verify.masked_tasks.conditions import (
    UNUSED,
    Family,
    families,
    family_conditions,
    parse_family,
)
from headscope.verify.masked_tasks.evidence import masks_evidence

if TYPE_CHECKING:
    from headscope.lm import LanguageModel


@dataclass(frozen=True, kw_only=True)
class VerifyFamilies(AskedUnderMasks):
    """Do instructed tasks without the heads that several masks share, and without those in none.

    Heads in every mask, in every mask of tasks with one language, and in none; each compared with
    as many random heads.

    Beside the result the run holds `samples/TASK.jsonl` and the heads of each family as a saved set
    under `families/NAME`.
    """

    controls: options.Controls = DEFAULT
    family: Annotated[
        tuple[str, ...],
        Option(
            "A family of tasks, besides all tasks and those with one language; repeatable.",
            metavar="NAME=TASK,TASK",
        ),
    ] = ()
    write: Annotated[bool, Option("Let the model write outputs too, and measure them.")] = False
    # Of the heads in every mask so many, those with the largest smallest weight; None: all.
    k: Amount | None = field(default=None, metadata=GIVEN)


@dataclass(frozen=True)
class Grouped:
    """Masks by name, and the families of heads that they share."""

    masks: Mapping[str, Mask]
    families: list[Family]


def _read(config: VerifyFamilies) -> Examples[TaskUnderMask]:
    tasks = read_tasks(config.tasks, config.model.model, config.seed)
    for text in config.family:
        parse_family(text)
    parts = {}
    for name, sides in tasks.items():
        leaks = [
            check_task_leakage(str(named_place(mask)[1]), [sides.test], config.allow_overlap)
            for mask in config.masks
        ]
        # An example counts once a mask that was trained on it.
        leakage = replace(together(leaks), of=len(sides.test.examples))
        parts[name] = TaskUnderMask(**vars(sides), leakage=leakage)
        if sides.test.instruction is None:
            raise InputError(f"the task {name!r} has no instruction; give one")
    return examples_of(parts, config.tasks.shots)


def _heads(lm: LanguageModel, config: VerifyFamilies, examples: Examples[TaskUnderMask]) -> Chosen:
    named = [*map(named_place, config.masks)]
    masks = _named((name, read_mask(place, lm.geometry)) for name, place in named)
    grouped = families(masks, dict(map(parse_family, config.family)))
    signed: dict[str, Any] = {"masks": {name: digest_of(mask) for name, mask in masks.items()}}
    if config.k is not None:
        first, *others = grouped
        sure = surest(first.heads, [place for _, place in named], config.k)
        grouped = [replace(first, heads=sure), *others]
        signed["shared"] = sure.keys
    return Chosen({ALL_PARTS: grouped}, signed=signed, known=Grouped(masks, grouped))


def surest(heads: HeadSet, masks: Iterable[Path], k: Amount) -> HeadSet:
    """Of some heads at most `k` (a number, or a share of all of the model), those whose smallest
    weight over the runs of masks is the largest; of equal ones the larger mean.

    Raises `InputError` if a mask is no run with weights.
    """
    weights = []
    for place in masks:
        if (scores := read_scores(place).get(MEAN)) is None:
            raise InputError(f"{place}: has no weights of heads; name a run of headscope find mask")
        weights.append(scores)

    def rank(head: Head) -> tuple[float, float]:
        own = [scores[head] for scores in weights]
        return min(own), fmean(own)

    ranked = sorted(heads, key=rank, reverse=True)
    first = ranked[: count_of(k, heads.geometry.total)]
    return HeadSet(heads.geometry, tuple(sorted(first)))


def _measure(bench: Bench[VerifyFamilies, TaskUnderMask]) -> Measured:
    tests = {name: part.test for name, part in bench.parts.items()}
    # Families may be of the same heads, and then so are their draws.
    planned = dict.fromkeys(tests, bench.plans[ALL_PARTS])
    records = answers_under(bench, tests, planned, write=bench.config.write)
    grouped: Grouped = bench.chosen.known
    for family in grouped.families:
        family.heads.save_pretrained(bench.run.path / "families" / family.name)
    about = {
        "families": tuple(map(_describe, grouped.families)),
        "masks": {name: mask.about() for name, mask in grouped.masks.items()},
        "tasks": {name: TestedTask(**about_task(task)) for name, task in tests.items()},
    }
    seed, progress = bench.config.seed, bench.progress
    return Measured(masks_evidence(tests, records, seed, _helps, progress=progress), about)


def _named(masks: Iterable[tuple[str | None, Mask]]) -> dict[str, Mask]:
    """Masks by the task each was trained on, or the name it was given."""
    by_name: dict[str, Mask] = {}
    for given, mask in masks:
        name = given or (mask.tasks[0] if len(mask.tasks) == 1 else mask.name)
        if name in by_name:
            raise InputError(f"two masks are of the task {name!r}; name them apart as NAME=RUN")
        by_name[name] = mask
    return by_name


def _describe(family: Family) -> FamilyHeads:
    heads, total = family.heads, family.heads.geometry.total
    return FamilyHeads(
        name=family.name,
        tasks=family.tasks,
        removed=len(heads),
        kept=total - len(heads),
        heads=tuple(heads),
        tested=0 < len(heads) < total,
    )


def _helps(condition: Condition) -> bool:
    """Removing heads in no mask is said to help, removing shared ones to harm."""
    return condition.of == UNUSED


def _cautions(table: Evidence, details: FamilyDetails) -> Iterator[str]:
    yield from few_examples(details.tasks)
    if details.leakage:
        yield from trained_on_caution(details.leakage, "one of the masks")
    yield "Masks are single training runs: with other seeds they may share other heads."
    for family in details.families:
        if not family.tested:
            none = "Every head is" if family.removed else "No head is"
            yield f"{none} {_words(family)}: not tested."


def _cases(table: Evidence, details: FamilyDetails) -> list[Case]:
    named = {family.name: family for family in details.families}
    return [
        Case("nll", each, name=name, lead=f"Without the {len(named[each.of].heads)} heads {name}")
        for each in table.selected
        for name in [_words(named[each.of])]
    ]


def _extras(result: FamilyTests, run: Path) -> Extras:
    """The heads of each family, and the first outputs."""
    found, details = result.evidence, result.details
    return Extras(
        conditions=found.selected,
        heads={_words(family): [*map(str, family.heads)] for family in details.families},
        facts=[("masks", ", ".join(details.masks)), ("tasks", str(len(details.tasks)))],
        sections=[*outputs_section(run, found), Section("Families of masks", [_sets(details)])],
    )


def _words(family: FamilyHeads) -> str:
    if family.name in ("unused", "all"):
        return "in no mask" if family.name == "unused" else "in every mask"
    return f"in every mask of {family.name}"


def _sets(details: FamilyDetails) -> Table:
    return table_of(
        "Sets of heads",
        [(_words(family), family) for family in details.families],
        {
            "heads": lambda family: family.removed,
            "heads left": lambda family: family.kept,
            "masks": lambda family: (
                "all" if family.name in ("all", "unused") else enumeration(family.tasks)
            ),
        },
    )


WORDS = Words(
    "Shared heads",
    "What does the instructed model lose without the heads that masks share, and without those in "
    "no mask?",
    "held-out example",
    "Heads in every mask of a family are said to be needed by its tasks: their removal should "
    "harm more than that of random heads. The removal of heads in no mask should harm less. All "
    "prompts have their instruction.",
    case="set",
    joint="for heads",
)

comparison = Comparison(
    command="verify families",
    settings=VerifyFamilies,
    result=FamilyTests,
    details=FamilyDetails,
    read=_read,
    ready=with_chat,
    heads=_heads,
    plan=family_conditions,
    measure=_measure,
    cases=_cases,
    cautions=_cautions,
    words=WORDS,
    extras=_extras,
    examples="",
    usage="--heads plural-en=runs/plural --heads past-en=runs/past",
)
command = comparison.study
