"""Heads that the masks of a family of tasks share, removed, beside as many random ones."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

from headscope import options
from headscope.errors import InputError
from headscope.evidence.blocks import (
    forest,
    moved,
    parts_table,
    uncertainty,
    verdict,
    verdicts,
)
from headscope.evidence.controls import DEFAULT
from headscope.evidence.rows import Condition, Evidence
from headscope.progress import Progress
from headscope.results.common import Leakage
from headscope.results.mask_tests import FamilyDetails, FamilyHeads, FamilyTests, TestedTask
from headscope.runs import Run
from headscope.settings import Option
from headscope.shown.blocks import HeadSets, Section, Shown, Table, method_section, table_of
from headscope.shown.words import count, enumeration, sentence_of
from headscope.studies.baseline import check_tasks
from headscope.studies.leakage import check_task_leakage
from headscope.studies.models import run_with_model
from headscope.studies.shows import model_facts, places
from headscope.studies.study import Study
from headscope.studies.tasks import basis_of, read_tasks, resolved_tasks, task_inputs
from headscope.studies.verify.mask import MasksOnTasks, about_task, digest_of, named_place
from headscope.studies.verify.masked_shows import (
    concluded,
    few_examples,
    mask_sections,
    trained_on_caution,
)
from headscope.verify.masks.asking import Asking, Mask, ask, asked, read_mask, write_samples
from headscope.verify.masks.conditions import (
    UNUSED,
    Family,
    families,
    family_conditions,
    parse_family,
)
from headscope.verify.masks.evidence import masks_evidence

COMMAND = "verify families"


@dataclass(frozen=True)
class VerifyFamilies(MasksOnTasks):
    """Do instructed tasks without the heads that several masks share, and without those in none.

    Heads in every mask, in every mask of tasks with one language, and in none; each compared with
    as many random heads.
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
    asking: Asking = field(default_factory=Asking)


def verify_families(
    config: VerifyFamilies, out: Path | None = None, progress: Progress | None = None
) -> FamilyTests:
    """Remove what families share, keep what came, and return the command's result.

    Beside the result the run holds `samples/TASK.jsonl` and the heads of each family as a saved set
    under `families/NAME`.
    """
    began = time.monotonic()
    tasks = read_tasks(config.tasks, config.model.model, config.seed)
    own = dict(parse_family(text) for text in config.family)
    places = [named_place(text) for text in config.masks]
    leaks = [
        check_task_leakage(str(place), [sides.test], config.allow_overlap)
        for _, place in places
        for sides in tasks.values()
    ]
    lm = config.model.load_for()
    config = replace(config, tasks=resolved_tasks(lm, config.tasks, config.model.model))
    masks = _named([(name, read_mask(place, lm.geometry)) for name, place in places])
    grouped = families(masks, own)
    planned = family_conditions(grouped, config, basis_of(lm, tasks))
    for sides in tasks.values():
        if sides.test.instruction is None:
            raise InputError(f"the task {sides.name!r} has no instruction; give one")
    settings = {
        "settings": config,
        "masks": {name: digest_of(mask) for name, mask in masks.items()},
    }

    def compute(run: Run) -> FamilyTests:
        shots = config.tasks.shots
        works = check_tasks(lm, tasks, shots, config.seed, run, config.baseline, progress)
        records = {}
        for name, sides in tasks.items():
            question = asked(sides.test, sides.pool, shots, config.seed)
            # Families may be of the same heads, and then so are their draws.
            records[name] = ask(lm, question, planned, config.asking, run, progress, config.write)
            write_samples(run, "samples", sides.test, records[name])
        for family in grouped:
            family.heads.save_pretrained(run.path / "families" / family.name)
        tests = {name: sides.test for name, sides in tasks.items()}
        evidence = masks_evidence(tests, records, config.seed, _helps, progress=progress)
        result = FamilyTests(
            baseline_works=works["baseline_works"],
            evidence=evidence,
            details=FamilyDetails(
                families=tuple(map(_describe, grouped)),
                masks={name: mask.about() for name, mask in masks.items()},
                tasks={name: TestedTask(**about_task(task)) for name, task in tests.items()},
                draws=config.draws,
                leakage=Leakage(
                    known=all(leak.known for leak in leaks),
                    overlap=sum(leak.overlap or 0 for leak in leaks),
                    of=sum(len(task.examples) for task in tests.values()),
                ),
                baseline_check=works["baseline_check"],
            ),
        )
        return concluded(result, _main(evidence), _cautions)

    data, seed = task_inputs(tasks), config.seed
    return run_with_model(
        lm, COMMAND, out, settings, data, compute, began, kind=FamilyTests, seed=seed
    )


def _named(masks: list[tuple[str | None, Mask]]) -> dict[str, Mask]:
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


def _main(evidence: Evidence) -> Condition:
    """The first family: what all masks share, if that can be tested."""
    return next(iter(evidence.selected), evidence.original)


def _cautions(result: FamilyTests) -> Iterator[str]:
    details = result.details
    yield from few_examples(details.tasks)
    yield from trained_on_caution(details.leakage, "one of the masks")
    yield "Masks are single training runs: with other seeds they may share other heads."


def _show(result: FamilyTests, run: Path) -> Shown:
    """The loss without each family of heads, against random heads, and the heads themselves."""
    evidence, details = result.evidence, result.details
    every, main = details.families[0], _main(evidence)
    named = {family.name: family for family in details.families}
    words = {_words(named[each.of]): verdict(evidence, "nll", each) for each in evidence.selected}
    rows = [(_heads(named[each.of]), "nll", each, None) for each in evidence.selected]
    others = [
        parts_table(evidence, "nll", each, f"Loss without the {_heads(named[each.of])}")
        for each in evidence.selected
        if each != main and len(evidence.single) > 1
    ]
    # Of several families the figure shows by how much.
    how_much = [
        line
        for each in evidence.selected
        if len(evidence.selected) == 1
        for line in moved(evidence, "nll", each, f"Without the heads {_words(named[each.of])}")
    ]
    sets = {_words(family): places(family.heads) for family in details.families}
    examples = sum(task.examples for task in details.tasks.values())
    return Shown(
        "Shared heads",
        f"What does {result.model_name}, instructed, lose without the heads that "
        f"{count(len(details.masks), 'mask')} share, and without those in no mask?",
        [
            sentence_of(verdicts(words, "for heads")),
            *how_much,
        ],
        *uncertainty(evidence, "nll", main, count(examples, "held-out example")),
        [*result.cautions, *_untested(details)],
        [
            *model_facts(result.model_name, every.kept + every.removed),
            ("masks", ", ".join(details.masks)),
            ("tasks", str(len(details.tasks))),
        ],
        [
            Section("Heads", [HeadSets("Heads of each family", sets)]),
            *mask_sections(run, evidence, main, details.tasks),
            *([Section("Other families", others)] if others else []),
            Section("Families of masks", [_sets(details)]),
            method_section(
                "Heads in every mask of a family are said to be needed by its tasks: their removal "
                "should harm more than that of random heads. The removal of heads in no mask "
                "should harm less. All prompts have their instruction."
            ),
        ],
        forest(evidence, rows, "Loss of the right output: selected minus random heads"),
    )


def _words(family: FamilyHeads) -> str:
    if family.name in ("unused", "all"):
        return "in no mask" if family.name == "unused" else "in every mask"
    return f"in every mask of {family.name}"


def _heads(family: FamilyHeads) -> str:
    return f"{count(family.removed, 'head')} {_words(family)}"


def _untested(details: FamilyDetails) -> list[str]:
    return [
        f"{'Every head is' if family.removed else 'No head is'} {_words(family)}: not tested."
        for family in details.families
        if not family.tested
    ]


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


command = Study(VerifyFamilies, verify_families, result=FamilyTests, show=_show)
