"""GGUF files of tiny models, written as llama.cpp's own conversion writes them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from transformers.convert_slow_tokenizer import bytes_to_unicode

from headscope.lm.architectures import build

SPECIAL = ("<pad>", "<s>", "</s>", "<turn>")
MERGES = ("Ġ t", "h e", "Ġt he", "1 2", "i n")
#: Beside bytes and what the merges make, a word that no merge leads to.
TOKENS = [
    *SPECIAL,
    *sorted(bytes_to_unicode().values()),
    *(merge.replace(" ", "") for merge in MERGES),
    "cat",
]
#: As many of a SentencePiece vocabulary: pieces, with bytes for everything else.
SPACED = [
    "<unk>",
    "<s>",
    "</s>",
    *(f"<0x{byte:02X}>" for byte in range(256)),
    *("▁", "a", "b", "c", "▁a", "▁b", "▁▁"),
]
#: Widths that blocks of 32 fit into, and no biases, of which a Llama's file says nothing.
PLAIN = {
    "vocab_size": len(TOKENS),
    "hidden_size": 64,
    "attention_bias": False,
    "rms_norm_eps": 2.0**-17,  # the same in the file's 32 bits
}
_NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}
_OUTSIDE = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
}


def tiny(**overrides: Any) -> Any:
    """A Llama of two layers, four query heads and two key-value heads."""
    return build("llama", overrides={**PLAIN, **overrides})


def write(
    path: Path,
    model: Any,
    kind: str = "F32",
    split: str | None = "gpt-2",
    architecture: str = "llama",
    fields: Mapping[str, Any] | None = None,
    tensors: Mapping[str, np.ndarray[Any, Any]] | None = None,
    prefix: bool | None = None,
) -> Path:
    """Write a Llama, its matrices as `kind`; with `split`, a byte-level tokenizer that so splits,
    with `prefix` instead one of pieces, which puts a space before a text or does not.

    `fields` are further entries and `tensors` further tensors.
    """
    config = model.config
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_name("tiny")
    writer.add_license("mit")
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_vocab_size(config.vocab_size)
    if kind != "F32":
        writer.add_file_type(gguf.LlamaFileType[f"MOSTLY_{kind}"])
    if prefix is not None:
        writer.add_tokenizer_model("llama")
        writer.add_tokenizer_pre("default")
        writer.add_token_list(SPACED)
        writer.add_token_scores([-float(at) for at in range(len(SPACED))])
        writer.add_token_types([2, 3, 3, *[6] * 256, *[1] * 7])
        writer.add_unk_token_id(0)
        writer.add_bos_token_id(1)
        writer.add_eos_token_id(2)
        writer.add_add_space_prefix(prefix)
    elif split is not None:
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre(split)
        writer.add_token_list(TOKENS)
        control, normal = gguf.TokenType.CONTROL, gguf.TokenType.NORMAL
        writer.add_token_types([control if one in SPECIAL else normal for one in TOKENS])
        writer.add_token_merges(MERGES)
        writer.add_pad_token_id(0)
        writer.add_bos_token_id(1)
        writer.add_eos_token_id(2)
    for name, value in (fields or {}).items():
        add = {bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32}
        add.get(type(value), writer.add_string)(name, value)
    for name, tensor in model.state_dict().items():
        _add(writer, *stored(name, tensor, config), kind)
    for name, array in (tensors or {}).items():
        writer.add_tensor(name, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def stored(name: str, tensor: torch.Tensor, config: Any) -> tuple[str, np.ndarray[Any, Any]]:
    """A tensor's name and numbers in the file; q and k have the two halves that are rotated
    together side by side."""
    values = tensor.detach().float().numpy()
    owner, _, leaf = name.rpartition(".")
    if owner in _OUTSIDE:
        return f"{_OUTSIDE[owner]}.{leaf}", values
    _, _, layer, part = owner.split(".", 3)
    if part in ("self_attn.q_proj", "self_attn.k_proj"):
        query = part == "self_attn.q_proj"
        heads = config.num_attention_heads if query else config.num_key_value_heads
        halves = values.reshape(heads, 2, -1, *values.shape[1:])
        values = np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(values.shape)
    return f"blk.{layer}.{_NAMES[part]}.{leaf}", values


def rounded(tensor: torch.Tensor, kind: str) -> torch.Tensor:
    """A matrix as it is read back from a file of this kind."""
    if kind == "F32" or tensor.dim() < 2:
        return tensor
    quantised = gguf.GGMLQuantizationType[kind]
    blocks = gguf.quantize(tensor.detach().numpy(), quantised)
    return torch.from_numpy(gguf.dequantize(blocks, quantised))


def _add(writer: Any, name: str, values: np.ndarray[Any, Any], kind: str) -> None:
    if kind == "F32" or values.ndim < 2:
        writer.add_tensor(name, values)
        return
    quantised = gguf.GGMLQuantizationType[kind]
    writer.add_tensor(name, gguf.quantize(values, quantised), raw_dtype=quantised)
