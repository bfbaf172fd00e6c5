"""Models as shapes: what their configuration says of parameters, operations and bytes.

A shape is a decoder of the Llama kind: grouped-query attention, a gated feed-forward part or a
mixture of such experts, root-mean-square norms. Operations are multiplications and additions of
matrix products, as PyTorch's own counter takes them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache
from textwrap import shorten
from typing import TYPE_CHECKING, Any

from headscope.errors import InputError, first_line
from headscope.heads import Geometry

if TYPE_CHECKING:
    from headscope.lm import LanguageModel


#: Logits made at once by the losses (`headscope.lm.losses.CHUNK`); more are made in pieces.
LOGITS_AT_ONCE = 1 << 25


@dataclass(frozen=True)
class Shape:
    """What a model is to a cost model.

    Attributes:
        name: how it is called.
        layers: decoder layers L.
        hidden: width of the residual stream D.
        query_heads: query heads of a layer H.
        kv_heads: key and value heads of a layer.
        head_dim: channels of a head.
        intermediate: inner width of the feed-forward part, of one expert where there are several.
        vocabulary: tokens of the vocabulary V.
        tied: whether the output embedding is the input embedding.
        experts: experts of a layer; 0 for an ordinary feed-forward part.
        experts_per_token: how many of them a token goes through.
        query_norm: whether queries and keys are normalised by head.
        feed_forward_maps: matrices of a feed-forward part: 3 if gated, else 2.
        other: parameters that are in none of these (biases, learned positions).
        dtype_bytes: bytes of a weight and of an activation.
        weight_bytes: bytes of a weight where it is quantised; None: `dtype_bytes`.
    """

    name: str
    layers: int
    hidden: int
    query_heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocabulary: int
    tied: bool = False
    experts: int = 0
    experts_per_token: int = 0
    query_norm: bool = False
    feed_forward_maps: int = 3
    other: int = 0
    dtype_bytes: float = 2.0
    weight_bytes: float | None = None

    @property
    def attention_maps(self) -> int:
        """Parameters of one layer's four projections."""
        return self.hidden * self.head_dim * 2 * (self.query_heads + self.kv_heads)

    @property
    def one_feed_forward(self) -> int:
        """Parameters of one layer's feed-forward part, or of one expert."""
        return self.feed_forward_maps * self.hidden * self.intermediate

    @property
    def router(self) -> int:
        """Parameters of what chooses a layer's experts."""
        return self.hidden * self.experts

    @property
    def embedding(self) -> int:
        """Parameters of one embedding, V · D."""
        return self.vocabulary * self.hidden

    @property
    def parameters(self) -> int:
        """All parameters."""
        layer = self.attention_maps + self.router + self.one_feed_forward * max(1, self.experts)
        norms = 2 * self.hidden + (2 * self.head_dim if self.query_norm else 0)
        embeddings = self.embedding * (1 if self.tied else 2)
        return self.layers * (layer + norms) + embeddings + self.hidden + self.other

    @property
    def layer_maps(self) -> int:
        """Parameters of one layer that a token is multiplied by."""
        active = self.experts_per_token if self.experts else 1
        return self.attention_maps + self.router + active * self.one_feed_forward

    @property
    def active(self) -> int:
        """Parameters that a token is multiplied by: all layers, and the output embedding."""
        return self.layers * self.layer_maps + self.embedding

    def read_by(self, rows: float) -> float:
        """Bytes of the weights that one step of generation reads for so many rows.

        Of a mixture the experts that any of the rows goes to, if each goes to every one equally
        often: E (1 - (1 - k/E)^rows).
        """
        numbers: float = self.layers * (self.attention_maps + self.router) + self.embedding
        touched = 1.0
        if self.experts:
            missed = (1 - self.experts_per_token / self.experts) ** max(1.0, rows)
            touched = self.experts * (1 - missed)
        numbers += self.layers * self.one_feed_forward * touched
        return numbers * self.weight_size

    @property
    def weight_size(self) -> float:
        """Bytes of one weight."""
        return self.dtype_bytes if self.weight_bytes is None else self.weight_bytes

    @property
    def all_weights(self) -> float:
        """Bytes of all weights."""
        return self.parameters * self.weight_size

    @property
    def cache(self) -> float:
        """Bytes of keys and values of one token in all layers."""
        return 2.0 * self.layers * self.kv_heads * self.head_dim * self.dtype_bytes

    def attention(self, keys: float) -> float:
        """Operations of one layer's attention for one token with so many keys."""
        return 4.0 * self.query_heads * self.head_dim * keys

    def forward(self, length: float, logits: float = 1.0) -> float:
        """Operations of a token's forward pass in a row of `length` tokens.

        Attention is counted over the whole square, as kernels with a padding mask compute it.
        `logits` is the share of tokens whose logits are made.
        """
        layer = 2.0 * self.layer_maps + self.attention(length)
        return self.layers * layer + 2.0 * self.embedding * logits

    def backward(self, length: float, logits: float = 1.0, batch: float = 0.0) -> float:
        """Operations of a token's forward and backward pass with a gradient for gates alone.

        No weight takes a gradient, so each linear map costs as much again on the way back, and
        attention twice as much; the lowest layer's queries, keys and values lie below every gate.
        In a batch of more than `batch` tokens whose logits do not fit at once, they are made again
        on the way back.
        """
        lowest = 2.0 * self.hidden * self.head_dim * (self.query_heads + 2 * self.kv_heads)
        layer = 2.0 * self.layer_maps + 2 * self.attention(length)
        back = self.layers * layer - lowest - 2 * self.attention(length)
        times = 2.0 if batch * logits * self.vocabulary > LOGITS_AT_ONCE else 1.0
        return self.forward(length, logits) + back + times * 2.0 * self.embedding * logits

    def training(self, length: float) -> float:
        """Operations of a token's forward and backward pass with gradients of all weights."""
        layer = 2.0 * self.layer_maps + self.attention(length)
        return self.forward(length) + 2.0 * (self.layers * layer + 2.0 * self.embedding)

    def kept(self, length: float) -> float:
        """Bytes that a token of a pass with gradients for gates keeps for the way back.

        In 32 bits what both norms read; queries, keys, values and outputs of the attention, and
        the outputs once more for the gate; the inner values of the feed-forward part three times.
        With the parameters frozen, a linear map keeps nothing of its own.
        """
        active = self.experts_per_token if self.experts else 1
        heads = (3 * self.query_heads + 2 * self.kv_heads) * self.head_dim
        if self.query_norm:
            # In 32 bits before the norm, too.
            heads += int(4 / self.dtype_bytes * (self.query_heads + self.kv_heads) * self.head_dim)
        inner = 3 * self.intermediate * active + (self.hidden * active if self.experts else 0)
        return self.layers * (8.0 * self.hidden + self.dtype_bytes * (heads + inner))

    def held(self) -> float:
        """Bytes that a token of a pass without gradients holds at its fullest moment."""
        active = self.experts_per_token if self.experts else 1
        inner = 3 * self.intermediate * active
        return self.dtype_bytes * (4 * self.hidden + inner) + 4.0 * self.hidden

    def quantised(self, bits: int) -> Shape:
        """The same with all weights in so many bits; a little low, since embeddings often stay."""
        return replace(self, name=f"{self.name} in {bits} bits", weight_bytes=bits / 8)

    def devices(self, memory: float, needed: float) -> int:
        """Devices of that memory which hold `needed` bytes, a twentieth of each being left free."""
        return max(1, math.ceil(needed / (0.95 * memory)))


def _llama(name: str, layers: int, hidden: int, heads: int, inner: int) -> Shape:
    return Shape(name, layers, hidden, heads, 8, 128, inner, 128256)


#: As their published configurations say.
PUBLISHED = {
    shape.name: shape
    for shape in (
        _llama("Llama-3.1-8B", 32, 4096, 32, 14336),
        Shape(
            "Qwen3-30B-A3B",
            48,
            2048,
            32,
            4,
            128,
            768,
            151936,
            experts=128,
            experts_per_token=8,
            query_norm=True,
        ),
        _llama("Llama-3.1-70B", 80, 8192, 64, 28672),
        _llama("Llama-3.1-405B", 126, 16384, 128, 53248),
    )
}


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
        weight_bytes=sum(weight.nbytes for weight in lm.model.parameters()) / lm.parameters,
    )


def shape_of_config(config: Any, name: str) -> Shape:
    """The shape of a `transformers` configuration; its parameters are counted without memory."""
    import torch
    from transformers import AutoModelForCausalLM

    text = config.get_text_config(decoder=True)
    sizes = [_first(text, (key,)) for key in ("num_hidden_layers", "hidden_size", "vocab_size")]
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
    return _shape(config, name, sum(weight.numel() for weight in model.parameters()))


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
    best = min(tries, key=lambda shape: abs(parameters - shape.parameters))
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
    for key in names:
        try:
            value = getattr(config, key, None)
        except RuntimeError as error:  # of a number that differs by layer
            raise InputError(
                f"{config.model_type}: {key} differs by layer, so its costs cannot be told; costs "
                "are known for decoders such as Llama, Qwen3, Mistral or GPT-2"
            ) from error
        if isinstance(value, int):
            return value
    return 0
