"""Cutting by score in one reading: counts of narrow classes of scores.

A class holds the scores whose first 24 bits are the same: sign, exponent and 12 bits of the
fraction, so that it is at most 2⁻¹² (0.024 %) of its score wide.  Classes that occur are kept, and
no others.  The counts are exact and do not depend on the order of the records; the cut falls
between two classes, so that what is selected misses the target by at most half the weight of the
one class that the target falls into (by all of it, where nothing at all would be selected).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from headscope.use.mixing.cut import Blocks, Cuts

BITS = 24
_REST = 128 - BITS


def streaming_cut(blocks: Blocks, targets: Sequence[int]) -> Cuts:
    """Cut each group's order near its target, between two classes of the first 24 bits.

    As `cut` with `at_least_one`: the first class is taken even where nothing would be nearer.
    """
    classes = [(np.empty(0, np.uint64), np.empty(0, np.int64)) for _ in targets]
    for places in blocks():
        digit = places.high >> np.uint64(64 - BITS)
        for group in np.unique(places.group):
            rows = places.group == group
            known, weights = classes[group]
            classes[group] = _added(
                np.concatenate((known, digit[rows])), np.concatenate((weights, places.weight[rows]))
            )
    return Cuts(
        tuple(_last(*found, target) for found, target in zip(classes, targets, strict=True))
    )


def _added(
    names: NDArray[np.uint64], weights: NDArray[np.int64]
) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Every class once, in ascending order, with the sum of its weights."""
    order = np.argsort(names, kind="stable")
    ordered = names[order]
    first = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
    return ordered[first], np.add.reduceat(weights[order], first)


def _last(names: NDArray[np.uint64], weights: NDArray[np.int64], target: int) -> int:
    """The last place of the class that the cut stands behind."""
    total = np.cumsum(weights)
    if not len(total) or target <= 0:
        return -1
    at = min(int(np.searchsorted(total, target)), len(total) - 1)
    less = int(total[at - 1]) if at else 0
    if less > 0 and not int(total[at]) - target < target - less:
        at -= 1
    return ((int(names[at]) + 1) << _REST) - 1
