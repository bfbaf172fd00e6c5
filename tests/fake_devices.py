"""Two devices where there is none: tensors that say they lie on `cpu:0` and `cpu:1`.

An operation on tensors of two places raises, as it would on two GPUs; all others are computed. So
what is not brought to the right device is found on any machine.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

PLACES = ("cpu:0", "cpu:1")
#: Operations that take tensors of several places: copies, and indices that may lie on the CPU.
_BETWEEN = ("_to_copy", "copy_", "index")


class Placed(torch.Tensor):
    """A tensor on one of `PLACES`; `own` holds its numbers."""

    own: torch.Tensor
    place: torch.device

    @staticmethod
    def __new__(cls, own: torch.Tensor, place: torch.device) -> Placed:
        made = torch.Tensor._make_wrapper_subclass(
            cls, own.shape, strides=own.stride(), dtype=own.dtype, device="cpu",
            dispatch_device=True,
        )  # fmt: skip
        made.own, made.place = own, place
        return made

    def tolist(self) -> Any:
        return self.cpu().tolist()

    def numpy(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError("can't convert a tensor on a device to numpy")

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {})


def _run(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    if func is torch.ops.prim.device.default:
        return args[0].place
    given = [one for one in tree_leaves((args, kwargs)) if isinstance(one, torch.Tensor)]
    places = {one.device for one in given if one.dim()}
    if len(places) > 1 and not func.__name__.startswith(_BETWEEN):
        raise RuntimeError(f"{func.__name__} met tensors on {sorted(map(str, places))}")
    named = kwargs.get("device")
    kwargs = kwargs if named is None else {**kwargs, "device": torch.device("cpu")}
    made = func(*tree_map(_plain, args), **tree_map(_plain, kwargs))
    placed = {id(one.own): one for one in given if isinstance(one, Placed)}
    here = next((one.device for one in given if one.dim()), given[0].device if given else None)
    where = here if named is None else torch.device(named)
    if where is None or where.index is None:
        return made

    def place(one: Any) -> Any:
        if not isinstance(one, torch.Tensor):
            return one
        return placed[id(one)] if id(one) in placed else Placed(one, where)

    return args[0] if func.__name__.startswith("copy_") else tree_map(place, made)


def _plain(one: Any) -> Any:
    return one.own if isinstance(one, Placed) else one


class _Everything(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {})


class _Made(TorchFunctionMode):
    """What is made from Python's numbers is brought to its device where it can be seen."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func in (torch.tensor, torch.as_tensor) and kwargs.get("device") is not None:
            place = kwargs.pop("device")
            return func(*args, **kwargs).to(place)
        return func(*args, **kwargs)


@contextlib.contextmanager
def two_devices() -> Iterator[None]:
    """Let `PLACES` be devices inside the block."""
    # In inference mode tensors move without telling.
    calm = mock.patch.object(torch, "inference_mode", torch.no_grad)
    with calm, _Everything(), _Made():
        yield


def spread(model: Any) -> Any:
    """A causal model whose upper half and output lie on the second device, as `accelerate` places
    them; inside `two_devices`."""
    from accelerate.hooks import AlignDevicesHook, add_hook_to_module

    def put(module: nn.Module, place: str) -> None:
        for part in module.modules():
            for held in (part._parameters, part._buffers):
                for name, value in held.items():
                    if value is not None:
                        there = value.detach().to(place)
                        kept = isinstance(value, nn.Parameter)
                        held[name] = nn.Parameter(there, requires_grad=False) if kept else there
        add_hook_to_module(module, AlignDevicesHook(execution_device=place))

    layers = model.model.layers
    for number, layer in enumerate(layers):
        put(layer, PLACES[number >= len(layers) // 2])
    for name, module in model.model.named_children():
        if name != "layers":
            put(module, PLACES[name == "norm"])
    put(model.lm_head, PLACES[1])
    return model
