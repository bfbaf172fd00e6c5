"""Batches of rows of tokens: of bounded size, padded on the left, halved where memory is short."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, TypeVar, cast

import numpy as np
import torch

from headscope.errors import InputError, first_line, out_of_memory
from headscope.lm.shards import shared

T = TypeVar("T")

#: Queries × keys of a pass behind tokens that are kept, at most: its mask is a matrix.
MOST_MASKED = 1 << 26
#: Length of rows where nothing sets a bound.
UNBOUNDED = 1 << 30


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


class Batches(Protocol):
    """Keeps what was made of the losses of batches: of rows under gates, by the places of both."""

    def kept(self, rows: Sequence[tuple[int, int]]) -> list[Any] | None:
        """What was made of all of these, each a gate and a row; None unless all of it is there."""
        ...

    def keep(self, rows: Sequence[tuple[int, int]], made: Sequence[Any]) -> None:
        """Take what was made of a batch."""
        ...


def collate(rows: Sequence[Sequence[int]], pad_id: int) -> Batch:
    """Pad rows of token ids on the left with ``pad_id``, which models never see, since it is
    masked.

    Raises `InputError` if there is no row, or a row is empty (a softmax over nothing has no
    meaning).
    """
    lengths = lengths_of(rows)
    if not lengths:
        raise InputError("A batch needs at least one row of tokens; none was given.")
    if 0 in lengths:
        raise InputError(
            f"Row {lengths.index(0)} of a batch holds no token; leave empty texts out."
        )
    width = max(lengths)
    ids = torch.full((len(rows), width), pad_id, dtype=torch.long)
    mask = torch.zeros((len(rows), width), dtype=torch.long)
    for index, row in enumerate(rows):
        ids[index, width - len(row) :] = _row(index, row)
        mask[index, width - len(row) :] = 1
    return Batch.of(ids, mask)


def lengths_of(rows: Sequence[Sequence[int]]) -> list[int]:
    """The length of each row of token ids; `InputError` if these are texts or single ids."""
    if isinstance(rows, str):
        rows = [cast(Any, rows)]
    for index, row in enumerate(rows):
        if isinstance(row, str | bytes) or not hasattr(row, "__len__"):
            raise InputError(
                f"Row {index} is {row!r:.60}, not a sequence of token ids; give a list of rows, "
                "such as [lm.encode(text)]."
            )
    return [len(row) for row in rows]


def _row(index: int, row: Sequence[int]) -> torch.Tensor:
    """A row of token ids, int64 (T,); `InputError` if they are something else."""
    try:
        ids = torch.as_tensor(row)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(
            f"Row {index} is not a sequence of token ids ({first_line(error)}); give whole numbers."
        ) from error
    if ids.dim() != 1 or ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool:
        raise InputError(
            f"Row {index} holds values of {ids.dtype} in {ids.dim()} dimensions, not token ids; "
            "give whole numbers in one."
        )
    return ids.long()


def longest_shared(config: Any) -> int:
    """The longest row that may share a batch with rows of other lengths; `UNBOUNDED` for most.

    Some models compute a text otherwise as soon as its batch holds more columns than a number in
    their configuration: rotations that follow the longest row (``longrope``, ``dynamic``), queries
    scaled by their column, padding included (Llama 4, Inkling), and tokens that are summed up in
    windows of columns (DeepSeek V4, MiniMax M3). `config` is the decoder's own.
    """
    bounds = []
    rope = getattr(config, "rope_parameters", None) or {}
    for settings in [rope, *(value for value in rope.values() if isinstance(value, dict))]:
        if "dynamic" in str(settings.get("rope_type")):
            bounds.append(getattr(config, "max_position_embeddings", None))
        if settings.get("rope_type") == "longrope":
            bounds.append(settings.get("original_max_position_embeddings"))
            bounds.append(getattr(config, "original_max_position_embeddings", None))
    if getattr(config, "attn_temperature_tuning", False):
        bounds.append(getattr(config, "floor_scale", 0) - 1)
    bounds.append(getattr(config, "log_scaling_n_floor", None))
    windows = getattr(config, "compress_rates", None) or {}
    bounds += [size - 1 for size in windows.values() if isinstance(size, int)]
    if getattr(config, "index_topk_blocks", None):
        bounds.append(getattr(config, "index_block_size", None))
    return min([int(b) for b in bounds if isinstance(b, int | float) and b > 0] or [UNBOUNDED])


def separated(
    rows: Sequence[int], lengths: Sequence[int], shared: int, widths: Sequence[int] | None = None
) -> list[list[int]]:
    """Rows as batches in which none computes otherwise than alone, in their order.

    Those of at most `shared` tokens are together, longer ones with those of the same length alone,
    since nothing is padded there. `widths` are what has to be the same then, if not the lengths.
    """
    together: dict[int, list[int]] = {}
    for row in rows:
        own = lengths[row] if widths is None else widths[row]
        together.setdefault(0 if lengths[row] <= shared else own, []).append(row)
    return list(together.values())


def length_buckets(
    lengths: Sequence[int],
    batch_tokens: int,
    overhead: int,
    shared: int = UNBOUNDED,
    widths: Sequence[int] | None = None,
) -> list[list[int]]:
    """Group rows of similar length into batches, with the least padding that is worth its batches.

    A batch costs its padded size and ``overhead`` tokens more (for a single pass
    `headscope.lm.model.LanguageModel.pass_overhead`, and as many times that as there are passes);
    the sum over batches is the smallest there is for rows in the order of their lengths. Longest
    rows come first, so that too large a batch shows at once; a row longer than ``batch_tokens``
    gets one of its own, and rows longer than ``shared`` stay apart (`separated`, for ``widths``
    too). Gives lists of indices into ``lengths``, each index once; nothing but the arguments
    decides. Raises `InputError` if ``batch_tokens`` is below 1 or ``overhead`` below 0.
    """
    if batch_tokens < 1 or overhead < 0:
        raise InputError(
            f"batch_tokens is {batch_tokens} and overhead {overhead}; they must be at least 1 and "
            "0."
        )
    order = sorted(range(len(lengths)), key=lambda i: (-lengths[i], i))
    long = [i for i in order if lengths[i] > shared]
    if long:
        apart = []
        for rows in separated(long, lengths, shared, widths):
            size = max(1, batch_tokens // lengths[rows[0]])
            apart += [rows[at : at + size] for at in range(0, len(rows), size)]
        short = order[len(long) :]
        rest = length_buckets([lengths[i] for i in short], batch_tokens, overhead)
        return [*apart, *([short[at] for at in bucket] for bucket in rest)]
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


def release_memory() -> None:
    """Give back what a failed try held, before a smaller one; outside of the handler of its error,
    whose traceback would keep its tensors alive."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


@contextlib.contextmanager
def memory_errors() -> Iterator[None]:
    """Raise `torch.OutOfMemoryError` whatever want of memory is raised as inside.

    `InputError` where processes share a model: others would wait for one that tries again.
    """
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if out_of_memory(error) and shared():
            raise InputError(
                "memory does not suffice in one of the processes that share the model; give a "
                "smaller --batch-tokens, or more processes"
            ) from error
        if isinstance(error, torch.OutOfMemoryError) or not out_of_memory(error):
            raise
        raise torch.OutOfMemoryError(first_line(error)) from error


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
            with memory_errors():
                made = work(rows)
        except torch.OutOfMemoryError:
            if len(rows) == 1:
                raise
        else:
            yield rows, made
            continue
        release_memory()
        half = (len(rows) + 1) // 2
        waiting += [rows[half:], rows[:half]]
