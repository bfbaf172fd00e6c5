"""Write a gate on heads as a LoRA adapter, which stock PEFT and servers load around the base.

Head h's slice of W_O times g is W_O plus (g - 1) W_O[:, h] E_h, where E_h selects the channels of
that head. So a gate is a change of low rank, as LoRA adds one (Hu et al. 2022, arXiv 2106.09685,
section 4.1: alpha / r times B A): A selects the channels of all changed heads, B has W_O's columns
times g - 1, and with alpha = r nothing is scaled. What a server multiplies by s is then the gate
1 + s (g - 1). The bias of W_O stays, as in a folded checkpoint.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from headscope.errors import InputError, OptionalPart, check_parts
from headscope.heads import Gate, check_geometry
from headscope.heads.store import write_bytes
from headscope.lm.gguf import is_gguf, open_gguf
from headscope.lm.hooks import text_config
from headscope.lm.weights import dequantised_weight
from headscope.results.export import ExportedFiles
from headscope.use.exporting.checkpoint import (
    CONFIG,
    WEIGHTS,
    base_entries,
    check_free,
    check_plain,
    finish_folder,
)
from headscope.use.exporting.scaling import channel_factors, loaded_as
from headscope.use.exporting.tensors import DTYPES, reads_rows, stored_tensors

if TYPE_CHECKING:
    from headscope.lm.geometry import AttentionSite
    from headscope.lm.model import LanguageModel

GGUF = "adapter.gguf"
#: The largest rank that common servers can be told to expect.
SERVED_RANK = 512
#: What llama.cpp calls architectures that it has under another name than `transformers`.
_ARCHITECTURES = {"mistral": "llama", "mixtral": "llama", "gemma3_text": "gemma3"}


class LowRank(NamedTuple):
    """A change of one W_O, `up @ down`: `down` (r, in) selects channels, `up` is (out, r)."""

    down: torch.Tensor
    up: torch.Tensor


def changed_sites(lm: LanguageModel, gate: Gate) -> list[AttentionSite]:
    """The layers in which the gate changes a head."""
    changed = {head.layer for head in gate.changed_heads()}
    return [site for site in lm.sites if site.layer in changed]


def gate_rank(lm: LanguageModel, gate: Gate) -> int:
    """The rank that the gate needs: changed heads times head width, of the layer with most."""
    ranks = [int((channel_factors(site, gate) != 1).sum()) for site in lm.sites]
    return max(ranks, default=0)


def heads_within(lm: LanguageModel, rank: int = SERVED_RANK) -> int:
    """How many heads of any layer fit into a rank."""
    return min(min(site.heads, rank // site.head_width) for site in lm.sites)


def low_rank(weight: torch.Tensor, factors: torch.Tensor, rank: int) -> LowRank:
    """W_O (out, in) times factors of its input channels, minus W_O, as a product of this rank."""
    channels = torch.nonzero(factors != 1)[:, 0]
    down = torch.zeros(rank, weight.shape[1])
    down[torch.arange(len(channels)), channels] = 1
    up = torch.zeros(weight.shape[0], rank)
    up[:, : len(channels)] = weight[:, channels] * (factors[channels] - 1)
    return LowRank(down, up)


def check_lora(
    lm: LanguageModel, gate: Gate, rank_limit: int | None = None, gguf: bool = False
) -> int:
    """The rank of the gate's adapter; the arguments, and what is raised, as of `lora_adapter`."""
    check_geometry(gate, lm.geometry, "the gate")
    for site in changed_sites(lm, gate):
        if not isinstance(site.projection, torch.nn.Linear) and not reads_rows(site.projection):
            raise InputError(
                f"{site.projection_name} is a {type(site.projection).__name__}, neither a Linear "
                "nor a Conv1D, so PEFT has no LoRA layer that adds to its output alone; export "
                "with --as checkpoint"
            )
    rank = gate_rank(lm, gate)
    if rank_limit is not None and rank > rank_limit:
        raise InputError(
            f"the gate changes heads of {rank} channels together in one layer, so its rank is "
            f"{rank}, more than {rank_limit} (--rank-limit; {heads_within(lm, rank_limit)} heads a "
            "layer fit); choose fewer heads, or fold the gate with --as checkpoint"
        )
    if gguf:
        _gguf_names(lm, [site.projection_name for site in changed_sites(lm, gate)])
    return rank


def lora_adapter(
    lm: LanguageModel,
    gate: Gate,
    out: Path,
    *,
    weights: LanguageModel | None = None,
    rank_limit: int | None = None,
    gguf: bool = False,
    card: str | None = None,
    staged: Path | None = None,
) -> ExportedFiles:
    """Write the gate as a LoRA adapter of the model: `PeftModel.from_pretrained(model, OUT)`.

    All layers with a changed head have one rank, filled up with zeros; other layers have no part.
    Only W_O is read, one layer at a time, so `lm` may be hollow. PEFT itself is not needed.

    Args:
        lm: the model, which the adapter calls its base by the name or folder it was loaded by.
        gate: one number a head.
        out: the folder to make.
        weights: the loaded model to take W_O from, where the folder's weights are quantised: the
            change is then that of the dequantised weights.
        rank_limit: the largest rank that may be written.
        gguf: also write `adapter.gguf`, which llama.cpp reads.
        card: text of the README.md; without it none is written.
        staged: the unfinished folder, which is then left for the caller to rename.

    Raises:
        InputError: if the gate does not fit, needs a larger rank, a W_O is neither a Linear nor a
            Conv1D or cannot be read, llama.cpp's name of the architecture is not known, or `out`
            exists.
    """
    from safetensors.torch import save

    check_free(out)
    rank = check_lora(lm, gate, rank_limit, gguf)
    sites = changed_sites(lm, gate)
    read = _reader(lm, weights)
    changes: dict[str, LowRank] = {}
    for site in sites:
        change = low_rank(read(site), channel_factors(site, gate), rank)
        if not bool(torch.isfinite(change.up).all()):
            raise InputError(
                f"{site.projection_name} times the gate is not finite; use a smaller gate, or a "
                "checkpoint with finite weights"
            )
        changes[site.projection_name] = change
    place = staged or out.with_name(f"{out.name}.unfinished")
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True, exist_ok=True)
    config = {
        "peft_type": "LORA",
        **base_entries(lm),
        "target_modules": list(changes),
        "fan_in_fan_out": any(reads_rows(site.projection) for site in sites),
        "r": rank,
        "lora_alpha": rank,
        "lora_dropout": 0.0,
        "bias": "none",
    }
    tensors = {
        f"base_model.model.{name}.lora_{letter}.weight": tensor
        for name, change in changes.items()
        for letter, tensor in zip("AB", change, strict=True)
    }
    write_bytes(place / WEIGHTS, save(tensors, {"format": "pt"}))
    if gguf:
        write_gguf(place / GGUF, changes, lm)
    if card is not None:
        write_bytes(place / "README.md", card.encode())
    write_bytes(place / CONFIG, (json.dumps(config, indent=2) + "\n").encode())
    if staged is None:
        finish_folder(place, out)
    return ExportedFiles(
        files=(CONFIG, WEIGHTS, *([GGUF] if gguf else [])),
        size=sum(tensor.numel() * 4 for tensor in tensors.values()),
        changed=tuple(changes),
        lora_rank=rank,
        heads_in_rank_512=heads_within(lm),
    )


def _reader(
    lm: LanguageModel, weights: LanguageModel | None
) -> Callable[[AttentionSite], torch.Tensor]:
    """What gives a layer's W_O as float32 (out, in): from files, or from a loaded model."""
    source = lm if weights is None and lm.folder is None else weights
    if source is not None:
        own = {site.layer: site.projection for site in source.sites}
        return lambda site: dequantised_weight(own[site.layer]).cpu()
    assert lm.folder is not None
    check_plain(lm.folder)
    loaded = loaded_as(lm.model, stored_tensors(lm.folder))

    def read(site: AttentionSite) -> torch.Tensor:
        name = f"{site.projection_name}.weight"
        shape = tuple(lm.model.get_parameter(name).shape)
        stored = loaded.single(name, shape, f"layer {site.layer}, W_O")
        dtype = DTYPES.get(stored.dtype)
        if dtype is None or not dtype.is_floating_point:
            raise InputError(
                f"{stored.file}: {stored.name} is stored as {stored.dtype}, which cannot be "
                "multiplied by a gate; export a checkpoint in F32, BF16 or F16"
            )
        weight = torch.frombuffer(stored.read(), dtype=dtype).reshape(shape).float()
        return weight.T if reads_rows(site.projection) else weight

    return read


LLAMA_CPP = OptionalPart("writing an adapter for llama.cpp", "gguf", ("gguf",))


def write_gguf(path: Path, changes: Mapping[str, LowRank], lm: LanguageModel) -> None:
    """Write changes of W_O, by the projection's name, in the form that llama.cpp reads.

    Raises `InputError` if llama.cpp's name of the architecture or of a tensor is not known, or a
    GGUF file that is the model has no such tensor; `MissingExtra` without the package gguf.
    """
    architecture, names = _gguf_names(lm, list(changes))
    import gguf

    # Written under another name first, so that a file has its own once it is whole.
    unfinished = path.with_name(f".tmp-{path.name}")
    writer = gguf.GGUFWriter(unfinished, architecture)
    writer.add_type(gguf.GGUFType.ADAPTER)
    writer.add_string(gguf.Keys.Adapter.TYPE, "lora")
    rank = max(change.down.shape[0] for change in changes.values())
    writer.add_float32(gguf.Keys.Adapter.LORA_ALPHA, float(rank))
    for name, change in changes.items():
        for letter, values in zip("ab", change, strict=True):
            writer.add_tensor(f"{names[name]}.lora_{letter}", values.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    unfinished.replace(path)


def _gguf_names(lm: LanguageModel, projections: Sequence[str]) -> tuple[str, dict[str, str]]:
    """What llama.cpp calls the architecture, and the weight of each projection."""
    check_parts([LLAMA_CPP])
    import gguf

    kinds = {name: kind for kind, name in gguf.MODEL_ARCH_NAMES.items()}
    model_type = str(text_config(lm.model).model_type)
    architecture, stored = _ARCHITECTURES.get(model_type, model_type), None
    if lm.folder is not None and is_gguf(lm.folder):
        base = open_gguf(lm.folder, lm.name)
        architecture, stored = base.architecture, set(base.tensors)
    advice = "name the GGUF file that is served as --model, or leave --gguf out"
    if architecture not in kinds:
        raise InputError(
            f"it is not known what llama.cpp calls the architecture {model_type!r}; {advice}"
        )
    known: Any = gguf.get_tensor_name_map(kinds[architecture], lm.geometry.layers)
    names = {}
    for projection in projections:
        name = known.get_name(f"{projection}.weight", try_suffixes=(".weight",))
        if name is None or (stored is not None and name not in stored):
            raise InputError(f"it is not known what llama.cpp calls {projection}; {advice}")
        names[projection] = name
    return architecture, names
