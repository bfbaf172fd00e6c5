"""What to compute for every layer that was given one and the same attention mask.

Masks are decoded once a forward pass, not once a layer, and only for the rows and keys asked for.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import torch

from headscope.errors import InputError
from headscope.lm.attention.argmax import Block, Rows, block_height
from headscope.lm.attention.interpose import Call
from headscope.lm.attention.masks import additive, decode, is_additive_bias, kernel_of, outline

#: Decoded masks are kept for the layers that follow up to this many numbers, else decoded anew.
_KEEP = 1 << 25


@dataclasses.dataclass(frozen=True, eq=False)
class KeyChoice:
    """Which keys count, by their place in the padded sequence.

    Attributes:
        keys: bool (B, S), integer spans (B, 2), or ``None`` for all.
    """

    keys: torch.Tensor | None

    def allowed(self, start: int, end: int, device: torch.device) -> torch.Tensor | None:
        """bool (B, end - start) for the places from ``start`` on; ``None`` if all count."""
        keys = self.keys
        if keys is None:
            return None
        if keys.dtype != torch.bool:
            keys = keys.to(device, non_blocking=True)
            place = torch.arange(start, end, device=device)[None]
            return (place >= keys[:, :1]) & (place < keys[:, 1:])
        return columns(keys[:, start:end].to(device, non_blocking=True), end - start)

    def limit(self, start: int, end: int) -> tuple[int, int]:
        """Shrink a range of places to those that count for some batch row.

        Keys that lie on an accelerator are not read, since that would wait for it.
        """
        keys = self.keys
        if keys is None or keys.device.type != "cpu" or not keys.numel():
            return start, end
        if keys.dtype == torch.bool:
            places = keys.any(dim=0).nonzero()[:, 0]
            if not places.numel():
                return start, start
            first, last = int(places[0]), int(places[-1]) + 1
        else:
            first, last = int(keys[:, 0].min()), int(keys[:, 1].max())
        start = max(start, first)
        return start, max(start, min(end, last))


def columns(limit: torch.Tensor, width: int) -> torch.Tensor:
    """bool (B, width): ``limit`` (B, up to width), false beyond its end."""
    part = limit[:, :width].bool()
    return torch.nn.functional.pad(part, (0, width - part.shape[1]), value=False)


@dataclasses.dataclass(frozen=True, eq=False)
class Plan:
    """How to treat the layers that share a mask.

    Attributes:
        blocks: rows and columns to look at, and what to add to their scores.
        offset: place in the padded sequence of the first key of the call.
        scale, softcap: to be applied to the scores; ``None`` where they do not matter.
        source: the mask, held so that its memory is not given to another one meanwhile.
    """

    blocks: list[Block]
    offset: int
    scale: float | None
    softcap: float | None
    source: Any


class Plans:
    """The plans of one forward pass, one for each mask.

    Args:
        rows: the chosen queries.
        keys: the keys that count.
        past: number of tokens in the cache before the pass.
        exact: whether scores are wanted as softmax takes them, and not only in their order.
    """

    def __init__(self, rows: Rows, keys: KeyChoice, past: int, exact: bool = False) -> None:
        self.rows, self.keys, self.past, self.exact = rows, keys, past, exact
        self._plans: dict[Any, Plan] = {}
        self._kept = 0

    def of(self, call: Call, index: torch.Tensor) -> Plan:
        """The plan for a call; ``index`` is ``rows.index`` on the device of the call."""
        scale = call.options.get("scaling")
        name = (
            _identity(call.mask),
            call.query.shape[1:3],
            call.key.shape[2],
            call.query.device,
            call.options.get("sliding_window"),
            call.causal,
            scale,
        )
        if name not in self._plans:
            self._plans[name] = self._make(call, index, scale)
        return self._plans[name]

    def _make(self, call: Call, index: torch.Tensor, scale: float | None) -> Plan:
        for option in ("cache", "position_bias"):
            if call.options.get(option) is not None:
                raise InputError(
                    f"attention peaks do not know what {option!r} does to attention scores; use a "
                    "decoder without it (a paged cache belongs to continuous batching: use "
                    "generate())."
                )
        batch, heads, queries, width = call.query.shape
        keys, device, mask = call.key.shape[2], call.query.device, call.mask
        softcap = call.options.get("softcap")
        kernel = kernel_of(call.implementation)
        window = call.options.get("sliding_window") if kernel == "flash" else None
        # A sliding-window cache has dropped its oldest keys.
        offset = max(self.past + queries - keys, 0)
        # A mask of zeros and minus infinities needs neither scale nor soft cap, each of which costs
        # a pass over the scores.  Asking synchronises, which a CPU does not mind.
        biased = isinstance(mask, torch.Tensor) and mask.is_floating_point()
        if biased and not self.exact and (device.type == "cpu" or softcap is not None):
            biased = is_additive_bias(mask)

        def added(part: torch.Tensor, start: int, end: int) -> torch.Tensor:
            decoded = decode(
                mask,
                part,
                (start, end),
                kernel=kernel,
                queries=queries,
                keys=keys,
                heads=heads,
                causal=call.causal,
                window=window,
            )
            limit = self.keys.allowed(start + offset, end + offset, device)
            if limit is not None:
                allowed = decoded.allowed & limit[:, None, None]
                decoded = dataclasses.replace(decoded, allowed=allowed)
            return additive(decoded, biased)

        blocks = []
        height = block_height(batch, heads, keys, device)
        for top in range(0, self.rows.height, height):
            bottom = min(top + height, self.rows.height)
            own = self.rows.index[:, top:bottom]
            bounds = outline(
                mask,
                int(own.min()),
                int(own.max()),
                kernel=kernel,
                queries=queries,
                keys=keys,
                causal=call.causal,
                window=window,
            )
            start, end, clear = bounds.start, bounds.end, bounds.clear
            if self.keys.keys is not None:
                start, end = (at - offset for at in self.keys.limit(start + offset, end + offset))
                clear = start
            block = Block((top, bottom), (start, end))
            if clear < end:
                part = index[:, top:bottom]
                block = self._restricted(block, clear, functools.partial(added, part))
            blocks.append(block)
        if not biased and not self.exact:
            return Plan(blocks, offset, None, None, mask)
        return Plan(blocks, offset, width**-0.5 if scale is None else scale, softcap, mask)

    def _restricted(
        self, block: Block, clear: int, added: Callable[[int, int], torch.Tensor]
    ) -> Block:
        """``block`` with what is to be added to its scores from column ``clear`` on."""
        start, end = block.columns
        first = added(clear, end)
        if first.device.type == "cpu":
            # Leave out columns at either end that no row sees.
            seen = (first > float("-inf")).flatten(0, -2).any(dim=0).nonzero()[:, 0]
            left = int(seen[0]) if seen.numel() and clear == start else 0
            right = int(seen[-1]) + 1 if seen.numel() else 0
            first = first[..., left:right]
            # Columns before ``clear`` are seen by every row and stay.
            start, clear, end = start + left, clear + left, clear + right
        columns = (start, end)
        if self._kept + first.numel() <= _KEEP:
            self._kept += first.numel()
            return Block(block.rows, columns, clear, lambda: first)
        return Block(block.rows, columns, clear, lambda: added(clear, end))


def _identity(mask: Any) -> Any:
    """Equal for two views of the same memory, as long as that memory is held."""
    if isinstance(mask, torch.Tensor):
        return mask.data_ptr(), mask.shape, mask.stride(), mask.dtype, mask.device
    return id(mask)
