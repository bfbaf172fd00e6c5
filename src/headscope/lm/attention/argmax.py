"""Arg max over keys of query-key products, for chosen rows and in blocks of bounded size.

Softmax, a positive scale and a soft cap do not change which key has the largest weight, and an
attention sink is no key, so none of them is computed.  Products are taken in float32.  The first of
several equally large keys wins, within and across blocks.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import torch

from headscope.errors import InputError

#: Scores held at once: about what stays in a CPU's cache, and what keeps a GPU busy.
_SCORES_AT_ONCE = {"cpu": 1 << 19}
_SCORES_AT_ONCE_ELSEWHERE = 1 << 26
#: Lines shorter than this are torch's business, longer ones numpy's.
_LONG_LINE = 64
#: Columns are cut into pieces no narrower than this.
_LEAST_COLUMNS = 256


@dataclasses.dataclass(frozen=True, eq=False)
class Rows:
    """Query rows of one forward pass, R for each of B batch rows.

    A batch row with fewer than R rows repeats its last one (or row 0); what is computed for the
    repeats is thrown away.

    Attributes:
        index: int64 (B, R) on the CPU, position of each row among the queries of the pass.
        valid: bool (B, R) on the CPU, false for the repeats.
        run: (first, one after the last) if every batch row has this same run of rows, else None.
    """

    index: torch.Tensor
    valid: torch.Tensor
    run: tuple[int, int] | None

    @classmethod
    def of_mask(cls, mask: torch.Tensor) -> Rows:
        """Rows where a bool (B, T) tensor on the CPU is true, in order of position."""
        counts = mask.sum(dim=1)
        height = int(counts.max()) if counts.numel() else 0
        # A stable sort of "not chosen" brings the chosen positions to the front, in order.
        order = torch.argsort((~mask).to(torch.uint8), dim=1, stable=True)[:, :height]
        valid = torch.arange(height)[None, :] < counts[:, None]
        last = (counts - 1).clamp(min=0)[:, None]
        if height:
            order = torch.where(valid, order, order.gather(1, last))
        index = torch.where((counts > 0)[:, None], order, torch.zeros_like(order))
        run = None
        if height and bool(valid.all()):
            first, end = int(index[0, 0]), int(index[0, -1]) + 1
            same = bool((index == index[:1]).all())
            run = (first, end) if same and end - first == height else None
        return cls(index, valid, run)

    def shifted(self, left_out: int) -> Rows:
        """The same rows where the first ``left_out`` queries of the pass are not computed.

        Raises:
            InputError: if one of the rows is among those.
        """
        index = self.index - left_out
        if bool((index[self.valid] < 0).any()):
            raise InputError(
                f"The model's upper layers leave out the first {left_out} positions, which its "
                "logits do not need, so attention cannot be recorded there; run the model without "
                'logits_to_keep, or record rows="last".'
            )
        run = None if self.run is None else (self.run[0] - left_out, self.run[1] - left_out)
        return Rows(index.clamp(min=0), self.valid, run)

    @property
    def height(self) -> int:
        """R, the largest number of rows of any batch row."""
        return int(self.index.shape[1])

    def take(self, query: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        """These rows of ``query`` (B, H, T, D), as (B, H, R, D); ``index`` is on its device."""
        if self.run is not None:
            return query[:, :, self.run[0] : self.run[1]]
        which = torch.arange(query.shape[0], device=query.device)[:, None]
        # Queries usually lie in memory as (B, T, H, D): gathering there copies whole rows.
        return query.transpose(1, 2)[which, index].transpose(1, 2)


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


def _products(query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    """float32 (N, M, S) products of (N, M, D) and (N, S, D)."""
    if query.dtype == torch.float32:
        return torch.bmm(query, key.transpose(1, 2))
    if query.device.type == "cuda":
        # Tensor cores multiply halves exactly and add up in float32: no copy of the keys.
        return torch.bmm(query, key.transpose(1, 2), out_dtype=torch.float32)
    return torch.bmm(query.float(), key.transpose(1, 2).float())


def largest(
    query: torch.Tensor,
    key: torch.Tensor,
    blocks: list[Block],
    *,
    scale: float | None = None,
    softcap: float | None = None,
) -> torch.Tensor:
    """Index of the key with the largest score, for every row and query head.

    Args:
        query: (B, H, R, D), the chosen rows.
        key: (B, G, S, D) with H a multiple of G; query head h reads key head h // (H / G).
        blocks: which columns each row may see; together they cover all R rows, in order.
        scale, softcap: applied to the products if given; needed only if a block adds a bias.

    Returns:
        int64 (B, H, R); -1 for a row that sees no key.
    """
    batch, heads, _, width = query.shape
    shared = key.shape[1]
    group = heads // shared
    flat_key = key.reshape(batch * shared, key.shape[2], width)
    found = []
    for block in blocks:
        (top, bottom), (start, end) = block.rows, block.columns
        rows = bottom - top
        if end <= start or not rows:
            found.append(torch.full((batch, heads, rows), -1, device=query.device))
            continue
        part = query[:, :, top:bottom].reshape(batch * shared, group * rows, width)
        added = None if block.added is None else block.added()
        best: torch.Tensor | None = None
        where: torch.Tensor | None = None
        for left, right in column_chunks(start, end, batch * heads * rows, query.device):
            scores = _products(part, flat_key[:, left:right])
            if scale is not None:
                scores.mul_(scale)
            if softcap is not None:
                scores.div_(softcap).tanh_().mul_(softcap)
            if added is not None and right > block.added_from:
                _add(scores, added, block.added_from, (left, right), (batch, shared, group, rows))
            values, index = _first_largest(scores)
            if left:
                index.add_(left)
            if best is None or where is None:
                best, where = values, index
            else:
                better = values > best
                best = torch.where(better, values, best)
                where = torch.where(better, index, where)
        assert best is not None and where is not None  # there is at least one column
        if added is not None:
            where.masked_fill_(best == float("-inf"), -1)
        found.append(where.view(batch, heads, rows))
    return found[0] if len(found) == 1 else torch.cat(found, dim=2)


def _first_largest(scores: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Largest score of each line and its first index.

    On a CPU numpy's arg max is several times faster than torch's over long lines.
    """
    if scores.device.type != "cpu" or scores.shape[-1] < _LONG_LINE:
        values, index = scores.max(dim=-1)
        return values, index
    index = torch.from_numpy(scores.numpy().argmax(axis=-1))
    return scores.gather(-1, index[..., None])[..., 0], index


def column_chunks(start: int, end: int, lines: int, device: torch.device) -> list[tuple[int, int]]:
    """Cut columns so that ``lines`` times a chunk stays within what is held at once."""
    step = max(_LEAST_COLUMNS, block_height(1, lines, 1, device))
    return [(left, min(left + step, end)) for left in range(start, end, step)]


def _add(
    scores: torch.Tensor,
    added: torch.Tensor,
    added_from: int,
    columns: tuple[int, int],
    shape: tuple[int, int, int, int],
) -> None:
    left, right = columns
    first = max(left, added_from)
    part = added[..., first - added_from : right - added_from]
    if part.shape[1] == 1:
        part = part[:, :, None]
    else:
        part = part.reshape(part.shape[0], *shape[1:3], *part.shape[2:])
    scores.view(*shape, right - left)[..., first - left :].add_(part)
