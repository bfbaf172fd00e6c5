"""Entries of GGUF files, each of another value than any default: the model that a file was written
from, or a refusal that names the entry."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from small_models import finished

import headscope
from headscope.errors import InputError

pytest.importorskip("gguf")
from gguf_helpers import TOKENS, write

THETA = 500000.0
BASE = {
    "vocab_size": len(TOKENS),
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
SLIDES = ["sliding_attention", "full_attention", "sliding_attention"]
WIDTH = {"attention.key_length": 16, "attention.value_length": 16, "rope.freq_base": THETA}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
ROUTED = {"expert_count": 4, "expert_used_count": 2, "expert_feed_forward_length": 32}
#: Gemma's heads have one width in all models but the largest, whose scale is not in the file.
WIDE = {"head_dim": 256, "num_attention_heads": 2, "num_key_value_heads": 1, "sliding_window": 8}
WIDE_WRITTEN = {"attention.key_length": 256, "attention.value_length": 256}
SHORT, LONG = [1.0, 1.1, 1.3, 1.7], [1.0, 2.0, 4.0, 8.0]
HYBRID = {
    "num_hidden_layers": 4,
    "head_dim": 32,
    "layer_types": ["linear_attention", "full_attention"] * 2,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 2,
    "rope_parameters": {
        "rope_type": "default",
        "rope_theta": THETA,
        "partial_rotary_factor": 0.5,
        "mrope_section": [4, 2, 2],
        "mrope_interleaved": True,
    },
}
HYBRID_WRITTEN = {
    "rope.freq_base": THETA,
    "rope.dimension_count": 16,
    "rope.dimension_sections": [4, 2, 2, 0],
    "attention.key_length": 32,
    "attention.value_length": 32,
    "full_attention_interval": 2,
    "ssm.conv_kernel": 4,
    "ssm.state_size": 8,
    "ssm.group_count": 2,
    "ssm.time_step_rank": 2,
    "ssm.inner_size": 16,
}
GEMMA_4 = {
    "attention.key_length": 512,
    "attention.value_length": 512,
    "attention.key_length_swa": 256,
    "attention.value_length_swa": 256,
    "attention.sliding_window": 8,
    "attention.sliding_window_pattern": ([True] * 5 + [False]) * 2,
    "attention.shared_kv_layers": 6,
    "embedding_length_per_layer_input": 8,
    "final_logit_softcapping": 8.0,
    "rope.freq_base": 700000.0,
    "rope.freq_base_swa": 20000.0,
    "rope.dimension_count": 512,
    "rope.dimension_count_swa": 256,
}


def rotary(theta: float = THETA, **more: Any) -> dict[str, Any]:
    return {"rope_type": "default", "rope_theta": theta, **more}


#: By name: the family, what its configuration has, the architecture's name in files, what the file
#: has beside what all have (None: not even that), and tensors that belong to the configuration.
WRITTEN: dict[str, tuple[str, dict[str, Any], str, dict[str, Any], dict[str, list[float]]]] = {
    "llama": ("Llama", {"rope_parameters": rotary()}, "llama", {}, {}),
    "mistral": ("Mistral", {"sliding_window": None}, "llama", {}, {}),
    "qwen2": ("Qwen2", {"rope_parameters": rotary()}, "qwen2", {"rope.freq_base": THETA}, {}),
    "no base": ("Qwen2", {"rope_parameters": rotary(10000.0)}, "qwen2", {}, {}),
    "yarn": (
        "Qwen2",
        {
            "rope_parameters": {
                "rope_type": "yarn",
                "rope_theta": THETA,
                "factor": 4.0,
                "original_max_position_embeddings": 32,
                "beta_fast": 16.0,
            }
        },
        "qwen2",
        {
            "rope.freq_base": THETA,
            "rope.scaling.type": "yarn",
            "rope.scaling.factor": 4.0,
            "rope.scaling.original_context_length": 32,
            "rope.scaling.yarn_beta_fast": 16.0,
            "rope.scaling.finetuned": True,
        },
        {},
    ),
    "qwen3": ("Qwen3", {"head_dim": 16, "rope_parameters": rotary()}, "qwen3", WIDTH, {}),
    "qwen2moe": (
        "Qwen2Moe",
        {
            **EXPERTS,
            "shared_expert_intermediate_size": 48,
            "norm_topk_prob": True,
            "rope_parameters": rotary(),
        },
        "qwen2moe",
        {
            **ROUTED,
            "expert_shared_feed_forward_length": 48,
            "expert_weights_norm": True,
            "expert_gating_func": 1,
            "rope.freq_base": THETA,
        },
        {},
    ),
    "qwen3moe": (
        "Qwen3Moe",
        {**EXPERTS, "head_dim": 16, "norm_topk_prob": True, "rope_parameters": rotary()},
        "qwen3moe",
        {**WIDTH, **ROUTED},
        {},
    ),
    "minimax": (
        "MiniMaxM2",
        {
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "head_dim": 16,
            "rope_parameters": rotary(partial_rotary_factor=0.5),
        },
        "minimax-m2",
        {
            **WIDTH,
            **ROUTED,
            "rope.dimension_count": 8,
            "expert_gating_func": 2,
            "expert_feed_forward_length": 96,
        },
        {},
    ),
    "phi3": (
        "Phi3",
        {"sliding_window": 8, "rope_parameters": rotary(partial_rotary_factor=0.5)},
        "phi3",
        {
            "rope.freq_base": THETA,
            "rope.dimension_count": 8,
            "rope.scaling.original_context_length": 128,
            "attention.sliding_window": 8,
        },
        {},
    ),
    "phi3 of long texts": (
        "Phi3",
        {
            "original_max_position_embeddings": 20,
            "rope_parameters": {
                "rope_type": "longrope",
                "rope_theta": THETA,
                "partial_rotary_factor": 0.5,
                "original_max_position_embeddings": 20,
                "attention_factor": 1.25,
                "short_factor": SHORT,
                "long_factor": LONG,
            },
        },
        "phi3",
        {
            "rope.freq_base": THETA,
            "rope.dimension_count": 8,
            "rope.scaling.original_context_length": 20,
            "rope.scaling.attn_factor": 1.25,
        },
        {"rope_factors_short.weight": SHORT, "rope_factors_long.weight": LONG},
    ),
    "stablelm": (
        "StableLm",
        {"layer_norm_eps": 1e-3, "rope_parameters": rotary(partial_rotary_factor=0.5)},
        "stablelm",
        {
            "rope.freq_base": THETA,
            "rope.dimension_count": 8,
            "attention.layer_norm_epsilon": 1e-3,
            "use_parallel_residual": False,
        },
        {},
    ),
    "stablelm in parallel": (
        "StableLm",
        {
            "use_parallel_residual": True,
            "use_qkv_bias": True,
            "rope_parameters": rotary(10000.0, partial_rotary_factor=1.0),
        },
        "stablelm",
        {"attention.layer_norm_epsilon": 1e-5, "use_parallel_residual": True},
        {},
    ),
    "starcoder2": (
        "Starcoder2",
        {"norm_epsilon": 1e-3, "rope_parameters": rotary(1000000.0)},
        "starcoder2",
        {"rope.freq_base": 1000000.0, "attention.layer_norm_epsilon": 1e-3},
        {},
    ),
    "nemotron": (
        "Nemotron",
        {
            "head_dim": 16,
            "norm_eps": 1e-3,
            "rope_parameters": rotary(partial_rotary_factor=0.25),
        },
        "nemotron",
        {**WIDTH, "rope.dimension_count": 4, "attention.layer_norm_epsilon": 1e-3},
        {},
    ),
    "gemma2": (
        "Gemma2",
        {
            **WIDE,
            "layer_types": SLIDES[::-1],
            "attn_logit_softcapping": 5.0,
            "final_logit_softcapping": 8.0,
            "query_pre_attn_scalar": 16,
            "rope_parameters": rotary(),
        },
        "gemma2",
        {
            **WIDE_WRITTEN,
            "rope.freq_base": THETA,
            "attention.sliding_window": 8,
            "attention.sliding_window_pattern": [True, False, True],
            "attention.scale": 0.25,
            "attn_logit_softcapping": 5.0,
            "final_logit_softcapping": 8.0,
        },
        {},
    ),
    "gemma2 of 27B": (
        "Gemma2",
        {"num_hidden_layers": 46, "head_dim": 8, "query_pre_attn_scalar": 16},
        "gemma2",
        {"attention.key_length": 8, "attention.value_length": 8},
        {},
    ),
    "gemma3": (
        "Gemma3",
        {
            **WIDE,
            "layer_types": SLIDES,
            "final_logit_softcapping": 8.0,
            "rope_parameters": {
                "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": THETA},
                "sliding_attention": rotary(20000.0),
            },
        },
        "gemma3",
        {
            **WIDE_WRITTEN,
            "rope.freq_base": THETA,
            "rope.freq_base_swa": 20000.0,
            "rope.scaling.type": "linear",
            "rope.scaling.factor": 8.0,
            "attention.sliding_window": 8,
            "attention.sliding_window_pattern": 2,
            "final_logit_softcapping": 8.0,
        },
        {},
    ),
    "gemma3 without windows": (
        "Gemma3",
        {
            **WIDE,
            "layer_types": ["full_attention"] * 3,
            "rope_parameters": {"full_attention": rotary(), "sliding_attention": rotary(10000.0)},
        },
        "gemma3",
        {**WIDE_WRITTEN, "rope.freq_base": THETA},
        {},
    ),
    "gemma4": (
        "Gemma4",
        {
            **WIDE,
            "global_head_dim": 512,
            "num_hidden_layers": 12,
            "num_kv_shared_layers": 6,
            "hidden_size_per_layer_input": 8,
            "vocab_size_per_layer_input": len(TOKENS),
            "final_logit_softcapping": 8.0,
            "rope_parameters": {
                "full_attention": {
                    "rope_type": "proportional",
                    "partial_rotary_factor": 0.5,
                    "rope_theta": 700000.0,
                },
                "sliding_attention": rotary(20000.0),
            },
        },
        "gemma4",
        GEMMA_4,
        {"rope_freqs.weight": [1.0] * 128 + [1e30] * 128},
    ),
    "gpt2": (
        "GPT2",
        {
            "n_embd": 64,
            "n_layer": 3,
            "n_head": 4,
            "n_positions": 96,
            "n_inner": 80,
            "layer_norm_epsilon": 1e-3,
        },
        "gpt2",
        {
            "feed_forward_length": 80,
            "attention.head_count_kv": None,
            "attention.layer_norm_epsilon": 1e-3,
        },
        {},
    ),
    "bloom": (
        "Bloom",
        {"n_layer": 3, "n_head": 4, "layer_norm_epsilon": 1e-3},
        "bloom",
        {
            "context_length": 2048,
            "feed_forward_length": 256,
            "attention.head_count_kv": 4,
            "attention.layer_norm_epsilon": 1e-3,
            "attention.max_alibi_bias": 8.0,
        },
        {},
    ),
    "falcon": (
        "Falcon",
        {"ffn_hidden_size": 128, "layer_norm_epsilon": 1e-3, "rope_parameters": rotary()},
        "falcon",
        {
            "feed_forward_length": 128,
            "attention.head_count_kv": 1,
            "attention.layer_norm_epsilon": 1e-3,
            "rope.freq_base": THETA,
            "tensor_data_layout": "jploski",
        },
        {},
    ),
    "lfm2": (
        "Lfm2",
        {
            "norm_eps": 1e-3,
            "block_auto_adjust_ff_dim": False,
            "layer_types": ["conv", "full_attention", "conv"],
            "conv_L_cache": 4,
            "rope_parameters": rotary(),
        },
        "lfm2",
        {
            "rope.freq_base": THETA,
            "attention.head_count_kv": [0, 2, 0],
            "attention.layer_norm_rms_epsilon": 1e-3,
            "shortconv.l_cache": 4,
        },
        {},
    ),
    "qwen35": ("Qwen3_5", HYBRID, "qwen35", HYBRID_WRITTEN, {}),
    "qwen35moe": (
        "Qwen3_5Moe",
        {**HYBRID, **EXPERTS, "shared_expert_intermediate_size": 48},
        "qwen35moe",
        {**HYBRID_WRITTEN, **ROUTED, "expert_shared_feed_forward_length": 48},
        {},
    ),
}
#: What the models whose configurations have other names for it are built from.
_OTHER_NAMES = {
    "GPT2": {"intermediate_size", "max_position_embeddings"},
    "Bloom": {"intermediate_size", "max_position_embeddings"},
    "Falcon": {"intermediate_size", "num_key_value_heads"},
    "Qwen3_5Moe": {"intermediate_size"},
}


#: Families that have text models beside those with images.
TEXT_ALONE = ("Gemma3", "Gemma4", "Qwen3_5", "Qwen3_5Moe")


def built(stem: str, fields: dict[str, Any]) -> Any:
    """A model of a family of `transformers`, with random weights."""
    text = f"{stem}{'Text' * (stem in TEXT_ALONE)}Config"
    base = {key: BASE[key] for key in BASE.keys() - _OTHER_NAMES.get(stem, set())}
    if stem in ("GPT2", "Bloom"):
        base = {key: value for key, value in base.items() if not key.startswith("num_")}
    if stem == "GPT2":
        del base["hidden_size"]
    model = "GPT2LMHeadModel" if stem == "GPT2" else f"{stem}ForCausalLM"
    config = getattr(transformers, text)(**base | fields)
    return finished(getattr(transformers, model), config, None, 0)


def file_of(path: Path, name: str, **changed: Any) -> tuple[Any, Path]:
    """The model of this name and its file, with `changed` entries."""
    stem, fields, architecture, said, tensors = WRITTEN[name]
    model = built(stem, fields)
    named = {
        key if key.startswith("general.") else f"{architecture}.{key}": value
        for key, value in {**said, **changed}.items()
    }
    arrays = {key: np.array(value, np.float32) for key, value in tensors.items()}
    return model, write(path, model, architecture=architecture, fields=named, tensors=arrays)


def largest_difference(model: Any, other: Any) -> float:
    """Between the logits for two rows of 40 random tokens each."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(4, len(TOKENS), (2, 40), generator=generator)
    with torch.no_grad():
        return float((model(ids).logits - other(ids).logits).abs().max())


@pytest.mark.parametrize("name", WRITTEN)
def test_a_file_gives_the_logits_of_its_model(name: str, tmp_path: Path) -> None:
    model, path = file_of(tmp_path / "it.gguf", name)
    lm = headscope.load(path, device="cpu", check=False)
    assert largest_difference(lm.model, model) < 1e-4
    half = headscope.load(path, device="cpu", dtype="bfloat16", check=False).model.state_dict()
    for key, values in lm.model.state_dict().items():
        assert torch.equal(half[key], values.to(half[key].dtype)), key


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        *(
            ("llama", key, value)
            for key, value in {
                "attention.scale": 0.5,
                "attention.sliding_window": 8,
                "attention.sliding_window_pattern": 2,
                "attention.value_length": 8,
                "attention.causal": False,
                "attention.clamp_kqv": 4.0,
                "attention.max_alibi_bias": 8.0,
                "attn_logit_softcapping": 30.0,
                "final_logit_softcapping": 30.0,
                "router_logit_softcapping": 30.0,
                "logit_scale": 0.25,
                "residual_scale": 0.25,
                "embedding_scale": 12.0,
                "expert_count": 8,
                "use_parallel_residual": True,
                "rope.dimension_sections": [4, 2, 2, 0],
                "rope.scaling.attn_factor": 1.5,
                "rope.scaling.yarn_log_multiplier": 0.1,
                "rope.scaling.type": "longrope",
                "of_another_day": 1,
            }.items()
        ),
        ("qwen2", "rope.dimension_count", 8),
        ("qwen2", "attention.sliding_window", 8),
        ("yarn", "rope.scaling.attn_factor", 1.5),
        ("yarn", "rope.scaling.yarn_ext_factor", 0.5),
        ("qwen2moe", "expert_gating_func", 2),
        ("qwen2moe", "expert_weights_scale", 2.5),
        ("qwen2moe", "expert_group_count", 2),
        ("minimax", "expert_gating_func", 1),
        ("phi3", "attention.sliding_window_pattern", 2),
        ("bloom", "attention.max_alibi_bias", 4.0),
        ("bloom", "rope.freq_base", THETA),
        ("falcon", "attention.head_count_kv", 4),
        ("gemma4", "attention.key_length_swa", 128),
        ("gemma4", "attention.sliding_window_pattern", [True] * 11 + [False]),
    ],
)
def test_what_a_configuration_cannot_say_is_refused_by_name(
    name: str, key: str, value: Any, tmp_path: Path
) -> None:
    _, path = file_of(tmp_path / "it.gguf", name, **{key: value})
    with pytest.raises(InputError) as told:
        headscope.load(path, device="cpu", check=False)
    assert f".{key} is" in str(told.value) and "\n" not in str(told.value)


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("llama", "attention.head_count", [4, 4, 2]),
        ("llama", "attention.head_count", 0),
        ("llama", "attention.key_length", 8),
        ("llama", "block_count", 2),
        ("lfm2", "attention.head_count_kv", [0, 2, 2]),
        ("qwen35", "full_attention_interval", 4),
    ],
)
def test_entries_that_the_weights_do_not_fit_are_refused(
    name: str, key: str, value: Any, tmp_path: Path
) -> None:
    _, path = file_of(tmp_path / "it.gguf", name, **{key: value})
    with pytest.raises(InputError) as told:
        headscope.load(path, device="cpu", check=False)
    assert "\n" not in str(told.value)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("attention.sliding_window", 128),
        ("attention.sliding_window", 0),
        ("attn_logit_softcapping", 0.0),
        ("rope.scaling.type", "none"),
        ("rope.scaling.factor", 1.0),
        ("attention.scale", 0.0),
        ("pooling_type", 3),
        ("logit_scale", 1.0),
    ],
)
def test_what_changes_nothing_is_no_reason_to_refuse(key: str, value: Any, tmp_path: Path) -> None:
    model, path = file_of(tmp_path / "it.gguf", "llama", **{key: value})
    lm = headscope.load(path, device="cpu", check=False)
    assert largest_difference(lm.model, model) == 0


def test_a_scale_that_the_file_does_not_tell_is_refused(tmp_path: Path) -> None:
    model = built("Gemma2", {"head_dim": 16, "query_pre_attn_scalar": 24})
    said = {"gemma2.attention.key_length": 16, "gemma2.attention.value_length": 16}
    path = write(tmp_path / "it.gguf", model, architecture="gemma2", fields=said)
    with pytest.raises(InputError, match=r"llama\.cpp takes the root of 16"):
        headscope.load(path, device="cpu", check=False)
