"""Heads that the masks of a family of tasks share, removed, beside as many random ones."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Annotated

from headscope import options
from headscope.errors import InputError
from headscope.measure.baseline import Rules
from headscope.progress import Progress
from headscope.results.common import Leakage
from headscope.results.mask_tests import FamilyHeads, FamilyTests, Outcome, TaskOutcomes
from headscope.runs import Run
from headscope.settings import UNSIGNED, Nested, Option, Settings
from headscope.shown.blocks import HeadSets, Section, Shown, Table, table_of
from headscope.shown.words import count, enumeration, fixed
from headscope.studies.baseline import check_tasks
from headscope.studies.comparison import Comparison, clear, draws_remedy, draws_words
from headscope.studies.leakage import check_task_leakage
from headscope.studies.models import PROMPTED, ModelChoice, run_with_model
from headscope.studies.shows import model_facts, places
from headscope.studies.study import Study
from headscope.studies.tasks import TaskChoice, read_tasks, resolved_tasks, task_inputs
from headscope.studies.verify.mask import digest_of, named_place
from headscope.studies.verify.masked_shows import (
    WORDS,
    bars,
    compared_by,
    few_examples,
    overview,
    trained_on_caution,
)
from headscope.verify.masks.asking import Asking, Mask, ask_all, asked, read_mask
from headscope.verify.masks.conditions import Family, families, family_conditions, parse_family
from headscope.verify.masks.evidence import describe, statistics, together

COMMAND = "verify families"


@dataclass(frozen=True)
class VerifyFamilies(Settings):
    """Do instructed tasks without the heads that several masks share, and without those in none.

    Heads in every mask, in every mask of tasks with one language, and in none; each compared with
    as many random heads.
    """

    masks: options.Masks = field(metadata=UNSIGNED)
    family: Annotated[
        tuple[str, ...],
        Option(
            "A family of tasks, besides all tasks and those with one language; repeatable.",
            metavar="NAME=TASK,TASK",
        ),
    ] = ()
    tasks: TaskChoice = field(default_factory=TaskChoice)
    model: Annotated[ModelChoice, PROMPTED] = field(default_factory=ModelChoice)
    # Random heads, free and layer-matched each.
    draws: options.Draws = 5
    write: Annotated[bool, Option("Let the model write outputs too, and measure them.")] = False
    seed: options.Seed = 0
    asking: Asking = field(default_factory=Asking)
    allow_overlap: options.AllowOverlap = False
    baseline: Annotated[Rules, Nested(without=("errors",))] = field(default_factory=Rules)


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
    planned = family_conditions(grouped, config.draws, config.seed)
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
        shown = {}
        for name, sides in tasks.items():
            question = asked(sides.test, sides.pool, shots, config.seed)
            # Families may be of the same heads, and then so are their draws.
            records = ask_all(lm, question, planned, config.asking, run, progress, config.write)
            numbers = [statistics(sides.test, record) for record in records]
            shown[name] = TaskOutcomes(
                examples=len(sides.test.examples),
                language=sides.test.language,
                translation=sides.test.is_translation,
                instruction=sides.test.instruction,
                conditions=describe(planned, numbers, config.seed),
            )
        for family in grouped:
            family.heads.save_pretrained(run.path / "families" / family.name)
        return FamilyTests(
            **works,
            families=tuple(map(_describe, grouped)),
            masks={name: mask.about() for name, mask in masks.items()},
            tasks=shown,
            conditions=together([task.conditions for task in shown.values()]),
            draws=config.draws,
            leakage=Leakage(
                known=all(leak.known for leak in leaks),
                overlap=sum(leak.overlap or 0 for leak in leaks),
                of=sum(len(sides.test.examples) for sides in tasks.values()),
            ),
        )

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
        pool="outside" if 2 * len(heads) <= total else "all",
        tested=0 < len(heads) < total,
    )


def _show(result: FamilyTests, run: Path) -> Shown:
    """The loss without each family of heads, against random heads, and the heads themselves."""
    tested = [family for family in result.families if family.tested]
    every = result.families[0]
    comparison = Comparison(
        {
            _row(family, name): compared_by(result.tasks[name], outcome, kind="random")
            for family in tested
            for name, outcome in _removed(result, family).items()
        },
        "examples",
    )
    draws = comparison.distinct
    compared = comparison.table(
        "Removal compared, by loss",
        "Loss without the heads, nats a token. p: random heads do at least as much harm; for heads "
        "in no mask, at most as much",
    )
    groups = {family.name: _conditions(result, family) for family in tested}
    sets = {_words(family): places(family.heads) for family in result.families}
    rows = {
        name: {
            "original, instructed": task.of_kind("instructed"),
            **{
                f"{words}: {_words(family)}": groups[family.name][name][words]
                for family in tested
                for words in (WORDS["removed"], WORDS["random"], WORDS["random-layer-matched"])
            },
        }
        for name, task in result.tasks.items()
    }
    return Shown(
        "Shared heads",
        f"What does {result.model_name}, instructed, lose without the heads that "
        f"{count(len(result.masks), 'mask')} share, and without those in no mask?",
        [*_finding(result, comparison), *_untested(result)],
        f"Intervals are over held-out examples; {draws_words(draws)}.",
        draws_remedy(draws, wanted=19),
        [
            *few_examples(result.tasks),
            *trained_on_caution(result.leakage, "one of the masks"),
            "Masks are single training runs: with other seeds they may share other heads.",
        ],
        [
            *model_facts(result.model_name, every.kept + every.removed),
            ("masks", ", ".join(result.masks)),
            ("tasks", str(len(result.tasks))),
        ],
        [
            Section(
                "Losses",
                [
                    overview(
                        "Loss of the instructed tasks, nats a token",
                        rows,
                        dict.fromkeys(result.tasks, "nll"),
                        f"Random heads: the mean of {result.draws} draws of as many heads",
                    )
                ],
                brief=True,
            ),
            Section(
                "Compared with random heads",
                [
                    compared,
                    *(
                        bars(f"Loss without the {_heads(family)}", groups[family.name], "nll")
                        for family in tested
                    ),
                ],
            ),
            Section("Sets of heads", [_sets(result), HeadSets("The heads", sets)]),
        ],
    )


def _words(family: FamilyHeads) -> str:
    if family.name in ("unused", "all"):
        return "in no mask" if family.name == "unused" else "in every mask"
    return f"in every mask of {family.name}"


def _heads(family: FamilyHeads) -> str:
    return f"{count(family.removed, 'head')} {_words(family)}"


def _conditions(
    result: FamilyTests, family: FamilyHeads
) -> dict[str, Mapping[str, Sequence[Outcome]]]:
    """By task the original model, and the removal of a family and of random heads."""
    return {
        name: {"original, instructed": task.of_kind("instructed")}
        | {
            WORDS[kind]: task.of_kind(kind, family.name)
            for kind in ("removed", "random", "random-layer-matched")
        }
        for name, task in result.tasks.items()
    }


def _removed(result: FamilyTests, family: FamilyHeads) -> dict[str, Outcome]:
    return {name: task.of_kind("removed", family.name)[0] for name, task in result.tasks.items()}


def _row(family: FamilyHeads, task: str) -> str:
    return f"{_words(family)}: {task}"


def _finding(result: FamilyTests, comparison: Comparison) -> list[str]:
    sentences = []
    for family in (family for family in result.families if family.tested):
        who = f"Without the {_heads(family)}"
        if len(result.tasks) == 1:
            (task,) = result.tasks
            loss = f"the loss on {task} in nats a token"
            sentences += comparison.said(_row(family, task), who, loss)
            continue
        tests = [comparison.rows[_row(family, task)].tests[0] for task in result.tasks]
        gaps = [test.difference for test in tests if test is not None]
        sentences.append(
            f"{who} the loss is higher than without as many random heads in {clear(gaps, 'task')}. "
            f"Mean difference: {fixed(fmean(gap.value for gap in gaps), 3)} nats a token."
        )
    return sentences


def _untested(result: FamilyTests) -> list[str]:
    return [
        f"{'Every head is' if family.removed else 'No head is'} {_words(family)}: not tested."
        for family in result.families
        if not family.tested
    ]


def _sets(result: FamilyTests) -> Table:
    pools = {"outside": "heads outside the set", "all": "all heads of the model"}
    return table_of(
        "Sets of heads",
        [(_words(family), family) for family in result.families],
        {
            "heads": lambda family: family.removed,
            "heads left": lambda family: family.kept,
            "masks": lambda family: (
                "all" if family.name in ("all", "unused") else enumeration(family.tasks)
            ),
            "random heads are from": lambda family: pools[family.pool],
        },
    )


command = Study(VerifyFamilies, verify_families, result=FamilyTests, show=_show)
