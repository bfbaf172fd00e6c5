"""Orders to remove heads in, and the gates that do it.

Beside the order that somebody gives, heads can be ordered by what removing each of them did to the
rank of a target (Heads Up!, ICML 2025, appendix C.3.1 and figure 8): in a walk in which they were
removed one after another, or when each was removed alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from headscope.heads import Geometry, Head

if TYPE_CHECKING:
    import torch

Order: TypeAlias = Literal["given", "ascending", "descending", "pass", "alone"]
"""As they are given; by score; by the change of rank each head caused in a pass; or alone."""


def cumulative_gates(
    geometry: Geometry, order: Sequence[Head], gate: float, steps: range | None = None
) -> torch.Tensor:
    """The gates (n, L, W) of ``steps`` (default: all): in step s the first s heads are at ``gate``.

    Step 0 is the untouched model.
    """
    import torch

    wanted = range(len(order) + 1) if steps is None else steps
    values = np.ones((len(wanted), *geometry.shape), dtype=np.float32)
    for place, head in enumerate(order):
        geometry.check(head)
        values[max(0, place + 1 - wanted.start) :, head.layer, head.head] = gate
    return torch.from_numpy(values)


def alone_gates(
    geometry: Geometry, order: Sequence[Head], gate: float, steps: range | None = None
) -> torch.Tensor:
    """The gates (n, L, W) of ``steps``: step 0 is the untouched model, step s has one head, the
    s-th, at ``gate``."""
    import torch

    wanted = range(len(order) + 1) if steps is None else steps
    values = np.ones((len(wanted), *geometry.shape), dtype=np.float32)
    for row, step in enumerate(wanted):
        if step:
            head = geometry.check(order[step - 1])
            values[row, head.layer, head.head] = gate
    return torch.from_numpy(values)


def changes_in_pass(ranks: Sequence[Sequence[int]]) -> list[float]:
    """What removing each head did to the target's rank in cumulative walks, mean over walks.

    ``ranks`` holds the ranks of each walk by step, step 0 first. A change is rank before minus rank
    after: positive where the target became likelier.
    """
    return _mean(ranks, lambda row, step: row[step - 1] - row[step])


def changes_alone(ranks: Sequence[Sequence[int]]) -> list[float]:
    """The same for walks in which each head was removed alone (`alone_gates`)."""
    return _mean(ranks, lambda row, step: row[0] - row[step])


def reordered(order: Sequence[Head], changes: Sequence[float]) -> list[Head]:
    """The first ``len(changes)`` heads by falling change (ties: as they were), then the others."""
    first = sorted(range(len(changes)), key=lambda place: -changes[place])
    return [order[place] for place in first] + list(order[len(changes) :])


def _mean(
    ranks: Sequence[Sequence[int]], change: Callable[[Sequence[int], int], int]
) -> list[float]:
    return [fmean(change(row, step) for row in ranks) for step in range(1, len(ranks[0]))]
