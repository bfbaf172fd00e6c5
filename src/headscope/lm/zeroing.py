"""Removing heads the slow way, from the weights: what gates are compared with."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn import functional

from headscope.heads import Head
from headscope.lm.geometry import AttentionSite
from headscope.lm.placement import stored_tensor
from headscope.lm.quantised import dequantised_weight, is_plain
from headscope.lm.sharing.prefix import replaced_forwards


@contextmanager
def changeable_weights(sites: Sequence[AttentionSite]) -> Iterator[dict[int, torch.Tensor]]:
    """Each layer's W_O as a matrix (out, in) that can be changed in place.

    The model's own, where that is one.  A projection that is quantised, or waits in a file, runs
    with a copy of its numbers inside the context.
    """
    from transformers.pytorch_utils import Conv1D

    weights: dict[int, torch.Tensor] = {}
    with contextlib.ExitStack() as stack:
        for site in sites:
            projection: Any = site.projection
            if is_plain(projection) and projection.weight.device.type != "meta":
                own = projection.weight.data
                # Conv1D (GPT-2) holds its weight as (in, out), Linear as (out, in).
                weights[site.layer] = own.T if isinstance(projection, Conv1D) else own
                continue
            weights[site.layer] = dequantised_weight(projection).clone()
            forward = _multiplying(projection, weights[site.layer])
            stack.enter_context(replaced_forwards([projection], forward))
        yield weights


def _multiplying(projection: Any, weight: torch.Tensor) -> Callable[[torch.Tensor], torch.Tensor]:
    bias = getattr(projection, "bias", None)
    if bias is not None:
        bias = stored_tensor(projection, "bias", bias)

    def forward(x: torch.Tensor) -> torch.Tensor:
        own = None if bias is None else bias.to(x.device, x.dtype)
        return functional.linear(x, weight.to(x.dtype), own)

    return forward


@contextmanager
def zeroed(
    sites: Sequence[AttentionSite], weights: dict[int, torch.Tensor], removed: Sequence[Head]
) -> Iterator[None]:
    """Set the slices of W_O of some heads to zero, and put them back."""
    widths = {site.layer: site.head_width for site in sites}
    held = []
    try:
        for head in removed:
            width = widths[head.layer]
            target = weights[head.layer][:, head.head * width : (head.head + 1) * width]
            held.append((target, target.clone()))
            target.zero_()
        yield
    finally:
        for target, before in reversed(held):
            target.copy_(before)
