"""Where the parts of a model lie and compute: one device, several, or partly in a file.

``accelerate`` leaves a placeholder without data (device ``meta``) where a weight waits on another
device or in a file, and brings it in for each forward pass of its module.  So a weight's device
does not say where its module computes, and its bytes have to be asked for.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from headscope.errors import InputError

_SIZE = re.compile(r"\d+(\.\d+)?\s*([KMGT]i?B)", re.IGNORECASE)
_DEVICE = re.compile(r"cpu|disk|mps|\d+|(cuda|xpu|npu):\d+")


def executing_device(module: nn.Module) -> torch.device:
    """The device on which a module computes, also where its weights wait elsewhere.

    Raises:
        InputError: if its weights are nowhere: built on ``meta`` and never loaded.
    """
    weight = getattr(module, "weight", None)
    held = itertools.chain(module.parameters(), module.buffers())
    device = (weight if isinstance(weight, torch.Tensor) else next(held)).device
    if device.type != "meta":
        return device
    for hook in _hooks(module):
        place = getattr(hook, "execution_device", None)
        if place is not None and torch.device(place).type != "meta":
            return torch.device(place)
    raise InputError(
        f"The weights of a {type(module).__name__} hold no data (device meta); load the model with "
        "its weights, or with a device_map."
    )


def input_device(model: Any) -> torch.device:
    """Where token ids go: the device on which the embeddings are looked up."""
    inner = model.get_base_model() if hasattr(model, "get_base_model") else model
    return executing_device(inner.get_input_embeddings())


def _hooks(module: nn.Module) -> Sequence[Any]:
    """What ``accelerate`` runs around a module's forward pass."""
    hook = getattr(module, "_hf_hook", None)
    return () if hook is None else getattr(hook, "hooks", (hook,))


def stored_tensor(model: nn.Module, name: str, value: torch.Tensor) -> torch.Tensor:
    """The data of one entry of a state dict; read from where it waits if it is a placeholder.

    Raises:
        InputError: if it is a placeholder for nothing.
    """
    if value.device.type != "meta":
        return value
    parts = name.split(".")
    for end in range(len(parts) - 1, -1, -1):
        place, inside = ".".join(parts[:end]), ".".join(parts[end:])
        for hook in _hooks(model.get_submodule(place)):
            waiting = getattr(hook, "weights_map", None)
            if waiting is not None and inside in waiting:
                found: torch.Tensor = waiting[inside]
                return found
    raise InputError(
        f"The weight {name} holds no data (device meta); load the model with its weights."
    )


def computes_on_cpu(
    device_map: str | Mapping[str, Any], max_memory: Mapping[int | str, Any] | None = None
) -> bool:
    """Whether a model so placed computes on the CPU alone, weights in files included."""
    if not isinstance(device_map, str):
        places = {str(place) for place in device_map.values()}
    elif max_memory is not None:  # devices that are not named are not used
        places = {str(place) for place in max_memory}
    else:
        return not torch.accelerator.is_available()
    return places <= {"cpu", "disk"}


def memory_limits(given: Iterable[str]) -> dict[int | str, str]:
    """``["0=20GiB", "cpu=64GiB"]`` as ``accelerate`` takes it: bytes of weights by device.

    Raises:
        InputError: if one is no DEVICE=SIZE, or a device is named twice.
    """
    limits: dict[int | str, str] = {}
    for one in given:
        place, _, size = (part.strip() for part in one.partition("="))
        if not _DEVICE.fullmatch(place) or not _SIZE.fullmatch(size):
            raise InputError(
                f"--max-memory {one!r} is not DEVICE=SIZE; write a GPU's number or cpu, and a size "
                "with its unit, such as 0=20GiB or cpu=64GiB."
            )
        number = place.rpartition(":")[2]
        key: int | str = int(number) if number.isdigit() else place
        if key in limits:
            raise InputError(f"--max-memory names {place} twice; give each device one size.")
        limits[key] = size
    return limits
