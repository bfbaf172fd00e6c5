"""The losses of many rows, in batches that fit into memory and harm none of their rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from headscope.lm.batching import in_halves
from headscope.lm.inputs import probe_batch
from headscope.lm.losses import applies_apart
from headscope.lm.prefix import can_share
from headscope.lm.shared_losses import first_changed_layer, losses_with_and_without

if TYPE_CHECKING:
    from headscope.heads import Gate
    from headscope.lm.model import LanguageModel
    from headscope.lm.replacement import Replacement


class Losses(NamedTuple):
    """The losses of the counted tokens of one row, float32 (N,), in nats."""

    full: NDArray[np.float32]
    removed: NDArray[np.float32]


def shared_layers(lm: LanguageModel, gate: Gate, share: bool = True) -> int:
    """How many layers the passes with and without a gate have in common and may run once.

    All L where the gate is 1 everywhere; none where sharing is not wanted or the model cannot.
    """
    # Found out here on ordinary tokens, before anything is recorded or gated.
    applies_apart(lm, probe_batch(lm.model, lm.tokenizer_or_none))
    layer = first_changed_layer(gate) if share else 0
    if layer < 1 or layer >= lm.geometry.layers:
        return layer
    return layer if can_share(lm, layer) else 0


def batch_losses(
    lm: LanguageModel,
    rows: Sequence[Sequence[int]],
    firsts: Sequence[int],
    gate: Gate,
    shared: int,
    replacement: Replacement | None = None,
) -> list[Losses]:
    """The losses of the rows of one batch; see `row_losses_with_and_without`."""
    batch = lm.collate(rows)
    counts = [len(row) - first for row, first in zip(rows, firsts, strict=True)]
    learned = torch.zeros(batch.input_ids.shape, dtype=torch.bool)
    for at, count in enumerate(counts):
        learned[at, -count:] = True
    pair = losses_with_and_without(lm, batch, learned, gate, shared, replacement)
    cuts = np.cumsum(counts)[:-1]
    parts = [np.split(losses.cpu().numpy(), cuts) for losses in pair]
    return [Losses(*row) for row in zip(*parts, strict=True)]


def row_losses_with_and_without(
    lm: LanguageModel,
    rows: Sequence[Sequence[int]],
    firsts: Sequence[int],
    gate: Gate,
    batch_tokens: int,
    shared: int,
    replacement: Replacement | None = None,
) -> Iterator[tuple[list[int], list[Losses]]]:
    """The losses of rows as they are and under a gate, batch by batch, in the order of the work.

    A batch for which memory does not suffice is halved, and later batches are no larger than what
    went through. A row with a loss that is not finite is done again alone, and so are the others of
    its batch without it: nothing it spoils is theirs. Gives indices of rows with their losses; each
    row occurs once. torch.OutOfMemoryError if memory does not suffice for a single row.

    Args:
        lm: the model, in evaluation mode; run this without gradients.
        rows: tokens of each row, at least two.
        firsts: the first token of each row whose loss counts, at least 1 and below its length.
        gate: the gate.
        batch_tokens: upper bound of a padded batch's size.
        shared: what `shared_layers` gives.
        replacement: what stands in the place of what the gate removes; None: zero.
    """

    def work(places: list[int]) -> list[Losses]:
        tokens, starts = [rows[place] for place in places], [firsts[place] for place in places]
        return batch_losses(lm, tokens, starts, gate, shared, replacement)

    lengths = [len(row) for row in rows]
    waiting = lm.buckets(lengths, batch_tokens)[::-1]
    limit = batch_tokens
    while waiting:
        bucket = waiting.pop()
        size = max(1, limit // lengths[bucket[0]])  # longest rows come first
        if len(bucket) > size:
            waiting += [bucket[at : at + size] for at in range(0, len(bucket), size)][::-1]
            continue
        # Halves are first halves until one fits; the rest waits, so that what is known now counts.
        places, losses = next(in_halves([bucket], work))
        if len(places) < len(bucket):
            limit = len(places) * lengths[bucket[0]]
            waiting.append(bucket[len(places) :])
        finite = [bool(np.isfinite(np.stack(row)).all()) for row in losses]
        bad = [place for place, good in zip(places, finite, strict=True) if not good]
        if not bad or len(places) == 1:
            yield places, losses
            continue
        good = [place for place in places if place not in bad]
        waiting += [*([place] for place in bad), *([good] if good else [])]
