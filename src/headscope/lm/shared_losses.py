"""Losses of the same tokens under several gates, with what the passes have in common computed once.

With and without one gate (`losses_with_and_without`) the layers below the gate run once. Under many
(`answer_losses`) the tokens with which all rows begin (shots, the wording of a prompt) are read
once a gate and kept as keys and values; of the rest, the layers below the first that a gate changes
are computed once in all: gates are taken in the order of their first layers, and what enters that
layer is carried along. Few rows are read under several gates at once (`together`), since more rows
of equal length leave less padding. Rows are padded on the right, so that the distance of a token to
those before it, which sliding windows go by, is the same with a common beginning and without.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from itertools import takewhile
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers.cache_utils import DynamicCache, DynamicLayer

from headscope.errors import InputError, out_of_memory
from headscope.heads import Gate
from headscope.lm.batching import MOST_MASKED, Batch, Batches, memory_errors, release_memory
from headscope.lm.gates import gate_tensor
from headscope.lm.hooks import once_a_model
from headscope.lm.inputs import evaluating
from headscope.lm.losses import applies_apart, losses_at
from headscope.lm.model import LanguageModel
from headscope.lm.owners import inner_model
from headscope.lm.positions import answers_at
from headscope.lm.prefix import Prefix, can_share, record_prefix, replay_prefix
from headscope.lm.replacement import Replacement

#: Largest difference of a loss, in nats, that a common beginning may make in the try-out.
_SAME = {torch.float32: 1e-3, torch.float64: 1e-6}
_SAME_IN_HALF = 0.25
#: Tokens behind the beginning of the two rows that are tried.
_TRIED = (5, 8)
#: So many gates are read together at most, of so many tokens.
_GATES, _TOKENS = 8, 1 << 15


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


def together(
    rows: Sequence[AnswerRow],
    gates: Sequence[Gate],
    replacements: Sequence[Replacement | None] | None = None,
) -> list[list[int]]:
    """Places of the gates that `answer_losses` reads together, by the first layer they change.

    Gates of a group have that layer and their replacement in common. Losses under one of them
    depend, by rounding, on the others; of some whole groups, in this order, come the same groups.
    """
    most = max(1, min(_GATES, _TOKENS // sum(len(row.ids) for row in rows)))
    kinds: dict[tuple[int, int], list[int]] = {}
    for at, gate in enumerate(gates):
        own = None if replacements is None else replacements[at]
        kinds.setdefault((first_changed_layer(gate), id(own)), []).append(at)
    groups = [some[at : at + most] for some in kinds.values() for at in range(0, len(some), most)]
    return sorted(groups, key=lambda some: (first_changed_layer(gates[some[0]]), some[0]))


def answer_losses(
    lm: LanguageModel,
    rows: Sequence[AnswerRow],
    gates: Sequence[Gate],
    replacements: Sequence[Replacement | None] | None = None,
    batch_tokens: int = 8192,
    reduce: Callable[[int, NDArray[np.float32]], Any] = lambda row, losses: losses,
    batches: Batches | None = None,
) -> Iterator[tuple[int, list[Any]]]:
    """The losses of the wanted tokens of every row under each gate, one gate after the other.

    Raises `InputError` if a row is longer than the context or none of its tokens is wanted.

    Args:
        gates: in any order; they come back by the groups of `together`.
        replacements: for each gate what stands in the place of what it removes, as for
            `LanguageModel.gated`, or None for zero. The first wanted token of a row is where its
            answer begins.
        batch_tokens: upper bound of a padded batch's size; halved where memory does not suffice.
        reduce: makes of a row, by its place, and its losses what is wanted of them.
        batches: keeps what batches give, and says what is there already.

    Yields:
        The place of a gate in `gates`, and for each row its losses, float32, in nats, reduced.
    """
    lm.check_lengths([row.ids for row in rows])
    for number, row in enumerate(rows):
        if not len(row.places) or int(row.places[0]) < 1:
            raise InputError(f"Row {number} has no answer behind a first token.")
    waiting = together(rows, gates, replacements)
    passes: _Passes | None = None
    while waiting:
        some = waiting[0]
        try:
            with memory_errors(), evaluating(lm.model), torch.no_grad():
                passes = passes or _Passes(lm, rows, batch_tokens)
                own = None if replacements is None else replacements[some[0]]
                losses = passes.losses([gates[at] for at in some], own, reduce, batches, some)
        except torch.OutOfMemoryError:
            if batch_tokens <= max(len(row.ids) for row in rows):
                raise
        else:
            del waiting[0]
            yield from zip(some, losses, strict=True)
            continue
        passes, batch_tokens = None, batch_tokens // 2
        release_memory()


_shares = once_a_model(can_share)


class _Passes:
    """The batches of some rows under several gates, and what the layers below `layer` make of them.

    A batch holds numbers of rows, row r under gate g as g · rows + r.
    """

    def __init__(self, lm: LanguageModel, rows: Sequence[AnswerRow], batch_tokens: int) -> None:
        self.lm, self.rows = lm, rows
        # A beginning that is read alone is a short row.
        longest = max(len(row.ids) for row in rows)
        self.begin = common_beginning(rows) if longest <= lm.longest_shared else 0
        if (longest - self.begin) * longest > MOST_MASKED:
            self.begin = 0
        self.plain: Any = None
        if self.begin and not self._continues():
            self.begin = 0
        if self.begin:
            self.plain = self._read()
        self.lengths = [len(row.ids) - self.begin for row in rows]
        longest = max(self.lengths)
        # Keys and values of the beginning are held for every row.
        self.size = max(longest, batch_tokens * longest // (longest + self.begin))
        self.shares = _shares(lm)
        # Tried out here, since nothing may be replayed meanwhile.
        applies_apart(lm, self._batch([0], None))
        self.gates = 0

    def losses(
        self,
        gates: Sequence[Gate],
        replacement: Replacement | None = None,
        reduce: Callable[[int, NDArray[np.float32]], Any] = lambda row, losses: losses,
        batches: Batches | None = None,
        places: Sequence[int] = (),
    ) -> list[list[Any]]:
        """The losses of each row under each gate, reduced; their first layer is not below that of
        the last ones. `places` are those of the gates among all, for `batches`."""
        places = places or range(len(gates))
        rows = len(self.rows)
        if len(gates) != self.gates:
            self.gates, self.layer = len(gates), 0
            self.buckets = self.lm.buckets(self.lengths * len(gates), self.size)
            self.below: list[tuple[list[int], Prefix]] = []
        if self.shares:
            self._advance(min(*map(first_changed_layer, gates), self.lm.geometry.layers - 1))
        values = torch.stack([gate_tensor(self.lm.geometry, gate) for gate in gates])
        found: list[list[Any]] = [[None] * rows for _ in gates]
        cache = None
        if self.begin:
            with self.lm.gated(values[0] if len(gates) == 1 else values, replacement):
                cache = self._read(len(gates))
        for number, bucket in enumerate(self.buckets):
            named = [(places[at // rows], at % rows) for at in bucket]
            made = batches.kept(named) if batches else None
            if made is None:
                own = values[0] if len(gates) == 1 else values[[at // rows for at in bucket]]
                with self.lm.gated(own, replacement), self._replayed(number, bucket):
                    losses = self._bucket(bucket, cache)
                made = [reduce(row, of_row) for (_, row), of_row in zip(named, losses, strict=True)]
                if batches:
                    batches.keep(named, made)
            for at, of_row in zip(bucket, made, strict=True):
                found[at // rows][at % rows] = of_row
        return found

    def _advance(self, layer: int) -> None:
        """Carry what enters a layer on to a higher one, of every row of a batch once."""
        if layer <= self.layer:
            return
        below = []
        for number, bucket in enumerate(self.buckets):
            rows = [*dict.fromkeys(at % len(self.rows) for at in bucket)]
            with (
                record_prefix(self.lm, layer, stop=True) as recording,
                self._replayed(number, rows),
            ):
                self.lm.forward(self._batch(rows, self.plain), logits=False)
            below.append((rows, recording.prefix()))
        self.layer, self.below = layer, below

    def _replayed(
        self, number: int, bucket: Sequence[int]
    ) -> contextlib.AbstractContextManager[None]:
        if not self.layer:
            return contextlib.nullcontext()
        rows, prefix = self.below[number]
        places = [rows.index(at % len(self.rows)) for at in bucket]
        return replay_prefix(self.lm, prefix.select(places), last=True)

    def _read(self, gates: int = 1) -> Any:
        """Keys and values of the common beginning, as many rows as there are gates active."""
        batch = self.lm.collate([self.rows[0].ids[: self.begin]] * gates)
        with answers_at([self.begin] * gates):
            return self.lm.forward(batch, logits=False, use_cache=True).past_key_values

    def _batch(self, bucket: Sequence[int], cache: Any) -> Batch:
        """What follows the common beginning, padded on the right."""
        begin = 0 if cache is None else self.begin
        rows = [self.rows[at % len(self.rows)].ids[begin:] for at in bucket]
        width = max(map(len, rows))
        ids = torch.full((len(rows), width), self.lm.pad_token_id)
        mask = torch.zeros((len(rows), begin + width), dtype=torch.long)
        for at, row in enumerate(rows):
            ids[at, : len(row)] = torch.tensor(row)
            mask[at, : begin + len(row)] = 1
        positions = torch.arange(begin, begin + width).expand(len(rows), width)
        if cache is not None:
            cache = copy.deepcopy(cache)
            gates = torch.tensor([at // len(self.rows) for at in bucket])
            cache.batch_select_indices(gates.to(self.lm.device))
        return Batch(ids, mask, positions, cache)

    def _bucket(self, bucket: Sequence[int], cache: Any) -> list[NDArray[np.float32]]:
        batch = self._batch(bucket, cache)
        wanted = torch.zeros(batch.input_ids.shape, dtype=torch.bool)
        own = [self.rows[at % len(self.rows)].places for at in bucket]
        for at, places in enumerate(own):
            wanted[at, torch.from_numpy(places - (0 if cache is None else self.begin))] = True
        with answers_at([int(places[0]) for places in own]):
            flat = losses_at(self.lm, batch, wanted).cpu().numpy()
        return np.split(flat, np.cumsum([len(places) for places in own])[:-1])

    def _continues(self) -> bool:
        """Whether rows after a kept beginning have the losses of whole rows, tried on two rows.

        On their first tokens behind it, where every layer keeps the keys of all tokens.
        """
        by_length = sorted(self.rows, key=lambda row: len(row.ids))
        trial = copy.copy(self)
        trial.rows = [by_length[0], by_length[-1]]
        layers = DynamicCache(config=inner_model(self.lm.model).config).layers
        if all(type(layer) is DynamicLayer for layer in layers):
            ends = [
                min(len(row.ids), self.begin + n) for row, n in zip(trial.rows, _TRIED, strict=True)
            ]
            trial.rows = [
                AnswerRow(row.ids[:end], np.arange(self.begin + 1, end))
                for row, end in zip(trial.rows, ends, strict=True)
            ]
        # Each without padding, whose mask would be a matrix of whole rows.
        whole = [trial._bucket([at], None)[0] for at in (0, 1)]
        try:
            kept = trial._bucket([0, 1], trial._read())
        except (AttributeError, KeyError, IndexError, TypeError, ValueError, RuntimeError) as error:
            if out_of_memory(error):
                raise
            return False  # models whose cache is of another kind
        allowed = _SAME.get(self.lm.dtype, _SAME_IN_HALF)
        return all(
            bool((np.abs(first - again) <= allowed).all())
            for first, again in zip(whole, kept, strict=True)
        )


def common_beginning(rows: Sequence[AnswerRow]) -> int:
    """With how many tokens all rows begin, what predicts a wanted token left out."""
    columns = zip(*(row.ids for row in rows), strict=False)
    alike = sum(1 for _ in takewhile(lambda column: len(set(column)) == 1, columns))
    return min(alike, *(int(row.places[0]) - 1 for row in rows))
