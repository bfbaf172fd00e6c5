"""What a model's numbers follow from at this moment, beside its files.

A model in Python is its user's: between two calls adapters are switched, scaled or merged, weights
are replaced, modules are patched, hooks come and go. All of that is looked up anew at every call:
tensors by a sum that takes a fraction of a pass, modules by their attributes (PEFT keeps its scales
and its active adapters there), and whatever is not of the packages that make models by what it does
(see `headscope.own`).
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from torch.nn.modules import module as global_hooks
from torch.overrides import _get_current_function_mode_stack
from torch.utils._device import DeviceContext
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from headscope.errors import InputError
from headscope.lm.interpose import stands_at
from headscope.lm.owners import inner_model
from headscope.lm.weights import hooks_of, stored_tensor
from headscope.own import digest_of

if TYPE_CHECKING:
    from headscope.lm.model import LanguageModel

#: Packages whose code belongs to a model: they build, place, divide, quantise and adapt it.
MAKERS = ("torch", "transformers", "accelerate", "bitsandbytes", "gguf", "kernels", "peft")
#: Beside them what their functions are wrapped by, and what their files import.
_OTHERS = (*sys.stdlib_module_names, "huggingface_hub", "safetensors", "tokenizers", "numpy")
_HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")
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
#: Entries of a configuration that no pass reads.
_NOTES = ("transformers_version", "dtype", "torch_dtype", "use_cache", "_name_or_path")
#: Numbers of eight bytes in a row; rows that are summed at once, which a core's cache holds.
_ROW, _ROWS = 4096, 64
#: From a value that is not the makers' to what tells it from others.
Told = Callable[[Any], str]


def identity(model: nn.Module, functions: bool = True) -> str:
    """SHA-256 (hexadecimal) of all that a pass of a model depends on: its tensors (by `sums`), the
    types and the attributes of its modules, hooks, replaced forwards and kernels.

    Not of where it lies, whether it trains, and which kernels it has among those of `transformers`.
    Of what is not of the packages that make models what it does, which is never the same where it
    cannot be told (see `headscope.own`); without `functions` its type.

    Raises `InputError` where a gate or a recording of headscope is open on the model.
    """
    told: Told = digest_of if functions else (lambda value: type(value).__qualname__)
    modules = [*model.named_modules(remove_duplicate=False)]
    first: dict[int, str] = {}
    for name, module in modules:
        first.setdefault(id(module), name)
    known = _Known(model, told, first)
    about = {
        "tensors": known.tensors(modules, first),
        "modules": {
            name: known.about(module) if first[id(module)] == name else first[id(module)]
            for name, module in modules
        },
        "in the way": [
            [place, kind, told(there)] for place, kind, there in _in_the_way(model, known)
        ],
    }
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()


def check_as_probed(lm: LanguageModel) -> None:
    """Refuse a model in another state than that in which its heads were found: layers that were
    replaced or wrapped since; and what changes passes without being a part of the model: autocast,
    modes of torch, hooks on what stands around the model inside of adapters.
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
    stacks: Any = (_get_current_function_mode_stack, _get_current_dispatch_mode_stack)
    for mode in (mode for stack in stacks for mode in stack()):
        if not isinstance(mode, DeviceContext):
            raise InputError(
                f"the mode {type(mode).__name__} of torch is on, and what it changes could not be "
                "told from the model; leave the block"
            )
    inside = {id(module) for module in inner_model(lm.model).modules()}
    for name, module in lm.model.named_modules():
        foreign = (hook for kind in _HOOKS for hook in getattr(module, kind).values())
        if id(module) not in inside and any(not _of_makers(hook) for hook in foreign):
            raise InputError(
                f"a hook stands at {name or 'the root'} of {lm.name}, around the model that heads "
                "are read in, and would act in some passes alone; put it on the model inside of it"
            )


def sums(model: nn.Module, name: str, tensor: torch.Tensor) -> list[Any]:
    """What tells the content of a tensor from another's: dtype, shape, and a sum (modulo 2**64) of
    its bytes, eight at a time, each multiplied by numbers of its row and its column.

    Read at the speed of memory; the same on every device. Of what waits in a file dtype and shape
    alone.
    """
    if hasattr(tensor, "full_tensor"):  # shared by several processes
        tensor = stored_tensor(model, name, tensor)
    if hasattr(tensor, "__tensor_flatten__"):  # made of several
        parts, _ = tensor.__tensor_flatten__()
        return [
            [part, sums(model, f"{name}.{part}", inside)]
            for part in sorted(parts)
            if isinstance(inside := getattr(tensor, part), torch.Tensor)
        ]
    known: list[Any] = [str(tensor.dtype), list(tensor.shape)]
    if tensor.device.type == "meta" or not tensor.numel():
        return known
    held = stored_tensor(model, name, tensor).detach().resolve_conj().resolve_neg().contiguous()
    held = held.reshape(-1).view(torch.uint8)
    whole = len(held) // (8 * _ROW) * (8 * _ROW)
    known.append(_sum(held[whole:].to(torch.int64).view(1, -1)))
    if whole:
        # A view of eight bytes must begin at a multiple of eight.
        begins = held[:whole] if held.data_ptr() % 8 == 0 else held[:whole].clone()
        known.append(_sum(begins.view(torch.int64).view(-1, _ROW)))
    return known


def _sum(numbers: torch.Tensor) -> int:
    """Of a matrix of 64-bit numbers the sum of each times a number of its row and its column.

    The upper bits are mixed into the lower ones first: times an even sum, a sign would vanish.
    """
    rows, width = numbers.shape
    at_once = _ROWS if numbers.device.type == "cpu" else rows
    columns, total = _weights(width, 1).to(numbers.device), numbers.new_zeros(rows)
    for begin in range(0, rows, at_once):
        some = numbers[begin : begin + at_once]
        mixed = some >> 29
        mixed ^= some
        mixed *= columns
        total[begin : begin + at_once] = mixed.sum(1)
    return int((total * _weights(rows, 2).to(numbers.device)).sum())


def _weights(count: int, kind: int) -> torch.Tensor:
    """Odd 64-bit numbers without a pattern, one a place (splitmix64)."""
    places = np.arange(kind << 40, (kind << 40) + count, dtype=np.uint64)
    mixed = places * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return torch.from_numpy(((mixed ^ (mixed >> np.uint64(31))) | np.uint64(1)).view(np.int64))


class _Known:
    """What is found out about a model's modules, their types and what their attributes hold."""

    def __init__(self, model: nn.Module, told: Told, places: Mapping[int, str]) -> None:
        self.model, self.told, self.places = model, told, {**places}
        self._kinds: dict[type, list[Any]] = {}
        self._configurations: dict[int, str] = {}

    def tensors(
        self, modules: list[tuple[str, nn.Module]], first: Mapping[int, str]
    ) -> dict[str, Any]:
        """The parameters and buffers of modules, and the tensors that they hold beside them; of
        shared ones the name of the first."""
        found: dict[str, Any] = {}
        seen: dict[int, str] = {}
        for place, module in modules:
            if first.get(id(module)) != place:
                continue
            held = (*module._parameters.items(), *module._buffers.items(), *vars(module).items())
            for name, tensor in held:
                if isinstance(tensor, torch.Tensor):
                    full = f"{place}.{name}"
                    shared = seen.setdefault(id(tensor), full)
                    own = shared == full
                    found[full] = sums(self.model, full.lstrip("."), tensor) if own else shared
        return found

    def about(self, module: nn.Module) -> list[Any]:
        """The type of a module, and its attributes; of models of `transformers` not what they note
        down for the library, which no pass reads."""
        from transformers import PreTrainedModel

        kind, noted = type(module), isinstance(module, PreTrainedModel)
        if kind not in self._kinds:
            self._kinds[kind] = [*self._about_type(kind)]
        attributes = {
            name: self.plain(value)
            for name, value in sorted(vars(module).items())
            if name not in _PASSING
            and not isinstance(value, torch.Tensor)
            and not (noted and name.startswith(("_", "all_tied")))
        }
        return [self._kinds[kind], attributes]

    def _about_type(self, kind: type) -> Iterator[Any]:
        """The name of a type of the makers, with those of its functions that were put there by
        others; other types by all that they have."""
        if not _made(kind):
            yield self.told(kind)
            return
        yield f"{kind.__module__}.{kind.__qualname__}"
        for base in kind.__mro__[:-1]:
            if not _made(base):
                yield self.told(base)
                continue
            for name, value in sorted(vars(base).items()):
                inner = getattr(value, "fget", getattr(value, "__func__", value))
                if isinstance(inner, FunctionType) and not _of_makers(inner):
                    yield [base.__qualname__, name, self.told(inner)]

    def plain(self, value: Any) -> Any:
        """A value of an attribute as JSON: numbers, texts and containers of them; tensors by their
        sums; of what the makers put there the name, or what it is configured to; of others what
        tells them apart."""
        if value is None or (isinstance(value, bool | int | float | str) and _made(type(value))):
            return value
        if isinstance(value, torch.Tensor):
            return sums(self.model, "", value)
        if isinstance(value, Mapping):
            return {str(name): self.plain(inside) for name, inside in value.items()}
        if isinstance(value, list | tuple):  # PEFT writes its only active adapter in either way
            single = len(value) == 1
            return self.plain(value[0]) if single else [self.plain(inside) for inside in value]
        if isinstance(value, set | frozenset):
            return sorted(json.dumps(self.plain(inside), sort_keys=True) for inside in value)
        if isinstance(value, torch.dtype | torch.device | torch.Size):
            return str(value) if isinstance(value, torch.dtype) else type(value).__name__
        if isinstance(value, nn.Module):
            return self._beside(value)
        if hasattr(value, "to_dict") and hasattr(value, "model_type"):
            return self._configuration(value)
        named = isinstance(value, FunctionType | BuiltinFunctionType | MethodType | type)
        if named and _of_makers(value):
            return value.__qualname__
        if type(value).__module__.partition(".")[0] in MAKERS and _made(type(value)):
            return type(value).__qualname__
        return self.told(value)

    def _beside(self, module: nn.Module) -> Any:
        """A module that another holds in a container: one of the model by its name, as a way back
        to a parent is kept; others whole, once."""
        if id(module) in self.places:
            return self.places[id(module)]
        inside = [*module.named_modules()]
        own = {id(part): name for name, part in inside if id(part) not in self.places}
        self.places |= {key: f"beside {len(self.places)}.{name}" for key, name in own.items()}
        return [
            self.tensors(inside, own),
            [[name, self.about(part)] for name, part in inside if id(part) in own],
        ]

    def _configuration(self, config: Any) -> str:
        """What a module's configuration says now, and its kernel where it is not the model's."""
        if id(config) not in self._configurations:
            own = getattr(self.model, "config", None)
            parts = (own, getattr(own, "text_config", None))
            kernel = getattr(config, "_attn_implementation", None)
            if any(config is part for part in parts):
                kernel = None
            said = {name: value for name, value in config.to_dict().items() if name not in _NOTES}
            text = json.dumps([said, kernel], sort_keys=True, default=str)
            self._configurations[id(config)] = hashlib.sha256(text.encode()).hexdigest()
        return self._configurations[id(config)]


def _is_theirs(module: str) -> bool:
    top = module.partition(".")[0]
    return top in MAKERS or (top in _OTHERS and top != "__main__")


def _made(kind: type) -> bool:
    """Whether a type is one of the makers' or of Python itself."""
    return _is_theirs(kind.__module__) and (
        getattr(sys.modules.get(kind.__module__), kind.__qualname__.partition(".")[0], None)
        is not None
    )


def _of_makers(value: Any) -> bool:
    """Whether what a function or an object does is the makers' code; names can be copied, the
    globals that a function reads cannot."""
    inner = value
    while hasattr(inner, "func") and not isinstance(inner, FunctionType):
        inner = inner.func
    if isinstance(inner, MethodType):
        inner = inner.__func__
    if isinstance(inner, FunctionType):
        return _is_theirs(str(inner.__globals__.get("__name__")))
    if isinstance(inner, BuiltinFunctionType):  # those of torch have no module
        return _is_theirs(inner.__module__ or "torch")
    return _made(inner if isinstance(inner, type) else type(inner))


def _in_the_way(model: nn.Module, known: _Known) -> Iterator[tuple[str, str, Any]]:
    """Hooks, forwards of single modules, and functions that modules call, which are not the
    model's own: where each stands, as what, and the function with what it closes over.

    Raises `InputError` for those of headscope itself.
    """
    there: list[tuple[str, str, Any]] = []
    for name, module in model.named_modules():
        if stands_at(module):
            raise _open(name)
        there += ((name, kind, hook) for kind in _HOOKS for hook in getattr(module, kind).values())
        there += ((name, "placement", hook) for hook in hooks_of(module))
    for kind in _HOOKS:
        every = getattr(global_hooks, f"_global{kind}").values()
        there += (("every module", kind, hook) for hook in every)
    there += _called(model)
    there = [entry for entry in there if not _of_makers(entry[2])]
    for name, module in model.named_modules():
        forward = vars(module).get("forward")
        if forward is not None and not _is_own_forward(module, forward):
            there.append((name, "forward", forward))
    for name, kind, function in there:
        inner = function
        while hasattr(inner, "func"):
            inner = inner.func
        code = inner if isinstance(inner, FunctionType) else getattr(inner, "__func__", None)
        place = code.__globals__.get("__name__") if code is not None else type(inner).__module__
        if str(place).partition(".")[0] != "headscope":
            # Of a function of an installed package the digest has the version alone.
            cells = [_content(cell) for cell in getattr(inner, "__closure__", None) or ()]
            yield name, kind, [function, cells]
        elif not hasattr(inner, "leaves_numbers"):
            raise _open(name)


def _is_own_forward(module: nn.Module, forward: Any) -> bool:
    """Whether the makers put a forward into a module: a method of its own, as of kernels, or a
    function made for it, which places it on a device or divides it among processes; not any
    function of theirs."""
    if isinstance(forward, MethodType):
        return forward.__self__ is module and _of_makers(forward)
    inner = forward
    while hasattr(inner, "func"):
        inner = inner.func
    made = "<locals>" in getattr(inner, "__qualname__", "") or hasattr(module, "_hf_hook")
    return made and _of_makers(forward)


def _called(model: nn.Module) -> Iterator[tuple[str, str, Any]]:
    """What modules call beside their own methods: kernels and masks by the tables of
    `transformers`, functions of the files they are written in, and those of torch."""
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    configurations = [getattr(module, "config", None) for module in model.modules()]
    names = {str(getattr(config, "_attn_implementation", None)) for config in configurations}
    for table, what in (
        (ALL_ATTENTION_FUNCTIONS, "kernel"),
        (ALL_MASK_ATTENTION_FUNCTIONS, "mask"),
    ):
        yield from (("", f"{what} {name}", table[name]) for name in sorted(names) if name in table)
    files = {type(module).__module__ for module in model.modules()}
    places = [(file, vars(sys.modules[file])) for file in sorted(files) if _is_file(file)]
    for file, names_of_file in (*places, (functional.__name__, vars(functional))):
        for name, value in names_of_file.items():
            if isinstance(value, FunctionType):
                yield file, name, value


def _is_file(module: str) -> bool:
    return module.partition(".")[0] in MAKERS and module in sys.modules


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
