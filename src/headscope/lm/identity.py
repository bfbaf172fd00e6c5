"""What a model's numbers follow from at this moment, beside its files.

A model in Python is its user's: between two calls adapters are switched, scaled or merged, weights
are replaced, modules are patched, hooks come and go. All of that is looked up anew at every call:
tensors by sums that take a fraction of a pass, modules by their plain attributes (PEFT keeps its
scales and its active adapters there), and what stands in a module's way by what it does.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn.modules import module as global_hooks

from headscope.errors import InputError
from headscope.lm.hooks import kernel_name
from headscope.lm.interpose import stands_at
from headscope.lm.weights import stored_tensor
from headscope.own import digest_of

if TYPE_CHECKING:
    from headscope.lm.model import LanguageModel

#: Packages whose hooks and forwards belong to a model: they place, divide, quantise and adapt it.
MAKERS = ("torch", "transformers", "accelerate", "bitsandbytes", "gguf", "kernels", "peft")
_HOOKS = (
    "_forward_pre_hooks",
    "_forward_hooks",
    "_backward_pre_hooks",
    "_backward_hooks",
)
#: Attributes of every module, and those that say nothing about what a pass computes.
_PASSING = {
    *vars(nn.Module()),
    "name_or_path",
    "warnings_issued",
    "hf_device_map",
    "gradient_checkpointing",
    "forward",  # a module's own: see `_in_the_way`
    "_hf_hook",
    "_old_forward",
    "_is_hf_initialized",
    "_output_capturing_hooks_installed",
}
#: Numbers that are summed as one row: sums of rows and of columns tell where a number stands.
_ROW = 4096


def identity(model: nn.Module, functions: bool = True) -> str:
    """SHA-256 (hexadecimal) of all that a pass of a model depends on: its tensors (by `sums`), the
    types and the plain attributes of its modules, hooks and replaced forwards.

    Not of where it lies, whether it trains, and which kernels it has among those of `transformers`.
    Of functions that stand in the way what they do, which is never the same where it cannot be told
    (see `headscope.own`); without `functions` where they stand alone.

    Raises `InputError` where a gate or a recording of headscope is open on the model.
    """
    about = {
        "tensors": {name: sums(model, name, tensor) for name, tensor in _tensors(model)},
        "modules": {name: _about(module) for name, module in model.named_modules()},
        "in the way": [
            [place, kind, functions and digest_of(there)]
            for place, kind, there in _in_the_way(model)
        ],
    }
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()


def check_as_probed(lm: LanguageModel) -> None:
    """Refuse a model in another state than that in which its heads were found: layers that were
    replaced or wrapped since, and autocast, under which it computes in another dtype than it says.
    """
    for site in lm.sites:
        named = ((site.attention_name, site.attention), (site.projection_name, site.projection))
        for name, module in named:
            parent, _, last = name.rpartition(".")
            try:
                there = getattr(lm.model.get_submodule(parent), last)
            except AttributeError:
                there = None
            if there is not module:
                raise InputError(
                    f"{lm.name}: its module {name} is another than when its heads were found; give "
                    "the model anew: headscope.load(model, tokenizer)"
                )
    for device in ("cpu", "cuda"):
        if torch.is_autocast_enabled(device):
            raise InputError(
                f"torch.autocast is on, so {lm.name} would not compute in {lm.dtype}, as results "
                "would say; leave the block, or load the model in the dtype that is wanted"
            )


def sums(model: nn.Module, name: str, tensor: torch.Tensor) -> list[Any]:
    """What tells the content of a tensor from another's: shape, dtype, and three sums (modulo
    2**64) of its bytes as integers: of all, and of rows and columns by their places.

    Read at the speed of memory; the sums are the same on every device. Of what waits in a file the
    shape and the dtype alone.
    """
    if hasattr(tensor, "__tensor_flatten__"):  # a tensor made of several
        parts, _ = tensor.__tensor_flatten__()
        return [
            [part, sums(model, f"{name}.{part}", inside)]
            for part in sorted(parts)
            if isinstance(inside := getattr(tensor, part), torch.Tensor)
        ]
    known: list[Any] = [str(tensor.dtype), list(tensor.shape)]
    if tensor.device.type == "meta" or not tensor.numel():
        return known
    held = stored_tensor(model, name, tensor).detach().contiguous().reshape(-1).view(torch.uint8)
    whole = len(held) // (8 * _ROW) * (8 * _ROW)
    ends = [held[whole:].to(torch.int64).view(1, -1)]
    if whole:
        # A view of eight bytes must begin at a multiple of eight.
        begins = held[:whole] if held.data_ptr() % 8 == 0 else held[:whole].clone()
        ends.append(begins.view(torch.int64).view(-1, _ROW))
    return [*known, *(total for numbers in ends for total in _placed_sums(numbers))]


def _placed_sums(numbers: torch.Tensor) -> list[int]:
    rows, columns = numbers.sum(1), numbers.sum(0)
    return [
        int(rows.sum()),
        *(int((line * _odd(len(line), line.device)).sum()) for line in (rows, columns)),
    ]


def _odd(length: int, device: torch.device) -> torch.Tensor:
    """Odd numbers without a pattern, by place (multiplicative hashing)."""
    return torch.arange(1, length + 1, device=device) * 0x9E3779B97F4A7C1 | 1


def _tensors(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Parameters, buffers, and tensors that modules hold beside them."""
    seen = set[int]()
    for place, module in model.named_modules():
        held = (*module._parameters.items(), *module._buffers.items(), *vars(module).items())
        for name, tensor in held:
            if isinstance(tensor, torch.Tensor) and id(tensor) not in seen:
                seen.add(id(tensor))
                yield f"{place}.{name}".removeprefix("."), tensor


def _about(module: nn.Module) -> list[Any]:
    """The type of a module, its forward, and its plain attributes; of models of `transformers` not
    what they note down for the library, which no pass reads."""
    from transformers import PreTrainedModel

    kind, noted = type(module), isinstance(module, PreTrainedModel)
    forward = [getattr(kind.forward, name, None) for name in ("__module__", "__qualname__")]
    plain = {
        name: _plain(value)
        for name, value in sorted(vars(module).items())
        if name not in _PASSING
        and not isinstance(value, torch.Tensor)
        and not (noted and name.startswith(("_", "all_tied")))
    }
    return [kind.__module__, kind.__qualname__, forward, plain]


def _plain(value: Any) -> Any:
    """A value of an attribute as JSON: numbers, texts and containers of them; of others the name of
    a function or of the type."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        return {str(name): _plain(inside) for name, inside in value.items()}
    if isinstance(value, list | tuple):  # PEFT writes its only active adapter in either way
        return _plain(value[0]) if len(value) == 1 else [_plain(inside) for inside in value]
    if isinstance(value, set | frozenset):
        return sorted(json.dumps(_plain(inside), sort_keys=True) for inside in value)
    if isinstance(value, torch.dtype):
        return str(value)
    return getattr(value, "__qualname__", type(value).__qualname__)


def _in_the_way(model: nn.Module) -> Iterator[tuple[str, str, Any]]:
    """Hooks, forwards of single modules and kernels that are not the model's own: where each
    stands, as what, and the function with what it closes over.

    Raises `InputError` for those of headscope itself.
    """
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    there: list[tuple[str, str, Any]] = []
    for name, module in model.named_modules():
        if stands_at(module):
            raise _open(name)
        there += ((name, kind, hook) for kind in _HOOKS for hook in getattr(module, kind).values())
        if "forward" in vars(module):
            there.append((name, "forward", vars(module)["forward"]))
    for kind in _HOOKS:
        every = getattr(global_hooks, f"_global{kind}").values()
        there += (("every module", kind, hook) for hook in every)
    there.append(("", "attention", ALL_ATTENTION_FUNCTIONS.get(kernel_name(model))))
    for name, kind, function in there:
        inner = function
        while hasattr(inner, "func"):
            inner = inner.func
        package = str(getattr(inner, "__module__", type(inner).__module__)).partition(".")[0]
        if package == "headscope" and not hasattr(inner, "leaves_numbers"):
            raise _open(name)
        if function is not None and package not in (*MAKERS, "headscope"):
            # Of a function of an installed package the digest has the version alone.
            cells = [_content(cell) for cell in getattr(inner, "__closure__", None) or ()]
            yield name, kind, [function, cells]


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # it has no value yet
        return None


def _open(name: str) -> InputError:
    return InputError(
        f"a gate or a recording is open on the model (at {name or 'its root'}), so results would "
        "be of the model with it; leave the `with` block first, or write the gate into a model of "
        "its own: headscope use export"
    )
