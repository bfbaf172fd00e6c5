"""Scores of query rows on keys, in blocks of bounded size: which key is largest, what keys weigh.

`largest` computes no softmax: softmax, a positive scale and a soft cap do not change which key has
the largest weight, and an attention sink is no key. `softmax_of_chosen` runs over every key that a
row may see, chunk by chunk, with a running maximum and a running sum (Milakov & Gimelshein 2018,
arXiv 1805.02867, algorithm 3), and keeps of the numerators those of the chosen keys alone. Both
compute in float32.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence

import torch

#: Scores held at once: about what stays in a CPU's cache, and what keeps a GPU busy.
_SCORES_AT_ONCE = {"cpu": 1 << 19}
_SCORES_AT_ONCE_ELSEWHERE = 1 << 26
#: Lines shorter than this are torch's business, longer ones numpy's.
_LONG_LINE = 64
#: Columns are cut into pieces no narrower than this.
_LEAST_COLUMNS = 256
_NOTHING = float("-inf")


@dataclasses.dataclass(frozen=True, eq=False)
class Block:
    """Some rows, the columns they may see, and what is added to their scores.

    Attributes:
        rows: (first, one after the last) among the R rows.
        columns: (first, one after the last) of the keys.
        added_from: first column that ``added`` covers; it reaches to the last one.
        added: gives float32 (B or 1, H or 1, rows, columns covered): 0 or a bias where a key may be
            seen, minus infinity where not.  ``None`` if every row sees every column.
    """

    rows: tuple[int, int]
    columns: tuple[int, int]
    added_from: int = 0
    added: Callable[[], torch.Tensor] | None = None


def block_height(batch: int, heads: int, keys: int, device: torch.device) -> int:
    """How many rows of every batch row to treat at once; at least 1."""
    budget = _SCORES_AT_ONCE.get(device.type, _SCORES_AT_ONCE_ELSEWHERE)
    return max(1, budget // max(1, batch * heads * keys))


def _chunks(
    block: Block,
    lines: int,
    device: torch.device,
    products: Callable[[int, int], torch.Tensor],
    scale: float | None,
    softcap: float | None,
    heads: torch.Tensor | None = None,
) -> Iterator[tuple[int, torch.Tensor]]:
    """First column and scores (B, H, rows, C) of one piece of a block's columns after another.

    Scores are ``products`` (of a first column and the one after the last) times the scale, through
    the soft cap, plus what the block adds; ``lines`` times a piece stays within what is held at
    once. ``heads`` are those of the layer that take part.
    """
    added = None if block.added is None else block.added()
    if added is not None and heads is not None and added.shape[1] > 1:
        added = added[:, heads]
    start, end = block.columns
    step = max(_LEAST_COLUMNS, block_height(1, lines, 1, device))
    for left in range(start, end, step):
        right = min(left + step, end)
        scores = products(left, right)
        if scale is not None:
            scores.mul_(scale)
        if softcap is not None:
            scores.div_(softcap).tanh_().mul_(softcap)
        if added is not None and right > block.added_from:
            first = max(left, block.added_from)
            part = added[..., first - block.added_from : right - block.added_from]
            scores[..., first - left :].add_(part)
        yield left, scores


def largest(
    query: torch.Tensor,
    key: torch.Tensor,
    blocks: Sequence[Block],
    *,
    scale: float | None = None,
    softcap: float | None = None,
) -> torch.Tensor:
    """Index of the key with the largest score, the first of equals; int64 (B, H, R), -1 for a row
    that sees no key.

    Args:
        query: (B, H, R, D), the chosen rows.
        key: (B, G, S, D) with H a multiple of G; query head h reads key head h // (H / G).
        blocks: which columns each row may see; together they cover all R rows, in order.
        scale, softcap: applied to the products if given; needed only if a block adds a bias.
    """
    batch, heads, _, width = query.shape
    shared = key.shape[1]
    flat_key = key.reshape(batch * shared, key.shape[2], width)
    # Made at once: results between scores of growing sizes would leave holes in the heap.
    where = torch.full(query.shape[:3], -1, device=query.device)
    for block in blocks:
        top, bottom = block.rows
        shape = (batch, heads, bottom - top)
        part = query[:, :, top:bottom].reshape(batch * shared, -1, width)

        def products(
            left: int,
            right: int,
            part: torch.Tensor = part,
            shape: tuple[int, int, int] = shape,
        ) -> torch.Tensor:
            return _products(part, flat_key[:, left:right]).view(*shape, right - left)

        best = torch.full(shape, _NOTHING, device=query.device)
        own = where[:, :, top:bottom]
        lines = batch * heads * (bottom - top)
        for left, scores in _chunks(block, lines, query.device, products, scale, softcap):
            values, index = _first_largest(scores)
            better = values > best
            best = torch.where(better, values, best)
            own.copy_(torch.where(better, index + left, own))
    return where


def _products(query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    """float32 (N, M, S) products of (N, M, D) and (N, S, D)."""
    if query.dtype == torch.float32:
        return torch.bmm(query, key.transpose(1, 2))
    if query.device.type == "cuda":
        # Tensor cores multiply halves exactly and add up in float32: no copy of the keys.
        return torch.bmm(query, key.transpose(1, 2), out_dtype=torch.float32)
    return torch.bmm(query.float(), key.transpose(1, 2).float())


def _first_largest(scores: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Largest score of each line and its first index.

    On a CPU numpy's arg max is several times faster than torch's over long lines.
    """
    if scores.device.type != "cpu" or scores.shape[-1] < _LONG_LINE:
        values, index = scores.max(dim=-1)
        return values, index
    index = torch.from_numpy(scores.numpy().argmax(axis=-1))
    return scores.gather(-1, index[..., None])[..., 0], index


@dataclasses.dataclass(frozen=True, eq=False)
class Chosen:
    """What n heads give to K chosen keys, for R rows; all float32, on the queries' device.

    Attributes:
        weights: (B, n, R, K), the softmax weights; 0 where a key is not seen.
        uniform: (B, n, R, K), what each key would get if all keys that are seen got the same.
        output: (B, n, R, V), weights times values over *all* keys.
    """

    weights: torch.Tensor
    uniform: torch.Tensor
    output: torch.Tensor


def softmax_of_chosen(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    columns: torch.Tensor,
    heads: Sequence[int],
    total: int,
    blocks: Sequence[Block],
    *,
    scale: float,
    softcap: float | None = None,
    sink: torch.Tensor | None = None,
) -> Chosen:
    """Softmax weights of chosen keys for chosen rows and heads.

    A score is query·key times ``scale``, through the soft cap ``c·tanh(score / c)`` where there is
    one, plus what the mask adds. A sink, (n,), is one more score of its own that takes part in the
    denominator and is nobody's key.

    Args:
        query: (B, n, R, D), the chosen rows of the chosen heads.
        key, value: (B, G, S, D) and (B, G, S, V); query head h of ``total`` reads head h // (total
            / G).
        columns: int64 (B, K), the chosen keys by their place among the S; what lies outside is not
            seen.
        heads: indices of the n heads among ``total``, the layer's query heads.
        blocks: which columns each row may see; together they cover all R rows, in order.
    """
    chosen = torch.tensor(heads, device=query.device)
    shared = chosen // (total // key.shape[1])
    parts = []
    for block in blocks:
        part = query[:, :, slice(*block.rows)].float()
        running = _Running(part, value.shape[-1], columns, sink)

        def products(left: int, right: int, part: torch.Tensor = part) -> torch.Tensor:
            return part @ key[:, shared, left:right].float().transpose(2, 3)

        # A chunk holds scores, and float32 copies of its keys and values.
        lines = part.shape[0] * part.shape[1] * max(part.shape[2], key.shape[3] + value.shape[3])
        for left, scores in _chunks(block, lines, query.device, products, scale, softcap, chosen):
            seen = value[:, shared, left : left + scores.shape[-1]].float()
            running.take(scores, seen, left)
        parts.append(running.result())
    if len(parts) == 1:
        return Chosen(*parts[0])
    return Chosen(*(torch.cat(tensors, dim=2) for tensors in zip(*parts, strict=True)))


class _Running:
    """Sums over the keys seen so far, for the rows of one block.

    Args:
        query: float32 (B, n, rows, D).
        width: V, channels of a value.
        columns: int64 (B, K), see :func:`softmax_of_chosen`.
        sink: (n,), or ``None``.
    """

    def __init__(
        self, query: torch.Tensor, width: int, columns: torch.Tensor, sink: torch.Tensor | None
    ) -> None:
        shape = query.shape[:3]
        self._columns = columns
        # A sink is a score that comes before the first key: weight exp(0) at its own maximum.
        self._largest = query.new_full(shape, _NOTHING)
        self._sum = query.new_zeros(shape)
        if sink is not None:
            self._largest = sink.float()[None, :, None].expand(shape).clone()
            self._sum += 1.0
        self._output = query.new_zeros((*shape, width))
        self._seen = torch.zeros(shape, dtype=torch.int32, device=query.device)
        self._scores = query.new_full((*shape, columns.shape[1]), _NOTHING)

    def take(self, scores: torch.Tensor, value: torch.Tensor, left: int) -> None:
        """Go on with the scores (B, n, rows, C) and values (B, n, C, V) from column ``left`` on."""
        largest = torch.maximum(self._largest, scores.amax(dim=-1))
        # Where nothing is seen yet the maximum is minus infinity, and minus infinity less itself
        # is no number.
        base = largest.masked_fill(largest == _NOTHING, 0.0)
        shrink = torch.exp(self._largest - base)
        inside = (self._columns >= left) & (self._columns < left + scores.shape[-1])
        where = (self._columns - left).clamp(0, scores.shape[-1] - 1)[:, None, None]
        picked = scores.gather(-1, where.expand(*scores.shape[:3], -1))
        self._scores = torch.where(inside[:, None, None], picked, self._scores)
        self._seen += (scores > _NOTHING).sum(dim=-1, dtype=torch.int32)
        weights = scores.sub_(base[..., None]).exp_()
        self._sum = self._sum * shrink + weights.sum(dim=-1)
        self._output = self._output * shrink[..., None] + weights @ value
        self._largest = largest

    def result(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Weights, even shares and output; zeros for rows that see no key."""
        base = self._largest.masked_fill(self._largest == _NOTHING, 0.0)[..., None]
        whole = torch.where(self._sum > 0, self._sum, 1.0)[..., None]
        weights = torch.exp(self._scores - base) / whole
        seen = self._seen.clamp(min=1)[..., None]
        uniform = (self._scores > _NOTHING).float() / seen
        return weights, uniform, self._output / whole
