"""Batches that are tried again in halves when the device runs out of memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import torch

T = TypeVar("T")


def in_halves(
    batches: Sequence[Sequence[int]], work: Callable[[list[int]], T]
) -> Iterator[tuple[list[int], T]]:
    """What ``work`` makes of each batch, in order, with the indices it was made from.

    A batch for which memory does not suffice is done as its first half and its second half, and so
    on down to single rows.

    Args:
        batches: indices of rows, at least one a batch.
        work: computes one batch; called again for the halves, so it must leave nothing behind
            where it fails.

    Raises:
        torch.OutOfMemoryError: if memory does not suffice for a single row.
    """
    waiting = [list(batch) for batch in reversed(batches)]
    while waiting:
        rows = waiting.pop()
        try:
            made = work(rows)
        except torch.OutOfMemoryError:
            if len(rows) == 1:
                raise
        else:
            yield rows, made
            continue
        # Out of the handler, whose traceback would keep the tensors of the failed try alive.
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        half = (len(rows) + 1) // 2
        waiting += [rows[half:], rows[:half]]
