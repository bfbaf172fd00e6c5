"""Which keys each query may see, read from whatever an attention kernel was given.

Kernels are told in different ways.  A 4-dimensional boolean mask allows where it is true; a
4-dimensional float mask is added to the scores and forbids where it holds the smallest number of
its dtype; a flex-attention ``BlockMask`` carries a function of indices; and a missing mask means
something else to every kernel.  :func:`decode` turns all of them into one form, for chosen rows and
a range of columns only, so that no full matrix is built where the kernel needed none.

Indices in this module count from the first query and the first key *of the call*; a cache that has
dropped old keys shifts them, which is the caller's business.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import torch

from headscope.errors import InputError

Kernel = Literal["sdpa", "eager", "flash", "flex", "unknown"]


@dataclasses.dataclass(frozen=True, eq=False)
class Decoded:
    """The keys that rows may see.

    Attributes:
        allowed: bool, broadcastable to (B, H, R, C): R rows and C columns of what was asked for.
        bias: float of the same kind of shape, added to the scaled scores; or ``None``.
    """

    allowed: torch.Tensor
    bias: torch.Tensor | None = None


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


def decode(
    mask: Any,
    rows: torch.Tensor,
    columns: tuple[int, int],
    *,
    kernel: Kernel,
    queries: int,
    keys: int,
    heads: int = 1,
    causal: bool = True,
    window: int | None = None,
) -> Decoded:
    """Decode an attention mask for some rows and a range of columns.

    Args:
        mask: what the kernel was given: ``None``, a tensor, or a flex-attention ``BlockMask``.
        rows: int64 (B, R), indices of queries in ``0 .. queries - 1``; B may be 1.
        columns: first column and the one after the last, in ``0 .. keys``.
        kernel: the kernel's family, see :func:`kernel_of`.
        queries: T, number of queries of the call.
        keys: S, number of keys of the call.
        heads: H, number of query heads; matters only to a ``BlockMask`` that differs by head.
        causal: whether the kernel was to be causal where the mask does not say (``is_causal``).
        window: sliding window of a flash kernel, in tokens, the query's own included.

    Raises:
        InputError: for a mask whose meaning under this kernel is not known.
    """
    start, end = columns
    if isinstance(mask, torch.Tensor) and mask.dim() == 4:
        return _from_matrix(mask, rows, start, end)
    at_key = torch.arange(start, end, device=rows.device)[None, None, :]
    if mask is not None and hasattr(mask, "mask_mod"):
        return _from_function(mask, rows, at_key, heads)
    query = rows[:, :, None]
    if kernel == "flash" and (mask is None or (isinstance(mask, torch.Tensor) and mask.dim() == 2)):
        # Lower-right: the last query sees the last key. A mask narrower than the keys cuts them.
        last = keys if mask is None else min(int(mask.shape[1]), keys)
        position = query + (last - queries)
        allowed = (at_key <= position) & (at_key < last) if causal else at_key < last
        if window is not None:
            allowed = allowed & (at_key > position - window)
        if mask is not None:
            allowed = allowed & _columns(mask.bool(), start, end)[:, None, :]
        return Decoded(_with_head_axis(allowed, rows, end - start))
    if mask is None and kernel == "sdpa" and causal and queries > 1:
        # torch's is_causal is upper-left: the first query sees the first key.
        return Decoded(_with_head_axis(at_key <= query, rows, end - start))
    if mask is None and kernel in ("sdpa", "eager", "flex"):
        return Decoded(_with_head_axis(at_key >= 0, rows, end - start))
    described = (
        "no mask" if mask is None else f"a mask of shape {tuple(getattr(mask, 'shape', ()))}"
    )
    raise InputError(
        f"attention peaks cannot tell what {described} means to this attention kernel; load the "
        'model with attn_implementation="sdpa" or "eager".'
    )


def _with_head_axis(allowed: torch.Tensor, rows: torch.Tensor, width: int) -> torch.Tensor:
    shape = (max(rows.shape[0], allowed.shape[0]), rows.shape[1], width)
    return allowed.expand(shape)[:, None]


def _columns(mask: torch.Tensor, start: int, end: int) -> torch.Tensor:
    """``mask[..., start:end]``, with False (or the smallest float) beyond the mask's end."""
    part = mask[..., start:end]
    missing = (end - start) - part.shape[-1]
    if missing <= 0:
        return part
    filler: Any = False if mask.dtype == torch.bool else torch.finfo(mask.dtype).min
    return torch.nn.functional.pad(part, (0, missing), value=filler)


def _from_matrix(mask: torch.Tensor, rows: torch.Tensor, start: int, end: int) -> Decoded:
    batch = max(mask.shape[0], rows.shape[0])
    part = _columns(mask, start, end).expand(batch, -1, -1, -1)
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


def _from_function(mask: Any, rows: torch.Tensor, at_key: torch.Tensor, heads: int) -> Decoded:
    batch, heads = int(mask.shape[0]), heads if int(mask.shape[1]) > 1 else 1
    device = rows.device
    allowed = mask.mask_mod(
        torch.arange(batch, device=device)[:, None, None, None],
        torch.arange(heads, device=device)[None, :, None, None],
        rows[:, None, :, None],
        at_key[:, None],
    )
    shape = (max(batch, rows.shape[0]), heads, rows.shape[1], at_key.shape[-1])
    return Decoded(allowed.expand(shape))


def is_additive_bias(mask: Any) -> bool:
    """Whether a float mask says more than yes or no, such as ALiBi's slopes.

    Reads the mask, hence synchronises with the device.
    """
    if not isinstance(mask, torch.Tensor) or not mask.is_floating_point():
        return False
    forbidden = mask <= torch.finfo(mask.dtype).min / 2
    return not bool((forbidden | (mask == 0)).all())


def additive(decoded: Decoded, keep_bias: bool) -> torch.Tensor:
    """float32 tensor to add to scores: the bias (or 0) where allowed, minus infinity elsewhere."""
    forbidden = torch.tensor(float("-inf"), device=decoded.allowed.device)
    if keep_bias and decoded.bias is not None:
        return torch.where(decoded.allowed, decoded.bias.float(), forbidden)
    return torch.where(decoded.allowed, torch.zeros_like(forbidden), forbidden)


@dataclasses.dataclass(frozen=True)
class Outline:
    """Columns that some row of a block may see, known without looking at a mask's values.

    No row sees a key outside ``start .. end - 1``; every row sees all keys before ``clear``.
    """

    start: int
    end: int
    clear: int


def outline(
    mask: Any,
    first: int,
    last: int,
    *,
    kernel: Kernel,
    queries: int,
    keys: int,
    causal: bool = True,
    window: int | None = None,
) -> Outline:
    """Bound the columns that the rows ``first .. last`` may see; arguments as in :func:`decode`."""
    if kernel == "flash" and (mask is None or (isinstance(mask, torch.Tensor) and mask.dim() == 2)):
        width = keys if mask is None else min(int(mask.shape[1]), keys)
        shift = width - queries
        start = 0 if window is None else max(0, first + shift - window + 1)
        end = max(min(last + shift + 1, width), start) if causal else width
        clear = min(first + shift + 1, end) if causal and mask is None and window is None else start
        return Outline(start, end, max(clear, start))
    if mask is None and kernel == "sdpa" and causal and queries > 1:
        return Outline(0, min(last + 1, keys), min(first + 1, keys))
    if mask is None and kernel in ("sdpa", "eager", "flex"):
        return Outline(0, keys, keys)
    return Outline(0, keys, 0)
