"""Hidden states layer by layer: what stands in the residual stream at chosen tokens.

What enters the first layer, what stands there after each layer's attention (Heads Up!, ICML 2025,
figure 4: the outputs of attention layers) and what each layer hands on.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import nn

from headscope.errors import InputError
from headscope.lm.batching import collate, length_buckets
from headscope.lm.geometry import hidden_states_of
from headscope.lm.inputs import evaluating, forward_inputs
from headscope.lm.memory import in_halves
from headscope.lm.model import LanguageModel
from headscope.lm.residual import input_of, reading_places


@dataclasses.dataclass(frozen=True, eq=False)
class States:
    """The residual stream of n rows at one token each; all float32, on the CPU.

    Attributes:
        after_attention: (n, L, D), the layer's input plus what its attention wrote (see
            `headscope.lm.residual`; in layers without attention heads: what mixes tokens there).
        after_layer: (n, L, D), what each layer hands on, before any final norm.
        embedding: (n, D), what enters the first layer.
    """

    after_attention: torch.Tensor
    after_layer: torch.Tensor
    embedding: torch.Tensor


def states(
    lm: LanguageModel,
    ids: Sequence[Sequence[int]],
    positions: Sequence[int] | None = None,
    batch_tokens: int = 8192,
    progress: Callable[[int, int], None] | None = None,
) -> States:
    """Hidden states at one token of each row, under whatever gates are active.

    Args:
        lm: the model.
        ids: rows of token ids, at least one, none empty.
        positions: which token of each row, negative ones from its end; None: the last.
        batch_tokens: upper bound of rows × tokens of a batch; a batch that does not fit into
            memory is tried again in halves.
        progress: called with the number of rows done, and n.

    Raises:
        InputError: if a row is empty, longer than the context, or lacks the position; or if the
            model's layers cannot be read (see `headscope.lm.residual.reading_places`).
    """
    rows = [list(row) for row in ids]
    places = _places(lm, rows, positions)
    reading_places(lm)  # found before a gate's batch is on its way
    kept: dict[int, tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = {}
    buckets = length_buckets([len(row) for row in rows], batch_tokens, lm.pass_overhead)

    def read(part: list[int]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        return _read(lm, [rows[i] for i in part], [places[i] for i in part])

    for part, found in in_halves(buckets, read):
        kept.update(zip(part, zip(*found, strict=True), strict=True))
        if progress:
            progress(len(kept), len(rows))
    after_attention, after_layer, embedding = zip(
        *(kept[index] for index in range(len(rows))), strict=True
    )
    return States(torch.stack(after_attention), torch.stack(after_layer), torch.stack(embedding))


def _places(
    lm: LanguageModel, rows: Sequence[Sequence[int]], positions: Sequence[int] | None
) -> list[int]:
    """The token of each row counted from 0, checked."""
    if not rows:
        raise InputError("Hidden states of no rows were asked for; give at least one.")
    wanted = [-1] * len(rows) if positions is None else list(positions)
    if len(wanted) != len(rows):
        raise InputError(f"{len(wanted)} positions were given for {len(rows)} rows; one each.")
    places = []
    for index, (row, place) in enumerate(zip(rows, wanted, strict=True)):
        if len(row) > lm.context_length:
            raise InputError(
                f"Row {index} has {len(row)} tokens, but the model reads at most "
                f"{lm.context_length}; shorten it."
            )
        if not -len(row) <= place < len(row):
            raise InputError(f"Row {index} has {len(row)} tokens, so no token {place}.")
        places.append(place % len(row))
    return places


def _read(
    lm: LanguageModel, rows: Sequence[Sequence[int]], places: Sequence[int]
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """After attention (B, L, D), after layers (B, L, D) and embedding (B, D) of one batch."""
    batch = collate(rows, lm.pad_token_id)
    columns = [before + place for before, place in zip(batch.padding, places, strict=True)]
    at = (torch.arange(len(rows)), torch.tensor(columns))
    shape = (len(rows), int(batch.input_ids.shape[1]))
    with evaluating(lm.model), torch.no_grad(), _reading(lm, at, shape) as seen:
        lm.model(**forward_inputs(lm.model, batch, logits=False))
    layers = range(lm.geometry.layers)
    attention = torch.stack([seen.attention(layer) for layer in layers], dim=1)
    return attention, torch.stack([seen.left[layer] for layer in layers], dim=1), seen.entered[0]


@dataclasses.dataclass(eq=False)
class _Seen:
    """What one pass left at the chosen tokens, by layer; float32 (B, D) on the CPU."""

    entered: dict[int, torch.Tensor] = dataclasses.field(default_factory=dict)
    left: dict[int, torch.Tensor] = dataclasses.field(default_factory=dict)
    read: dict[int, torch.Tensor] = dataclasses.field(default_factory=dict)
    written: dict[int, torch.Tensor] = dataclasses.field(default_factory=dict)

    def attention(self, layer: int) -> torch.Tensor:
        if layer in self.read:
            return self.read[layer]
        return self.entered[layer] + self.written[layer]


@contextlib.contextmanager
def _reading(
    lm: LanguageModel, at: tuple[torch.Tensor, torch.Tensor], shape: tuple[int, int]
) -> Iterator[_Seen]:
    seen = _Seen()
    sites = {site.layer: site for site in lm.sites}
    handles: list[Any] = []

    def entering(into: dict[int, torch.Tensor], number: int) -> Callable[..., None]:
        def keep(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            value = input_of(args, kwargs, shape)
            assert value is not None
            into[number] = _taken(value, at)

        return keep

    def leaving(into: dict[int, torch.Tensor], number: int) -> Callable[..., None]:
        def keep(_: nn.Module, args: tuple[Any, ...], output: Any) -> None:
            into[number] = _taken(hidden_states_of(output), at)

        return keep

    def before(module: nn.Module, into: dict[int, torch.Tensor], number: int) -> None:
        hook = entering(into, number)
        handles.append(module.register_forward_pre_hook(hook, with_kwargs=True))

    try:
        layers = zip(lm.decoder_layers, reading_places(lm), strict=True)
        for number, (layer, place) in enumerate(layers):
            if number == 0 or place is None:
                before(layer, seen.entered, number)
            if place is None:
                hook = leaving(seen.written, number)
                handles.append(sites[number].projection.register_forward_hook(hook))
            else:
                before(layer.get_submodule(place), seen.read, number)
            handles.append(layer.register_forward_hook(leaving(seen.left, number)))
        yield seen
    finally:
        for handle in handles:
            handle.remove()


def _taken(value: torch.Tensor, at: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    rows, columns = (index.to(value.device) for index in at)
    return value.detach()[rows, columns].float().cpu()
