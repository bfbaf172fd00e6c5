"""What folding a gate does to single tensors of a checkpoint, and which tensors these are.

Head h's slice of W_O times g is the same as head h's output times g (see `headscope.lm.gates`), so
a gate becomes factors of W_O's input channels. Its bias is added to all heads' sum and stays. A
feed-forward gate multiplies all that the part adds, so weight and bias of its last projection.

That projection is found without weights: in a hollow model every product is zero, so a layer
returns its input. If one linear map is made to return some numbers and the layer then returns its
input plus a constant times these numbers, that map is the last one of a part that writes straight
to the residual stream, and whatever multiplies its output multiplies what the part adds. Behind a
norm, or spread over experts, there is no such map.

Checkpoints and models name their tensors differently: a base model has no prefix, families have
been renamed, experts that lie apart are loaded as one tensor. The answer here is that of
`transformers`' own loader, key by key, so that what is scaled in the file is what the model reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from headscope.errors import InputError
from headscope.heads import Gate, check_geometry
from headscope.lm.geometry import hidden_states_of, is_linear
from headscope.lm.hollow import without_products
from headscope.lm.inputs import evaluating, forward_inputs, probe_batch
from headscope.use.exporting.tensors import DTYPES, Stored, reads_rows

if TYPE_CHECKING:
    from headscope.lm.geometry import AttentionSite
    from headscope.lm.model import LanguageModel

_ROWS = 1024


def scalings(
    lm: LanguageModel,
    tensors: list[Stored],
    gate: Gate,
    feed_forward: NDArray[np.float32] | None = None,
) -> dict[str, torch.Tensor]:
    """The factors by which tensors of a checkpoint are multiplied, by the tensor's name.

    They have the shape (1, columns), (rows, 1) or, for all of a tensor, (). Every layer's W_O is
    looked up, also where the gate is 1, and must be there exactly once. The model may be hollow;
    `feed_forward` is one number a layer, shape (L,), or None for all ones. InputError if the gate
    is of another geometry, a tensor is not found exactly once, is stored in a form that cannot be
    multiplied, or a feed-forward part cannot be folded.
    """
    check_geometry(gate, lm.geometry, "the gate")
    loaded = loaded_as(lm.model, tensors)
    state = lm.model.state_dict()
    by_tensor: dict[str, torch.Tensor] = {}

    def add(name: str, factors: torch.Tensor, what: str) -> None:
        tensor = loaded.single(name, tuple(state[name].shape), what)
        if tensor.dtype not in DTYPES or not DTYPES[tensor.dtype].is_floating_point:
            raise InputError(
                f"{tensor.file}: {tensor.name} is stored as {tensor.dtype}, which cannot be "
                "multiplied by a gate; export a checkpoint in F32, BF16 or F16"
            )
        if tensor.name in by_tensor:
            raise InputError(
                f"{tensor.file}: {tensor.name} is read by several layers, so it cannot be folded "
                "for one of them; use a model whose layers have weights of their own"
            )
        by_tensor[tensor.name] = factors

    for site in lm.sites:
        factors = channel_factors(site, gate)
        shaped = factors[:, None] if reads_rows(site.projection) else factors[None, :]
        add(f"{site.projection_name}.weight", shaped, f"layer {site.layer}, W_O")
    if feed_forward is not None:
        for layer, name in output_projections(lm, np.flatnonzero(feed_forward != 1)).items():
            factor = torch.tensor(float(feed_forward[layer]))
            for part in ("weight", "bias"):
                if f"{name}.{part}" in state:
                    add(f"{name}.{part}", factor, f"layer {layer}, feed-forward part")
    return {name: factors for name, factors in by_tensor.items() if bool((factors != 1).any())}


def stored_dtype(lm: LanguageModel, tensors: list[Stored]) -> torch.dtype:
    """The least exact dtype in which a checkpoint holds a W_O: what folded weights round to.

    InputError as `scalings` raises it.
    """
    scalings(lm, tensors, Gate.identity(lm.geometry))
    loaded = loaded_as(lm.model, tensors)
    dtypes = {
        DTYPES[tensor.dtype]
        for site in lm.sites
        for tensor in loaded.tensors[f"{site.projection_name}.weight"]
    }
    return max(dtypes, key=lambda dtype: torch.finfo(dtype).eps)


def channel_factors(site: AttentionSite, gate: Gate) -> torch.Tensor:
    """A layer's gate as one factor for each input channel of W_O: float32, (H · head width,)."""
    values = np.array(gate.values[site.layer, : site.heads], dtype=np.float32)
    return torch.from_numpy(values).repeat_interleave(site.head_width)


def scaled_blocks(
    tensor: Stored, factors: Mapping[str, torch.Tensor]
) -> Iterable[bytes | memoryview]:
    """A tensor's bytes as they are written: times its factors, or as they are.

    Products are computed in 32 bits (64 for F64) and rounded to the dtype that the checkpoint has;
    by 1 a number stays, by 0 it becomes 0. InputError if one becomes infinite or is not finite.
    """
    if tensor.name not in factors:
        yield from tensor.blocks()
        return
    dtype, scale = DTYPES[tensor.dtype], factors[tensor.name]
    by_row = scale.dim() == 2 and scale.shape[0] > 1
    compute = torch.float64 if dtype == torch.float64 else torch.float32
    data = tensor.read()
    weight = torch.frombuffer(data, dtype=dtype).reshape(tensor.shape)
    for first in range(0, tensor.shape[0], _ROWS):
        rows = slice(first, first + _ROWS)
        product = weight[rows].to(compute) * (scale[rows] if by_row else scale).to(compute)
        weight[rows] = product.to(dtype)
        if not bool(torch.isfinite(weight[rows]).all()):
            raise InputError(
                f"{tensor.file}: {tensor.name} times the gate is not finite in {tensor.dtype}; "
                "use a smaller gate, or a checkpoint with finite weights"
            )
    yield memoryview(data)


@dataclass(frozen=True)
class Loaded:
    """From parameters of a model to the tensors of a checkpoint.

    `tensors` holds those that are loaded as they are, `converted` the names of those that the
    loader computes something with; both by the parameter's qualified name.
    """

    tensors: Mapping[str, tuple[Stored, ...]]
    converted: Mapping[str, tuple[str, ...]]

    def single(self, name: str, shape: tuple[int, ...], what: str) -> Stored:
        """The one tensor that becomes the parameter `name`.

        InputError unless there is exactly one, of this shape, loaded as it is; `what` says in the
        message what is sought.
        """
        if name in self.converted:
            raise InputError(
                f"{what}: the checkpoint stores {name} in another form "
                f"({', '.join(self.converted[name][:3])}), so it cannot be folded tensor by tensor;"
                " load the model, save it with save_pretrained(FOLDER, "
                "save_original_format=False) and export that"
            )
        stored = self.tensors.get(name, ())
        if len(stored) != 1:
            raise InputError(
                f"{what}: {len(stored)} tensors of the checkpoint become {name} "
                f"({', '.join(tensor.name for tensor in stored) or 'none'}) instead of one; "
                "save or download the checkpoint again, as the architecture that config.json names"
            )
        if stored[0].shape != shape:
            raise InputError(
                f"{stored[0].file}: the tensor {stored[0].name} has the shape {stored[0].shape}, "
                f"but config.json asks for {shape}; save or download both from one model"
            )
        return stored[0]


def loaded_as(model: Any, tensors: Sequence[Stored]) -> Loaded:
    """What `from_pretrained` makes of a checkpoint's tensors for this model.

    Follows `transformers.core_model_loading.convert_and_load_state_dict_in_model`; tensors that
    the model does not read are left out.
    """
    from transformers.conversion_mapping import get_model_conversion_mapping
    from transformers.core_model_loading import (
        WeightConverter,
        WeightRenaming,
        dot_natural_key,
        rename_source_key,
    )

    natural: Any = dot_natural_key
    state = model.state_dict()
    mapping = get_model_conversion_mapping(model)
    renamings = [entry for entry in mapping if isinstance(entry, WeightRenaming)]
    converters = [entry for entry in mapping if isinstance(entry, WeightConverter)]
    prefix = model.base_model_prefix
    plain: dict[str, list[Stored]] = {}
    converted: dict[str, list[str]] = {}
    for tensor in sorted(tensors, key=lambda tensor: natural(tensor.name)):
        name, pattern = rename_source_key(tensor.name, renamings, converters, prefix, state)
        if name not in state and tensor.name in state:
            name, pattern = rename_source_key(tensor.name, [], [], prefix, state)
        if name not in state:
            continue
        if pattern is None:
            plain.setdefault(name, []).append(tensor)
        else:
            converted.setdefault(name, []).append(tensor.name)
    return Loaded(
        {name: tuple(sources) for name, sources in plain.items()},
        {name: tuple(sources) for name, sources in converted.items()},
    )


def output_projections(lm: LanguageModel, layers: Iterable[int]) -> dict[int, str]:
    """Qualified name of the feed-forward part's last linear map, for each layer asked for.

    Weights are not read, so the model may be hollow. InputError for a layer without such a map.
    """
    wanted = [int(layer) for layer in layers]
    if not wanted:
        return {}
    names = {id(module): name for name, module in lm.model.named_modules()}
    stack = lm.decoder_layers
    inside = {id(module) for site in lm.sites for module in site.attention.modules()}
    inside |= {id(site.projection) for site in lm.sites}
    projections = {}
    with evaluating(lm.model), torch.no_grad(), without_products():
        for number in wanted:
            layer = stack[number]
            modules = [module for module in layer.modules() if id(module) not in inside]
            writes = [
                module for module in modules if is_linear(module) and _writes(lm, layer, module)
            ]
            if len(writes) != 1 or _has_experts(modules):
                raise InputError(
                    f"layer {number}: no single linear map writes the whole feed-forward part to "
                    "the residual stream (it has experts, or a norm behind it), so its gate cannot "
                    "be folded into weights; apply the gate with `headscope use adapt`"
                )
            projections[number] = names[id(writes[0])]
    return projections


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
    single, double = (_added(lm, layer, candidate, factor) for factor in (1.0, 2.0))
    if single is None or double is None:
        return False
    (once, same), (twice, _) = single, double
    scale = float((once * same).sum() / (same * same).sum())
    tolerance = 1e-4 * float(same.abs().max()) * abs(scale)
    return bool(
        scale != 0
        and (once - scale * same).abs().max() <= tolerance
        and (twice - 2 * once).abs().max() <= tolerance
    )


def _added(
    lm: LanguageModel, layer: nn.Module, candidate: nn.Module, factor: float
) -> tuple[torch.Tensor, torch.Tensor] | None:
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
        return None
    if seen["numbers"].numel() != seen["out"].numel():
        return None
    return seen["out"] - seen["in"], seen["numbers"].view_as(seen["out"])
