"""Mean outputs of heads over a reference text, for mean ablation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch

from headscope.errors import InputError
from headscope.lm.batching import collate, length_buckets
from headscope.lm.geometry import AttentionSite
from headscope.lm.inputs import evaluating, forward_inputs

if TYPE_CHECKING:
    from headscope.lm.model import LanguageModel

__all__ = ["head_means"]


class _Sums:
    """Running sums in 64 bits of what enters each projection, padding left out."""

    def __init__(self, lm: LanguageModel) -> None:
        self.sums = {
            site.layer: torch.zeros(
                site.heads * site.head_width, dtype=torch.float64, device=lm.device
            )
            for site in lm.sites
        }
        self.mask: torch.Tensor | None = None

    def hook(self, site: AttentionSite) -> Any:
        def add(_: torch.nn.Module, args: tuple[Any, ...]) -> None:
            x, mask = args[0], self.mask
            assert mask is not None
            real = x.reshape(-1, x.shape[-1])[mask.to(x.device).reshape(-1)]
            # Layers may lie on different devices; the small sums are kept in one place.
            total = real.sum(dim=0, dtype=torch.float64)
            self.sums[site.layer] += total.to(self.sums[site.layer].device)

        return add


def head_means(
    lm: LanguageModel, texts: Sequence[str], batch_tokens: int = 4096
) -> npt.NDArray[np.float32]:
    """Mean of every head's output ``A V`` (before W_O) over all tokens of ``texts``.

    Each token counts once; padding does not count.  Texts are tokenised as the tokenizer does by
    itself and cut at the model's context.

    Args:
        lm: the model.
        texts: reference texts; empty ones are left out.
        batch_tokens: upper bound of a padded batch's size.

    Returns:
        Shape (L, W, D), float32, D the widest head; zero where there is no head or channel.

    Raises:
        InputError: if no text holds a token.
    """
    rows = [lm.encode(text)[: lm.context_length] for text in texts]
    rows = [row for row in rows if row]
    if not rows:
        raise InputError("The reference text for mean ablation is empty; give at least one text.")
    sums = _Sums(lm)
    handles = [site.projection.register_forward_pre_hook(sums.hook(site)) for site in lm.sites]
    try:
        with evaluating(lm.model), torch.no_grad():
            for bucket in length_buckets(
                [len(row) for row in rows], batch_tokens, lm.pass_overhead
            ):
                batch = collate([rows[i] for i in bucket], lm.pad_token_id)
                sums.mask = batch.attention_mask.bool()
                lm.model(**forward_inputs(lm.model, batch, logits=False))
    finally:
        for handle in handles:
            handle.remove()
    tokens = sum(len(row) for row in rows)
    widest = max(site.head_width for site in lm.sites)
    means = np.zeros((lm.geometry.layers, lm.geometry.width, widest), dtype=np.float32)
    for site in lm.sites:
        mean = (sums.sums[site.layer] / tokens).view(site.heads, site.head_width)
        means[site.layer, : site.heads, : site.head_width] = mean.cpu().numpy()
    return means
