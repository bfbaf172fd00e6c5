"""A checkpoint from which heads are gone: whole groups of them, equally many in every layer.

Query heads that share one key-value head are a group. If a gate is 0 on all of a group, its rows of
W_Q, W_K and W_V and its columns of W_O can be left out: the sums are the same without those zeros.
Libraries read one number of heads for all layers, so each layer loses as many groups as the layer
with fewest removed ones can; the rest of the gate is folded into what is left of W_O.

Whether an architecture allows this is not looked up but tried: a hollow model is built from the new
configuration, and every tensor must have the shape that it had, or that of its slice.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from headscope.errors import InputError
from headscope.heads import Gate, check_geometry
from headscope.lm.checkpoints import read_config
from headscope.lm.geometry import key_value_heads
from headscope.lm.hollow import hollow_model, without_products
from headscope.lm.hooks import text_config
from headscope.results.export import ExportedFiles, PrunedHeads
from headscope.scratch import scratch
from headscope.use.exporting.checkpoint import fold_checkpoint, quantised_by
from headscope.use.exporting.scaling import loaded_as
from headscope.use.exporting.tensors import Sliced, Stored, stored_tensors

if TYPE_CHECKING:
    from headscope.lm.model import LanguageModel

_HEADS, _KEY_HEADS, _WIDTH = "num_attention_heads", "num_key_value_heads", "head_dim"
_PROJECTIONS = ("q_proj", "k_proj", "v_proj")
_ELSE = "export with --as checkpoint"
#: By a parameter's name its axis that holds the heads, and the channels there that stay.
_Slices = Mapping[str, tuple[int, tuple[int, ...]]]


@dataclass(frozen=True)
class Pruning:
    """What a model becomes when groups of heads are taken out of it.

    `lm` is the smaller model, hollow, and `gate` the gate on the heads that are left, counted
    anew. `tensors` are those of the smaller checkpoint, some of them slices; `settings` the entries
    of config.json that change.
    """

    lm: LanguageModel
    gate: Gate
    tensors: tuple[Stored, ...]
    settings: Mapping[str, int]
    heads: PrunedHeads


def plan_pruning(lm: LanguageModel, gate: Gate) -> Pruning:
    """Which groups of a hollow model can be taken out under a gate, and what is left.

    As many as the gate removes in every layer, but one stays, and fewer where the architecture
    takes no such number of heads. InputError if there are none, or the architecture or the
    checkpoint does not allow it.
    """
    check_geometry(gate, lm.geometry, "the gate")
    if lm.folder is None or lm.folder.is_file() or quantised_by(lm.folder) is not None:
        raise InputError(
            f"{lm.name}: heads are taken out of ordinary checkpoints alone, not out of quantised "
            "weights or GGUF files; write one first (--as checkpoint --dequantise), then prune it"
        )
    heads, groups, width = _heads(lm)
    size = heads // groups
    removed: dict[int, list[int]] = {}
    for site in lm.sites:
        by_group = gate.values[site.layer, :heads].reshape(groups, size)
        removed[site.layer] = np.flatnonzero(~by_group.any(axis=1)).tolist()
    whole = min(map(len, removed.values()))
    if whole == 0:
        layer = next(layer for layer, those in removed.items() if not those)
        raise InputError(
            f"layer {layer} has no key-value group whose {size} query heads are all removed, and "
            f"every layer needs at least 1 of its {groups} (heads L{layer}.H0 to "
            f"L{layer}.H{size - 1}, "
            f"and so on); remove a whole group in each layer, or {_ELSE}"
        )
    reason = ""
    for dropped in range(min(whole, groups - 1), 0, -1):
        left = (heads - dropped * size, groups - dropped, width)
        settings = dict(zip((_HEADS, _KEY_HEADS, _WIDTH), left, strict=True))
        kept = {
            layer: tuple(group for group in range(groups) if group not in those[:dropped])
            for layer, those in removed.items()
        }
        slices = _slices(lm, kept, heads, groups)
        try:
            smaller = _smaller(lm, settings, slices)
        except InputError as error:
            reason = reason or " ".join(str(error.__cause__ or error).split()).rstrip(".")
            continue
        values = np.ones(smaller.geometry.shape, dtype=np.float32)
        for layer, those in kept.items():
            values[layer, : left[0]] = gate.values[layer, _spread(those, size)]
        pruned = PrunedHeads(
            groups_dropped=dropped,
            groups_removed=whole,
            groups_before=groups,
            heads_before=heads,
            kept={str(layer): those for layer, those in kept.items()},
            parameters=smaller.parameters,
            parameters_before=lm.parameters,
        )
        gate = Gate(smaller.geometry, values, gate.origin)
        return Pruning(smaller, gate, tuple(_sliced(lm, slices)), settings, pruned)
    raise InputError(f"{lm.name}: no model with fewer heads can be built ({reason}); {_ELSE}")


def pruned_checkpoint(pruning: Pruning, out: Path, **options: Any) -> ExportedFiles:
    """Write the smaller model as an ordinary checkpoint; `options` are those of `fold_checkpoint`.

    One tensor and its slice are in memory at a time. `changed` names tensors that are multiplied
    or cut.
    """
    lm, gate = pruning.lm, pruning.gate
    changes: dict[str, Any] = {"weights": pruning.tensors, "settings": pruning.settings}
    written = fold_checkpoint(lm, gate, out, **changes, **options)
    cut = {tensor.name for tensor in pruning.tensors if isinstance(tensor, Sliced)}
    changed = tuple(sorted({*written.changed, *cut}))
    return dataclasses.replace(written, changed=changed, pruned=pruning.heads)


def _heads(lm: LanguageModel) -> tuple[int, int, int]:
    """Query heads and key-value heads of every layer that has any, and channels of a head's keys.

    InputError unless all layers have as many, and a linear map each for W_Q, W_K, W_V and W_O.
    """
    with without_products():
        keys = key_value_heads(lm)
    counts = {(site.heads, keys[site.layer]) for site in lm.sites}
    heads, groups = next(iter(counts))
    config = text_config(lm.model)
    names = (_HEADS, _KEY_HEADS)
    if len(counts) > 1:
        why = "its layers have different numbers of heads, and one number for all would not fit"
    elif config is not lm.model.config or counts != {tuple(getattr(config, n, 0) for n in names)}:
        why = f"its config.json has no plain {_HEADS} and {_KEY_HEADS} that could be made smaller"
    elif groups == 1:
        why = "all heads of a layer share one key-value head, without which it has no attention"
    else:
        modules: Any = dict(lm.model.named_modules())
        for site in lm.sites:
            maps = [f"{site.attention_name}.{name}" for name in _PROJECTIONS]
            for name in (*maps, site.projection_name):
                if type(modules.get(name)) is not torch.nn.Linear:
                    raise InputError(
                        f"layer {site.layer}: {name} is no linear map of its own (queries, keys "
                        f"and values may be one), so single heads cannot be taken out; {_ELSE}"
                    )
        return heads, groups, modules[maps[1]].out_features // groups
    raise InputError(f"{lm.name}: {why}; {_ELSE}")


def _spread(blocks: Sequence[int], width: int) -> tuple[int, ...]:
    """The places of blocks of `width` places each."""
    return tuple(block * width + at for block in blocks for at in range(width))


def _slices(
    lm: LanguageModel, kept: Mapping[int, tuple[int, ...]], heads: int, groups: int
) -> _Slices:
    """What stays of the projections; W_O's bias is added to all heads' sum and stays whole."""
    slices: dict[str, tuple[int, tuple[int, ...]]] = {}
    for site in lm.sites:
        its_groups = kept[site.layer]
        its_heads = _spread(its_groups, heads // groups)
        slices[f"{site.projection_name}.weight"] = (1, _spread(its_heads, site.head_width))
        for name in _PROJECTIONS:
            blocks, count = (its_heads, heads) if name == "q_proj" else (its_groups, groups)
            projection: Any = site.attention.get_submodule(name)
            rows = _spread(blocks, projection.out_features // count)
            for part, _ in projection.named_parameters():
                slices[f"{site.attention_name}.{name}.{part}"] = (0, rows)
    return slices


def _smaller(lm: LanguageModel, settings: Mapping[str, int], slices: _Slices) -> LanguageModel:
    """The hollow model of changed settings. InputError if more than the slices would change."""
    assert lm.folder is not None
    raw = json.loads((lm.folder / "config.json").read_bytes())
    with scratch("pruning") as folder:
        Path(folder, "config.json").write_text(json.dumps({**raw, **settings}), encoding="utf-8")
        config = read_config(folder, lm.name)
    smaller = hollow_model(lm.name, lm.folder, config, lm.tokenizer_or_none, lm.revision)
    before, after = _shapes(lm), _shapes(smaller)
    for name in sorted(before.keys() | after.keys()):
        shape = list(before.get(name, ()))
        if name in slices:
            axis, kept = slices[name]
            shape[axis] = len(kept)
        if tuple(shape) != after.get(name):
            raise InputError(
                f"{name} has the shape {before.get(name)}, and {after.get(name)} with "
                f"{settings[_HEADS]} heads of {settings[_WIDTH]} channels"
            )
    return smaller


def _shapes(lm: LanguageModel) -> dict[str, tuple[int, ...]]:
    """Of all parameters and buffers, also of those that are not saved."""
    every = {**lm.model.state_dict(), **dict(lm.model.named_buffers())}
    return {name: tuple(tensor.shape) for name, tensor in every.items()}


def _sliced(lm: LanguageModel, slices: _Slices) -> list[Stored]:
    """The checkpoint's tensors, some of them cut."""
    assert lm.folder is not None
    tensors, shapes = stored_tensors(lm.folder), _shapes(lm)
    loaded, cut = loaded_as(lm.model, tensors), {}
    for name, (axis, kept) in slices.items():
        stored = loaded.single(name, shapes[name], "the heads' projections")
        cut[stored.name] = Sliced.of(stored, axis, kept)
    return [cut.get(tensor.name, tensor) for tensor in tensors]
