"""Heads that the masks of a family of tasks share, removed, beside as many random ones."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

from headscope import options
from headscope.errors import InputError
from headscope.heads import Head
from headscope.measure.baseline import Rules
from headscope.results.common import Leakage
from headscope.results.mask_tests import AskedTask, FamilyHeads, FamilyTests
from headscope.runs import Run
from headscope.settings import UNSIGNED, Option, Part, Settings
from headscope.studies.baseline import check_tasks
from headscope.studies.inputs import ModelChoice, Progress, run_with_model
from headscope.studies.leakage import check_task_leakage
from headscope.studies.tasks import TaskChoice, read_tasks, resolved_tasks, task_inputs
from headscope.studies.verify.mask import digest_of, sample_rows
from headscope.verify.masks.asking import Asking, Record, ask, asked
from headscope.verify.masks.evidence import describe, statistics, together
from headscope.verify.masks.families import Family, conditions, families, parse_family
from headscope.verify.masks.mask import Mask, read_mask

__all__ = ["COMMAND", "VerifyFamilies", "verify_families"]

COMMAND = "verify families"


@dataclass(frozen=True)
class VerifyFamilies(Settings):
    """Remove the heads that several masks share, and those in none, and ask instructed tasks.

    Heads inside every mask, inside every mask of tasks with one language, and inside none; beside
    each as many random heads.
    """

    masks: options.Masks = field(metadata=UNSIGNED)
    family: Annotated[
        tuple[str, ...],
        Option(
            "A family of one's own beside all tasks and those with one language; repeatable.",
            metavar="NAME=TASK,TASK",
        ),
    ] = ()
    tasks: TaskChoice = field(default_factory=TaskChoice)
    model: ModelChoice = field(default_factory=ModelChoice)
    # Random heads, free and layer-matched each.
    draws: options.Draws = 5
    write: Annotated[bool, Option("Let the model write outputs too, and measure them.")] = False
    seed: options.Seed = 0
    asking: Asking = field(default_factory=Asking)
    allow_overlap: options.AllowOverlap = False
    baseline: Annotated[Rules, Part(without=("errors",))] = field(default_factory=Rules)


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
    places = [_place(text) for text in config.masks]
    leaks = [
        check_task_leakage(str(place), [sides.test], config.allow_overlap)
        for _, place in places
        for sides in tasks.values()
    ]
    lm = config.model.load_for(out)
    config = replace(config, tasks=resolved_tasks(lm, config.tasks, config.model.model))
    masks = _named([(name, read_mask(place, lm.geometry)) for name, place in places])
    found = families(masks, own)
    planned = conditions(found, config.draws, config.seed)
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
            records: list[Record] = []
            made: dict[frozenset[Head] | None, Record] = {}
            for one in planned:
                # Families may be of the same heads, and then so are their draws.
                heads = None if one.mask is None else frozenset(one.mask.removed)
                if heads not in made:
                    made[heads] = ask(lm, question, one, config.asking, run, config.write, progress)
                records.append(made[heads])
            run.write_jsonl(f"samples/{name}.jsonl", sample_rows(question, planned, records))
            numbers = [statistics(sides.test, record) for record in records]
            shown[name] = AskedTask(
                examples=len(sides.test.examples),
                language=sides.test.language,
                translation=sides.test.is_translation,
                instruction=sides.test.instruction,
                conditions=describe(planned, numbers, config.seed),
            )
        for family in found:
            family.heads.save_pretrained(run.path / "families" / family.name)
        return FamilyTests(
            **works,
            families=tuple(map(_describe, found)),
            masks={name: mask.about() for name, mask in masks.items()},
            tasks=shown,
            conditions=together([task.conditions for task in shown.values()]),
            draws=config.draws,
            leakage=Leakage(
                known=all(leak["known"] for leak in leaks),
                overlap=sum(leak["overlap"] or 0 for leak in leaks),
                of=sum(len(sides.test.examples) for sides in tasks.values()),
            ),
        )

    data, seed = task_inputs(tasks), config.seed
    return run_with_model(
        lm, COMMAND, out, settings, data, compute, began, kind=FamilyTests, seed=seed
    )


def _place(text: str) -> tuple[str | None, Path]:
    """The name given to a mask, if any, and its run."""
    name, equals, place = text.partition("=")
    return (None, Path(text)) if not equals or Path(text).exists() else (name, Path(place))


def _named(masks: list[tuple[str | None, Mask]]) -> dict[str, Mask]:
    """Masks by the task each was trained on, or the name it was given."""
    found: dict[str, Mask] = {}
    for given, mask in masks:
        name = given or (mask.tasks[0] if len(mask.tasks) == 1 else mask.name)
        if name in found:
            raise InputError(f"two masks are of the task {name!r}; name them apart as NAME=RUN")
        found[name] = mask
    return found


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
