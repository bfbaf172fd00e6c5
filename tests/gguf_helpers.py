"""GGUF files of tiny models, written as llama.cpp's own conversion writes them."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from small_models import build
from transformers.convert_slow_tokenizer import bytes_to_unicode

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
    """Write a model (or only what stands beside it), its matrices as `kind`; with `split`, a
    byte-level tokenizer that so splits, with `prefix` instead one of pieces, which puts a space
    before a text or does not.

    `fields` are further entries, which replace those of the model or, where None, take them out,
    and `tensors` further tensors.
    """
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_name("tiny")
    writer.add_license("mit")
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
    own = entries(model.config, architecture) if model is not None else {}
    _say(writer, {**own, **(fields or {})})
    for name, tensor in model.state_dict().items() if model is not None else ():
        if name == "lm_head.weight" and model.config.tie_word_embeddings:
            continue
        for place, values in stored(name, tensor, model.config, architecture):
            _add(writer, place, values, kind)
    for name, array in (tensors or {}).items():
        writer.add_tensor(name, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def entries(config: Any, architecture: str = "llama") -> dict[str, Any]:
    """What llama.cpp's conversion writes of most models' configurations."""
    fields = {
        "block_count": "num_hidden_layers",
        "context_length": "max_position_embeddings",
        "embedding_length": "hidden_size",
        "feed_forward_length": "intermediate_size",
        "vocab_size": "vocab_size",
        "attention.head_count": "num_attention_heads",
        "attention.head_count_kv": "num_key_value_heads",
        "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    }
    said = {key: getattr(config, field, None) for key, field in fields.items()}
    if architecture == "llama":
        rotary = config.rope_parameters["rope_theta"]
        said |= {"rope.dimension_count": config.head_dim, "rope.freq_base": rotary}
    return {f"{architecture}.{key}": value for key, value in said.items()}


def _say(writer: Any, said: Mapping[str, Any]) -> None:
    for name, value in said.items():
        add = {
            bool: writer.add_bool,
            int: writer.add_uint32,
            float: writer.add_float32,
            list: writer.add_array,
            str: writer.add_string,
        }
        if value is not None:
            add[type(value)](name, value)


@functools.cache
def _places(architecture: str) -> Any:
    numbers = {own: number for number, own in gguf.MODEL_ARCH_NAMES.items()}
    return gguf.get_tensor_name_map(numbers[architecture], 48)


def stored(
    name: str, tensor: torch.Tensor, config: Any, architecture: str = "llama"
) -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
    """A tensor's names and numbers in the file."""
    values = tensor.detach().float().numpy()
    if name.endswith("experts.gate_up_proj"):
        layer = name.split(".")[2]
        for part, half in zip(("gate", "up"), np.split(values, 2, axis=1), strict=True):
            yield f"blk.{layer}.ffn_{part}_exps.weight", np.ascontiguousarray(half)
        return
    ends = (".weight", ".bias")
    known = _places("llama" if architecture in ("nonesuch", "t5") else architecture)
    place = known.get_name(name, ends) or known.get_name(name.partition(".")[2], ends)
    for end, leaf in (("dt_bias", "ssm_dt.bias"), ("e_score_correction_bias", "exp_probs_b.bias")):
        if place is None and name.endswith(end):
            place = f"blk.{name.split('.')[2]}.{leaf}"
    assert place is not None, name
    if name.endswith("experts.down_proj"):
        place += ".weight"
    if architecture == "llama" and ("attn_q." in place or "attn_k." in place):
        # The two halves that are rotated together lie side by side.
        query = "attn_q." in place
        heads = config.num_attention_heads if query else config.num_key_value_heads
        halves = values.reshape(heads, 2, -1, *values.shape[1:])
        values = halves.swapaxes(1, 2).reshape(values.shape)
    if architecture == "gpt2" and values.ndim == 2 and ".h." in name:
        values = values.T
    if architecture == "bloom" and "attn_qkv" in place:
        # Of each head its query, key and value; in the file all queries first.
        parts = values.reshape(config.n_head, 3, -1, *values.shape[1:])
        values = parts.swapaxes(0, 1).reshape(values.shape)
    around_one = architecture in ("gemma2", "gemma3", "nemotron") and place.endswith("norm.weight")
    if around_one or (
        architecture.startswith("qwen35") and "norm" in place and "ssm_norm" not in place
    ):
        values = values + 1
    if place.endswith("ssm_a"):
        values = -np.exp(values)
    if "shortconv.conv." in place or "ssm_conv1d" in place:
        values = values.squeeze(1)
    if "ffn_gate_inp_shexp" in place:
        values = values.squeeze(0)
    yield place, np.ascontiguousarray(values)


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
