"""Where the heads of a model are, found by watching one tiny forward pass.

Nothing is inferred from names or from ``hidden_size // num_heads``: the probe sees each layer's
attention take place (``scaled_dot_product_attention``, or a softmax over keys, or an entry of the
table of attention kernels), reads the number of query heads from the queries themselves, and takes
the last linear map that runs inside the attention module afterwards as its output projection W_O.
Because W_O reads the heads side by side, the channels of its input divided by the heads are the
width of one head (for multi-head latent attention that is the width of the *values*).
"""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import nn

from headscope.errors import InputError
from headscope.heads import Geometry
from headscope.lm.inputs import probe_batch
from headscope.lm.watching import Event, watch_forward


@dataclasses.dataclass(frozen=True, eq=False)
class AttentionSite:
    """One decoder layer's softmax attention.

    Attributes:
        layer: index of the decoder layer.
        attention_name: qualified name of the module that computes the attention.
        attention: that module.
        projection_name: qualified name of the output projection W_O.
        projection: W_O itself; its input holds the heads' outputs ``A V`` side by side.
        heads: number of query heads H.
        head_width: channels of one head in the input of W_O.
    """

    layer: int
    attention_name: str
    attention: nn.Module
    projection_name: str
    projection: nn.Module
    heads: int
    head_width: int


def _place_in_stack(name: str) -> tuple[str, int] | None:
    """("model.layers", 3) for "model.layers.3.self_attn"; None if the name holds no number."""
    parts = name.split(".")
    for at, part in enumerate(parts):
        if part.isdigit():
            return ".".join(parts[:at]), int(part)
    return None


def _inside(name: str, ancestor: str) -> bool:
    return name == ancestor or name.startswith(f"{ancestor}.")


def _projection(events: list[Event], at: int, layer_name: str) -> tuple[str, int] | None:
    """Name and input width of the last linear map after the attention seen at ``events[at]``.

    The search starts in the module that computed the attention and widens to its parents, up to
    but not including the decoder layer, while it finds none.
    """
    module = events[at].module
    while module != layer_name and _inside(module, layer_name):
        found: tuple[str, int] | None = None
        for event in events[at + 1 :]:
            if event.kind == "linear" and _inside(event.module, module):
                found = (event.module, event.width)
            if event.kind == "end" and event.module == module:
                break
        if found is not None:
            return found
        module = module.rpartition(".")[0]
    return None


def probe(model: Any, tokenizer: Any = None) -> tuple[Geometry, tuple[AttentionSite, ...]]:
    """Find every decoder layer's attention and output projection with one small forward pass.

    Args:
        model: a decoder language model of ``transformers``, or an adapter model around one.
        tokenizer: its tokenizer, if there is one; only used to avoid special ids.

    Returns:
        The geometry (query heads per decoder layer; 0 where a layer has no softmax attention) and
        one site for each layer that has heads, in order of layers.

    Raises:
        InputError: if the heads cannot be told apart; the message says what was found.
    """
    kind = type(model).__name__
    events = watch_forward(model, probe_batch(model, tokenizer))
    modules = dict(model.named_modules())
    stacks: set[str] = set()
    sites: dict[int, AttentionSite] = {}
    for at, event in enumerate(events):
        if event.kind != "attention":
            continue
        place = _place_in_stack(event.module)
        if place is None:
            raise InputError(
                f"{kind}: attention runs in module {event.module!r}, which is not in a list of "
                "decoder layers, so its heads have no layer number; use a plain decoder model."
            )
        stack, layer = place
        stacks.add(stack)
        if layer in sites:
            raise InputError(
                f"{kind}: layer {layer} computes attention twice in one forward pass (in "
                f"{sites[layer].attention_name!r} and {event.module!r}), so 'head (layer, head)' "
                "would be ambiguous; use a decoder with one self-attention a layer."
            )
        sites[layer] = _site(kind, events, at, f"{stack}.{layer}", layer, modules)
    if not sites:
        raise InputError(
            f"{kind}: no softmax attention was seen in a forward pass, so there are no heads to "
            'work on; load it with attn_implementation="sdpa" or "eager", or use another model.'
        )
    if len(stacks) > 1:
        raise InputError(
            f"{kind}: attention runs in several stacks of layers ({', '.join(sorted(stacks))}), so "
            "layer numbers would be ambiguous; use a model with one decoder."
        )
    layers = len(list(modules[stacks.pop()].children()))
    _check_indices(kind, sites, layers)
    counts = tuple(sites[layer].heads if layer in sites else 0 for layer in range(layers))
    return Geometry(counts), tuple(sites[layer] for layer in sorted(sites))


def _site(
    kind: str,
    events: list[Event],
    at: int,
    layer_name: str,
    layer: int,
    modules: dict[str, nn.Module],
) -> AttentionSite:
    event = events[at]
    found = _projection(events, at, layer_name)
    if found is None:
        raise InputError(
            f"{kind}: no output projection was found after the attention in {event.module!r} "
            "(looked for a Linear, a Conv1D or a module with in_features and out_features); "
            "load the model without quantisation or merge its adapters."
        )
    name, width = found
    attention = modules[event.module]
    # Flash attention needs values as wide as keys, so latent attention pads them and cuts the
    # result; such modules say themselves how wide their values are.
    head_width = event.width
    if event.heads * head_width != width:
        head_width = getattr(attention, "v_head_dim", head_width)
    if event.heads * head_width != width:
        raise InputError(
            f"{kind}: {event.module!r} makes {event.heads} heads of {event.width} channels, but "
            f"its output projection {name!r} reads {width} channels instead of "
            f"{event.heads * event.width}, so single heads cannot be told apart there; this "
            "attention mixes heads before its projection or an adapter hides it (merge adapters)."
        )
    return AttentionSite(
        layer, event.module, attention, name, modules[name], event.heads, head_width
    )


def _check_indices(kind: str, sites: dict[int, AttentionSite], layers: int) -> None:
    """The place in the list of layers must be the index by which the model itself counts."""
    for layer, site in sites.items():
        own = getattr(site.attention, "layer_idx", None)
        if layer >= layers or (isinstance(own, int) and own != layer):
            raise InputError(
                f"{kind}: the attention at place {layer} of {layers} layers calls itself layer "
                f"{own}, so layer numbers would be ambiguous; use a model with one plain decoder."
            )
    projections = [id(site.projection) for site in sites.values()]
    if len(set(projections)) != len(projections):
        raise InputError(
            f"{kind}: layers share one output projection, so a gate on one layer would act on "
            "another; use a model whose layers have weights of their own."
        )


def hidden_states_of(output: Any) -> torch.Tensor:
    """The hidden states (B, T, D) in what a decoder layer returned."""
    hidden: torch.Tensor = output if isinstance(output, torch.Tensor) else output[0]
    return hidden
