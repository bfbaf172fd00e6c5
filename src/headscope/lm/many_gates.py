"""One prompt under many gates: its last token, and its continuation, with shared work done once.

Row i of a batch runs under gate i. Rows whose gates agree below a layer have the same hidden states
there, so those layers run on the distinct rows alone, and their outputs are handed on in copies
(`headscope.lm.prefix`). With heads removed one after another in any order that spares
about half of the work: of n rows at most 1 + (heads of the first l layers) are distinct below
layer l.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from headscope.errors import InputError
from headscope.lm.ablation import answers_at
from headscope.lm.batching import Batch
from headscope.lm.generation import Generation, RowStop, generation_of
from headscope.lm.geometry import hidden_states_of
from headscope.lm.hooks import hooked
from headscope.lm.inputs import evaluating
from headscope.lm.model import LanguageModel
from headscope.lm.prefix import Prefix, record_prefix, replay_prefix

#: Rows leave a generation when at least this share of those in the batch has ended.
_LEAVE = 0.15
#: A pass is cut below a layer if that spares at least this share of the rows below it.
_WORTH = 0.25


@dataclasses.dataclass(frozen=True, eq=False)
class LastToken:
    """What a model makes of the last token of a prompt, under each of n gates.

    Attributes:
        logits: float32, shape (n, V).
        states: float32, shape (n, L, D): what each decoder layer hands on, before any final norm.
    """

    logits: torch.Tensor
    states: torch.Tensor


@dataclasses.dataclass(frozen=True, eq=False)
class _Kinds:
    """Rows that are the same below a layer: the first row of each kind, and each row's kind."""

    first: NDArray[np.intp]
    of_row: NDArray[np.intp]


def last_token(
    lm: LanguageModel,
    ids: Sequence[int],
    gates: torch.Tensor,
    share: bool = True,
    means: NDArray[np.floating[Any]] | None = None,
) -> LastToken:
    """Logits and hidden states at the last token of one prompt, under each gate.

    Args:
        lm: the model.
        ids: the tokens of the prompt, at least one.
        gates: shape (n, L, W), one gate a row.
        share: compute lower layers only for gates that differ there. Needs a model for which
            `headscope.lm.prefix.can_share` is true. Logits then differ by rounding, as
            they do between batches of different sizes.
        means: what takes the place of what gates remove (see `headscope.lm.gates.gated`); None:
            zero. All tokens are those of a prompt.
    """
    layers = lm.decoder_layers
    kinds = _kinds(gates) if share else [_all_different(len(gates))] * len(layers)
    ends = [*_cuts(kinds), len(layers)]
    states: list[torch.Tensor] = []
    below: tuple[Prefix, _Kinds] | None = None
    began = 0
    seen: dict[int, torch.Tensor] = {}
    keepers = (layer.register_forward_hook(_keeper(seen, at)) for at, layer in enumerate(layers))
    with evaluating(lm.model), torch.no_grad(), hooked(keepers):
        for end in ends:
            now = kinds[end - 1]
            batch = lm.collate([ids] * len(now.first))
            with contextlib.ExitStack() as stack:
                mine = gates[torch.from_numpy(now.first)]
                stack.enter_context(lm.gated(mine, means=means))
                stack.enter_context(answers_at([len(ids)] * len(now.first)))
                if below is not None:
                    prefix, before = below
                    rows = torch.from_numpy(before.of_row[now.first])
                    stack.enter_context(replay_prefix(lm, prefix.select(rows)))
                if end < len(layers):
                    recording = stack.enter_context(record_prefix(lm, end, stop=True))
                logits = lm.forward(batch, logits=False).logits[:, -1]
            if end < len(layers):
                below = recording.prefix(), now
            states += [_spread(seen[layer], now) for layer in range(began, end)]
            began = end
    first = states[0].device
    stacked = torch.stack([state.to(first) for state in states], dim=1)
    return LastToken(_spread(logits, kinds[-1]), stacked)


def _keeper(seen: dict[int, torch.Tensor], layer: int) -> Callable[..., None]:
    def keep(_: torch.nn.Module, args: tuple[Any, ...], output: Any) -> None:
        seen[layer] = hidden_states_of(output)[:, -1]

    return keep


def _spread(values: torch.Tensor, kinds: _Kinds) -> torch.Tensor:
    """A row for each row of the whole batch, from one for each kind."""
    return values.float().index_select(0, torch.from_numpy(kinds.of_row).to(values.device))


def _kinds(gates: torch.Tensor) -> list[_Kinds]:
    """For each layer l, which rows have the same gates in the layers 0 to l."""
    values = gates.detach().cpu().numpy()
    of_row: NDArray[np.intp] = np.zeros(len(values), dtype=np.intp)
    found = []
    for layer in range(values.shape[1]):
        keys = np.concatenate([of_row[:, None].astype(np.float64), values[:, layer]], axis=1)
        _, first, inverse = np.unique(keys, axis=0, return_index=True, return_inverse=True)
        of_row = inverse.reshape(-1)
        found.append(_Kinds(first, of_row))
    return found


def _all_different(rows: int) -> _Kinds:
    return _Kinds(np.arange(rows), np.arange(rows))


def _cuts(kinds: Sequence[_Kinds]) -> list[int]:
    """Below which layers to cut the pass, ascending; each part runs on its own distinct rows."""
    cuts: list[int] = []
    rows = len(kinds[-1].first)
    for layer in range(len(kinds) - 1, 0, -1):
        fewer = len(kinds[layer - 1].first)
        if fewer <= (1 - _WORTH) * rows:
            cuts.append(layer)
            rows = fewer
    return cuts[::-1]


def continue_rows(
    lm: LanguageModel,
    ids: Sequence[int],
    gates: torch.Tensor,
    limit: int,
    stop_at_newline: bool = True,
    means: NDArray[np.floating[Any]] | None = None,
) -> list[Generation]:
    """Continue one prompt under each gate, in one batch.

    The same as `headscope.lm.generation.generate` of one copy of the prompt a gate, but for
    rounding.

    Args:
        lm: the model.
        ids: the tokens of the prompt, at least one.
        gates: shape (n, L, W), one gate a row.
        limit: new tokens a row may get; no more than the context has room for are taken.
        stop_at_newline: end a row at the first newline that follows some text.
        means: what takes the place of what gates remove (see `headscope.lm.gates.gated`); None:
            zero.

    Raises:
        InputError: if the prompt is empty or fills the context.
    """
    limit = min(limit, lm.context_length - len(ids))
    if not ids or limit < 1:
        raise InputError(
            f"The prompt has {len(ids)} tokens; it needs at least 1 and fewer than the model's "
            f"context of {lm.context_length}."
        )
    done: dict[int, list[int]] = {}
    rows = torch.arange(len(gates))
    written = torch.zeros((len(gates), 0), dtype=torch.long, device=lm.device)
    tokens = torch.tensor([list(ids)] * len(gates), dtype=torch.long, device=lm.device)
    stop = RowStop(lm.stop_table, stop_at_newline, [limit] * len(gates), 0, lm.device)
    ended = torch.zeros(len(gates), dtype=torch.bool, device=lm.device)
    cache: Any = None
    cached = 0
    with evaluating(lm.model), torch.no_grad():
        while len(rows):
            with lm.gated(gates[rows], means=means), answers_at([len(ids)] * len(rows)):
                while float(ended.float().mean()) < _LEAVE:
                    ones = torch.ones_like(tokens[:, :1]).expand(-1, cached + tokens.shape[1])
                    batch = Batch(tokens, ones, ones.cumsum(dim=1)[:, cached:] - 1, cache)
                    output = lm.forward(batch, logits=False, use_cache=True)
                    cache = output.past_key_values
                    cached += tokens.shape[1]
                    tokens = output.logits[:, -1].float().argmax(dim=-1, keepdim=True)
                    written = torch.cat([written, tokens], dim=1)
                    ended |= stop(written, None)
            stay = (~ended).nonzero()[:, 0]
            gone = ended.nonzero()[:, 0].tolist()
            done.update({int(rows[at]): written[at].tolist() for at in gone})
            rows, written = rows[stay.cpu()], written[stay]
            tokens, ended = tokens[stay], ended[stay]
            stop.seen, stop.limits = stop.seen[stay], stop.limits[stay]
            if len(rows):
                cache.reorder_cache(stay)
    return [generation_of(lm, ids, done[row][:limit], stop_at_newline) for row in range(len(gates))]
