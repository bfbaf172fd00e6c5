"""Random sets of heads: all of them different, and every one there is where there are few."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb, prod

from headscope.heads.geometry import Head

__all__ = ["Choices", "distinct_sets"]

#: Tries for one set that has not come up before, for each set so far: among equally likely ones
#: the last is missed with a probability below 1e-13, and then looked up.
TRIES = 30


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
    found = []
    for number in range(min(draws, choices.count - len(taken))):
        stream = random.Random(f"{name} {number}")
        drawn = (frozenset(draw(stream)) for _ in range(TRIES * (len(taken) + 1)))
        heads = next((one for one in drawn if one not in taken), None)
        if heads is None:
            heads = next(one for one in choices if one not in taken)
        taken.add(heads)
        found.append(tuple(sorted(heads)))
    return found


def _every(groups: Sequence[Sequence[Head]], sizes: Sequence[int]) -> Iterator[tuple[Head, ...]]:
    """Every set with so many heads of each group, made one at a time."""
    if not groups:
        yield ()
        return
    for first in combinations(groups[0], sizes[0]):
        for rest in _every(groups[1:], sizes[1:]):
            yield first + rest
