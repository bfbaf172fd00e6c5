"""Where the heads of a model are, found by watching one tiny forward pass.

Nothing is inferred from names or from ``hidden_size // num_heads``: the probe sees each layer's
attention take place (``scaled_dot_product_attention``, or a softmax over keys, or an entry of the
table of attention kernels), reads the number of query heads from the queries themselves, and takes
the last linear map that runs inside the attention module afterwards as its output projection W_O.
Because W_O reads the heads side by side, the channels of its input divided by the heads are the
width of one head (for multi-head latent attention that is the width of the *values*).
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from headscope.errors import InputError
from headscope.heads import Geometry
from headscope.lm.batching import Batch
from headscope.lm.hooks import hooked, kernel_name, text_config
from headscope.lm.inputs import evaluating, forward_inputs, probe_batch, probe_pass
from headscope.lm.interpose import Call, observing
from headscope.lm.shards import mesh_of, shared, show_all_heads

if TYPE_CHECKING:
    from headscope.lm.model import LanguageModel

#: Where configurations of models that hide their attention say how many key heads they have.
_KEY_HEADS = ("num_kv_heads", "num_key_value_heads")


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
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
        mesh: the processes that share the heads (see `headscope.lm.shards`), or None.
    """

    layer: int
    attention_name: str
    attention: nn.Module
    projection_name: str
    projection: nn.Module
    heads: int
    head_width: int
    mesh: Any = None


def is_linear(module: nn.Module) -> bool:
    """Whether ``module`` maps channels linearly: Linear, GPT-2's Conv1D, or a relative of them.

    Quantised layers and adapters around a layer (LoRA) are no subclasses of ``nn.Linear`` in every
    library, but all of them carry ``in_features`` and ``out_features``.
    """
    from transformers.pytorch_utils import Conv1D

    if isinstance(module, (nn.Linear, Conv1D)):
        return True
    widths = (getattr(module, "in_features", None), getattr(module, "out_features", None))
    return all(isinstance(width, int) for width in widths)


@dataclasses.dataclass(frozen=True)
class _Event:
    """One thing seen during the probe: an attention, a linear map, or the end of a module."""

    kind: str
    module: str
    heads: int = 0
    width: int = 0


class _Watch(TorchFunctionMode):
    def __init__(self, events: list[_Event], stack: list[str], rows: int) -> None:
        super().__init__()
        self.events, self.stack, self.rows = events, stack, rows
        self._pending: int | None = None  # heads of a softmax whose values are yet to be seen

    def saw(self, heads: int, width: int) -> None:
        self.events.append(_Event("attention", self.stack[-1] if self.stack else "", heads, width))

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        name = getattr(func, "__name__", "")
        if name == "scaled_dot_product_attention":
            query = args[0] if args else kwargs["query"]
            value = args[2] if len(args) > 2 else kwargs["value"]
            if query.dim() == 4:
                self.saw(int(query.shape[1]), int(value.shape[-1]))
        elif name == "softmax" and isinstance(result, torch.Tensor):
            self._pending = self._heads_of_weights(result)
        elif name in ("matmul", "__matmul__", "bmm") and self._pending is not None:
            self.saw(self._pending, int(result.shape[-1]))
            self._pending = None
        return result

    def _heads_of_weights(self, weights: torch.Tensor) -> int | None:
        """Heads of attention weights (rows, H, T, S) or (rows * H, T, S); None for anything else,
        such as the router of a mixture of experts."""
        if weights.dim() < 3 or weights.shape[-1] < weights.shape[-2]:
            return None
        if weights.dim() == 4 and weights.shape[0] == self.rows:
            return int(weights.shape[1])
        if weights.dim() == 3 and weights.shape[0] % self.rows == 0:
            heads = int(weights.shape[0]) // self.rows
            return heads if heads > 1 else None
        return None


@contextlib.contextmanager
def _watched(model: Any, watch: _Watch) -> Iterator[None]:
    """Record attentions: by torch's own functions, or by the table of attention kernels.

    Flash and flex attention are not torch functions that a mode can see, but they are called
    through that table.
    """
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    implementation = kernel_name(model)
    if implementation in ("None", "sdpa", "eager") or implementation not in ALL_ATTENTION_FUNCTIONS:
        with watch:
            yield
        return

    def look(_: nn.Module, call: Call) -> None:
        watch.saw(int(call.query.shape[1]), int(call.value.shape[-1]))

    with observing(model, list(model.modules()), look):
        yield


def _watch_forward(model: Any, batch: Batch) -> list[_Event]:
    events: list[_Event] = []
    stack: list[str] = []

    def leave(name: str, linear: bool, args: tuple[Any, ...]) -> None:
        stack.pop()
        if linear and args and isinstance(args[0], torch.Tensor):
            events.append(_Event("linear", name, width=int(args[0].shape[-1])))
        events.append(_Event("end", name))

    def hooks() -> Iterator[Any]:
        for name, module in model.named_modules():
            linear = is_linear(module)
            yield module.register_forward_pre_hook(lambda *_, name=name: stack.append(name))
            yield module.register_forward_hook(
                lambda _, args, output, name=name, linear=linear: leave(name, linear, args)
            )

    watch = _Watch(events, stack, int(batch.input_ids.shape[0]))
    try:
        with hooked(model, hooks()), evaluating(model), torch.no_grad(), _watched(model, watch):
            model(**forward_inputs(model, batch, logits=False))
    except (RuntimeError, TypeError, ValueError, IndexError, AttributeError) as error:
        needs = (
            "transformers cannot divide it among these processes: use device_map"
            if shared()
            else "headscope needs a decoder language model that reads input_ids and attention_mask"
        )
        raise InputError(
            f"{type(model).__name__} failed on a padded batch of a few tokens ({error}); {needs}."
        ) from error
    return events


def _place_in_stack(name: str) -> tuple[str, int] | None:
    """("model.layers", 3) for "model.layers.3.self_attn"; None if the name holds no number."""
    parts = name.split(".")
    for at, part in enumerate(parts):
        if part.isdigit():
            return ".".join(parts[:at]), int(part)
    return None


def _inside(name: str, ancestor: str) -> bool:
    return name == ancestor or name.startswith(f"{ancestor}.")


def _projection(events: list[_Event], at: int, layer_name: str) -> tuple[str, int] | None:
    """Name and input width of the last linear map after the attention seen at ``events[at]``.

    The search starts in the module that computed the attention and widens to its parents, up to
    but not including the decoder layer, while it finds none.
    """
    module = events[at].module
    while module != layer_name and _inside(module, layer_name):
        projection: tuple[str, int] | None = None
        for event in events[at + 1 :]:
            if event.kind == "linear" and _inside(event.module, module):
                projection = (event.module, event.width)
            if event.kind == "end" and event.module == module:
                break
        if projection is not None:
            return projection
        module = module.rpartition(".")[0]
    return None


def probe(model: Any, tokenizer: Any = None) -> tuple[Geometry, tuple[AttentionSite, ...]]:
    """Find every decoder layer's attention and output projection with one small forward pass.

    Gives the geometry (0 heads where a layer has no softmax attention), and one site for each layer
    that has heads, in order. The tokenizer is used to avoid special ids alone. Raises `InputError`
    if the heads cannot be told apart; the message says what was found.
    """
    kind = type(model).__name__
    events = _watch_forward(model, probe_batch(model, tokenizer))
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
    events: list[_Event],
    at: int,
    layer_name: str,
    layer: int,
    modules: dict[str, nn.Module],
) -> AttentionSite:
    event = events[at]
    projection = _projection(events, at, layer_name)
    if projection is None:
        raise InputError(
            f"{kind}: no output projection was found after the attention in {event.module!r} "
            "(looked for a Linear, a Conv1D or a module with in_features and out_features); "
            "load the model without quantisation or merge its adapters."
        )
    name, width = projection
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
    heads, mesh = event.heads, mesh_of(modules[name], width)
    if mesh is not None:
        show_all_heads(modules[name], mesh)
        heads *= mesh.size()
    return AttentionSite(
        layer=layer,
        attention_name=event.module,
        attention=attention,
        projection_name=name,
        projection=modules[name],
        heads=heads,
        head_width=head_width,
        mesh=mesh,
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


def key_value_heads(lm: LanguageModel) -> tuple[int, ...]:
    """The number of heads of keys and values of each decoder layer; 0 where there is no attention.

    Query head h of a layer with H query heads and G key heads reads key head h // (H / G). Counted
    in the keys that the attention kernel is given in a pass over a few tokens; for architectures
    whose attention cannot be watched (Bloom, Falcon, MPT, XGLM) read from the configuration. Raises
    `InputError` if a layer's query heads do not divide evenly over its key heads.
    """
    sites = {site.attention: site for site in lm.sites}
    counts: dict[int, int] = {}

    def look(module: nn.Module, call: Call) -> None:
        if isinstance(call.key, torch.Tensor) and call.key.dim() == 4:
            mesh = sites[module].mesh
            counts[sites[module].layer] = int(call.key.shape[1]) * (mesh.size() if mesh else 1)

    with observing(lm.model, list(sites), look):
        probe_pass(lm)
    for site in lm.sites:
        if site.layer not in counts:
            counts[site.layer] = _configured_key_heads(lm, site.heads)
        count = counts[site.layer]
        if not count or site.heads % count:
            raise InputError(
                f"{type(lm.model).__name__}: layer {site.layer} has {site.heads} query heads and "
                f"{count} key heads, which is no even grouping; groups of heads are not known for "
                "this model"
            )
    return tuple(counts.get(layer, 0) for layer in range(lm.geometry.layers))


def _configured_key_heads(lm: LanguageModel, heads: int) -> int:
    config = text_config(lm.model)
    if getattr(config, "multi_query", False) and not getattr(
        config, "new_decoder_architecture", False
    ):
        return 1
    numbers = (getattr(config, name, None) for name in _KEY_HEADS)
    return next((number for number in numbers if isinstance(number, int)), heads)
