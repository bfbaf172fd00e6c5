"""One number for all of a model's weights, as they are stored."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import torch

from headscope.lm.placement import stored_tensor


def digest_of_files(place: Path) -> str:
    """SHA-256 (hexadecimal) of a folder's weight files: names and contents, by name; of a GGUF
    file its content's."""
    if place.is_file():
        return _digest_of_file(place)
    digest = hashlib.sha256()
    for path in sorted(place.glob("model*.safetensors")):
        digest.update(f"{path.name} {_digest_of_file(path)}\n".encode())
    return digest.hexdigest()


def _digest_of_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest_of_state(model: torch.nn.Module) -> str:
    """SHA-256 (hexadecimal) of a state dict: names, dtypes, shapes and bytes, by name.

    Of quantised weights the parts they are stored as; of weights that wait in a file or on another
    device what waits there.
    """
    digest = hashlib.sha256()
    for name, value in sorted(model.state_dict().items()):
        if isinstance(value, torch.Tensor):
            _add(digest, name, stored_tensor(model, name, value))
        else:
            digest.update(f"{name} {value!r}\n".encode())
    return digest.hexdigest()


def _add(digest: Any, name: str, value: torch.Tensor) -> None:
    digest.update(f"{name} {value.dtype} {tuple(value.shape)}\n".encode())
    value = value.detach()
    if hasattr(value, "__tensor_flatten__"):  # a tensor made of several
        parts, _ = value.__tensor_flatten__()
        for part in sorted(parts):
            inside = getattr(value, part)
            if isinstance(inside, torch.Tensor):
                _add(digest, f"{name}.{part}", inside)
        return
    flat = value.cpu().contiguous().reshape(-1)
    digest.update(flat.view(torch.uint8).numpy().tobytes())
