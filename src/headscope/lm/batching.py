"""Batches of rows of tokens: of bounded size, padded on the left, halved where memory is short."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
import torch

from headscope.errors import InputError

T = TypeVar("T")


@dataclasses.dataclass(frozen=True, eq=False)
class Batch:
    """Rows of token ids padded on the left to one length T.

    Attributes:
        input_ids: int64, shape (B, T).
        attention_mask: int64, shape (B, T); 0 where padded.
        position_ids: int64, shape (B, T); each row counts its own tokens from 0 (0 where padded).
        cache: keys and values of P tokens that stand before those of every row, as the model made
            them; then the attention mask is (B, P + T), and a pass adds to the cache.
    """

    input_ids: torch.Tensor
    attention_mask: torch.Tensor
    position_ids: torch.Tensor
    cache: Any = None

    @classmethod
    def of(cls, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> Batch:
        """Tokens whose positions follow from the mask."""
        positions = (attention_mask.cumsum(dim=1) - 1).clamp_(min=0)
        return cls(input_ids, attention_mask, positions)

    @property
    def padding(self) -> tuple[int, ...]:
        """How many padding tokens stand before each row."""
        width = int(self.attention_mask.shape[1])
        return tuple(width - int(n) for n in self.attention_mask.sum(dim=1).tolist())

    def to(self, device: torch.device | str) -> Batch:
        """The same batch on another device."""
        tensors = (self.input_ids, self.attention_mask, self.position_ids)
        ids, mask, positions = (tensor.to(device) for tensor in tensors)
        return Batch(ids, mask, positions, self.cache)


def collate(rows: Sequence[Sequence[int]], pad_id: int) -> Batch:
    """Pad rows of token ids on the left with ``pad_id``, which models never see, since it is
    masked.

    Raises `InputError` if there is no row, or a row is empty (a softmax over nothing has no
    meaning).
    """
    if not rows:
        raise InputError("A batch needs at least one row of tokens; none was given.")
    for index, row in enumerate(rows):
        if not len(row):
            raise InputError(f"Row {index} of a batch holds no token; leave empty texts out.")
    width = max(len(row) for row in rows)
    ids = torch.full((len(rows), width), pad_id, dtype=torch.long)
    mask = torch.zeros((len(rows), width), dtype=torch.long)
    for index, row in enumerate(rows):
        ids[index, width - len(row) :] = torch.as_tensor(row, dtype=torch.long)
        mask[index, width - len(row) :] = 1
    return Batch.of(ids, mask)


def length_buckets(lengths: Sequence[int], batch_tokens: int, overhead: int) -> list[list[int]]:
    """Group rows of similar length into batches, with the least padding that is worth its batches.

    A batch costs its padded size and ``overhead`` tokens more (for a single pass
    `headscope.lm.model.LanguageModel.pass_overhead`, and as many times that as there are passes);
    the sum over batches is the smallest there is for rows in the order of their lengths. Longest
    rows come first, so that too large a batch shows at once; a row longer than ``batch_tokens``
    gets one of its own. Gives lists of indices into ``lengths``, each index once; nothing but the
    arguments decides. Raises `InputError` if ``batch_tokens`` is below 1 or ``overhead`` below 0.
    """
    if batch_tokens < 1 or overhead < 0:
        raise InputError(
            f"batch_tokens is {batch_tokens} and overhead {overhead}; they must be at least 1 and "
            "0."
        )
    order = sorted(range(len(lengths)), key=lambda i: (-lengths[i], i))
    tokens = np.array([max(1, lengths[i]) for i in order], dtype=np.int64)
    places = np.arange(len(order))
    # For each number of first rows: the least cost, and where their last batch begins.
    costs, begins = np.zeros(len(order) + 1, dtype=np.int64), [0]
    first = 0  # where a batch that ends so can begin at the earliest
    for end in range(1, len(order) + 1):
        while first < end - 1 and (end - first) * tokens[first] > batch_tokens:
            first += 1
        last = slice(first, end)
        ways = costs[last] + (end - places[last]) * tokens[last]
        begins.append(first + int(ways.argmin()))
        costs[end] = ways.min() + overhead
    buckets = []
    end = len(order)
    while end:
        buckets.append(order[begins[end] : end])
        end = begins[end]
    return buckets[::-1]


def in_halves(
    batches: Sequence[Sequence[int]], work: Callable[[list[int]], T]
) -> Iterator[tuple[list[int], T]]:
    """What ``work`` makes of each batch, in order, with the indices it was made from.

    A batch for which memory does not suffice is done as its first half and its second half, and so
    on down to single rows; so ``work`` must leave nothing behind where it fails. Raises
    `torch.OutOfMemoryError` if memory does not suffice for a single row.
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
