"""Whether a model fits into memory, told before it is loaded."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from headscope.lm.model import LanguageModel

_KILO = 1024
#: Beside its weights: buffers, activations of a few tokens, logits.
_MARGIN = 1.1


def weights_size(lm: LanguageModel, dtype: torch.dtype) -> int:
    """Bytes of a model's parameters when they are held in a dtype."""
    elements: int = sum(one.numel() for one in lm.model.parameters())
    return elements * dtype.itemsize


def room_for(lm: LanguageModel, device: str | None = None, dtype: str = "auto") -> str | None:
    """Why a model is too large for the device's free memory; None if it is not, or not known.

    Args:
        lm: the model, hollow.
        device: as for `headscope.load`.
        dtype: likewise; `auto` is float32 on the CPU.
    """
    cuda = torch.cuda.is_available() if device is None else device.startswith("cuda")
    held = getattr(torch, dtype) if dtype != "auto" else lm.dtype if cuda else torch.float32
    free = _free_on_gpu(device) if cuda else _free_memory()
    need = weights_size(lm, held) * _MARGIN
    if free is None or need <= free:
        return None
    where = "the GPU" if cuda else "memory"
    return (
        f"too large to load for a comparison: it needs {need / 1e9:.1f} GB of {where}, and "
        f"{free / 1e9:.1f} GB are free"
    )


def _free_on_gpu(device: str | None) -> int | None:
    if not torch.cuda.is_available():
        return None
    free, _ = torch.cuda.mem_get_info(torch.device(device) if device else 0)
    return int(free)


def _free_memory() -> int | None:
    """Bytes that the system could give; None where it does not tell."""
    told = Path("/proc/meminfo")
    if not told.is_file():
        return None
    for line in told.read_text().splitlines():
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            return int(value.split()[0]) * _KILO
    return None
