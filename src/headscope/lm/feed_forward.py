"""Feed-forward gates: multiply what each layer's feed-forward part writes by a number.

With a gate m a decoder layer gives X + attention(X) + m · FFN(X + attention(X)) (Heads Up!,
appendix C.3.3, equation 5); where attention and feed-forward part work side by side, it gives
X + attention(X) + m · FFN(X).  What is gated is what is *added* to the residual stream, whatever
stands before the addition, so a norm behind the feed-forward part (Gemma 2, OLMo 2) is gated too.

Where that is, is found by trying and not by name: with its token mixing silenced, a decoder layer
does nothing but add its feed-forward part to its input.  The module sought is the one whose output,
silenced too, leaves exactly the input, and enters the sum linearly.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from headscope.errors import InputError
from headscope.lm.gates import checked_gate
from headscope.lm.geometry import hidden_states_of
from headscope.lm.hooks import changed_output, hooked, once_a_model
from headscope.lm.inputs import evaluating, probe_pass

if TYPE_CHECKING:
    from headscope.lm.model import LanguageModel


@dataclasses.dataclass(frozen=True, eq=False)
class FeedForwardSite:
    """The feed-forward part of one decoder layer.

    Attributes:
        layer: index of the decoder layer.
        names: qualified names of the modules whose outputs, together, are what the feed-forward
            part adds to the residual stream; one, or two where experts and a shared expert stand
            side by side.
        modules: these modules.
    """

    layer: int
    names: tuple[str, ...]
    modules: tuple[nn.Module, ...]


@once_a_model
def feed_forward_sites(lm: LanguageModel) -> tuple[FeedForwardSite, ...]:
    """Find every decoder layer's feed-forward part; one site a layer, in order of layers.

    Costs one small forward pass and some passes of single layers over seven tokens, once a model.
    Raises `InputError` if a layer's feed-forward part cannot be told apart.
    """
    with evaluating(lm.model), torch.no_grad():
        return tuple(_find(lm))


@contextlib.contextmanager
def feed_forward_gated(lm: LanguageModel, gate: torch.Tensor) -> Iterator[None]:
    """Multiply each layer's feed-forward contribution by its gate, (L,) or (B, L), inside the
    context.

    Contexts nest, with each other and with `gated`. A gate of 1 is the identity bit for bit. As
    with `gated`, a backward pass has to run inside if gradient checkpointing is on. Raises
    `InputError` if the shape does not fit, a value is not finite, the feed-forward parts cannot be
    found, or, in the forward pass, if per-row gates meet a batch of another size.
    """
    values = checked_gate(gate, (lm.geometry.layers,), "The feed-forward gate")
    there = values.to(lm.device, non_blocking=True)
    hooks = (
        changed_output(module, _scaling(there[..., site.layer], site.layer))
        for site in feed_forward_sites(lm)
        if values.requires_grad or bool((values[..., site.layer] != 1).any())
        for module in site.modules
    )
    with hooked(lm.model, hooks):
        yield


def _scaling(gate: torch.Tensor, layer: int) -> Callable[[torch.Tensor], torch.Tensor]:
    """Multiplication by a gate of shape () or (B,)."""

    def scale(output: torch.Tensor) -> torch.Tensor:
        factor = gate.to(output.device, output.dtype)
        if gate.dim() == 0:
            return output * factor
        rows = gate.shape[0]
        # Some layers lay rows and tokens one after the other (OPT); then the lengths tell nothing.
        if output.dim() == 2 and output.shape[0] % rows == 0:
            return (output.view(rows, -1, output.shape[-1]) * factor[:, None, None]).view_as(output)
        if output.dim() != 3 or output.shape[0] != rows:
            raise InputError(
                f"A feed-forward gate for {rows} rows met a batch of shape {tuple(output.shape)} "
                f"in layer {layer}; give one gate a row, and generate without beam search and "
                "num_return_sequences, which expand the batch."
            )
        return output * factor[:, None, None]

    return scale


@dataclasses.dataclass(eq=False)
class _Layer:
    """One decoder layer with a call of it from a small forward pass.

    ``ran`` holds the names (below the layer) of its modules in the order in which they ended, a
    name for each call; ``mixers`` the modules that carry information from token to token.
    """

    number: int
    module: nn.Module
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = dataclasses.field(default_factory=dict)
    ran: list[str] = dataclasses.field(default_factory=list)
    mixers: list[nn.Module] = dataclasses.field(default_factory=list)

    @property
    def entered(self) -> torch.Tensor:
        """The hidden states (1, T, D) that the layer was called with."""
        given: torch.Tensor = self.args[0] if self.args else self.kwargs["hidden_states"]
        return given

    def run(
        self, factors: Iterable[tuple[nn.Module, float]] = (), states: torch.Tensor | None = None
    ) -> torch.Tensor:
        """The layer's output with its mixers silenced and modules' outputs times a factor.

        With ``states`` the layer reads them instead of what it was called with.
        """
        entered = (self.entered if states is None else states).clone()  # some add in place
        args, kwargs = self.args, self.kwargs
        if args:
            args = (entered, *args[1:])
        else:
            kwargs = {**kwargs, "hidden_states": entered}
        changes = [*((module, 0.0) for module in self.mixers), *factors]
        hooks = (
            changed_output(module, functools.partial(torch.mul, other=factor))
            for module, factor in changes
        )
        with hooked(self.module, hooks):  # of this layer alone; no pass is above it
            return hidden_states_of(self.module(*args, **kwargs)).clone()


def _find(lm: LanguageModel) -> Iterator[FeedForwardSite]:
    names = {id(module): name for name, module in lm.model.named_modules()}
    kind = type(lm.model).__name__
    for layer in _calls(lm):
        parts = _parts(layer)
        if parts is None:
            raise InputError(
                f"{kind}: in layer {layer.number} no module was found that writes the feed-forward "
                "part to the residual stream and nothing else, so it cannot be gated; leave "
                "feed-forward gates out, or use another model."
            )
        yield FeedForwardSite(layer.number, tuple(names[id(part)] for part in parts), parts)


def _calls(lm: LanguageModel) -> list[_Layer]:
    layers = [_Layer(at, module) for at, module in enumerate(lm.decoder_layers)]

    def hooks() -> Iterator[Any]:
        for layer in layers:

            def keep(
                _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], layer: _Layer = layer
            ) -> None:
                layer.args, layer.kwargs = args, dict(kwargs)
                if args:
                    layer.args = (args[0].clone(), *args[1:])
                else:
                    layer.kwargs["hidden_states"] = kwargs["hidden_states"].clone()

            yield layer.module.register_forward_pre_hook(keep, with_kwargs=True)
            for name, module in layer.module.named_modules():
                if name:
                    yield module.register_forward_hook(
                        lambda *_, ran=layer.ran, name=name: ran.append(name)
                    )

    with hooked(lm.model, hooks()):
        probe_pass(lm, (7,))
    projections = {site.layer: site.projection for site in lm.sites}
    for layer in layers:
        if layer.number in projections:
            layer.mixers = [projections[layer.number]]
        else:
            layer.mixers = _mixing(layer)
    return layers


def _mixing(layer: _Layer) -> list[nn.Module]:
    """The direct children whose output at a token changes with an earlier token of their input.

    For layers that mix tokens by other means than softmax attention.
    """
    states = layer.entered.clone()
    # Not the negative: a product of two channels (LFM2's convolutions) would be the same.
    states[:, 0] = states[:, 0].roll(1, dims=-1)
    return [
        layer.module.get_submodule(name)
        for name in dict.fromkeys(layer.ran)
        if "." not in name and _reaches_later(layer, name, states)
    ]


def _reaches_later(layer: _Layer, name: str, states: torch.Tensor) -> bool:
    """Whether a module mixes tokens itself: its output moves where its input does not."""
    module = layer.module.get_submodule(name)
    seen: list[tuple[torch.Tensor, torch.Tensor]] = []

    def keep(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        given = args[0] if args else kwargs.get("hidden_states")
        if isinstance(given, torch.Tensor):
            seen.append((given.clone(), hidden_states_of(output).clone()))

    with module.register_forward_hook(keep, with_kwargs=True):
        layer.run()
        layer.run(states=states)
    if len(seen) != 2 or seen[0][0].dim() != 3:
        return False
    (given, output), (other_given, other) = seen
    same_input = torch.equal(given[:, 1:], other_given[:, 1:])
    return same_input and not torch.equal(output[:, 1:], other[:, 1:])


def _parts(layer: _Layer) -> tuple[nn.Module, ...] | None:
    """The modules that write the feed-forward part: one at any depth, else two direct children."""
    candidates = _candidates(layer)
    children = [name for name in candidates if "." not in name]
    choices: list[tuple[str, ...]] = [(name,) for name in candidates]
    for names in [*choices, *itertools.combinations(children, 2)]:
        if _writes_all(layer, names):
            return tuple(layer.module.get_submodule(name) for name in names)
    return None


def _candidates(layer: _Layer) -> list[str]:
    """Modules that ran once, the outermost first, and among these the last first."""
    once = [name for name in reversed(layer.ran) if layer.ran.count(name) == 1]
    return sorted(once, key=lambda name: name.count("."))


def _writes_all(layer: _Layer, names: Sequence[str]) -> bool:
    """Whether the layer adds these modules' outputs, and nothing else, to its input.

    All with the mixers silenced: at factor 0 the input is left as it is, and from 0 to 1 and from
    1 to 2 the output changes by the same amount, which is not zero.
    """
    modules = [layer.module.get_submodule(name) for name in names]
    try:
        none, once, twice = (
            layer.run([(module, factor) for module in modules]) for factor in (0.0, 1.0, 2.0)
        )
    except (TypeError, AttributeError, RuntimeError, IndexError, ValueError):
        return False  # a module whose output is no tensor that can be multiplied
    entered = layer.entered.to(none.device)  # it came from the device of the layer below
    if none.shape != entered.shape or once.shape != entered.shape:
        return False
    tolerance = 2e-2 if entered.dtype in (torch.float16, torch.bfloat16) else 1e-5
    size = float(entered.abs().max() + once.abs().max() + twice.abs().max())
    first, second = (once - none).float(), (twice - once).float()
    return bool(
        (none - entered).abs().max() <= tolerance * size
        and (first - second).abs().max() <= tolerance * size
        and first.abs().max() > 10 * tolerance * float(entered.abs().mean())
    )
