"""Ordinary tensors of a quantised model, each computed when it is asked for."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from headscope.errors import InputError
from headscope.lm.weights import dequantised_weight
from headscope.use.exporting.scaling import reads_rows
from headscope.use.exporting.tensors import Stored

if TYPE_CHECKING:
    from headscope.lm.model import LanguageModel

_NAMES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}


@dataclass(frozen=True)
class Computed(Stored):
    """A tensor that lies in no file; `value` computes it."""

    value: Callable[[], torch.Tensor] = field(kw_only=True)

    def read(self) -> bytearray:
        """All of its bytes."""
        flat = self.value().detach().cpu().contiguous().reshape(-1)
        return bytearray(flat.view(torch.uint8).numpy().tobytes())

    def blocks(self) -> Iterable[bytes]:
        """Its bytes at once."""
        yield bytes(self.read())


def dequantised_tensors(lm: LanguageModel, hollow: LanguageModel) -> list[Stored]:
    """The tensors of the ordinary model that a quantised one stands for, in the hollow's dtypes.

    One weight at a time is read back (see `headscope.lm.weights.dequantised_weight`).

    Args:
        lm: the quantised model.
        hollow: the same model by its configuration without quantisation; its names, shapes and
            dtypes are those that are written.

    Raises:
        InputError: for a part that is neither ordinary nor a quantised linear map.
    """
    modules = dict(lm.model.named_modules())
    state = lm.model.state_dict()
    wanted = itertools.chain(hollow.model.named_parameters(), _buffers(hollow.model))
    return [_tensor(name, like, modules, state, hollow) for name, like in wanted]


def _tensor(
    name: str,
    like: torch.Tensor,
    modules: dict[str, Any],
    state: dict[str, Any],
    hollow: LanguageModel,
) -> Computed:
    owner, _, leaf = name.rpartition(".")
    shape = tuple(like.shape)
    stored = state.get(name)
    plain = (
        type(stored) is torch.Tensor
        and tuple(stored.shape) == shape
        and (stored.is_floating_point() or not like.is_floating_point())
        and stored.device.type != "meta"
        and stored.element_size() > 1
    )

    def read() -> torch.Tensor:
        if plain:
            value: torch.Tensor = state[name]
        else:
            value = dequantised_weight(modules[owner])
            if reads_rows(hollow.model.get_submodule(owner)):
                value = value.T
        if tuple(value.shape) != shape:
            raise _unreadable(name)
        return value.to(like.dtype)

    if like.dtype not in _NAMES or not (plain or (leaf == "weight" and owner in modules)):
        raise _unreadable(name)
    size = like.numel() * like.element_size()
    place = Path(f"{hollow.name} ({name})")
    return Computed(name, place, _NAMES[like.dtype], shape, 0, size, value=read)


def _unreadable(name: str) -> InputError:
    return InputError(
        f"{name}: cannot be read back from its quantised form as an ordinary tensor; export an "
        "ordinary checkpoint of the model, or leave the weights alone with --as ia3"
    )


def _buffers(model: torch.nn.Module) -> Iterable[tuple[str, torch.Tensor]]:
    """The buffers that a checkpoint holds."""
    kept = model.state_dict().keys()
    return ((name, buffer) for name, buffer in model.named_buffers() if name in kept)
