"""Where to cut an order of records so that what stands before has a wanted weight, group by group.

The records are not sorted: their places in the order are read several times, 16 bits at a time,
and counted, until few enough are left to be sorted.  So the memory needed does not grow with the
number of records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

SORTED = 1 << 20
"""So many records are sorted in memory at the end."""
FEW = 64
"""For so many groups there is memory to count 16 bits at a time; for more, 8."""
BITS = 24
"""So many bits of a place tell its class in a streaming cut."""
_END = (1 << 128) - 1


@dataclass(frozen=True)
class Places:
    """Some records: their group, their place in the order (128 bits in two halves), their weight.

    `group` (n,) from 0, `high` and `low` (n,) uint64, `weight` (n,) int64 of 0 or more.
    """

    group: NDArray[np.int64]
    high: NDArray[np.uint64]
    low: NDArray[np.uint64]
    weight: NDArray[np.int64]

    def where(self, chosen: NDArray[np.bool_]) -> Places:
        """Those of the records that are chosen, in the same order."""
        return Places(self.group[chosen], self.high[chosen], self.low[chosen], self.weight[chosen])


Blocks = Callable[[], Iterator[Places]]
"""Reads all records anew, block by block."""


@dataclass(frozen=True)
class Cuts:
    """The last place before the cut, for each group; -1 where everything stands behind it."""

    last: tuple[int, ...]

    def before(self, places: Places) -> NDArray[np.bool_]:
        """Which records stand before the cut of their group."""
        some = np.array([last >= 0 for last in self.last], dtype=bool)
        halves = [divmod(max(last, 0), 1 << 64) for last in self.last]
        high, low = np.array(halves, dtype=np.uint64).reshape(-1, 2).T[:, places.group]
        below = (places.high < high) | ((places.high == high) & (places.low <= low))
        return np.asarray(some[places.group] & below)


@dataclass
class _Search:
    """One group's search: the bits of the cut known so far, and the weight before them.

    `inside` and `left` are weight and number of the records that share those bits.
    """

    target: int
    prefix: int = 0
    before: int = 0
    inside: int = 0
    left: int = 0
    last: int | None = None


def cut(blocks: Blocks, targets: Sequence[int], at_least_one: bool = False) -> Cuts:
    """Cut each group's order where the weight before it is nearest to the group's target.

    Of two cuts equally near the one with the lesser weight is taken; records at the same place are
    never parted.  A target of 0 takes nothing, one that is not reached takes everything.
    `at_least_one` takes the first place even where nothing at all would be nearer.
    """
    groups = [_Search(target, last=None if target > 0 else -1) for target in targets]
    width = 16 if len(groups) <= FEW else 8
    depth = 0
    while any(group.last is None for group in groups):
        _count(blocks, groups, depth, width)
        depth += width
        if sum(group.left for group in groups if group.last is None) <= SORTED:
            _sort(blocks, groups, depth, at_least_one)
        elif depth == 128:
            _part(groups, at_least_one)
    return Cuts(tuple(-1 if group.last is None else group.last for group in groups))


def _count(blocks: Blocks, groups: Sequence[_Search], depth: int, width: int) -> None:
    """Learn the next bits of every open cut, from the weight of all records that share the last."""
    size = 1 << width
    weights = np.zeros((len(groups), size), dtype=np.int64)
    counts = np.zeros_like(weights)
    for all_places in blocks():
        places = all_places.where(_sharing(all_places, groups, depth))
        half, shift = (
            (places.high, 64 - depth - width) if depth < 64 else (places.low, 128 - depth - width)
        )
        digit = ((half >> np.uint64(shift)) & np.uint64(size - 1)).astype(np.int64)
        index = places.group * size + digit
        counts += np.bincount(index, minlength=counts.size).reshape(counts.shape)
        # Weights are added as float64, exact up to 2**53 a block.
        added = np.bincount(index, places.weight, minlength=counts.size)
        weights += added.astype(np.int64).reshape(counts.shape)
    for search, weight, count in zip(groups, weights, counts, strict=True):
        if search.last is not None:
            continue
        total = search.before + np.cumsum(weight)
        if depth == 0 and total[-1] <= search.target:
            search.last = _END
            continue
        place = int(np.searchsorted(total, search.target))
        search.before = int(total[place] - weight[place])
        search.prefix = (search.prefix << width) | place
        search.inside, search.left = int(weight[place]), int(count[place])


def _sort(blocks: Blocks, groups: Sequence[_Search], depth: int, at_least_one: bool) -> None:
    """Find the cuts among the records that share the known bits, which fit in memory."""
    known = [places.where(_sharing(places, groups, depth)) for places in blocks()]
    group = np.concatenate([places.group for places in known])
    high = np.concatenate([places.high for places in known])
    low = np.concatenate([places.low for places in known])
    weight = np.concatenate([places.weight for places in known])
    order = np.lexsort((low, high, group))
    group, high, low, weight = group[order], high[order], low[order], weight[order]
    for number, search in enumerate(groups):
        if search.last is not None:
            continue
        rows = slice(*np.searchsorted(group, [number, number + 1]))
        ends = np.flatnonzero(
            np.append((np.diff(high[rows]) != 0) | (np.diff(low[rows]) != 0), True)
        )
        total = search.before + np.cumsum(weight[rows])[ends]
        at = int(np.searchsorted(total, search.target))
        less = int(total[at - 1]) if at else search.before
        place = (int(high[rows][ends[at]]) << 64) | int(low[rows][ends[at]])
        nearer = int(total[at]) - search.target < search.target - less
        first = at_least_one and less == 0
        if nearer or first:
            search.last = place
        elif at:
            search.last = (int(high[rows][ends[at - 1]]) << 64) | int(low[rows][ends[at - 1]])
        else:
            search.last = place - 1


def _part(groups: Sequence[_Search], at_least_one: bool) -> None:
    """More records at one place than can be sorted: all of them, or none."""
    for search in groups:
        if search.last is None:
            nearer = search.before + search.inside - search.target < search.target - search.before
            first = at_least_one and search.before == 0
            search.last = search.prefix if nearer or first else search.prefix - 1


def _sharing(places: Places, groups: Sequence[_Search], depth: int) -> NDArray[np.bool_]:
    """Which records belong to an open group and share the known bits of its cut."""
    chosen = np.array([search.last is None for search in groups], dtype=bool)[places.group]
    if depth == 0:
        return np.asarray(chosen)
    known = min(depth, 64)
    high = [search.prefix >> (depth - known) for search in groups]
    chosen &= (places.high >> np.uint64(64 - known)) == _of(high, places)
    if depth > 64:
        low = [search.prefix & ((1 << (depth - 64)) - 1) for search in groups]
        chosen &= (places.low >> np.uint64(128 - depth)) == _of(low, places)
    return np.asarray(chosen)


def _of(values: list[int], places: Places) -> NDArray[np.uint64]:
    # Groups that are done have no bits of the present depth; they are left out already.
    return np.array([value & ((1 << 64) - 1) for value in values], dtype=np.uint64)[places.group]


def streaming_cut(blocks: Blocks, targets: Sequence[int]) -> Cuts:
    """As `cut` with `at_least_one`, in one reading: between two classes of the first 24 bits.

    A class of scores is at most 2⁻¹² (0.024 %) of its score wide: sign, exponent and 12 bits of the
    fraction. Classes that occur are kept, and no others. The counts are exact and do not depend on
    the order of the records; what is selected misses the target by at most half the weight of the
    one class that the target falls into (by all of it, where nothing at all would be selected).
    """
    classes = [(np.empty(0, np.uint64), np.empty(0, np.int64)) for _ in targets]
    for places in blocks():
        digit = places.high >> np.uint64(64 - BITS)
        for group in np.unique(places.group):
            rows = places.group == group
            known, weights = classes[group]
            names, inverse = np.unique(np.append(known, digit[rows]), return_inverse=True)
            added = np.zeros(len(names), np.int64)
            np.add.at(added, inverse, np.append(weights, places.weight[rows]))
            classes[group] = names, added
    return Cuts(
        tuple(
            _last_class(names, weights, target)
            for (names, weights), target in zip(classes, targets, strict=True)
        )
    )


def _last_class(names: NDArray[np.uint64], weights: NDArray[np.int64], target: int) -> int:
    """The last place of the class that the cut stands behind."""
    total = np.cumsum(weights)
    if not len(total) or target <= 0:
        return -1
    at = min(int(np.searchsorted(total, target)), len(total) - 1)
    less = int(total[at - 1]) if at else 0
    if less > 0 and not int(total[at]) - target < target - less:
        at -= 1
    return ((int(names[at]) + 1) << (128 - BITS)) - 1
