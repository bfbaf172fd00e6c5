"""Weights in 8 and 4 bits: made while loading, recognised, and read back as ordinary numbers.

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

import importlib.util
import logging
import math
from typing import Any, Literal

import torch
from torch import nn

from headscope.errors import InputError, MissingExtra
from headscope.lm.placement import executing_device, stored_tensor

Quantise = Literal["8bit", "4bit"]
QUANTISE: tuple[Quantise, ...] = ("8bit", "4bit")

#: Rows of the identity that go through a projection at once.
_ROWS = 1024


def quantisation(quantise: str, compute: torch.dtype) -> Any:
    """The ``quantization_config`` that makes 8- or 4-bit weights while a checkpoint is loaded.

    Args:
        quantise: ``8bit`` or ``4bit``.
        compute: dtype of the products with 4-bit weights (8-bit ones are multiplied as integers).

    Raises:
        InputError: if there is no such kind; `MissingExtra` if a package is missing.
    """
    if quantise not in QUANTISE:
        raise InputError(f"quantise is {quantise!r}; it must be {' or '.join(QUANTISE)}.")
    for package in ("bitsandbytes", "accelerate"):
        if importlib.util.find_spec(package) is None:
            raise MissingExtra.needed(f"quantise={quantise!r}", package, "quantised")
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
    wrong, and nothing says so, where a row is no multiple of a block.

    Raises:
        InputError: naming the first such layer.
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
    """The weight that a linear map multiplies by, whatever it is stored as.

    Read by the quantiser's own means where it is known; else by sending unit vectors through the
    module, each of which gives one column (exact also where activations are rounded, since a
    single 1 needs no rounding).  Weights that wait in a file are read from it.

    Args:
        module: a Linear, a Conv1D, or a relative with ``in_features`` and ``out_features``.

    Returns:
        float32 (out, in), also for Conv1D, which stores it the other way round; on the device
        where the module computes.  May share memory with an ordinary weight in float32.
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
