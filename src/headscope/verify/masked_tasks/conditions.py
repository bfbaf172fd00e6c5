"""Which masks are put on a model and compared, beside random ones.

A mask's own condition beside others' (Heads Up!, section 3.4); gates α between 0 and 1 in place of
0 for the heads outside a mask (section 5), of which the best is chosen by the loss of the
instructed task on some held-out examples and measured on others; and the heads that the masks of a
family of tasks share (Table 6): those inside every mask of a family are what its tasks have in
common, those inside none are needed by no task.
"""

from __future__ import annotations

import functools
import hashlib
import operator
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from headscope.data.split import sentence_digest
from headscope.data.tasks import Task
from headscope.errors import InputError
from headscope.evidence.controls import Drawing, drawn
from headscope.evidence.rows import NOTHING, SELECTED, Basis, Condition, Evidence, Level
from headscope.heads import HeadSet
from headscope.measure.intervals import resamples
from headscope.verify.masked_tasks.asking import Mask, Way

#: The values of α that are tried.
GRID = tuple(step / 10 for step in range(11))
RESAMPLES = 1000
ALL, UNUSED = "all", "unused"
#: Whose heads are removed: a task's own mask's, or those of a mask of several tasks.
OWN, HYBRID = "own mask", "hybrid mask"
#: The kind of conditions without an instruction, where all others have one.
UNINSTRUCTED = "not instructed"
_DIRECTION = re.compile(r"(?:.*-)?([a-z]{2,3})-([a-z]{2,3})")


def condition_of(mask: Mask, of: str = OWN, alpha: float = 0.0) -> Condition:
    """The heads outside a mask, times `alpha`."""
    removed = mask.removed.keys
    return Condition(SELECTED, of, len(removed), alpha, heads=removed)


def beside_controls(
    condition: Condition,
    way: Way,
    how: Drawing,
    basis: Basis = NOTHING,
) -> dict[Condition, Way]:
    """A mask's condition, and masks that change as many heads likewise, asked in the same way.

    Gates of feed-forward parts stay as the mask has them. Raises `InputError` if the mask keeps or
    removes every head, since then there is no other of its size.
    """
    mask, planned = way.mask, {condition: way}
    if mask is None or condition.gate is None or not how.draws:
        return planned
    total = mask.removed.geometry.total
    if not 0 < len(mask.removed) < total:
        raise InputError(
            f"the mask {'removes' if mask.removed else 'keeps'} all {total} heads, so there is no "
            "other of its size to compare it with; train it otherwise"
        )
    for drawn_mask in drawn(condition, mask.removed, how, basis):
        gate = drawn_mask.in_model(mask.gate.geometry).scaled(condition.gate)
        planned[drawn_mask] = replace(way, mask=replace(mask, gate=gate))
    return planned


@dataclass(frozen=True)
class TaskMasks:
    """The masks that are put on a model for a task: its own, a hybrid of several tasks, and
    foreign ones. `instructed`: whether the task has an instruction."""

    mask: Mask
    instructed: bool = False
    hybrid: Mask | None = None
    foreign: tuple[Mask, ...] = ()

    @property
    def heads(self) -> HeadSet:
        """The heads that the task's own mask removes."""
        return self.mask.removed

    def __iter__(self) -> Iterator[Mask]:
        yield from (self.mask, *([self.hybrid] if self.hybrid else []), *self.foreign)


def mask_conditions(
    masks: TaskMasks, how: Drawing, basis: Basis = NOTHING, of: str = OWN
) -> dict[Condition, Way]:
    """The model as it is, instructed where it can be, and under each mask; random masks have the
    size of the task's own, so no other mask is compared with them."""
    planned = {Condition(): Way()}
    if masks.instructed:
        planned[Condition("instructed")] = Way(instructed=True)
    own = condition_of(masks.mask, of)
    planned |= beside_controls(own, Way(masks.mask), how, basis)
    if masks.hybrid is not None:
        planned[condition_of(masks.hybrid, HYBRID)] = Way(masks.hybrid)
    for number, foreign_mask in enumerate(masks.foreign):
        heads = condition_of(foreign_mask).heads
        planned[replace(own, kind="foreign", draw=number, heads=heads)] = Way(foreign_mask)
    return planned


def check_grid(grid: Sequence[float]) -> tuple[float, ...]:
    """The values in ascending order, 0 and 1 among them; InputError for others than 0 to 1."""
    for value in grid:
        if not 0 <= value <= 1:
            raise InputError(f"α is {value:g}; it lies between 0 (the mask) and 1 (no mask)")
    return tuple(sorted({0.0, 1.0, *grid}))


def halves_of(task: Task, seed: int = 0) -> tuple[Task, Task]:
    """Examples to choose α on, and others to measure on: two halves by a hash of the input.

    No input is in both. Raises `InputError` if there are fewer than two inputs.
    """

    def rank(key: str) -> bytes:
        return hashlib.sha256(f"scaling {seed} {key}".encode("ascii")).digest()

    keys = [sentence_digest(example.input) for example in task.examples]
    ranked = sorted(set(keys), key=rank)
    if len(ranked) < 2:
        raise InputError(
            f"the task {task.name!r} has one held-out input, too few to choose α on some and "
            "measure on others; hold more out"
        )
    chosen = set(ranked[: len(ranked) // 2])
    pairs = list(zip(keys, task.examples, strict=True))
    first = tuple(example for key, example in pairs if key in chosen)
    second = tuple(example for key, example in pairs if key not in chosen)
    return replace(task, examples=first), replace(task, examples=second)


def check_apart(choose: Task, check: Task) -> None:
    """Raises `InputError` if an input that α is chosen on is also one it is measured on."""
    known = {sentence_digest(example.input) for example in choose.examples}
    both = sum(sentence_digest(example.input) in known for example in check.examples)
    if both:
        raise InputError(
            f"{check.path}: {both} of {len(check.examples)} inputs are among the "
            f"{len(choose.examples)} examples that α is chosen on; give other sentences to "
            "measure on, or leave --check-data out"
        )


def grid_conditions(
    mask: Mask,
    grid: Sequence[float],
    how: Drawing,
    basis: Basis = NOTHING,
) -> dict[Condition, Way]:
    """The instructed model as it is, and under every α below 1 beside random masks likewise;
    then the uninstructed model without and with the mask."""
    alone = condition_of(mask)
    planned = {Condition(): Way(instructed=True), _alone(mask): Way(mask, True)}
    for alpha in sorted(grid, reverse=True):
        if alpha < 1:
            scaled = condition_of(mask, alpha=alpha)
            way = Way(mask.outside(alpha), True)
            planned |= beside_controls(scaled, way, how, basis)
    bare = Condition(UNINSTRUCTED)
    return {**planned, bare: Way(), replace(bare, of=OWN, gate=0.0, heads=alone.heads): Way(mask)}


def check_conditions(
    mask: Mask,
    alpha: float,
    how: Drawing,
    basis: Basis = NOTHING,
) -> dict[Condition, Way]:
    """Instructed: the model as it is, under the mask, under the scaled mask, and under random
    masks scaled alike."""
    planned = {Condition(): Way(instructed=True), _alone(mask): Way(mask, True)}
    scaled, way = condition_of(mask, alpha=alpha), Way(mask.outside(alpha), True)
    if alpha == 1:  # every mask at full strength is no mask
        return {**planned, scaled: way}
    return planned | beside_controls(scaled, way, how, basis)


def _alone(mask: Mask) -> Condition:
    return replace(condition_of(mask), kind="mask alone", of="", k=0)


def best_alpha(losses: Mapping[float, float]) -> float:
    """The α with the lowest loss; of equal ones the largest, which changes the model least."""
    return min(losses, key=lambda alpha: (losses[alpha], -alpha))


def losses_by_alpha(tried: Evidence, part: str | None = None) -> dict[float, Level]:
    """The loss under every α, by ascending α; 1 is the model as it is."""
    rows = {
        1.0 if condition is tried.original else condition.gate: tried.level("nll", condition, part)
        for condition in (tried.original, *tried.selected)
    }
    known = {alpha: row for alpha, row in rows.items() if alpha is not None and row is not None}
    return dict(sorted(known.items()))


def chosen_again(losses: Mapping[float, NDArray[np.float64]], seed: int = 0) -> dict[float, float]:
    """How often each α would be chosen on other examples: shares of 1,000 bootstrap resamples.

    `losses` holds the mean loss of every example, (examples,), by α.
    """
    alphas = sorted(losses, reverse=True)  # arg min takes the first of equal ones
    table = np.stack([losses[alpha] for alpha in alphas])
    chosen = np.empty(RESAMPLES, dtype=np.int64)
    for rows, weights in resamples(table.shape[1], RESAMPLES, np.random.default_rng(seed)):
        chosen[rows] = (table @ weights.T).argmin(axis=0)
    return {alpha: float((chosen == at).mean()) for at, alpha in enumerate(alphas)}


@dataclass(frozen=True)
class Family:
    """Tasks that are looked at together, and heads they share.

    Attributes:
        name: `all`, a language that every task has to do with, `unused`, or one that was given.
        tasks: names of the tasks whose masks count.
        heads: heads inside all of these masks; of `unused`, heads inside none.
    """

    name: str
    tasks: tuple[str, ...]
    heads: HeadSet


def parse_family(text: str) -> tuple[str, tuple[str, ...]]:
    """Name and tasks of a family written as `NAME=TASK,TASK`."""
    name, equals, rest = text.partition("=")
    tasks = tuple(task.strip() for task in rest.split(",") if task.strip())
    if not equals or not name.strip() or not tasks:
        raise InputError(f"the family {text!r} is not written like NAME=TASK,TASK")
    if not re.fullmatch(r"[\w+-][\w .+-]*", name.strip()):
        raise InputError(
            f"the family {name.strip()!r} cannot be a folder's name; use letters, digits, - and _"
        )
    return name.strip(), tasks


def families(
    masks: Mapping[str, Mask], own: Mapping[str, Sequence[str]] | None = None
) -> list[Family]:
    """The families of some tasks with their shared heads.

    All tasks; the translation tasks that have to do with one language, for each language that is
    in some but not all of at least two; those given in `own`; and the heads that no task uses.

    Raises `InputError` if there are fewer than two masks, or a family names a task without one.
    """
    if len(masks) < 2:
        raise InputError("heads are shared by several masks; name at least two runs with --heads")
    groups: dict[str, tuple[str, ...]] = {ALL: tuple(masks)}
    spoken: dict[str, list[str]] = {}
    for task in masks:
        match = _DIRECTION.fullmatch(task)
        for code in match.groups() if match else ():
            spoken.setdefault(code, []).append(task)
    for code, tasks in sorted(spoken.items()):
        if 2 <= len(tasks) < len(masks):
            groups[code] = tuple(tasks)
    for name, named in (own or {}).items():
        for task in named:
            if task not in masks:
                raise InputError(
                    f"the family {name!r} names the task {task!r}, which has no mask here; known "
                    f"are {', '.join(masks)}"
                )
        if name in (ALL, UNUSED):
            raise InputError(f"a family of your own cannot be called {name!r}; name it otherwise")
        groups[name] = tuple(named)
    grouped = [
        Family(name, tasks, functools.reduce(operator.and_, (masks[task].kept for task in tasks)))
        for name, tasks in groups.items()
    ]
    used = np.any([mask.kept.mask() for mask in masks.values()], axis=0)
    geometry = grouped[0].heads.geometry
    unused = HeadSet.from_mask(geometry, ~used & geometry.mask())
    return [*grouped, Family(UNUSED, tuple(masks), unused)]


def family_conditions(
    grouped: Sequence[Family],
    how: Drawing,
    basis: Basis = NOTHING,
) -> dict[Condition, Way]:
    """The instructed model as it is, and without the heads of each family, beside random heads.

    Families without heads, or with all, are left out.
    """
    planned = {Condition(): Way(instructed=True)}
    for family in grouped:
        total = family.heads.geometry.total
        if not 0 < len(family.heads) < total:
            continue
        gone = Mask(family.heads.removed(), name=family.name)
        removed = condition_of(gone, family.name)
        planned |= beside_controls(removed, Way(gone, True), how, basis)
    return planned
