"""From weights to the gates of one step: noise, temperature, and the straight-through gate.

Everything drawn at random follows from the seed and the step alone, so a training that is resumed
at some step draws what it would have drawn without the break.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

# Streams of random numbers that have nothing to do with each other.
_START, _ORDER, _NOISE = 0, 1, 2


def starting_weights(seed: int, count: int, mean: float, spread: float) -> NDArray[np.float32]:
    """Weights before the first step: normal, float32 (count,)."""
    rng = np.random.default_rng((seed, _START))
    return rng.normal(mean, spread, count).astype(np.float32)


def rows_of_step(seed: int, step: int, batch: int, samples: int) -> list[int]:
    """The samples of a step: all samples in a random order, then all in another, and so on."""
    first = step * batch
    rows: list[int] = []
    for epoch in range(first // samples, (first + batch - 1) // samples + 1):
        order = np.random.default_rng((seed, _ORDER, epoch)).permutation(samples)
        begin, end = first - epoch * samples, first + batch - epoch * samples
        rows += order[max(0, begin) : max(0, end)].tolist()
    return rows


def gumbel_noise(seed: int, step: int, batch: int, count: int) -> NDArray[np.float32]:
    """Left-tailed Gumbel noise G = log(-log U), float32 (batch, count): each sample has its own U.

    U is uniform between 0 and 1, both excluded.  The mean of G is -0.5772 (Euler's constant).
    """
    uniform = np.random.default_rng((seed, _NOISE, step)).random((batch, count))
    tiny = np.finfo(np.float64).tiny
    return np.log(-np.log(np.maximum(uniform, tiny))).astype(np.float32)


def straight_through(
    weights: torch.Tensor, noise: torch.Tensor, temperature: float
) -> torch.Tensor:
    """Gates that are 0 or 1 forward and soft backward (Heads Up!, equation 3).

    With p = σ((M + G) / τ) the value is exactly 1 where p ≥ 0.5 and 0 elsewhere; the gradient is
    that of p.

    Args:
        weights: M, any shape.
        noise: G, of the same shape or with further dimensions in front.
        temperature: τ.
    """
    soft = torch.sigmoid((weights + noise) / temperature)
    hard = (soft.detach() >= 0.5).to(soft.dtype)
    # The bracket is exactly 0, so the value is exactly `hard`.
    return hard + (soft - soft.detach())
