"""Write a gate as an (IA)³ adapter that stock PEFT loads.

(IA)³ learns vectors that multiply activations (Liu et al. 2022, arXiv 2205.05638, section 3.3). In
PEFT a module listed as a feed-forward one has its *input* multiplied, so a gate repeated over the
channels of each head, put before W_O, is such a vector. One that is not listed so has its output
multiplied, bias included: that is a feed-forward gate at the part's last projection.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from headscope.errors import InputError
from headscope.heads import Gate, check_geometry
from headscope.heads.store import write_bytes
from headscope.use.exporting.feed_forward import output_projections
from headscope.use.exporting.folder import check_free, finish_folder
from headscope.use.exporting.scaling import channel_factors, reads_rows

if TYPE_CHECKING:
    from headscope.lm.model import LanguageModel

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"


@dataclass(frozen=True)
class Adapter:
    """What was written: the modules with a vector, the files, and bytes of all vectors."""

    modules: tuple[str, ...]
    files: tuple[str, ...]
    size: int


def ia3_adapter(
    lm: LanguageModel,
    gate: Gate,
    out: Path,
    *,
    feed_forward: NDArray[np.float32] | None = None,
    base: str | None = None,
    revision: str | None = None,
    card: str | None = None,
) -> Adapter:
    """Write the gate as an adapter of the model: `PeftModel.from_pretrained(model, OUT)`.

    Weights are not read, so `lm` may be hollow, and the base may be quantised. PEFT itself is not
    needed.

    Args:
        lm: the model.
        gate: one number a head.
        out: the folder to make.
        feed_forward: one number for each layer's feed-forward part, shape (L,).
        base: what the adapter calls its base model, a Hub id or a folder; by default what `lm`
            was loaded by.
        revision: the base's commit on the Hub.
        card: text of the README.md; without it none is written.

    Raises:
        InputError: if the gate does not fit, PEFT cannot put a vector before the projections, or
            `out` exists.
    """
    staged = out.with_name(f"{out.name}.unfinished")
    check_free(out)
    shutil.rmtree(staged, ignore_errors=True)
    written = stage_adapter(
        lm, gate, staged, feed_forward=feed_forward, base=base, revision=revision, card=card
    )
    finish_folder(staged, out)
    return written


def stage_adapter(
    lm: LanguageModel,
    gate: Gate,
    staged: Path,
    *,
    feed_forward: NDArray[np.float32] | None = None,
    base: str | None = None,
    revision: str | None = None,
    card: str | None = None,
) -> Adapter:
    """Do all of `ia3_adapter` in the folder `staged`."""
    from safetensors.torch import save

    check_geometry(gate, lm.geometry, "the gate")
    before = {site.projection_name: channel_factors(site, gate) for site in lm.sites}
    after: dict[str, torch.Tensor] = {}
    if feed_forward is not None:
        gated = [layer for layer, value in enumerate(feed_forward) if value != 1]
        for layer, name in output_projections(lm, gated).items():
            width = _outputs(lm.model.get_submodule(name))
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
    own = base or str(lm.name if lm.revision else lm.folder or lm.name)
    config = {
        "peft_type": "IA3",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": own,
        "revision": revision or lm.revision,
        "inference_mode": True,
        "target_modules": targets,
        "feedforward_modules": inputs,
        "fan_in_fan_out": any(reads_rows(module) for module in modules.values()),
        "init_ia3_weights": True,
        "modules_to_save": None,
    }
    vectors = {f"base_model.model.{name}.ia3_l": one[None, :] for name, one in before.items()}
    vectors |= {f"base_model.model.{name}.ia3_l": one[:, None] for name, one in after.items()}
    blob = save({name: one.contiguous() for name, one in vectors.items()}, {"format": "pt"})
    staged.mkdir(parents=True, exist_ok=True)
    write_bytes(staged / WEIGHTS, blob)
    if card is not None:
        write_bytes(staged / "README.md", card.encode())
    write_bytes(staged / CONFIG, (json.dumps(config, indent=2) + "\n").encode())
    return Adapter(
        tuple(modules), (CONFIG, WEIGHTS), sum(one.numel() * 4 for one in vectors.values())
    )


def _outputs(module: Any) -> int:
    return int(module.weight.shape[1] if reads_rows(module) else module.weight.shape[0])


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
        ends = sorted({".".join(one[-count:]) for one in parts})
        found = [name for name in every if any(_ends(name, end) for end in ends)]
        clear = not any(other.endswith(tuple(ends)) for other in others)
        if len(found) == len(wanted) and clear and _no_digits(ends):
            return ends
    return sorted(wanted)


def _ends(name: str, end: str) -> bool:
    return name == end or name.endswith(f".{end}")


def _no_digits(names: Sequence[str]) -> bool:
    """Whether no name counts layers, which would be no shorter than the whole names."""
    return not any(part.isdigit() for name in names for part in name.split("."))
