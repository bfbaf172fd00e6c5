"""Random sets of heads beside selected ones, all different, and all there are where those are few.

`random` and `same layers` draw among all heads, so that selected heads that are nothing special are
one more draw (exchangeable): the share of sets that do as much harm is then a p-value. Token
Alignment Heads (ICLR 2026) compares with random heads that are not token alignment heads, here
`outside`; these give the size of an effect and no p, since the selected set could not be drawn.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb, prod
from typing import Literal

from headscope.errors import InputError
from headscope.heads.geometry import Geometry, Head, check_geometry
from headscope.heads.sets import HeadSet

#: How random heads are drawn: any, as many of each layer, any that are not selected.
Way = Literal["random", "same layers", "outside"]
#: Tries for one set that has not come up before, for each set so far: among equally likely ones
#: the last is missed with a probability below 1e-13, and then looked up.
TRIES = 30


def draw_sets(
    heads: HeadSet,
    draws: int,
    seed: int = 0,
    way: Way = "random",
    avoid: HeadSet | None = None,
    watch: Callable[[], object] = bool,
    gone: HeadSet | None = None,
    stream: str = "",
) -> list[HeadSet]:
    """`draws` different sets of as many heads as `heads` has, none of them `heads` itself.

    `random` draws any heads of the model and `same layers` as many of each layer; the selected
    heads may be among them. `outside` draws neither selected heads nor those to `avoid` (the token
    alignment heads). Every possible set is equally likely, and draw i is the same however many
    there are. Where not more sets are possible than asked for, each of them is drawn once: within
    layers there may be none. `watch` is called before every try, and may raise to end the drawing.
    `gone` are heads that the model lacks already: none of them is drawn or selected. Sets of
    another `stream` are others ("": the way's own).

    Raises `InputError` if `heads` is empty or all of the model, or if too few are outside.
    """
    geometry = heads.geometry
    if not len(heads):
        raise InputError("the set of heads to remove is empty; name at least one head")
    if avoid is not None:
        check_geometry(avoid, geometry, "the set of token alignment heads")
    every = [head for head in geometry.heads() if gone is None or head not in gone]
    without = frozenset(heads)
    if len(heads) == len(every):
        raise InputError(
            f"all {len(every)} heads of the model are to be removed, and there is no other set of "
            "as many to compare them with; choose a smaller k"
        )
    if way == "same layers":
        groups = [[head for head in every if head.layer == n] for n in range(geometry.layers)]
        sizes = tuple(_by_layer(heads))
    else:
        groups, sizes = [every], (len(heads),)
    if way == "outside":
        pool = [head for head in every if head not in heads and head not in (avoid or ())]
        if len(pool) < len(heads):
            raise InputError(
                f"{len(pool)} of the model's {len(every)} heads are "
                f"{'not selected' if avoid is None else 'neither selected nor avoided'}, too few "
                f"to draw {len(heads)}; choose a smaller k or draw among all heads"
            )
        groups, without = [pool], frozenset()
    name = f"{stream or way} {seed}"
    return sets_within(groups, sizes, geometry, draws, name, without, watch)


def sets_within(
    groups: Sequence[Sequence[Head]],
    sizes: tuple[int, ...],
    geometry: Geometry,
    draws: int,
    name: str,
    without: frozenset[Head] = frozenset(),
    watch: Callable[[], object] = bool,
) -> list[HeadSet]:
    """`draws` different sets with `sizes` heads of each group, or all there are; not `without`.

    Set i follows from `name` and i.
    """

    def tried(stream: random.Random) -> Iterator[Head]:
        watch()
        for group, size in zip(groups, sizes, strict=True):
            yield from stream.sample(group, size)

    sets = distinct_sets(Choices(groups, {sizes}), tried, draws, name, [without] if without else [])
    return [HeadSet(geometry, drawn) for drawn in sets]


def _by_layer(heads: HeadSet) -> list[int]:
    counts = [0] * heads.geometry.layers
    for head in heads:
        counts[head.layer] += 1
    return counts


@dataclass(frozen=True)
class Choices:
    """The sets that a draw may give.

    Attributes:
        groups: groups of heads, no head in two of them.
        sizes: how many heads of each group a set has; one entry for each way to have them.
    """

    groups: Sequence[Sequence[Head]]
    sizes: Collection[tuple[int, ...]]

    @property
    def count(self) -> int:
        """How many sets there are."""
        return sum(
            prod(comb(len(group), size) for group, size in zip(self.groups, sizes, strict=True))
            for sizes in self.sizes
        )

    def __iter__(self) -> Iterator[frozenset[Head]]:
        for sizes in sorted(self.sizes):
            yield from map(frozenset, _every(self.groups, sizes))


def distinct_sets(
    choices: Choices,
    draw: Callable[[random.Random], Iterable[Head]],
    draws: int,
    name: str,
    without: Collection[frozenset[Head]] = (),
) -> list[tuple[Head, ...]]:
    """`draws` different sets of heads, or all there are if those are fewer; each by layer, head.

    `draw` gives one of `choices` from a stream of random numbers; none of `without`, which are
    among the choices, is taken. Set i follows from `name` and i, however many are drawn.
    """
    taken = set(without)
    sets = []
    for number in range(min(draws, choices.count - len(taken))):
        stream = random.Random(f"{name} {number}")
        drawn = (frozenset(draw(stream)) for _ in range(TRIES * (len(taken) + 1)))
        heads = next((candidate for candidate in drawn if candidate not in taken), None)
        if heads is None:
            heads = next(candidate for candidate in choices if candidate not in taken)
        taken.add(heads)
        sets.append(tuple(sorted(heads)))
    return sets


def _every(groups: Sequence[Sequence[Head]], sizes: Sequence[int]) -> Iterator[tuple[Head, ...]]:
    if not groups:
        yield ()
        return
    for first in combinations(groups[0], sizes[0]):
        for rest in _every(groups[1:], sizes[1:]):
            yield first + rest
