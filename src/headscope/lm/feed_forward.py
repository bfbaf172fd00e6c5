"""Feed-forward gates: multiply what each layer's feed-forward part writes by a number.

With a gate m a decoder layer gives X + attention(X) + m · FFN(X + attention(X)) (Heads Up!,
appendix C.3.3, equation 5); where attention and feed-forward part work side by side, it gives
X + attention(X) + m · FFN(X).  What is gated is what is *added* to the residual stream, whatever
stands before the addition, so a norm behind the feed-forward part (Gemma 2, OLMo 2) is gated too.
Which module writes it, `headscope.lm.feed_forward_sites` finds out.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import torch

from headscope.errors import InputError
from headscope.lm.feed_forward_sites import (
    FeedForwardSite,
    changed_output,
    feed_forward_sites,
)

if TYPE_CHECKING:
    from headscope.lm.model import LanguageModel

__all__ = ["FeedForwardSite", "feed_forward_gated", "feed_forward_sites"]


@contextlib.contextmanager
def feed_forward_gated(lm: LanguageModel, gate: torch.Tensor) -> Iterator[None]:
    """Multiply each layer's feed-forward contribution by its gate inside the context.

    Contexts nest, with each other and with `gated`; the hooks are removed at the end, also after
    an exception.  A gate of 1 is the identity bit for bit.  As with `gated`, a backward pass has
    to run inside if gradient checkpointing is on.

    Args:
        lm: the model.
        gate: float tensor of shape (L,), one number a decoder layer, which may require grad; or
            (B, L), one row of them a row of the batch.

    Raises:
        InputError: if the shape does not fit, a value is not finite, the feed-forward parts cannot
            be found, or, in the forward pass, if per-row gates meet a batch of another size.
    """
    layers = lm.geometry.layers
    if gate.dim() not in (1, 2) or gate.shape[-1] != layers:
        raise InputError(
            f"The feed-forward gate has shape {tuple(gate.shape)}, but this model needs ({layers},)"
            f" or (rows, {layers}), one number a decoder layer."
        )
    values = gate if gate.is_floating_point() else gate.float()
    if not bool(torch.isfinite(values.detach()).all()):
        raise InputError(
            "The feed-forward gate holds values that are not finite; use numbers, 0 to remove."
        )
    with contextlib.ExitStack() as stack:
        for site in feed_forward_sites(lm):
            own = values[..., site.layer]
            if not own.requires_grad and bool((own == 1).all()):
                continue
            for module in site.modules:
                stack.enter_context(changed_output(module, _scaling(own, site.layer)))
        yield


def _scaling(gate: torch.Tensor, layer: int) -> Callable[[torch.Tensor], torch.Tensor]:
    """Multiplication by a gate of shape () or (B,)."""

    def scale(output: torch.Tensor) -> torch.Tensor:
        factor = gate.to(output.device, output.dtype)
        if gate.dim() == 0:
            return output * factor
        rows = gate.shape[0]
        # Some layers lay rows and tokens one after the other (OPT); then the lengths tell nothing.
        if output.dim() == 2 and output.shape[0] % rows == 0:
            return (output.view(rows, -1, output.shape[-1]) * factor[:, None, None]).view_as(output)
        if output.dim() != 3 or output.shape[0] != rows:
            raise InputError(
                f"A feed-forward gate for {rows} rows met a batch of shape {tuple(output.shape)} "
                f"in layer {layer}; give one gate a row, and generate without beam search and "
                "num_return_sequences, which expand the batch."
            )
        return output * factor[:, None, None]

    return scale
