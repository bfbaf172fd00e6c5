"""Shapes of models that are at hand: from a configuration, without any weights."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from textwrap import shorten
from typing import TYPE_CHECKING, Any

from headscope.errors import InputError, first_line
from headscope.heads import Geometry
from headscope.studies.costs.shapes import PUBLISHED, Shape

if TYPE_CHECKING:
    from headscope.lm import LanguageModel

#: Share of a model's parameters that a shape may miss: biases and the like, no part of a layer.
_MISSED = 0.02
#: Beyond these, a number of layers, and a width or number of tokens, is a mistake.
_MOST_LAYERS, _MOST = 10_000, 10**9
#: Inner widths and numbers of experts, as configurations call them, the more exact name first.
_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")
_EXPERT_WIDTH = ("moe_intermediate_size", "intermediate_size")
_WIDTH = ("intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size")


def read_shape(name: str) -> Shape:
    """The shape of a model by its name: a published one, `pocket`, a folder, or a Hub id.

    Published shapes are known by heart, also with their owner's name before them and a suffix
    such as `-Instruct` behind; of the others the configuration alone is read.

    Raises:
        InputError: if there is no such model, or it is no decoder of a kind that shapes describe.
    """
    short = name.rpartition("/")[2]
    for known in sorted(PUBLISHED, key=len, reverse=True):
        rest = short.removeprefix(known)
        if rest != short and rest in ("", "-Instruct", "-Base", "-Instruct-2507"):
            return replace(PUBLISHED[known], name=name)
    from headscope.lm.checkpoints import read_config, resolve

    folder, _ = resolve(name, None, patterns=("config.json",))
    return shape_of_config(read_config(folder, name), name)


@cache
def heads_of(name: str) -> Geometry | None:
    """The heads of a model by its name; None where its shape cannot be read."""
    try:
        shape = read_shape(name)
    except InputError:
        return None
    return Geometry.uniform(shape.layers, shape.query_heads)


def shape_of(lm: LanguageModel) -> Shape:
    """The shape of a model that is loaded, in the dtype that it computes in."""
    shape = _shape(lm.model.config, lm.name, lm.parameters)
    return replace(
        shape,
        dtype_bytes=float(lm.dtype.itemsize),
        weight_bytes=sum(one.nbytes for one in lm.model.parameters()) / lm.parameters,
    )


def shape_of_config(config: Any, name: str) -> Shape:
    """The shape of a `transformers` configuration; its parameters are counted without memory."""
    import torch
    from transformers import AutoModelForCausalLM

    text = config.get_text_config(decoder=True)
    sizes = [_first(text, (one,)) for one in ("num_hidden_layers", "hidden_size", "vocab_size")]
    if not all(0 < size <= _MOST for size in sizes) or sizes[0] > _MOST_LAYERS:
        raise InputError(
            f"{name} would have {sizes[0]:,} layers, a width of {sizes[1]:,} and {sizes[2]:,} "
            "tokens, which is no model; correct its config.json"
        )
    causal: Any = AutoModelForCausalLM  # its methods carry no types
    try:
        with torch.device("meta"):
            model = causal.from_config(config)
    except (ValueError, TypeError, RuntimeError, ArithmeticError) as error:
        raise InputError(
            f"{name} ({text.model_type}): no decoder of text can be made of its configuration, so "
            f"its costs cannot be told ({shorten(first_line(error), 160, placeholder=' …')}); "
            "correct its config.json, or name a decoder such as Llama, Qwen3, Mistral or GPT-2"
        ) from error
    return _shape(config, name, sum(one.numel() for one in model.parameters()))


def _shape(config: Any, name: str, parameters: int) -> Shape:
    import torch

    text = config.get_text_config(decoder=True)
    heads = _first(text, ("num_attention_heads",))
    hidden = _first(text, ("hidden_size",))
    experts = _first(text, _EXPERTS)
    dtype = getattr(text, "dtype", None)
    plain = Shape(
        name=name,
        layers=_first(text, ("num_hidden_layers",)),
        hidden=hidden,
        query_heads=heads,
        kv_heads=_first(text, ("num_key_value_heads",)) or heads,
        head_dim=_first(text, ("head_dim",)) or hidden // max(1, heads),
        intermediate=_first(text, _EXPERT_WIDTH if experts else _WIDTH) or 4 * hidden,
        vocabulary=_first(text, ("vocab_size",)),
        tied=bool(getattr(config, "tie_word_embeddings", False)),
        experts=experts,
        experts_per_token=_first(text, ("num_experts_per_tok",)),
        query_norm="qwen3" in str(text.model_type),
        dtype_bytes=float(dtype.itemsize) if isinstance(dtype, torch.dtype) else 2.0,
    )
    tries = [plain, replace(plain, feed_forward_maps=2)]
    best = min(tries, key=lambda one: abs(parameters - one.parameters))
    missed = parameters - best.parameters
    if abs(missed) > _MISSED * parameters:
        raise InputError(
            f"{name} ({text.model_type}) has {parameters:,} parameters, but a plain decoder of its "
            f"configuration would have {best.parameters:,}, so its costs cannot be told; costs are "
            "known for decoders such as Llama, Qwen3, Mistral or GPT-2."
        )
    return replace(best, other=missed)


def _first(config: Any, names: tuple[str, ...]) -> int:
    """The first of these numbers that a configuration holds, else 0."""
    for one in names:
        try:
            value = getattr(config, one, None)
        except RuntimeError as error:  # of a number that differs by layer
            raise InputError(
                f"{config.model_type}: {one} differs by layer, so its costs cannot be told; costs "
                "are known for decoders such as Llama, Qwen3, Mistral or GPT-2"
            ) from error
        if isinstance(value, int):
            return value
    return 0
