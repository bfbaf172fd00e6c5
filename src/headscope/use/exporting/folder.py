"""The folder that an export is written to, and what of a checkpoint's folder goes along."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from headscope.errors import InputError
from headscope.heads import Gate
from headscope.heads.store import write_bytes
from headscope.use.exporting.tensors import checkpoint_files

if TYPE_CHECKING:
    from headscope.lm.model import LanguageModel

PLAN = "unfinished.json"
# What belongs to a model beside its weights. Weights in other forms and code stay behind.
_COMPANIONS = ("*.json", "*.jinja", "*.txt", "*.model", "*.tiktoken")
_LEGAL = ("LICENSE*", "LICENCE*", "NOTICE*", "USE_POLICY*", "COPYING*")
_TEMPLATES = "chat_templates"
_QUANTISED = "quantization_config"


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


def plan_digest(
    folder: Path,
    gate: Gate,
    feed_forward: NDArray[np.float32] | None,
    limit: int,
    computed: bool,
) -> str:
    """What an unfinished export is of: sizes and times of the source's files, and the gate."""
    digest = hashlib.sha256()
    for file in checkpoint_files(folder):
        status = file.stat()
        digest.update(f"{file.resolve()} {status.st_size} {status.st_mtime_ns}\n".encode())
    digest.update(gate.values.tobytes())
    if feed_forward is not None:
        digest.update(np.asarray(feed_forward, dtype=np.float32).tobytes())
    digest.update(f"{folder.resolve()} {limit} {computed}".encode())
    return digest.hexdigest()


def begin_folder(staged: Path, plan: str, out: Path) -> None:
    """Make the folder of an unfinished export, or go on in one of the same plan."""
    note = staged / PLAN
    if staged.exists():
        known = _plan_of(note)
        if known == plan:
            for left in staged.rglob(".tmp-*"):  # by a process killed while it wrote
                left.unlink()
            return
        if known is None and any(staged.iterdir()):
            raise InputError(f"{staged}: holds other files, so {out} is not written; move them")
        shutil.rmtree(staged)  # an export of something else that was never finished
    staged.mkdir(parents=True)
    write_bytes(note, (json.dumps({"plan": plan}) + "\n").encode())


def _plan_of(note: Path) -> str | None:
    """What the note in an unfinished folder says; None if there is none or it is damaged."""
    try:
        return str(json.loads(note.read_bytes())["plan"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def check_room(folder: Path, size: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < size:
        raise InputError(
            f"{folder}: the checkpoint needs {size / 1e9:.1f} GB, but {free / 1e9:.1f} GB are free "
            "there; make room or name another place"
        )


def companions(folder: Path) -> list[Path]:
    """The files of a checkpoint's folder that belong to it beside weights and card."""
    found = {
        file
        for pattern in (*_COMPANIONS, *_LEGAL, f"{_TEMPLATES}/*.jinja")
        for file in folder.glob(pattern)
        if file.is_file() and not file.name.endswith(".index.json")
    }
    return sorted(found)


def save_companions(lm: LanguageModel, staged: Path) -> None:
    """Write what belongs to a model beside its weights, where no folder holds it to be copied."""
    lm.model.config.save_pretrained(staged)
    lm.model.generation_config.save_pretrained(staged)
    lm.tokenizer.save_pretrained(staged)


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


def check_plain(folder: Path) -> None:
    """InputError for a checkpoint whose weights are quantised."""
    method = quantised_by(folder)
    if method is not None:
        raise InputError(
            f"{folder}: its weights are quantised ({method}): one number scales a block of them, "
            "across heads, so a gate cannot be folded in; add --dequantise to write a larger "
            "checkpoint in full precision, or --as ia3 to leave the weights alone"
        )


def unquantised(config: bytes) -> bytes:
    """A config.json without its quantisation."""
    kept = {name: told for name, told in json.loads(config).items() if name != _QUANTISED}
    return (json.dumps(kept, indent=2, ensure_ascii=False) + "\n").encode()
