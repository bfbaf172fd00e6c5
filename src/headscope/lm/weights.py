"""Where a model's weights lie and how they are stored: on devices or in files, quantised or plain.

``accelerate`` leaves a placeholder without data (device ``meta``) where a weight waits on another
device or in a file, and brings it in for each forward pass of its module.  So a weight's device
does not say where its module computes, and its bytes have to be asked for.

``transformers`` has one way in for every quantiser (``quantization_config``), and a checkpoint that
carries one is loaded by it, whichever it is.  Ordinary checkpoints are quantised while they are
loaded by bitsandbytes, which computes on GPUs and CPUs alike: ``8bit`` is LLM.int8() (Dettmers et
al., NeurIPS 2022, section 3: weights by output channel, activations by token, both to 8 bits, input
channels that exceed 6 kept as they are), ``4bit`` is NF4 (Dettmers et al., NeurIPS 2023, section 3:
weights alone, in blocks of 64).

A gate stands before W_O and a peak before it as well, so neither needs to know how a weight is
stored.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import nn
from torch.nn import functional

from headscope.errors import InputError, OptionalPart, check_parts
from headscope.lm.hooks import Forward, replaced_forwards
from headscope.lm.owners import inner_model, interposing

if TYPE_CHECKING:
    from headscope.lm.model import LanguageModel

_SIZE = re.compile(r"\d+(\.\d+)?\s*([KMGT]i?B)", re.IGNORECASE)
_DEVICE = re.compile(r"cpu|disk|mps|\d+|(cuda|xpu|npu):\d+")

Quantise = Literal["8bit", "4bit"]
QUANTISE: tuple[Quantise, ...] = ("8bit", "4bit")

#: Rows of the identity that go through a projection at once.
_ROWS = 1024


def executing_device(module: nn.Module) -> torch.device:
    """The device on which a module computes, also where its weights wait elsewhere.

    Raises `InputError` if its weights are nowhere: built on ``meta`` and never loaded.
    """
    weight = getattr(module, "weight", None)
    held = itertools.chain(module.parameters(), module.buffers())
    device = (weight if isinstance(weight, torch.Tensor) else next(held)).device
    if device.type != "meta":
        return device
    for hook in hooks_of(module):
        place = getattr(hook, "execution_device", None)
        if place is not None and torch.device(place).type != "meta":
            return torch.device(place)
    raise InputError(
        f"The weights of a {type(module).__name__} hold no data (device meta); load the model with "
        "its weights, or with a device_map."
    )


def input_device(model: Any) -> torch.device:
    """Where token ids go: the device on which the embeddings are looked up."""
    return executing_device(inner_model(model).get_input_embeddings())


def hooks_of(module: nn.Module) -> Sequence[Any]:
    """The hooks by which `accelerate` places a module."""
    hook = getattr(module, "_hf_hook", None)
    return () if hook is None else getattr(hook, "hooks", (hook,))


def stored_tensor(model: nn.Module, name: str, value: torch.Tensor) -> torch.Tensor:
    """The data of one entry of a state dict; read from where it waits if it is a placeholder, and
    gathered from all processes that share it.

    Raises `InputError` if it is a placeholder for nothing.
    """
    if hasattr(value, "full_tensor"):
        shared: Any = value
        gathered: torch.Tensor = shared.full_tensor()
        return gathered
    if value.device.type != "meta":
        return value
    parts = name.split(".")
    for end in range(len(parts) - 1, -1, -1):
        place, inside = ".".join(parts[:end]), ".".join(parts[end:])
        for hook in hooks_of(model.get_submodule(place)):
            waiting = getattr(hook, "weights_map", None)
            if waiting is not None and inside in waiting:
                tensor: torch.Tensor = waiting[inside]
                return tensor
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

    Raises `InputError` if one is no DEVICE=SIZE, or a device is named twice.
    """
    limits: dict[int | str, str] = {}
    for raw in given:
        place, _, size = (part.strip() for part in raw.partition("="))
        if not _DEVICE.fullmatch(place) or not _SIZE.fullmatch(size):
            raise InputError(
                f"--max-memory {raw!r} is not DEVICE=SIZE; write a GPU's number or cpu, and a size "
                "with its unit, such as 0=20GiB or cpu=64GiB."
            )
        number = place.rpartition(":")[2]
        key: int | str = int(number) if number.isdigit() else place
        if key in limits:
            raise InputError(f"--max-memory names {place} twice; give each device one size.")
        limits[key] = size
    return limits


def quantised_part(quantise: str) -> OptionalPart:
    """What making such weights needs."""
    return OptionalPart(f"quantise={quantise!r}", "quantised", ("bitsandbytes", "accelerate"))


def quantisation(quantise: str, compute: torch.dtype) -> Any:
    """The ``quantization_config`` that makes 8- or 4-bit weights while a checkpoint is loaded.

    `compute` is the dtype of products with 4-bit weights (8-bit ones are multiplied as integers).
    Raises `InputError` if there is no such kind; `MissingExtra` if a package is missing.
    """
    if quantise not in QUANTISE:
        raise InputError(f"quantise is {quantise!r}; it must be {' or '.join(QUANTISE)}.")
    check_parts([quantised_part(quantise)])
    from transformers import BitsAndBytesConfig

    # It warns in every forward pass that it rounds activations, which is what it is there for, and
    # when it is imported that it finds no package of kernels from the Hub, which would be
    # somebody's compiled code.
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)
    make: Any = BitsAndBytesConfig
    if quantise == "8bit":
        return make(load_in_8bit=True)
    return make(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=compute)


def keep_gradients(model: nn.Module) -> None:
    """Let 4-bit layers of bitsandbytes compute on the CPU as they do elsewhere.

    On CPUs with bfloat16 instructions they would repack their weights at the first forward pass,
    for a kernel that rounds to bfloat16 whatever is asked for, gives no gradient, and needs widths
    that are multiples of 64.
    """
    for module in model.modules():
        if type(module).__name__ == "Linear4bit":
            chosen: Any = module
            chosen.support_avx512bf16_for_cpu = False


def refuse_wrong_layers(model: nn.Module) -> None:
    """Refuse 4-bit layers whose numbers bitsandbytes reads wrongly.

    Its quantiser scales blocks of 64 numbers that run on from row to row; its kernel for the CPU
    (version 0.50.2) looks for the scales as if every row began a block, so that all weights are
    wrong, and nothing says so, where a row is no multiple of a block. Raises `InputError` naming
    the first such layer.
    """
    for name, module in model.named_modules():
        weight: Any = getattr(module, "weight", None)
        if type(weight).__name__ != "Params4bit" or weight.device.type != "cpu":
            continue
        block = int(weight.blocksize)
        width = module.in_features
        if isinstance(width, int) and width % block:
            raise InputError(
                f"On the CPU bitsandbytes reads 4-bit weights wrongly where a layer has a number "
                f"of inputs that is no multiple of {block} ({name} has {width}); use 8bit, or a "
                "GPU."
            )


def method_of(model: Any) -> str | None:
    """How a model's weights are quantised, by the name its quantiser goes by (``bitsandbytes 4
    bits``, ``torchao``), or None for ordinary weights."""
    config = getattr(model.config, "quantization_config", None)
    if config is None:
        return None
    read = config if isinstance(config, dict) else config.to_dict()
    method = read.get("quant_method", "unknown")
    name = str(getattr(method, "value", method))
    bits = next((bit for bit in (8, 4) if read.get(f"load_in_{bit}bit")), read.get("bits"))
    return name if bits is None else f"{name} {bits} bits"


def count_of(parameter: torch.Tensor) -> int:
    """How many numbers a parameter stands for: more than it holds where several share a byte."""
    shape = getattr(getattr(parameter, "quant_state", None), "shape", parameter.shape)
    return math.prod(shape)


def is_plain(module: nn.Module) -> bool:
    """Whether a module is an ordinary Linear or Conv1D with ordinary numbers as its weight."""
    from transformers.pytorch_utils import Conv1D

    weight = getattr(module, "weight", None)
    return (
        type(module) in (nn.Linear, Conv1D)
        and isinstance(weight, torch.Tensor)
        and type(weight) in (torch.Tensor, nn.Parameter)
        and weight.is_floating_point()
    )


def dequantised_weight(module: nn.Module) -> torch.Tensor:
    """The weight that a linear map multiplies by, whatever it is stored as: float32 (out, in), also
    for Conv1D, on the device where the module computes. May share memory with an ordinary weight.

    Read by the quantiser's own means where it is known; else by sending unit vectors through the
    module, each of which gives one column (exact also where activations are rounded, since a single
    1 needs no rounding). Weights that wait in a file are read from it.
    """
    from transformers.pytorch_utils import Conv1D

    weight: Any = getattr(module, "weight", None)
    if is_plain(module):
        plain = stored_tensor(module, "weight", weight).detach().to(executing_device(module))
        return plain.float().T if isinstance(module, Conv1D) else plain.float()
    if isinstance(weight, torch.Tensor) and weight.device.type != "meta":
        # Every tensor has a method of this name; those of quantisers bring their own.
        if type(weight).dequantize is not torch.Tensor.dequantize:
            return _oriented(module, weight.dequantize().detach().float())
        if type(weight).__name__ == "Int8Params":
            return _oriented(module, _bitsandbytes(weight, getattr(module, "state", None)))
        packed = getattr(getattr(weight, "quant_state", None), "packing_format_for_cpu", False)
        if type(weight).__name__ == "Params4bit" and not packed:
            return _oriented(module, _bitsandbytes(weight, None))
    return _through(module)


def _bitsandbytes(weight: torch.Tensor, state: Any) -> torch.Tensor:
    from transformers.integrations import bitsandbytes

    read: Any = bitsandbytes
    weight = read.dequantize_bnb_weight(weight, state)
    return weight.detach().float()


def _oriented(module: nn.Module, weight: torch.Tensor) -> torch.Tensor:
    """A check of the shape, for quantisers that keep another order in mind."""
    shape = (getattr(module, "out_features", None), getattr(module, "in_features", None))
    if tuple(weight.shape) != shape:
        return _through(module)
    return weight


def _through(module: nn.Module) -> torch.Tensor:
    weight: Any = getattr(module, "weight", None)
    floating = isinstance(weight, torch.Tensor) and weight.is_floating_point()
    dtype = weight.dtype if floating else torch.float32
    width = getattr(module, "in_features", None) or int(weight.shape[0])
    device = executing_device(module)
    columns = []
    with torch.no_grad():
        # By `forward`, around which placement works but no gate does.
        bias = module.forward(torch.zeros((1, width), dtype=dtype, device=device)).float()
        for start in range(0, width, _ROWS):
            rows = torch.arange(start, min(start + _ROWS, width), device=device)
            units = torch.zeros((len(rows), width), dtype=dtype, device=device)
            units.scatter_(1, rows[:, None], 1)
            columns.append(module.forward(units).float() - bias)
    return torch.cat(columns).T


@contextlib.contextmanager
def changeable_weights(lm: LanguageModel) -> Iterator[dict[int, torch.Tensor]]:
    """Each layer's W_O as a matrix (out, in) that can be changed in place.

    The model's own, where that is one.  A projection that is quantised, or waits in a file, runs
    with a copy of its numbers inside the context.
    """
    from transformers.pytorch_utils import Conv1D

    weights: dict[int, torch.Tensor] = {}
    if any(site.mesh is not None for site in lm.sites):
        raise InputError(
            "The weights of a model that is divided among processes cannot be changed; leave "
            "tp_plan out."
        )
    with interposing(lm.model), contextlib.ExitStack() as stack:
        for site in lm.sites:
            projection: Any = site.projection
            if is_plain(projection) and projection.weight.device.type != "meta":
                own = projection.weight.data
                # Conv1D (GPT-2) holds its weight as (in, out), Linear as (out, in).
                weights[site.layer] = own.T if isinstance(projection, Conv1D) else own
                continue
            weights[site.layer] = weight = dequantised_weight(projection).clone()
            bias = getattr(projection, "bias", None)
            if bias is not None:
                bias = stored_tensor(projection, "bias", bias)

            def multiply(
                x: torch.Tensor, weight: torch.Tensor = weight, bias: torch.Tensor | None = bias
            ) -> torch.Tensor:
                own = None if bias is None else bias.to(x.device, x.dtype)
                return functional.linear(x, weight.to(x.dtype), own)

            def instead(_: Forward, own: Forward = multiply) -> Forward:
                return own

            stack.enter_context(replaced_forwards(lm.model, [projection], instead))
        yield weights
