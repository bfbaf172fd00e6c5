"""Which keys each query of a pass may see, read from whatever an attention kernel was given.

Kernels are told in different ways.  A 4-dimensional boolean mask allows where it is true; a
4-dimensional float mask is added to the scores and forbids where it holds the smallest number of
its dtype; a flex-attention ``BlockMask`` carries a function of indices; and a missing mask means
something else to every kernel.  :class:`Mask` turns all of them into one form, for chosen rows and
a range of columns only, so that no full matrix is built where the kernel needed none;
:class:`Plans` does so once for all layers that were given one and the same mask.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, Literal

import torch

from headscope.errors import InputError
from headscope.lm.attention.scores import Block, block_height
from headscope.lm.interpose import Call

Kernel = Literal["sdpa", "eager", "flash", "flex", "unknown"]

#: Decoded masks are kept for the layers that follow up to this many numbers, else decoded anew.
_KEEP = 1 << 25


def kernel_of(implementation: str) -> Kernel:
    """Which family of kernels an ``attn_implementation`` name belongs to.

    Kernels from the Hub carry their repository in the name (``kernels-community/flash-attn3``).
    """
    if "flash" in implementation:
        return "flash"
    if "flex" in implementation:
        return "flex"
    if implementation in ("sdpa", "eager"):
        return "sdpa" if implementation == "sdpa" else "eager"
    return "unknown"


@dataclasses.dataclass(frozen=True, eq=False)
class Decoded:
    """The keys that rows may see.

    Attributes:
        allowed: bool, broadcastable to (B, H, R, C): R rows and C columns of what was asked for.
        bias: float of the same kind of shape, added to the scaled scores; or ``None``.
    """

    allowed: torch.Tensor
    bias: torch.Tensor | None = None

    def additive(self, keep_bias: bool) -> torch.Tensor:
        """float32 to add to scores: the bias (or 0) where allowed, minus infinity elsewhere."""
        bias = self.bias if keep_bias and self.bias is not None else torch.zeros_like(self.allowed)
        return bias.float().masked_fill(~self.allowed, float("-inf"))


@dataclasses.dataclass(frozen=True, eq=False)
class Mask:
    """An attention mask together with the call that it was given to.

    Rows and columns count from the first query and the first key *of the call*; a cache that has
    dropped old keys shifts them, which is the caller's business.

    Attributes:
        given: ``None``, a tensor, or a flex-attention ``BlockMask``.
        kernel: the kernel's family, see :func:`kernel_of`.
        queries, keys: T and S, their numbers in the call.
        heads: H, number of query heads; matters only to a ``BlockMask`` that differs by head.
        causal: whether the kernel was to be causal where the mask does not say (``is_causal``).
        window: sliding window of a flash kernel, in tokens, the query's own included.
    """

    given: Any
    kernel: Kernel
    queries: int
    keys: int
    heads: int = 1
    causal: bool = True
    window: int | None = None

    @classmethod
    def of(cls, call: Call) -> Mask:
        """The mask of a call of an attention kernel."""
        kernel = kernel_of(call.implementation)
        return cls(
            call.mask,
            kernel,
            queries=call.query.shape[2],
            keys=call.key.shape[2],
            heads=call.query.shape[1],
            causal=call.causal,
            window=call.options.get("sliding_window") if kernel == "flash" else None,
        )

    def decode(self, rows: torch.Tensor, columns: tuple[int, int]) -> Decoded:
        """What rows, int64 (B or 1, R), may see of a range of columns.

        Raises `InputError` for a mask whose meaning under this kernel is not known.
        """
        given, (start, end) = self.given, columns
        if isinstance(given, torch.Tensor) and given.dim() == 4:
            return self._of_matrix(rows, start, end)
        at_key = torch.arange(start, end, device=rows.device)[None, None, :]
        if given is not None and hasattr(given, "mask_mod"):
            return self._of_function(rows, at_key)
        band = self._band()
        if band is None:
            described = (
                "no mask"
                if given is None
                else f"a mask of shape {tuple(getattr(given, 'shape', ()))}"
            )
            raise InputError(
                f"attention peaks cannot tell what {described} means to this attention kernel; "
                'load the model with attn_implementation="sdpa" or "eager".'
            )
        shift, width, causal = band
        place = rows[:, :, None] + shift
        allowed = (at_key < width).expand(*rows.shape, -1)
        if causal:
            allowed = allowed & (at_key <= place)
        if self.window is not None:
            allowed = allowed & (at_key > place - self.window)
        if given is not None:
            allowed = allowed & columns_of(given.bool(), start, end)[:, None, :]
        return Decoded(allowed[:, None])

    def outline(self, first: int, last: int) -> tuple[int, int, int]:
        """Bounds of what the rows ``first .. last`` may see, without looking at a mask's values.

        Returns:
            ``start``, ``end`` and ``clear``: no row sees a key outside ``start .. end - 1``, and
            every row sees all keys before ``clear``.
        """
        band = self._band()
        if band is None:
            return 0, self.keys, 0
        shift, width, causal = band
        start = 0 if self.window is None else max(0, first + shift - self.window + 1)
        end = max(min(last + shift + 1, width), start) if causal else width
        if self.given is not None or self.window is not None:
            return start, end, start
        return start, end, max(start, min(first + shift + 1, end) if causal else end)

    def _band(self) -> tuple[int, int, bool] | None:
        """Where no matrix or function says which keys are seen: how far rows are shifted, how many
        keys there are, and whether a row sees none after its own place; None if it is not known."""
        given = self.given
        if self.kernel == "flash" and (
            given is None or (isinstance(given, torch.Tensor) and given.dim() == 2)
        ):
            # Lower-right: the last query sees the last key. A narrower mask cuts the keys.
            width = self.keys if given is None else min(int(given.shape[1]), self.keys)
            return width - self.queries, width, self.causal
        if given is None and self.kernel in ("sdpa", "eager", "flex"):
            # torch's is_causal is upper-left: the first query sees the first key.
            return 0, self.keys, self.kernel == "sdpa" and self.causal and self.queries > 1
        return None

    def _of_matrix(self, rows: torch.Tensor, start: int, end: int) -> Decoded:
        batch = max(self.given.shape[0], rows.shape[0])
        part = columns_of(self.given, start, end).expand(batch, -1, -1, -1)
        if part.shape[2] == 1:
            chosen = part.expand(-1, -1, rows.shape[1], -1)
        else:
            which = torch.arange(batch, device=part.device)[:, None]
            # Two index tensors with a slice between them put the indexed axes first.
            chosen = part[which, :, rows.expand(batch, -1)].transpose(1, 2)
        if chosen.dtype == torch.bool:
            return Decoded(chosen)
        # Masks are sums of "smallest number" terms, so what forbids lies near or below it.
        return Decoded(chosen > torch.finfo(chosen.dtype).min / 2, chosen)

    def _of_function(self, rows: torch.Tensor, at_key: torch.Tensor) -> Decoded:
        batch = int(self.given.shape[0])
        heads = self.heads if int(self.given.shape[1]) > 1 else 1
        allowed = self.given.mask_mod(
            torch.arange(batch, device=rows.device)[:, None, None, None],
            torch.arange(heads, device=rows.device)[None, :, None, None],
            rows[:, None, :, None],
            at_key[:, None],
        )
        return Decoded(
            allowed.expand(max(batch, rows.shape[0]), heads, rows.shape[1], at_key.shape[-1])
        )


def columns_of(mask: torch.Tensor, start: int, end: int) -> torch.Tensor:
    """``mask[..., start:end]``, with False (or the smallest float) beyond the mask's end."""
    part = mask[..., start:end]
    filler: Any = False if mask.dtype == torch.bool else torch.finfo(mask.dtype).min
    return torch.nn.functional.pad(part, (0, end - start - part.shape[-1]), value=filler)


def is_additive_bias(mask: Any) -> bool:
    """Whether a float mask says more than yes or no, such as ALiBi's slopes.

    Reads the mask, hence synchronises with the device.
    """
    if not isinstance(mask, torch.Tensor) or not mask.is_floating_point():
        return False
    forbidden = mask <= torch.finfo(mask.dtype).min / 2
    return not bool((forbidden | (mask == 0)).all())


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

        Raises `InputError` if one of the rows is among those.
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
        keys: bool (B, S), the keys that count by their place in the padded sequence; None: all.
        past: number of tokens in the cache before the pass.
        exact: whether scores are wanted as softmax takes them, and not only in their order.
    """

    def __init__(self, rows: Rows, keys: torch.Tensor | None, past: int, exact: bool) -> None:
        self.rows, self.keys, self.past, self.exact = rows, keys, past, exact
        self._plans: dict[Any, Plan] = {}
        self._kept = 0
        self._index: dict[torch.device, torch.Tensor] = {}

    def index(self, device: torch.device) -> torch.Tensor:
        """``rows.index`` on a device."""
        if device not in self._index:
            self._index[device] = self.rows.index.to(device, non_blocking=True)
        return self._index[device]

    def shorter(self, left_out: int) -> Plans:
        """The plans of layers that leave out the first positions of the pass."""
        return Plans(self.rows.shifted(left_out), self.keys, self.past + left_out, self.exact)

    def of(self, call: Call) -> Plan:
        """The plan for a call."""
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
            self._plans[name] = self._make(call, scale)
        return self._plans[name]

    def _make(self, call: Call, scale: float | None) -> Plan:
        for option in ("cache", "position_bias"):
            if call.options.get(option) is not None:
                raise InputError(
                    f"attention peaks do not know what {option!r} does to attention scores; use a "
                    "decoder without it (a paged cache belongs to continuous batching: use "
                    "generate())."
                )
        batch, heads, queries, width = call.query.shape
        keys, device, mask = call.key.shape[2], call.query.device, Mask.of(call)
        softcap = call.options.get("softcap")
        # A sliding-window cache has dropped its oldest keys.
        offset = max(self.past + queries - keys, 0)
        # A mask of zeros and minus infinities needs neither scale nor soft cap, each of which costs
        # a pass over the scores.  Asking synchronises, which a CPU does not mind.
        biased = isinstance(call.mask, torch.Tensor) and call.mask.is_floating_point()
        if biased and not self.exact and (device.type == "cpu" or softcap is not None):
            biased = is_additive_bias(call.mask)

        def added(part: torch.Tensor, start: int, end: int) -> torch.Tensor:
            decoded = mask.decode(part, (start, end))
            if self.keys is not None:
                counting = self.keys[:, start + offset :].to(device, non_blocking=True)
                allowed = decoded.allowed & columns_of(counting, 0, end - start)[:, None, None]
                decoded = dataclasses.replace(decoded, allowed=allowed)
            return decoded.additive(biased)

        blocks = []
        height = block_height(batch, heads, keys, device)
        for top in range(0, self.rows.height, height):
            bottom = min(top + height, self.rows.height)
            own = self.rows.index[:, top:bottom]
            start, end, clear = mask.outline(int(own.min()), int(own.max()))
            if self.keys is not None:
                start, end = self._counting(start, end, offset)
                clear = start
            block = Block((top, bottom), (start, end))
            if clear < end:
                part = self.index(device)[:, top:bottom]
                block = self._restricted(block, clear, functools.partial(added, part))
            blocks.append(block)
        if not biased and not self.exact:
            return Plan(blocks, offset, None, None, call.mask)
        return Plan(blocks, offset, width**-0.5 if scale is None else scale, softcap, call.mask)

    def _counting(self, start: int, end: int, offset: int) -> tuple[int, int]:
        """Shrink a range of columns to those that count for some batch row.

        Keys that lie on an accelerator are not read, since that would wait for it.
        """
        if self.keys is None or self.keys.device.type != "cpu":
            return start, end
        columns = self.keys.any(dim=0).nonzero()[:, 0] - offset
        if not len(columns):
            return start, start
        start = max(start, int(columns[0]))
        return start, max(start, min(end, int(columns[-1]) + 1))

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
