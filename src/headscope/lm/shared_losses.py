"""Losses of the same tokens under several gates, with what the passes have in common computed once.

With and without one gate (`losses_with_and_without`) the layers below the gate run once. Under many
(`answer_losses`) the tokens with which all rows begin (shots, the wording of a prompt) are read
once a gate and kept as keys and values; of the rest, the layers below the first that a gate changes
are computed once in all: gates are taken in the order of their first layers, and what enters that
layer is carried along. Rows are padded on the right, so that the distance of a token to those
before it, which sliding windows go by, is the same with a common beginning and without.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from headscope.errors import InputError, out_of_memory
from headscope.heads import Gate
from headscope.lm.batching import MOST_MASKED, Batch, memory_errors, release_memory
from headscope.lm.inputs import evaluating
from headscope.lm.losses import applies_apart, losses_at
from headscope.lm.model import LanguageModel
from headscope.lm.positions import answers_at
from headscope.lm.prefix import Prefix, can_share, record_prefix, replay_prefix
from headscope.lm.replacement import Replacement

#: Largest difference of a loss, in nats, that a common beginning may make in the try-out.
_SAME = {torch.float32: 1e-3, torch.float64: 1e-6}
_SAME_IN_HALF = 0.25


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
    replacement: Replacement | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The losses of the marked tokens of a batch, of the model as it is and under a gate, (N,)
    each.

    In nats, float32, row by row; run this without gradients on a model in evaluation mode. The
    layers below `shared`, where the gate has to be 1, run once for both; with 0 both passes are
    whole, with as many as the model has the second is left out. Sharing changes no bit in a model
    for which `headscope.lm.prefix.can_share` is true at that layer. `replacement` stands in
    the place of what the gate removes (see `headscope.lm.gates.gated`).
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
    with below, lm.gated(gate, replacement):
        return full, losses_at(lm, batch, learned)


@dataclasses.dataclass(frozen=True, eq=False)
class AnswerRow:
    """A row of tokens, and the places whose losses are wanted: ascending, each at least 1."""

    ids: tuple[int, ...]
    places: NDArray[np.intp]


def answer_losses(
    lm: LanguageModel,
    rows: Sequence[AnswerRow],
    gates: Sequence[Gate],
    replacements: Sequence[Replacement | None] | None = None,
    batch_tokens: int = 8192,
) -> Iterator[tuple[int, list[NDArray[np.float32]]]]:
    """The losses of the wanted tokens of every row under each gate, one gate after the other.

    Raises `InputError` if a row is longer than the context or none of its tokens is wanted.

    Args:
        gates: in any order; they come back by the first layer that they change.
        replacements: for each gate what stands in the place of what it removes, as for
            `LanguageModel.gated`, or None for zero. The first wanted token of a row is where its
            answer begins.
        batch_tokens: upper bound of a padded batch's size; halved where memory does not suffice.

    Yields:
        The place of a gate in `gates`, and for each row its losses, float32, in nats.
    """
    lm.check_lengths([row.ids for row in rows])
    for number, row in enumerate(rows):
        if not len(row.places) or int(row.places[0]) < 1:
            raise InputError(f"Row {number} has no answer behind a first token.")
    waiting = sorted(range(len(gates)), key=lambda at: (first_changed_layer(gates[at]), at))
    passes: _Passes | None = None
    while waiting:
        try:
            with memory_errors(), evaluating(lm.model), torch.no_grad():
                passes = passes or _Passes(lm, rows, batch_tokens)
                own = None if replacements is None else replacements[waiting[0]]
                losses = passes.losses(gates[waiting[0]], own)
        except torch.OutOfMemoryError:
            if batch_tokens <= max(len(row.ids) for row in rows):
                raise
        else:
            yield waiting.pop(0), losses
            continue
        passes, batch_tokens = None, batch_tokens // 2
        release_memory()


class _Passes:
    """The batches of some rows, and what the layers below `layer` make of them."""

    def __init__(self, lm: LanguageModel, rows: Sequence[AnswerRow], batch_tokens: int) -> None:
        self.lm, self.rows = lm, rows
        # A beginning that is read alone is a short row.
        longest = max(len(row.ids) for row in rows)
        self.begin = _common(rows) if longest <= lm.longest_shared else 0
        if (longest - self.begin) * longest > MOST_MASKED:
            self.begin = 0
        self.plain: Any = None
        if self.begin and not self._continues():
            self.begin = 0
        if self.begin:
            self.plain = self._read()
        lengths = [len(row.ids) - self.begin for row in rows]
        longest = max(lengths)
        # Keys and values of the beginning are held for every row.
        size = max(longest, batch_tokens * longest // (longest + self.begin))
        self.buckets = lm.buckets(lengths, size)
        self.shares = can_share(lm)
        # Tried out here, since nothing may be replayed meanwhile.
        applies_apart(lm, self._batch(self.buckets[0], None))
        self.layer = 0
        self.below: list[Prefix] = []

    def losses(
        self, gate: Gate, replacement: Replacement | None = None
    ) -> list[NDArray[np.float32]]:
        """The losses of each row under a gate; its first layer is not below that of the last."""
        if self.shares:
            self._advance(min(first_changed_layer(gate), self.lm.geometry.layers - 1))
        losses: list[NDArray[np.float32]] = [np.zeros(0, np.float32)] * len(self.rows)
        with self.lm.gated(gate, replacement):
            cache = self._read() if self.begin else None
            for number, bucket in enumerate(self.buckets):
                with self._replayed(number):
                    for at, values in zip(bucket, self._bucket(bucket, cache), strict=True):
                        losses[at] = values
        return losses

    def _advance(self, layer: int) -> None:
        """Carry what enters a layer on to a higher one."""
        if layer <= self.layer:
            return
        below = []
        for number, bucket in enumerate(self.buckets):
            with record_prefix(self.lm, layer, stop=True) as recording, self._replayed(number):
                batch = self._batch(bucket, self.plain)
                self.lm.forward(batch, logits=False)
            below.append(recording.prefix())
        self.layer, self.below = layer, below

    def _replayed(self, number: int) -> contextlib.AbstractContextManager[None]:
        if not self.layer:
            return contextlib.nullcontext()
        return replay_prefix(self.lm, self.below[number], last=True)

    def _read(self) -> Any:
        """Keys and values of the common beginning, under whatever gate is active."""
        batch = self.lm.collate([self.rows[0].ids[: self.begin]])
        with answers_at([self.begin]):
            return self.lm.forward(batch, logits=False, use_cache=True).past_key_values

    def _batch(self, bucket: Sequence[int], cache: Any) -> Batch:
        """What follows the common beginning, padded on the right."""
        begin = 0 if cache is None else self.begin
        rows = [self.rows[at].ids[begin:] for at in bucket]
        width = max(map(len, rows))
        ids = torch.full((len(rows), width), self.lm.pad_token_id)
        mask = torch.zeros((len(rows), begin + width), dtype=torch.long)
        for at, row in enumerate(rows):
            ids[at, : len(row)] = torch.tensor(row)
            mask[at, : begin + len(row)] = 1
        positions = torch.arange(begin, begin + width).expand(len(rows), width)
        if cache is not None:
            cache = copy.deepcopy(cache)
            cache.batch_repeat_interleave(len(rows))
        return Batch(ids, mask, positions, cache)

    def _bucket(self, bucket: Sequence[int], cache: Any) -> list[NDArray[np.float32]]:
        batch = self._batch(bucket, cache)
        wanted = torch.zeros(batch.input_ids.shape, dtype=torch.bool)
        for at, row in enumerate(bucket):
            places = self.rows[row].places - (0 if cache is None else self.begin)
            wanted[at, torch.from_numpy(places)] = True
        with answers_at([int(self.rows[at].places[0]) for at in bucket]):
            flat = losses_at(self.lm, batch, wanted).cpu().numpy()
        return np.split(flat, np.cumsum([len(self.rows[at].places) for at in bucket])[:-1])

    def _continues(self) -> bool:
        """Whether rows after a kept beginning have the losses of whole rows, tried on two rows."""
        by_length = sorted(range(len(self.rows)), key=lambda at: len(self.rows[at].ids))
        tried = sorted({by_length[0], by_length[-1]})
        # Each without padding, whose mask would be a matrix of whole rows.
        whole = [self._bucket([at], None)[0] for at in tried]
        try:
            kept = self._bucket(tried, self._read())
        except (AttributeError, KeyError, IndexError, TypeError, ValueError, RuntimeError) as error:
            if out_of_memory(error):
                raise
            return False  # models whose cache is of another kind
        allowed = _SAME.get(self.lm.dtype, _SAME_IN_HALF)
        return all(
            bool((np.abs(first - other) <= allowed).all())
            for first, other in zip(whole, kept, strict=True)
        )


def _common(rows: Sequence[AnswerRow]) -> int:
    """With how many tokens all rows begin, what predicts a wanted token left out."""
    columns = zip(*(row.ids for row in rows), strict=False)
    alike = sum(1 for _ in takewhile(lambda column: len(set(column)) == 1, columns))
    return min(alike, *(int(row.places[0]) - 1 for row in rows))
