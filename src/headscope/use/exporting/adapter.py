"""Write a gate as an (IA)³ adapter that stock PEFT loads.

(IA)³ learns vectors that multiply activations (Liu et al. 2022, arXiv 2205.05638, section 3.3). In
PEFT a module listed as a feed-forward one has its *input* multiplied, so a gate repeated over the
channels of each head, put before W_O, is such a vector. One that is not listed so has its output
multiplied, bias included: that is a feed-forward gate at the part's last projection.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from headscope.errors import InputError
from headscope.heads import Gate, check_geometry
from headscope.heads.store import write_bytes
from headscope.results.export import ExportedFiles
from headscope.use.exporting.checkpoint import check_free, finish_folder
from headscope.use.exporting.scaling import channel_factors, output_projections
from headscope.use.exporting.tensors import reads_rows

if TYPE_CHECKING:
    from headscope.lm.model import LanguageModel

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"


def ia3_adapter(
    lm: LanguageModel,
    gate: Gate,
    out: Path,
    *,
    feed_forward: NDArray[np.float32] | None = None,
    card: str | None = None,
    staged: Path | None = None,
) -> ExportedFiles:
    """Write the gate as an adapter of the model: `PeftModel.from_pretrained(model, OUT)`.

    Weights are not read, so `lm` may be hollow, and the base may be quantised. PEFT itself is not
    needed.

    Args:
        lm: the model, which the adapter calls its base by the name or folder it was loaded by.
        gate: one number a head.
        out: the folder to make.
        feed_forward: one number for each layer's feed-forward part, shape (L,).
        card: text of the README.md; without it none is written.
        staged: the unfinished folder, which is then left for the caller to rename.

    Raises:
        InputError: if the gate does not fit, PEFT cannot put a vector before the projections, or
            `out` exists.
    """
    from safetensors.torch import save

    place = staged or out.with_name(f"{out.name}.unfinished")
    check_free(out)
    shutil.rmtree(place, ignore_errors=True)
    check_geometry(gate, lm.geometry, "the gate")
    before = {site.projection_name: channel_factors(site, gate) for site in lm.sites}
    after: dict[str, torch.Tensor] = {}
    if feed_forward is not None:
        for layer, name in output_projections(lm, np.flatnonzero(feed_forward != 1)).items():
            projection: Any = lm.model.get_submodule(name)
            width = projection.weight.shape[1 if reads_rows(projection) else 0]
            after[name] = torch.full((width,), float(feed_forward[layer]))
    modules = {name: lm.model.get_submodule(name) for name in (*before, *after)}
    for name, module in modules.items():
        if not isinstance(module, torch.nn.Linear) and not reads_rows(module):
            raise InputError(
                f"{name} is a {type(module).__name__}, for which PEFT has no (IA)³ layer; export "
                "with --as checkpoint"
            )
    inputs = _names(lm.model, before, after)
    targets = inputs + (_names(lm.model, after, before) if after else [])
    config = {
        "peft_type": "IA3",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": str(lm.name if lm.revision else lm.folder or lm.name),
        "revision": lm.revision,
        "inference_mode": True,
        "target_modules": targets,
        "feedforward_modules": inputs,
        "fan_in_fan_out": any(reads_rows(module) for module in modules.values()),
        "init_ia3_weights": True,
        "modules_to_save": None,
    }
    shaped = {name: values[None, :] for name, values in before.items()}
    shaped |= {name: values[:, None] for name, values in after.items()}
    vectors = {
        f"base_model.model.{name}.ia3_l": values.contiguous() for name, values in shaped.items()
    }
    place.mkdir(parents=True, exist_ok=True)
    write_bytes(place / WEIGHTS, save(vectors, {"format": "pt"}))
    if card is not None:
        write_bytes(place / "README.md", card.encode())
    write_bytes(place / CONFIG, (json.dumps(config, indent=2) + "\n").encode())
    if staged is None:
        finish_folder(place, out)
    return ExportedFiles(
        files=(CONFIG, WEIGHTS),
        size=sum(values.numel() * 4 for values in vectors.values()),
        changed=tuple(modules),
    )


def _names(
    model: torch.nn.Module, wanted: Mapping[str, Any], others: Mapping[str, Any]
) -> list[str]:
    """Names by which PEFT finds these modules and no others, as short as can be.

    PEFT takes a module whose name ends in a dot and one of them, and looks for feed-forward ones
    by the end alone, so neither may match another module that has a vector.
    """
    every = [name for name, _ in model.named_modules() if name]
    parts = [name.split(".") for name in wanted]
    for count in range(1, min(map(len, parts))):
        ends = sorted({".".join(names[-count:]) for names in parts})
        found = [name for name in every if f".{name}".endswith(tuple(f".{end}" for end in ends))]
        clear = not any(other.endswith(tuple(ends)) for other in others)
        # A name that counts layers would be no shorter than the whole names.
        counts = any(part.isdigit() for end in ends for part in end.split("."))
        if len(found) == len(wanted) and clear and not counts:
            return ends
    return sorted(wanted)
