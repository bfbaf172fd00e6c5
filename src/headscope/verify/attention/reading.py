"""How much of the attention that heads pay to an example's candidates goes to the right one.

After Heads Up! (ICML 2025), table 7: the attention of the last input token on the candidates'
tokens, normalised over them, summed over the tokens of the target. Weights are exact, and no
attention matrix is formed (`headscope.lm.attention.weights`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from headscope.lm.attention.weights import WeightRequest
from headscope.lm.batching import collate, in_halves, length_buckets
from headscope.lm.inputs import evaluating, forward_inputs
from headscope.verify.attention.places import Placed

if TYPE_CHECKING:
    from headscope.lm import LanguageModel

Shares = tuple[NDArray[np.float32], NDArray[np.float32]]


def target_shares(
    lm: LanguageModel,
    prompts: Sequence[Placed],
    batch_tokens: int = 8192,
    progress: Callable[[int, int], None] | None = None,
) -> Shares:
    """Shares on the target, and attention on all candidates, under whatever gates are active.

    Returns:
        Two float32 arrays (n, L, W). The first is NaN where there is no head, or where a head's
        attention on all candidates is 0 (a sliding window that ends before them, for example).

    Raises:
        InputError: as `headscope.lm.attention.weights.attention_weights`.
    """
    shape = (len(prompts), *lm.geometry.shape)
    share = np.full(shape, np.nan, dtype=np.float32)
    mass = np.full(shape, np.nan, dtype=np.float32)
    heads = tuple(lm.geometry.heads())
    layers = np.array([head.layer for head in heads])
    places = np.array([head.head for head in heads])
    buckets = length_buckets([len(one.ids) for one in prompts], batch_tokens, lm.pass_overhead)
    done = 0
    for rows, (target, every) in in_halves(
        buckets, lambda rows: _masses(lm, [prompts[row] for row in rows])
    ):
        at = np.array(rows)[:, None]
        mass[at, layers, places] = every
        with np.errstate(invalid="ignore", divide="ignore"):
            share[at, layers, places] = np.where(every > 0, target / every, np.nan)
        done += len(rows)
        if progress:
            progress(done, len(prompts))
    return share, mass


def _masses(
    lm: LanguageModel, prompts: Sequence[Placed]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Attention on the target and on all candidates, float64 (B, N), from one pass."""
    batch = collate([one.ids for one in prompts], lm.pad_token_id)
    widest = max(len(one.target) + len(one.others) for one in prompts)
    keys = torch.full((len(prompts), widest), -1, dtype=torch.int64)
    right = np.zeros((len(prompts), 1, widest))
    for row, (one, before) in enumerate(zip(prompts, batch.padding, strict=True)):
        own = [before + place for place in (*one.target, *one.others)]
        keys[row, : len(own)] = torch.tensor(own)
        right[row, 0, : len(one.target)] = 1
    request = WeightRequest(keys, rows="last")
    inputs = forward_inputs(lm.model, batch, logits=False)
    with evaluating(lm.model), torch.no_grad(), lm.attention_weights(request) as found:
        lm.model(**inputs)
    weights = found.weights.cpu().double().numpy()
    return (weights * right).sum(axis=-1), weights.sum(axis=-1)
