"""Heads that the masks of a family of tasks share (Heads Up!, Table 6).

Heads inside every mask of a family are what its tasks have in common; heads inside none are needed
by no task. Both are removed from the model, beside as many random heads, and the instructed tasks
measured.
"""

from __future__ import annotations

import functools
import operator
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from headscope.errors import InputError
from headscope.heads import HeadSet
from headscope.heads.draws import draw_heads
from headscope.verify.masks.asking import Condition, Kind, random_conditions
from headscope.verify.masks.mask import Mask, shuffled

ALL, UNUSED = "all", "unused"
_DIRECTION = re.compile(r"(?:.*-)?([a-z]{2,3})-([a-z]{2,3})")


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
    found = [
        Family(name, tasks, functools.reduce(operator.and_, (masks[task].kept for task in tasks)))
        for name, tasks in groups.items()
    ]
    used = np.any([mask.kept.mask() for mask in masks.values()], axis=0)
    geometry = found[0].heads.geometry
    unused = HeadSet.from_mask(geometry, ~used & geometry.mask())
    return [*found, Family(UNUSED, tuple(masks), unused)]


def conditions(found: Sequence[Family], draws: int, seed: int = 0) -> list[Condition]:
    """The instructed model as it is, without the heads of each family, and without as many others.

    Random heads come from outside the family's, free and of the same layers; where the family has
    more than half of all heads, from all heads. Families without heads, or with all, are left out.
    """
    planned = [Condition("instructed", "instructed", instructed=True)]
    for family in found:
        total = family.heads.geometry.total
        if not 0 < len(family.heads) < total:
            continue
        gone = Mask(family.heads.removed(), name=family.name)
        harmful = family.name != UNUSED
        planned.append(Condition("removed", family.name, gone, True, harmful=harmful))
        kinds: tuple[Kind, ...] = ("random", "random-layer-matched")
        for kind in kinds:
            matched = kind != "random"
            if 2 * len(family.heads) <= total:
                draws_of = draw_heads(family.heads, draws, seed, layer_matched=matched)
                others = [Mask(draw.heads.removed(), name=kind) for draw in draws_of]
            else:
                others = shuffled(gone, draws, seed, layer_matched=matched)
            ending = f", as many as {family.name}"
            planned += random_conditions(kind, others, family.name, ending=ending)
    return planned
