"""Losses of the same tokens with all heads and under a gate, the layers below the gate run once."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from headscope.heads import Gate
from headscope.lm.batching import Batch
from headscope.lm.losses import losses_at
from headscope.lm.model import LanguageModel
from headscope.lm.sharing.prefix import record_prefix, replay_prefix


def first_changed_layer(gate: Gate) -> int:
    """The lowest layer in which a gate is not 1 everywhere; L if there is none."""
    changed = np.flatnonzero((gate.values != 1).any(axis=1))
    return int(changed[0]) if len(changed) else gate.geometry.layers


def losses_with_and_without(
    lm: LanguageModel,
    batch: Batch,
    learned: torch.Tensor,
    gate: Gate,
    shared: int = 0,
    means: NDArray[np.floating[Any]] | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The losses of the marked tokens of a batch, of the model as it is and under a gate.

    Args:
        lm: the model, in evaluation mode; run this without gradients.
        batch: rows padded on the left.
        learned: bool (B, T): the tokens wanted, as for `headscope.lm.losses.losses_at`.
        gate: the gate.
        shared: run the layers below this one once for both; 0 for two whole passes. The gate has
            to be 1 below it. With as many as the model has layers the second pass is left out.
        means: what takes the place of what the gate removes (see `headscope.lm.gates.gated`);
            None: zero.

    Returns:
        Two float32 tensors (N,) in nats, row by row. Sharing changes no bit of them in a model for
        which `headscope.lm.sharing.prefix.can_share` is true at that layer.
    """
    if shared >= lm.geometry.layers:
        full = losses_at(lm, batch, learned)
        return full, full
    if not shared:
        full = losses_at(lm, batch, learned)
        below: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
    else:
        with record_prefix(lm, shared) as recording:
            full = losses_at(lm, batch, learned)
        below = replay_prefix(lm, recording.prefix())
    with below, lm.gated(gate, "zero" if means is None else "mean", means):
        return full, losses_at(lm, batch, learned)
