"""A model's shape without its weights: where its heads are, for models of any size.

A hollow model is built from the configuration alone. Every parameter is one zero, shown in the
parameter's shape, and products with weights are not computed but taken as zero, so that a forward
pass costs next to nothing whatever the size. What runs is the model's own code, so the probe of
`headscope.lm.geometry` sees the same modules, heads and widths as in the loaded model.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from headscope.errors import telling
from headscope.lm.model import LanguageModel
from headscope.lm.owners import LIBRARY


def hollow_model(
    name: str, folder: Path, config: Any, tokenizer: Any = None, revision: str | None = None
) -> LanguageModel:
    """The model of a folder with its geometry and sites, but without weights.

    Its digest is that of the folder's weight files. Quantisation is left out, so that sites name
    the modules of the plain model. Raises `InputError` if the model cannot be built or its heads
    cannot be found.
    """
    plain = copy.deepcopy(config)
    if hasattr(plain, "quantization_config"):
        del plain.quantization_config
    loader = loader_of(plain)
    with (
        telling(
            lambda why: (
                f"{name}: no model can be built from its config.json ({why}); correct it or update "
                "transformers."
            )
        ),
        LIBRARY,
        torch.device("meta"),
    ):
        # Under eager attention every architecture computes its attention in the open.
        model = loader.from_config(plain, attn_implementation="eager", trust_remote_code=False)
    _fill(model)
    model.eval()
    with without_products():
        return LanguageModel.wrap(
            model, tokenizer, name, revision=revision, folder=folder, check=False,
            within_reach=False,
        )  # fmt: skip


@contextlib.contextmanager
def without_products() -> Iterator[None]:
    """Take every product of activations with a weight matrix as zero inside."""
    with _Zeros():
        yield


class _Zeros(TorchFunctionMode):
    """Linear maps, GPT-2's Conv1D and experts give zeros of the shape that they would give."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func is functional.linear and len(args) >= 2:
            states, weight = args[:2]
            return states.new_zeros(*states.shape[:-1], weight.shape[0])
        if func is torch.addmm and len(args) == 3:
            _, states, weight = args
            return states.new_zeros(states.shape[0], weight.shape[1])
        if "grouped_mm" in getattr(func, "__name__", "") and len(args) >= 2:
            states, weight = args[:2]  # experts: (tokens, in) by (experts, in, out)
            return states.new_zeros(states.shape[0], weight.shape[-1])
        return func(*args, **(kwargs or {}))


def loader_of(config: Any) -> Any:
    """The class of `transformers` that loads a model of this configuration."""
    from transformers import AutoModelForCausalLM, AutoModelForImageTextToText
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    if config.model_type in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        return AutoModelForCausalLM
    return AutoModelForImageTextToText


def _fill(model: nn.Module) -> None:
    """Give every tensor of a model on the meta device zeros that take no memory.

    Tied parameters stay tied.
    """
    filled: dict[int, nn.Parameter] = {}

    def zeros(like: torch.Tensor) -> torch.Tensor:
        return torch.zeros((), dtype=like.dtype, device="cpu").expand(like.shape)

    for module in model.modules():
        for name, parameter in list(module.named_parameters(recurse=False)):
            if id(parameter) not in filled:
                filled[id(parameter)] = nn.Parameter(zeros(parameter), requires_grad=False)
            setattr(module, name, filled[id(parameter)])
        for name, buffer in list(module.named_buffers(recurse=False)):
            setattr(module, name, torch.zeros_like(buffer, device="cpu"))
        for name, value in list(vars(module).items()):
            if isinstance(value, torch.Tensor) and value.is_meta:
                setattr(module, name, torch.zeros_like(value, device="cpu"))
