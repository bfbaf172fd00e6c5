"""Softmax weights of a few keys, without the weights of all the others.

The denominator runs over every key that a row may see, chunk by chunk, as a running maximum and a
running sum (Milakov & Gimelshein 2018, arXiv 1805.02867, algorithm 3); of the numerators only those
of the chosen keys are kept.  Everything is computed in float32.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import torch

from headscope.lm.attention.argmax import Block, column_chunks

_NOTHING = float("-inf")


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
    one, plus what the mask adds.  A sink is one more score of its own that takes part in the
    denominator and is nobody's key.

    Args:
        query: (B, n, R, D), the chosen rows of the chosen heads.
        key: (B, G, S, D); query head h of ``total`` reads key head h // (total / G).
        value: (B, G, S, V).
        columns: int64 (B, K), the chosen keys by their place among the S; what lies outside
            0 … S - 1 is not seen.
        heads: indices of the n heads among ``total``.
        total: number H of query heads of the layer.
        blocks: which columns each row may see; together they cover all R rows, in order.
        scale, softcap: see above.
        sink: (n,), or ``None``.
    """
    device = query.device
    chosen = torch.tensor(heads, device=device)
    shared = chosen // (total // key.shape[1])
    parts = []
    for block in blocks:
        running = _Running(query[:, :, slice(*block.rows)].float(), value.shape[-1], columns, sink)
        added = None if block.added is None else block.added()
        if added is not None and added.shape[1] > 1:
            added = added[:, chosen]
        start, end = block.columns
        # A chunk holds scores, and float32 copies of its keys and values.
        lines = running.lines * max(block.rows[1] - block.rows[0], key.shape[3] + value.shape[3])
        for left, right in column_chunks(start, end, lines, device):
            scores = running.query @ key[:, shared, left:right].float().transpose(2, 3)
            scores.mul_(scale)
            if softcap is not None:
                scores.div_(softcap).tanh_().mul_(softcap)
            if added is not None and right > block.added_from:
                first = max(left, block.added_from)
                part = added[..., first - block.added_from : right - block.added_from]
                scores[..., first - left :].add_(part)
            running.take(scores, value[:, shared, left:right].float(), left)
        parts.append(running.result())
    if len(parts) == 1:
        return parts[0]
    names = [field.name for field in dataclasses.fields(Chosen)]
    return Chosen(*(torch.cat([getattr(part, name) for part in parts], dim=2) for name in names))


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
        self.query = query
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

    @property
    def lines(self) -> int:
        """Batch rows times heads."""
        return int(self.query.shape[0] * self.query.shape[1])

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

    def result(self) -> Chosen:
        """Weights and output; zeros for rows that see no key."""
        base = self._largest.masked_fill(self._largest == _NOTHING, 0.0)[..., None]
        whole = torch.where(self._sum > 0, self._sum, 1.0)[..., None]
        weights = torch.exp(self._scores - base) / whole
        seen = self._seen.clamp(min=1)[..., None]
        uniform = (self._scores > _NOTHING).float() / seen
        return Chosen(weights, uniform, self._output / whole)
