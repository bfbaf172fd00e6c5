"""What a model proved at load is kept, so that it need not prove it at every start; on request so
are the weights of a GGUF file as they were dequantised.

Both lie in the cache of the Hugging Face client (`HF_ASSETS_CACHE`), under a digest of all that
they depend on: the files of the model, how they were loaded, and the code that checked or converted
them. Weights are numbers of a run, so the file that they are of is read whole; a verdict is about a
file of the same place, age and size, which is read here and there. What failed is not kept.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from functools import cache
from glob import escape
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from filelock import FileLock, Timeout
from huggingface_hub import cached_assets_path

from headscope.errors import caution
from headscope.heads.store import write_bytes
from headscope.lm.checkpoints import digest_of_files
from headscope.lm.hooks import kernel_name
from headscope.lm.selfcheck import MOST_NOISE, Noise, Proof, checked
from headscope.lm.shards import all_true, shared

if TYPE_CHECKING:
    from headscope.lm.model import LanguageModel

#: `once`: unless a verdict is kept; `never`: also if none is.
Check = Literal["once", "always", "never"]
#: Packages that take part in what a model computes.
_PACKAGES = ("torch", "transformers", "accelerate", "bitsandbytes", "gguf", "kernels", "peft")
#: Bytes of a weight file that are read for a verdict: a header is at its beginning, and is no
#: longer; besides so many parts, evenly spaced to its end.
_HEADER, _PARTS, _PART = 1 << 20, 64, 1 << 12
#: Other files are read whole up to this size.
_LARGE = 1 << 27
#: Seconds until a word is said of a lock that another process holds, and until it is not waited for
#: any longer.
WORD_AFTER, PATIENCE = 5.0, 3600.0
#: What is noted of the files of a conversion, beside them.
_SEAL = "kept.json"
#: The parts of the cache that hold weights, and verdicts.
CONVERTED, CHECKED = "converted", "self-checks"
_WEIGHTS = (".safetensors", ".gguf", ".bin", ".pt", ".pth", ".h5", ".msgpack", ".onnx")


def proven(lm: LanguageModel, check: Check, settings: Mapping[str, Any]) -> Proof:
    """The proof of a model that was loaded from files with these settings: kept, or made now.

    Several processes that load one model at once check it once. `InputError` as of `selfcheck`.
    """
    place = _place(lm, settings)
    if place is None:  # no cache can be written to
        return checked(lm)
    # Processes that share a model check it together, and cannot wait for each other here.
    with nullcontext() if shared() else alone(place.with_suffix(".lock"), f"checks {lm.name}"):
        kept = _read(place) if check == "once" else None
        if all_true(kept is not None) and kept is not None:
            return kept
        proof = checked(lm)
        with suppress(OSError):  # no room: then it is proved again
            write_bytes(place, json.dumps((asdict(proof.noise), proof.proved)).encode())
    return proof


#: Standard deviations of the logits that repeated passes of no model that passes lie apart.
MOST_AT_ALL = 100.0


def _read(place: Path) -> Proof | None:
    """The verdict in a file; None where there is none, or something else has damaged it."""
    try:
        noise, proved = json.loads(place.read_text("utf-8"))
        numbers = {name: noise.pop(name) for name in ("typical", "largest")}
        whole = all(type(number) is float for number in numbers.values()) and not noise
        # What a self-check cannot have given: too noisy, or made in time to come.
        if not whole or not 0 <= numbers["typical"] <= min(MOST_NOISE, numbers["largest"]):
            return None
        made = datetime.fromisoformat(proved)
        if not numbers["largest"] <= MOST_AT_ALL or made > datetime.now(UTC) + timedelta(days=1):
            return None
    except (OSError, ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return None
    return Proof(Noise(**numbers), proved)


@contextmanager
def alone(lock: Path, doing: str) -> Iterator[bool]:
    """Hold a lock among processes, and say so where another one has it.

    False where that one has it for `PATIENCE` seconds. A lock that cannot be had at all, as on some
    network's disks, is not waited for.
    """
    held, ours = FileLock(lock), True
    try:
        try:
            held.acquire(timeout=WORD_AFTER)
        except Timeout:
            caution(
                f"another process {doing}; this one waits for it, for {PATIENCE / 60:.0f} "
                f"minutes at most (its lock: {lock})"
            )
            held.acquire(timeout=max(0.0, PATIENCE - WORD_AFTER))
    except Timeout:
        ours = False
    except (OSError, NotImplementedError):  # both are what a lock raises where a disk knows none
        # Disks of a network may know no locks, or refuse this one; work done twice is no wrong one,
        # since what is kept appears whole, by a rename.
        pass
    try:
        yield ours
    finally:
        held.release()


def _place(lm: LanguageModel, settings: Mapping[str, Any]) -> Path | None:
    """The file of a model's verdict; None where the cache cannot be written to."""
    assert lm.folder is not None
    about = {
        "files": _files(lm.folder),
        "tokenizer": [str(getattr(lm.tokenizer_or_none, name, None))
                      for name in ("name_or_path", "vocab_size")],
        "settings": {name: str(value) for name, value in settings.items()},
        "dtype": str(lm.dtype),
        **_place_of(lm),
    }  # fmt: skip
    folder = kept_in(CHECKED)
    return folder and folder / f"{_key(about)}.json"


def machinery(lm: LanguageModel) -> dict[str, Any]:
    """What computes the numbers of a model: packages, device and kernels."""
    return {"packages": {name: _version(name) for name in _PACKAGES}, **_place_of(lm)}


def _place_of(lm: LanguageModel) -> dict[str, Any]:
    return {
        "device": _device(lm.device),
        "attention": kernel_name(lm.model),
        "machine": [platform.machine(), torch.backends.cpu.get_cpu_capability()],
    }


def conversion(model: Path, dtype: torch.dtype) -> Path | None:
    """The folder of a GGUF file's weights in a dtype, named by the file's content; None where the
    cache cannot be written to."""
    folder = kept_in(CONVERTED)
    if folder is None:
        return None
    return folder / f"{_named(model, dtype)}{_key({'content': digest_of_files(model)})[:16]}"


def kept_conversion(model: Path, dtype: torch.dtype) -> Path | None:
    """The folder of a GGUF file's weights in a dtype, where they are kept as they were made."""
    folder = kept_in(CONVERTED)
    # The file is read whole only where there is something that might be its own.
    if folder is None or not any(folder.glob(f"{escape(_named(model, dtype))}*/")):
        return None
    kept = conversion(model, dtype)
    if kept is None or not kept.is_dir():
        return None
    if is_whole(kept):
        return kept
    caution(
        f"the weights kept of {model.name} have been changed since, so they are made anew; "
        f"keep them again by headscope cache {model}"
    )
    return None


def _named(model: Path, dtype: torch.dtype) -> str:
    return f"{model.name} {str(dtype).removeprefix('torch.')} "


def seal(folder: Path) -> None:
    """Note which files a conversion has, for `is_whole`."""
    (folder / _SEAL).write_text(json.dumps(_state(folder)), "utf-8")


def is_whole(folder: Path) -> bool:
    """Whether nobody has touched the files of a conversion since they were made."""
    try:
        return bool(json.loads((folder / _SEAL).read_text("utf-8")) == _state(folder))
    except (OSError, ValueError, RecursionError):
        return False


def _state(folder: Path) -> dict[str, list[int]]:
    files = {file.name: file.stat() for file in folder.iterdir() if file.name != _SEAL}
    return {name: [of.st_size, of.st_mtime_ns, of.st_ctime_ns] for name, of in files.items()}


def kept_in(kind: str) -> Path | None:
    """The folder of the cache for one kind; None where it cannot be written to."""
    try:
        folder = cached_assets_path("headscope", namespace=kind)
        (folder / ".writable").touch()
    except (OSError, ValueError):  # a home that is read-only or full: then nothing is kept
        return None
    return folder


def _key(about: Mapping[str, Any]) -> str:
    made = {"code": _code(), "packages": {name: _version(name) for name in _PACKAGES}}
    return hashlib.sha256(json.dumps({**about, **made}, sort_keys=True).encode()).hexdigest()


def _files(model: Path) -> list[list[Any]]:
    """The files of a model: of weights and other large ones size, inode, times of change (that of
    the inode is no program's to set) and a digest of some parts; of the rest a digest."""
    whole = model.is_dir()
    files = sorted(file for file in model.iterdir() if file.is_file()) if whole else [model]
    listed: list[list[Any]] = []
    for file in files:
        with file.open("rb") as opened:
            about = os.fstat(opened.fileno())
            if file.suffix in _WEIGHTS or not whole or about.st_size > _LARGE:
                of = about.st_size, about.st_ino, about.st_mtime_ns, about.st_ctime_ns
                listed.append([file.name, *of])
                digest = hashlib.sha256(opened.read(_HEADER))
                last = max(0, about.st_size - _PART)
                for number in range(_PARTS):
                    opened.seek(last * number // (_PARTS - 1))
                    digest.update(opened.read(_PART))
            else:
                listed.append([file.name])
                digest = hashlib.sha256(opened.read())
        listed[-1].append(digest.hexdigest())
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
