"""Write a gate as an ordinary checkpoint, tensor by tensor, or as an adapter for stock PEFT.

(IA)³ learns vectors that multiply activations (Liu et al. 2022, arXiv 2205.05638, section 3.3). In
PEFT a module listed as a feed-forward one has its *input* multiplied, so a gate repeated over the
channels of each head, put before W_O, is such a vector. One that is not listed so has its output
multiplied, bias included: that is a feed-forward gate at the part's last projection.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from headscope.errors import InputError
from headscope.heads import Gate, check_geometry
from headscope.heads.store import write_bytes
from headscope.lm.checkpoints import ADAPTER, INDEX, SINGLE, adapter_of, weight_files
from headscope.results.export import ExportedFiles
from headscope.use.exporting.scaling import (
    channel_factors,
    output_projections,
    scaled_blocks,
    scalings,
)
from headscope.use.exporting.tensors import (
    Sliced,
    Stored,
    reads_rows,
    stored_tensors,
    write_tensors,
)

if TYPE_CHECKING:
    from headscope.lm.model import LanguageModel


PLAN = "unfinished.json"
CONFIG, WEIGHTS = ADAPTER
#: Files about the terms of a model.
LEGAL = ("LICENSE*", "LICENCE*", "NOTICE*", "USE_POLICY*")
# What belongs to a model beside its weights. Weights in other forms and code stay behind.
_COMPANIONS = ("*.json", "*.jinja", "*.txt", "*.model", "*.tiktoken", "chat_templates/*.jinja")
_QUANTISED = "quantization_config"
_UNITS = {"KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


def bytes_of(size: str | int) -> int:
    """`5GB` as a number of bytes: a whole number, or one with KB, MB, GB or TB (powers of 1000)."""
    text = str(size).strip().upper()
    unit = next((name for name in _UNITS if text.endswith(name)), "")
    number = text.removesuffix(unit).strip()
    try:
        value = int(float(number) * _UNITS.get(unit, 1))
    except (ValueError, OverflowError):
        value = 0
    if value < 1:
        raise InputError(f"{size!r} is not a size of a file; write 5GB or 500MB")
    return value


def fold_checkpoint(
    lm: LanguageModel,
    gate: Gate,
    out: Path,
    *,
    feed_forward: NDArray[np.float32] | None = None,
    max_shard_size: str | int = "5GB",
    card: str | None = None,
    progress: Callable[[int, int], None] | None = None,
    weights: Sequence[Stored] | None = None,
    settings: Mapping[str, Any] | None = None,
    staged: Path | None = None,
) -> ExportedFiles:
    """Write the model of `lm` with the gate folded into its weights, as an ordinary checkpoint.

    No more than one tensor is in memory at a time, so `lm` may be hollow (see
    `headscope.lm.hollow.hollow_model`) and the checkpoint of any size. Tensors that the gate
    leaves alone are copied byte by byte; the others keep their dtype. Tokenizer, configuration,
    generation settings, chat template and licence files are copied.

    Until all is written, the folder `OUT.unfinished` holds what is done; the same call goes on
    there after a kill, and renames it at the end.

    Args:
        lm: the model, hollow or loaded, which has the folder of its checkpoint.
        gate: one number a head.
        out: the folder to make.
        feed_forward: one number for each layer's feed-forward part, shape (L,).
        max_shard_size: bytes of a weight file, such as `5GB`; a larger tensor has its own.
        card: text of the README.md; without it none is written.
        progress: called with (bytes written, bytes in all).
        weights: these tensors are written in place of the folder's own, which are quantised or
            have other shapes than those of `lm`.
        settings: entries of config.json that are written in place of the folder's own.
        staged: the unfinished folder, which is then left for the caller to rename.

    Raises:
        InputError: if the gate does not fit, the checkpoint cannot be folded (pickled, quantised,
            damaged), or `out` exists.
    """
    folder = lm.folder
    if folder is None:
        raise InputError(f"the model {lm.name} was not loaded from a folder; load its checkpoint")
    limit = bytes_of(max_shard_size)
    check_free(out)
    check_without_adapter(folder)
    if weights is None:
        check_plain(folder)
    tensors = stored_tensors(folder) if weights is None else list(weights)
    factors = scalings(lm, tensors, gate, feed_forward)
    shards = _shards(tensors, limit)
    total = sum(tensor.size for tensor in tensors)
    place = staged or out.with_name(f"{out.name}.unfinished")
    slices = [tensor for tensor in tensors if isinstance(tensor, Sliced)]
    others = f"{limit} {weights is not None} {settings} {slices}"
    _begin_folder(place, _plan_digest(folder, gate, feed_forward, others), out)
    size = total - sum(file.stat().st_size for file in place.glob("*.safetensors"))
    free = shutil.disk_usage(place).free
    if free < size:
        raise InputError(
            f"{place}: the checkpoint needs {size / 1e9:.1f} GB, but {free / 1e9:.1f} GB are free "
            "there; make room or name another place"
        )
    done = 0

    def step(size: int) -> None:
        nonlocal done
        done += size
        if progress is not None:
            progress(done, total)

    for name, members in shards.items():
        if (place / name).exists():  # by an earlier start; a file has its name once it is whole
            step(sum(tensor.size for tensor in members))
            continue
        write_tensors(place / name, members, lambda tensor: scaled_blocks(tensor, factors), step)
    if len(shards) > 1:
        write_bytes(place / INDEX, _index(lm, shards, total))
    for file in companions(folder):
        target = place / file.relative_to(folder)
        target.parent.mkdir(exist_ok=True)
        data = file.read_bytes()
        if weights is not None and file.name == "config.json":
            kept = {name: value for name, value in json.loads(data).items() if name != _QUANTISED}
            kept |= settings or {}
            data = (json.dumps(kept, indent=2, ensure_ascii=False) + "\n").encode()
        write_bytes(target, data)
    if card is not None:
        write_bytes(place / "README.md", card.encode())
    if staged is None:
        finish_folder(place, out)
    return ExportedFiles(
        files=tuple(shards), size=total, changed=tuple(sorted(factors)), tensors=len(tensors)
    )


def _shards(tensors: Sequence[Stored], limit: int) -> dict[str, list[Stored]]:
    """Weight files by name, filled in the order in which the tensors lie in the source."""
    groups: list[list[Stored]] = [[]]
    left = limit
    for tensor in tensors:
        if groups[-1] and tensor.size > left:
            groups.append([])
            left = limit
        groups[-1].append(tensor)
        left -= tensor.size

    def width(tensor: Stored) -> int:
        return tensor.size // max(1, int(np.prod(tensor.shape, dtype=np.int64)))

    # The wide dtypes first, so that every tensor begins at a multiple of its element's width.
    aligned = [sorted(group, key=width, reverse=True) for group in groups]
    if len(aligned) == 1:
        return {SINGLE: aligned[0]}
    return {
        f"model-{at:05d}-of-{len(groups):05d}.safetensors": group
        for at, group in enumerate(aligned, 1)
    }


def _index(lm: LanguageModel, shards: Mapping[str, Sequence[Stored]], total: int) -> bytes:
    places = {tensor.name: file for file, members in shards.items() for tensor in members}
    numbers = {
        "total_parameters": sum(parameter.numel() for parameter in lm.model.parameters()),
        "total_size": total,
    }
    text = json.dumps({"metadata": numbers, "weight_map": dict(sorted(places.items()))}, indent=2)
    return f"{text}\n".encode()


def check_free(out: Path) -> None:
    """InputError if there is something of this name that an export must not replace."""
    if out.is_dir() and not any(out.iterdir()):
        return
    if out.exists() or out.is_symlink():
        raise InputError(f"{out}: exists already and is left untouched; name a new folder")


def finish_folder(staged: Path, out: Path) -> None:
    """Give a folder that is whole its name."""
    check_free(out)
    (staged / PLAN).unlink(missing_ok=True)
    if out.exists():  # an empty folder
        out.rmdir()
    os.replace(staged, out)


def _plan_digest(
    folder: Path,
    gate: Gate,
    feed_forward: NDArray[np.float32] | None,
    others: str,
) -> str:
    """What an unfinished export is of: sizes, times and numbers of the source's files, gate,
    `others`."""
    digest = hashlib.sha256()
    for file in weight_files(folder):
        status = file.stat()
        state = (status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)
        digest.update(f"{file.resolve()} {state}\n".encode())
    digest.update(gate.values.tobytes())
    if feed_forward is not None:
        digest.update(np.asarray(feed_forward, dtype=np.float32).tobytes())
    digest.update(f"{folder.resolve()} {others}".encode())
    return digest.hexdigest()


def _begin_folder(staged: Path, plan: str, out: Path) -> None:
    """Make the folder of an unfinished export, or go on in one of the same plan."""
    note = staged / PLAN
    if staged.exists():
        try:
            known = json.loads(note.read_bytes())["plan"]
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            known = None
        if known == plan:
            for left in staged.rglob(".tmp-*"):  # by a process killed while it wrote
                left.unlink()
            return
        if known is None and any(staged.iterdir()):
            raise InputError(f"{staged}: holds other files, so {out} is not written; move them")
        shutil.rmtree(staged)  # an export of something else that was never finished
    staged.mkdir(parents=True)
    write_bytes(note, (json.dumps({"plan": plan}) + "\n").encode())


def companions(folder: Path) -> list[Path]:
    """The files of a checkpoint's folder that belong to it beside weights and card."""
    files = {
        file
        for pattern in (*_COMPANIONS, *LEGAL, "COPYING*")
        for file in folder.glob(pattern)
        if file.is_file() and not file.name.endswith(".index.json")
    }
    return sorted(files)


def quantised_by(folder: Path) -> str | None:
    """The method by which a checkpoint's weights are quantised; None for ordinary ones."""
    if folder.is_file():  # a GGUF file, which is dequantised when it is loaded
        return None
    try:
        config = json.loads((folder / "config.json").read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{folder / 'config.json'}: cannot be read ({error})") from error
    settings = config.get(_QUANTISED) if isinstance(config, dict) else None
    if settings is None:
        return None
    return str(settings.get("quant_method") if isinstance(settings, dict) else settings)


def check_without_adapter(folder: Path) -> None:
    """InputError for a folder with an adapter beside the weights, which an export would lose."""
    if adapter := adapter_of(folder):
        raise InputError(
            f"{folder}: has an adapter beside its weights, {adapter}; move {CONFIG} and {WEIGHTS} "
            "into a folder of their own, merge them with PeftModel.from_pretrained(model, "
            "ADAPTER).merge_and_unload().save_pretrained(NEW_FOLDER), and export that"
        )


def check_plain(folder: Path) -> None:
    """InputError for a checkpoint whose weights are quantised."""
    method = quantised_by(folder)
    if method is not None:
        raise InputError(
            f"{folder}: its weights are quantised ({method}): one number scales a block of them, "
            "across heads, so a gate cannot be folded in; add --dequantise to write a larger "
            "checkpoint in full precision, or --as ia3 to leave the weights alone"
        )


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
        **base_entries(lm),
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


def base_entries(lm: LanguageModel) -> dict[str, Any]:
    """What the configuration of any adapter says of its base."""
    return {
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": str(lm.name if lm.revision else lm.folder or lm.name),
        "revision": lm.revision,
        "inference_mode": True,
    }


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
        matches = [name for name in every if f".{name}".endswith(tuple(f".{end}" for end in ends))]
        clear = not any(name.endswith(tuple(ends)) for name in others)
        # A name that counts layers would be no shorter than the whole names.
        counts = any(part.isdigit() for end in ends for part in end.split("."))
        if len(matches) == len(wanted) and clear and not counts:
            return ends
    return sorted(wanted)
