"""The last projection of each layer's feed-forward part, found without weights.

In a hollow model every product is zero, so a layer returns its input. If one linear map is made to
return some numbers and the layer then returns its input plus a constant times these numbers, that
map is the last one of a part that writes straight to the residual stream, and whatever multiplies
its output multiplies what the part adds. Behind a norm, or spread over experts, there is no such
map.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from headscope.errors import InputError
from headscope.lm.geometry import hidden_states_of, is_linear
from headscope.lm.hollow import without_products
from headscope.lm.inputs import evaluating, forward_inputs, probe_batch

if TYPE_CHECKING:
    from headscope.lm.model import LanguageModel


def output_projections(lm: LanguageModel, layers: Iterable[int]) -> dict[int, str]:
    """Qualified name of the feed-forward part's last linear map, for each layer asked for.

    Weights are not read, so the model may be hollow. InputError for a layer without such a map.
    """
    wanted = list(layers)
    if not wanted:
        return {}
    names = {id(module): name for name, module in lm.model.named_modules()}
    stack = lm.decoder_layers
    inside = {id(one) for site in lm.sites for one in site.attention.modules()}
    inside |= {id(site.projection) for site in lm.sites}
    found = {}
    with evaluating(lm.model), torch.no_grad(), without_products():
        for number in wanted:
            layer = stack[number]
            modules = [one for one in layer.modules() if id(one) not in inside]
            writes = [one for one in modules if is_linear(one) and _writes(lm, layer, one)]
            if len(writes) != 1 or _has_experts(modules):
                raise InputError(
                    f"layer {number}: no single linear map writes the whole feed-forward part to "
                    "the residual stream (it has experts, or a norm behind it), so its gate cannot "
                    "be folded into weights; apply the gate with `headscope use adapt`"
                )
            found[number] = names[id(writes[0])]
    return found


def _has_experts(modules: Iterable[nn.Module]) -> bool:
    """Whether weights lie outside of linear maps, as those of experts and their routers do."""
    plain = (nn.Embedding, nn.Conv1d)
    return any(
        parameter.dim() >= 2
        for module in modules
        if not is_linear(module) and not isinstance(module, plain)
        for parameter in module.parameters(recurse=False)
    )


def _writes(lm: LanguageModel, layer: nn.Module, candidate: nn.Module) -> bool:
    """Whether the layer adds what the candidate returns, times a constant, to its input."""
    once, same = _added(lm, layer, candidate, 1.0)
    twice, _ = _added(lm, layer, candidate, 2.0)
    if once is None or twice is None or same is None:
        return False
    scale = float((once * same).sum() / (same * same).sum())
    tolerance = 1e-4 * float(same.abs().max()) * abs(scale)
    return bool(
        scale != 0
        and (once - scale * same).abs().max() <= tolerance
        and (twice - 2 * once).abs().max() <= tolerance
    )


def _added(
    lm: LanguageModel, layer: nn.Module, candidate: nn.Module, factor: float
) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """What a layer adds to its input while the candidate returns `factor` times some numbers.

    Also the numbers themselves; None if either was not called or returns something else.
    """
    seen: dict[str, torch.Tensor] = {}

    def returning(_: nn.Module, args: tuple[Any, ...], output: Any) -> Any:
        if not isinstance(output, torch.Tensor):
            return output  # a router
        generator = torch.Generator().manual_seed(0)
        seen["numbers"] = torch.randn(output.shape, generator=generator)
        return (factor * seen["numbers"]).to(output.dtype)

    def entering(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        seen["in"] = (args[0] if args else kwargs["hidden_states"]).float().clone()

    def leaving(_: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        seen["out"] = hidden_states_of(output).float().clone()

    handles = [
        candidate.register_forward_hook(returning),
        layer.register_forward_pre_hook(entering, with_kwargs=True),
        layer.register_forward_hook(leaving),
    ]
    try:
        batch = probe_batch(lm.model, lm.tokenizer_or_none, (7,))
        lm.model(**forward_inputs(lm.model, batch, logits=False))
    finally:
        for handle in handles:
            handle.remove()
    if "numbers" not in seen or "out" not in seen or seen["out"].shape != seen["in"].shape:
        return None, None
    if seen["numbers"].numel() != seen["out"].numel():
        return None, None
    return seen["out"] - seen["in"], seen["numbers"].view_as(seen["out"])
