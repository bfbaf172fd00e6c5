"""Hidden states layer by layer: what stands in the residual stream at last tokens.

What enters the first layer, what stands there after each layer's attention (Heads Up!, ICML 2025,
figure 4: the outputs of attention layers) and what each layer hands on.

A decoder layer adds what its attention writes to the residual stream x, and then (or at the same
time) what its feed-forward part writes. The state *after attention* is x + attention, whatever
stands before the addition (a norm of the attention's output, a factor) included.

* One after the other: it is what the norm before the feed-forward part reads. That module is found
  by trying: with every W_O writing zeros, it reads exactly the layer's own input, and without, it
  does not.
* Side by side (GPT-NeoX, Cohere, Falcon, Phi): nothing reads x + attention, so it is computed from
  the layer's input and the output of W_O. This is right if the feed-forward part does not see the
  attention, which is checked: silencing W_O must change the layer's output by W_O's output.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import nn

from headscope.errors import InputError
from headscope.lm.geometry import AttentionSite, hidden_states_of
from headscope.lm.hooks import changed_output, hooked, once_a_model
from headscope.lm.inputs import evaluating, probe_pass
from headscope.lm.model import LanguageModel


@dataclasses.dataclass(frozen=True, eq=False)
class States:
    """The residual stream of n rows at the last token of each; all float32, on the CPU.

    Attributes:
        after_attention: (n, L, D), the layer's input plus what its attention wrote (in layers
            without attention heads: what mixes tokens there).
        after_layer: (n, L, D), what each layer hands on, before any final norm.
        embedding: (n, D), what enters the first layer.
    """

    after_attention: torch.Tensor
    after_layer: torch.Tensor
    embedding: torch.Tensor


def states(
    lm: LanguageModel,
    rows: Sequence[Sequence[int]],
    batch_tokens: int = 8192,
) -> States:
    """Hidden states at the last token of each row, under whatever gates are active.

    Raises `InputError` if there is no row, one is empty or longer than the context, or the model's
    layers cannot be read (see `reading_places`).
    """
    if not rows:
        raise InputError("Hidden states of no rows were asked for; give at least one.")
    lm.check_lengths(rows)
    reading_places(lm)  # found before a gate's batch is on its way
    kept: dict[int, tuple[torch.Tensor, ...]] = {}
    for part, tensors in lm.in_batches(
        map(len, rows), batch_tokens, lambda part: _read(lm, [rows[at] for at in part])
    ):
        kept.update(zip(part, zip(*tensors, strict=True), strict=True))
    parts = zip(*(kept[index] for index in range(len(rows))), strict=True)
    return States(*(torch.stack(tensors) for tensors in parts))


def _read(lm: LanguageModel, rows: Sequence[Sequence[int]]) -> tuple[torch.Tensor, ...]:
    """After attention (B, L, D), after layers (B, L, D) and embedding (B, D) of one batch."""
    batch = lm.collate(rows)
    shape = (len(rows), int(batch.input_ids.shape[1]))
    with evaluating(lm.model), torch.no_grad(), _reading(lm, shape) as seen:
        lm.forward(batch, logits=False)
    layers = range(lm.geometry.layers)
    attention = torch.stack([seen.attention(layer) for layer in layers], dim=1)
    return attention, torch.stack([seen.left[layer] for layer in layers], dim=1), seen.entered[0]


@dataclasses.dataclass(eq=False)
class _Taken:
    """What one pass left at the last tokens, by layer; float32 (B, D) on the CPU."""

    entered: dict[int, torch.Tensor] = dataclasses.field(default_factory=dict)
    left: dict[int, torch.Tensor] = dataclasses.field(default_factory=dict)
    read: dict[int, torch.Tensor] = dataclasses.field(default_factory=dict)
    written: dict[int, torch.Tensor] = dataclasses.field(default_factory=dict)

    def attention(self, layer: int) -> torch.Tensor:
        """The state after a layer's attention."""
        if layer in self.read:
            return self.read[layer]
        return self.entered[layer] + self.written[layer]


@contextlib.contextmanager
def _reading(lm: LanguageModel, shape: tuple[int, int]) -> Iterator[_Taken]:
    taken = _Taken()
    sites = {site.layer: site for site in lm.sites}

    def take(value: torch.Tensor | None) -> torch.Tensor:
        assert value is not None
        return value.detach()[:, -1].float().cpu()

    def before(module: nn.Module, into: dict[int, torch.Tensor], number: int) -> Any:
        def keep(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            into[number] = take(input_of(args, kwargs, shape))

        return module.register_forward_pre_hook(keep, with_kwargs=True)

    def after(module: nn.Module, into: dict[int, torch.Tensor], number: int) -> Any:
        def keep(_: nn.Module, args: tuple[Any, ...], output: Any) -> None:
            into[number] = take(hidden_states_of(output))

        return module.register_forward_hook(keep)

    def hooks() -> Iterator[Any]:
        layers = zip(lm.decoder_layers, reading_places(lm), strict=True)
        for number, (layer, place) in enumerate(layers):
            if number == 0 or place is None:
                yield before(layer, taken.entered, number)
            if place is None:
                yield after(sites[number].projection, taken.written, number)
            else:
                yield before(layer.get_submodule(place), taken.read, number)
            yield after(layer, taken.left, number)

    with hooked(lm.model, hooks()):
        yield taken


def input_of(
    args: tuple[Any, ...], kwargs: dict[str, Any], shape: tuple[int, int] | None = None
) -> torch.Tensor | None:
    """The tensor a module was called with, or None if it was called with something else.

    With ``shape``, (B, T), it comes as (B, T, D), also where a layer lays rows and tokens one after
    the other (OPT), or None if it holds anything else than a vector for each token.
    """
    first = args[0] if args else kwargs.get("hidden_states")
    if not isinstance(first, torch.Tensor):
        return None
    if shape is None or tuple(first.shape[:2]) == shape:
        return first
    if first.dim() == 2 and first.shape[0] == shape[0] * shape[1]:
        return first.reshape(*shape, -1)
    return None


@once_a_model
def reading_places(lm: LanguageModel) -> tuple[str | None, ...]:
    """For each decoder layer the name, below the layer, of the module that reads x + attention.

    None for a layer whose attention and feed-forward part work side by side: there it is the
    layer's input plus W_O's output. Found with a few passes over a few tokens, once a model. Raises
    `InputError` if a layer does neither.
    """
    sites = {site.layer: site for site in lm.sites}
    plain, silent = _watch(lm), _watch(lm, lm.sites)
    places: dict[int, str | None] = {}
    for layer in sites:
        places[layer] = _reader(plain[layer], silent[layer])
        if places[layer] is None:
            _check_parallel(lm, sites[layer], plain[layer], _watch(lm, [sites[layer]])[layer])
    # Layers that mix tokens by other means than attention are built like their neighbours.
    like = {name for name in places.values() if name is not None}
    for layer in set(range(len(plain))) - set(places):
        names = [name for name in plain[layer].read if name in like]
        if not names:
            raise InputError(
                f"{type(lm.model).__name__}: layer {layer} has no attention heads, and where its "
                "residual stream can be read before the feed-forward part is not known; look at "
                "states after whole layers, or use another model."
            )
        places[layer] = names[0]
    return tuple(places[layer] for layer in range(len(plain)))


@dataclasses.dataclass(eq=False)
class _Seen:
    """One layer's pass: its input and output, W_O's output, and what its modules read after W_O."""

    entered: torch.Tensor | None = None
    left: torch.Tensor | None = None
    written: torch.Tensor | None = None
    read: dict[str, torch.Tensor] = dataclasses.field(default_factory=dict)


def _reader(plain: _Seen, silent: _Seen) -> str | None:
    """The first module after W_O that reads the layer's input if and only if W_O is silent."""
    assert plain.entered is not None and silent.entered is not None
    for name, value in silent.read.items():
        if (
            name in plain.read
            and torch.equal(value, silent.entered)
            and not torch.equal(plain.read[name], plain.entered)
        ):
            return name
    return None


def _check_parallel(lm: LanguageModel, site: AttentionSite, plain: _Seen, silent: _Seen) -> None:
    """Silencing W_O has to change the layer's output by exactly what W_O wrote."""
    assert plain.left is not None and silent.left is not None
    written = plain.written
    change = plain.left.float() - silent.left.float()
    if written is not None and written.shape == change.shape:
        off = float((change - written.float()).abs().max())
        size = float(plain.left.float().abs().max() + written.float().abs().max())
        if off <= (1e-4 if plain.left.dtype == torch.float32 else 3e-2) * size:
            return
    raise InputError(
        f"{type(lm.model).__name__}: nothing in layer {site.layer} reads the residual stream after "
        "attention, and the layer does not add attention and feed-forward part side by side "
        "either, so the state after attention is not known; use another model."
    )


def _watch(lm: LanguageModel, silenced: Iterable[AttentionSite] = ()) -> list[_Seen]:
    """One pass over a few tokens; the output projections of ``silenced`` write zeros in it."""
    layers = lm.decoder_layers
    seen = [_Seen() for _ in layers]
    sites = {site.layer: site for site in lm.sites}

    def hooks() -> Iterator[Any]:
        for site in silenced:
            yield changed_output(site.projection, torch.zeros_like)
        for number, layer in enumerate(layers):
            yield from _watch_layer(seen[number], layer, sites.get(number))

    with hooked(lm.model, hooks()):
        probe_pass(lm, (7,))
    return seen


def _watch_layer(seen: _Seen, layer: nn.Module, site: AttentionSite | None) -> Iterator[Any]:
    """Hooks that fill ``seen``, in the order in which they have to be there."""

    def entering(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        seen.entered = _copy(input_of(args, kwargs))
        if seen.entered is not None and seen.entered.dim() != 3:
            raise InputError(
                f"Layers read hidden states of shape {tuple(seen.entered.shape)} instead of (rows, "
                "tokens, channels), so there is no one residual stream to look at (Gemma 3n has "
                "several a token); use another model."
            )

    def leaving(_: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        seen.left = _copy(hidden_states_of(output))

    def writing(_: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        seen.written = _copy(output)
        seen.read.clear()  # what was read before W_O had written

    def reading(name: str) -> Any:
        def keep(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            if seen.entered is None or name in seen.read:
                return
            rows, tokens, width = seen.entered.shape
            value = _copy(input_of(args, kwargs, (rows, tokens)))
            if value is not None and value.shape[-1] == width:
                seen.read[name] = value

        return keep

    yield layer.register_forward_pre_hook(entering, with_kwargs=True)
    yield layer.register_forward_hook(leaving)
    if site is not None:
        yield site.projection.register_forward_hook(writing)
    for name, module in layer.named_modules():
        if name:
            yield module.register_forward_pre_hook(reading(name), with_kwargs=True)


def _copy(value: torch.Tensor | None) -> torch.Tensor | None:
    # Some layers add to the residual stream in place; neighbours may lie on several devices.
    return None if value is None else value.detach().cpu().clone()
