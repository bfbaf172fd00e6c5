"""What the model makes of texts that are given: log-probabilities under gates, and attention.

A prompt with its original output, and with its reference, is read once as the model is, and what
every layer returns is kept: under a gate only the layers from the first gated one on compute.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from headscope.data.words import Word, belonging
from headscope.heads import Gate, Head
from headscope.lm.attention.peaks import PeakRequest
from headscope.lm.attention.weights import WeightRequest
from headscope.lm.gates import gate_tensor
from headscope.lm.geometry import hidden_states_of
from headscope.lm.hooks import hooked
from headscope.lm.inputs import evaluating
from headscope.lm.losses import answer_batch, applies_apart, losses_at
from headscope.lm.positions import answers_at
from headscope.lm.prefix import Prefix, replay_prefix

if TYPE_CHECKING:
    from headscope.lm import LanguageModel

#: Bytes of hidden states that are kept of a prompt, at most; of longer ones every layer runs again.
MOST_KEPT = 1 << 28
#: Padded tokens that are read at once under several gates.
AT_ONCE = 1024
#: Rows of more tokens are read one by one.
LONGEST_PADDED = 4096
#: Words of which the weights are told.
TOP_WORDS = 5
#: Output tokens times words of the prompt of which all weights are told, at most.
MOST_WEIGHTS = 2048

Floats = NDArray[np.float64]


class Reading:
    """Rows of tokens as the model reads them without a gate, to be read again under gates.

    ``shares`` says whether the layers below one can be left out of a pass
    (`headscope.lm.prefix.can_share`).

    Attributes:
        log_probabilities: of each row those of the tokens from its start on, float64.
    """

    def __init__(
        self,
        lm: LanguageModel,
        rows: Sequence[tuple[Sequence[int], int]],
        shares: Callable[[int], bool],
    ) -> None:
        self.log_probabilities: list[Floats]
        self._lm, self._rows, self._shares = lm, rows, shares
        lengths = [len(ids) for ids, _ in rows]
        apart = lm.separated(lengths)
        # Padding makes a mask of tokens × tokens.
        if max(lengths) > LONGEST_PADDED:
            apart = [[at] for at in range(len(rows))]
        self._parts = [
            Reading(lm, [rows[at] for at in some], shares) for some in apart[1:] and apart
        ]
        if self._parts:
            self.log_probabilities = [row for part in self._parts for row in part.log_probabilities]
            return
        self._batch, self._learned = answer_batch(lm, rows)
        # Tried out here: later passes have other shapes than a replayed layer could take.
        applies_apart(lm, self._batch)
        self._layers: list[Any] = [None] * lm.geometry.layers
        kept = functools.partial(functools.partial, self._keep)
        layers = enumerate(lm.decoder_layers)
        with hooked(lm.model, (layer.register_forward_hook(kept(at)) for at, layer in layers)):
            self.log_probabilities = self._read(1)[0]
        states = hidden_states_of(self._layers[0])
        if states.numel() * states.element_size() * len(self._layers) > MOST_KEPT:
            self._layers = []

    def under(self, gates: Sequence[Gate]) -> list[list[Floats]]:
        """For each gate the change of the log-probabilities of each row, in nats."""
        if self._parts:
            each = zip(*(part.under(gates) for part in self._parts), strict=True)
            return [list(itertools.chain(*of_gate)) for of_gate in each]
        made: list[list[Floats]] = []
        size = max(1, AT_ONCE // self._batch.input_ids.numel())
        for begin in range(0, len(gates), size):
            some = gates[begin : begin + size]
            tensor = torch.stack([gate_tensor(self._lm.geometry, gate) for gate in some])
            changed = (tensor != 1).any(dim=-1).any(dim=0).nonzero()
            first = int(changed[0]) if len(changed) else self._lm.geometry.layers - 1
            # A gate a row; rows of one gate stand together.
            of_rows = tensor.repeat_interleave(len(self._rows), dim=0)
            with self._replayed(first, len(some)), self._lm.gated(of_rows):
                read = self._read(len(some))
            for values in read:
                pairs = zip(values, self.log_probabilities, strict=True)
                made.append([after - before for after, before in pairs])
        return made

    def _replayed(self, first: int, gates: int) -> contextlib.AbstractContextManager[None]:
        """Layers below the first gated one return what they have returned, where they may."""
        if not first or not self._layers or not self._shares(first):
            return contextlib.nullcontext()
        prefix = Prefix(first, self._layers[first - 1], len(self._rows))
        return replay_prefix(self._lm, prefix.select([*range(len(self._rows))] * gates))

    def _read(self, times: int) -> list[list[Floats]]:
        """The log-probabilities of so many repetitions of the rows, in one pass."""
        lm = self._lm
        rows = [*self._rows] * times
        batch, learned = (self._batch, self._learned) if times == 1 else answer_batch(lm, rows)
        starts = [start for _, start in rows]
        with evaluating(lm.model), torch.no_grad(), answers_at(starts):
            flat = -losses_at(lm, batch, learned).double().cpu().numpy()
        counts = [len(ids) - start for ids, start in rows]
        parts = np.split(flat, np.cumsum(counts)[:-1])
        size = len(self._rows)
        return [parts[begin : begin + size] for begin in range(0, len(parts), size)]

    def _keep(self, layer: int, _: Any, args: tuple[Any, ...], output: Any) -> None:
        self._layers[layer] = output


@dataclass(frozen=True)
class Looks:
    """Where a head looks while an output is written, a row for each of its tokens.

    Attributes:
        peaks: place of the key with the largest weight, counted over prompt and output; -1: none.
        weights: the words of the prompt with the largest weights, highest first, and these.
        every: the weights of all words of the prompt, in order; None of many (`MOST_WEIGHTS`).
    """

    peaks: tuple[int, ...]
    weights: tuple[tuple[tuple[int, float], ...], ...]
    every: list[list[float]] | None = None


def looks(
    lm: LanguageModel,
    head: Head,
    prompt: Sequence[int],
    output: Sequence[int],
    spans: NDArray[np.int64],
    words: Sequence[Word],
    gate: Gate,
) -> Looks:
    """Where ``head`` looks at the steps that predict an output, under a gate.

    The weight of a word is the sum over its tokens; ``spans`` are the characters of the prompt's
    tokens, and words have their places there.
    """
    if not output:
        return Looks((), ())
    ids = [*prompt, *output]
    of_token, of_word = belonging(spans, words)
    keys, of_key = np.unique(of_token, return_inverse=True)
    rows = torch.zeros((1, len(ids)), dtype=torch.bool)
    rows[0, len(prompt) - 1 : -1] = True
    places = torch.from_numpy(keys if len(keys) else np.array([-1]))[None]
    request = WeightRequest(places, (head,), rows)
    with (
        evaluating(lm.model), torch.no_grad(), answers_at([len(prompt)]), lm.gated(gate),
        lm.attention_peaks(PeakRequest(rows)) as peaks, lm.attention_weights(request) as attended,
    ):  # fmt: skip
        lm.forward(lm.collate([ids]), logits=False)
    by_token = attended.weights[:, 0].double().cpu()[:, torch.from_numpy(of_key)]
    none = by_token.new_zeros((len(by_token), len(words)))
    weights = none.index_add_(1, torch.from_numpy(of_word), by_token).numpy()
    order = np.argsort(-weights, axis=1, kind="stable")[:, :TOP_WORDS]
    best = (
        tuple((int(word), float(row[word])) for word in some)
        for row, some in zip(weights, order, strict=True)
    )
    every = weights.tolist() if weights.size <= MOST_WEIGHTS else None
    return Looks(tuple(peaks.keys[:, head.layer, head.head].tolist()), tuple(best), every)
