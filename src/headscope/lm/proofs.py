"""What a model proved at load is kept, so that it need not prove it at every start; on request so
are the weights of a GGUF file as they were dequantised.

Both lie in the cache of the Hugging Face client (`HF_ASSETS_CACHE`), under a digest of all that
they depend on: the files of the model, how they were loaded, and the code that checked or converted
them. What failed is not kept.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from dataclasses import asdict
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from filelock import FileLock
from huggingface_hub import cached_assets_path

from headscope.lm.hooks import kernel_name
from headscope.lm.selfcheck import Noise, Proof, checked
from headscope.lm.shards import all_true, shared

if TYPE_CHECKING:
    from headscope.lm.model import LanguageModel

#: `once`: unless a verdict is kept; `never`: also if none is.
Check = Literal["once", "always", "never"]
#: Packages that take part in what a model computes.
_PACKAGES = ("torch", "transformers", "accelerate", "bitsandbytes", "gguf", "kernels", "peft")
#: Bytes of a weight file that are read: a header is at its beginning, and is no longer.
_HEADER = 1 << 20
#: The part of the cache that holds weights.
CONVERTED = "converted"
_WEIGHTS = (".safetensors", ".gguf", ".bin", ".pt", ".pth", ".h5", ".msgpack", ".onnx")


def proven(lm: LanguageModel, check: Check, settings: Mapping[str, Any]) -> Proof:
    """The proof of a model that was loaded from files with these settings: kept, or made now.

    Several processes that load one model at once check it once. `InputError` as of `selfcheck`.
    """
    place = _place(lm, settings)
    if place is None:  # no cache can be written to
        return checked(lm)
    # Processes that share a model check it together, and cannot wait for each other here.
    with nullcontext() if shared() else FileLock(place.with_suffix(".lock")):
        if check == "once" and all_true(place.exists()):
            # A file that something else has damaged counts as none.
            with suppress(ValueError, TypeError):
                noise, proved = json.loads(place.read_text("utf-8"))
                return Proof(Noise(**noise), str(proved))
        proof = checked(lm)
        unfinished = place.with_suffix(f".{os.getpid()}.part")
        unfinished.write_text(json.dumps((asdict(proof.noise), proof.proved)), "utf-8")
        unfinished.replace(place)
    return proof


def _place(lm: LanguageModel, settings: Mapping[str, Any]) -> Path | None:
    """The file of a model's verdict; None where the cache cannot be written to."""
    assert lm.folder is not None
    about = {
        "files": _files(lm.folder),
        "tokenizer": [str(getattr(lm.tokenizer_or_none, name, None))
                      for name in ("name_or_path", "vocab_size")],
        "settings": {name: str(value) for name, value in settings.items()},
        "dtype": str(lm.dtype),
        "device": _device(lm.device),
        "attention": kernel_name(lm.model),
        "machine": [platform.machine(), torch.backends.cpu.get_cpu_capability()],
    }  # fmt: skip
    folder = kept_in("self-checks")
    return folder and folder / f"{_key(about)}.json"


def conversion(model: Path, dtype: torch.dtype) -> Path | None:
    """The folder of a GGUF file's weights in a dtype, there if they are kept; None where the cache
    cannot be written to."""
    folder = kept_in(CONVERTED)
    key = _key({"files": _files(model)})[:16]
    return folder and folder / f"{model.name} {str(dtype).removeprefix('torch.')} {key}"


def kept_in(kind: str) -> Path | None:
    """The folder of the cache for one kind; None where it cannot be written to."""
    try:
        folder = cached_assets_path("headscope", namespace=kind)
        (folder / ".writable").touch()
    except OSError:  # a home that is read-only or full: then nothing is kept
        return None
    return folder


def _key(about: Mapping[str, Any]) -> str:
    made = {"code": _code(), "packages": {name: _version(name) for name in _PACKAGES}}
    return hashlib.sha256(json.dumps({**about, **made}, sort_keys=True).encode()).hexdigest()


def _files(model: Path) -> list[list[Any]]:
    """The files of a model: of weights the header, size and time of change; of others a digest."""
    whole = model.is_dir()
    files = sorted(file for file in model.iterdir() if file.is_file()) if whole else [model]
    listed: list[list[Any]] = []
    for file in files:
        with file.open("rb") as opened:
            if file.suffix in _WEIGHTS or not whole:
                about, read = file.stat(), opened.read(_HEADER)
                listed.append([file.name, about.st_size, about.st_mtime_ns])
            else:
                listed.append([file.name])
                read = opened.read()
        listed[-1].append(hashlib.sha256(read).hexdigest())
    return listed


def _device(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else str(device)


@cache
def _code() -> str:
    """A digest of the code that loads and checks models, which a version alone does not tell."""
    digest = hashlib.sha256()
    for file in sorted(Path(__file__).parent.rglob("*.py")):
        digest.update(file.read_bytes())
    return digest.hexdigest()


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
