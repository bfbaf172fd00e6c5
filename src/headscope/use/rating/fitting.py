"""How large a batch the memory of a device holds."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from headscope.errors import InputError
from headscope.use.rating.texts import Rating, row_lengths

if TYPE_CHECKING:
    from headscope.heads import Gate
    from headscope.lm.model import LanguageModel

#: Larger batches save nothing: their products keep any device busy.
MOST = 32768


def fitted(lm: LanguageModel, gate: Gate, config: Rating | None = None, most: int = MOST) -> Rating:
    """The configuration with the largest batches that memory holds, found by trying.

    A batch of ``most`` tokens in rows of the longest kind is rated; where it does not fit, half of
    it, and so on. Call it once for a model on a device, before `rate_texts`. Rounding differs
    between batches of different sizes, so results of devices with unlike memory may differ by it.

    Args:
        lm: the model.
        gate: the gate.
        config: the configuration; all but its ``batch_tokens`` stays.
        most: tokens of the first batch tried.

    Raises:
        InputError: if ``most`` does not hold a single row.
        torch.OutOfMemoryError: if memory does not suffice for a single row.
    """
    import torch

    from headscope.lm.batching import in_halves
    from headscope.lm.inputs import evaluating, ordinary_tokens
    from headscope.use.rating.passes import batch_losses, shared_layers

    config = config or Rating()
    longest, _ = row_lengths(lm, config)
    if most < longest:
        raise InputError(
            f"A batch of {most} tokens does not hold a row of {longest}; let it be larger, or "
            "lower max_tokens."
        )
    ordinary = ordinary_tokens(lm.model, lm.tokenizer_or_none) or [0]
    row = [ordinary[place % len(ordinary)] for place in range(longest)]
    shared = shared_layers(lm, gate, config.share)

    def work(places: list[int]) -> None:
        batch_losses(lm, [row] * len(places), [1] * len(places), gate, shared)

    with evaluating(lm.model), torch.no_grad():
        places, _ = next(in_halves([range(most // longest)], work))
    return dataclasses.replace(config, batch_tokens=len(places) * longest)
