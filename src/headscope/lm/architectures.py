"""Tiny models of many architectures, built from configurations alone.

They are randomly initialised, so they need no network and say nothing; but they are *hard*: grouped
keys and values where the family has them, a head dimension that is not ``hidden / heads`` where the
family allows it, sliding windows of six tokens, soft caps that bite, sinks and biases that are not
zero, norms whose weights differ by channel, and attention that is far from uniform.  What holds for
single heads on all of them can be expected to hold on their large relatives.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from headscope.errors import InputError

#: Vocabulary of every tiny model; ids 0, 1 and 2 are padding, begin and end of text.
VOCABULARY = 96
#: Length of every sliding window, in tokens.
WINDOW = 6


@dataclasses.dataclass(frozen=True)
class _Recipe:
    """How to build one architecture: names of its classes, and what to set in its configuration.

    ``cycle`` repeats over the layers as ``layer_types``; ``length`` is the name of the field that
    holds the number of layers.
    """

    config: str
    model: str
    fields: Mapping[str, Any]
    cycle: tuple[str, ...] = ()
    length: str = "num_hidden_layers"
    layers: int = 2


_WIDTH = {"hidden_size": 48, "num_attention_heads": 4}
_GROUPED = {**_WIDTH, "intermediate_size": 64, "num_key_value_heads": 2}
# 4 heads of 16 channels over 48 hidden channels: the head dimension is not 48 / 4.
_WIDE = {**_GROUPED, "head_dim": 16}
_SHORT = {"sliding_window": WINDOW}
_SLIDING = ("sliding_attention", "full_attention")
_PER_LAYER = {
    "vocab_size_per_layer_input": VOCABULARY,
    "hidden_size_per_layer_input": 8,
    "num_kv_shared_layers": 2,
}
_LINEAR = {
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
}
_EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}


def _recipe(
    stem: str,
    fields: Mapping[str, Any],
    *,
    cycle: tuple[str, ...] = (),
    length: str = "num_hidden_layers",
    layers: int = 2,
    config: str | None = None,
    model: str | None = None,
) -> _Recipe:
    return _Recipe(
        config or f"{stem}Config", model or f"{stem}ForCausalLM", fields, cycle, length, layers
    )


_RECIPES: dict[str, _Recipe] = {
    "llama": _recipe("Llama", {**_WIDE, "attention_bias": True}),
    "cohere": _recipe("Cohere", {**_WIDE, "use_qk_norm": True}),
    "cohere2": _recipe("Cohere2", {**_WIDE, **_SHORT}, cycle=_SLIDING),
    "olmo": _recipe("Olmo", {**_WIDE, "clip_qkv": 4.0}),
    "olmo2": _recipe("Olmo2", _WIDE),
    "olmo3": _recipe("Olmo3", {**_WIDE, **_SHORT}, cycle=_SLIDING),
    "olmoe": _recipe(
        "Olmoe", {**_GROUPED, "num_key_value_heads": 4, "num_experts": 4, "num_experts_per_tok": 2}
    ),
    "granite": _recipe("Granite", {**_WIDE, "attention_multiplier": 0.2}),
    "glm4": _recipe("Glm4", _WIDE),
    "mistral": _recipe("Mistral", {**_WIDE, **_SHORT}),
    "mixtral": _recipe(
        "Mixtral", {**_WIDE, **_SHORT, "num_local_experts": 4, "num_experts_per_tok": 2}
    ),
    "qwen2": _recipe(
        "Qwen2", {**_WIDE, **_SHORT, "use_sliding_window": True}, cycle=_SLIDING[::-1]
    ),
    "qwen2_moe": _recipe(
        "Qwen2Moe",
        {
            **_WIDE,
            **_SHORT,
            **_EXPERTS,
            "use_sliding_window": True,
            "shared_expert_intermediate_size": 32,
        },
        cycle=_SLIDING,
    ),
    "qwen3": _recipe("Qwen3", {**_WIDE, **_SHORT, "use_sliding_window": True}, cycle=_SLIDING),
    "qwen3_moe": _recipe("Qwen3Moe", {**_WIDE, **_SHORT, **_EXPERTS, "use_sliding_window": True}),
    "qwen3_next": _recipe(
        "Qwen3Next",
        {**_WIDE, **_LINEAR, **_EXPERTS, "shared_expert_intermediate_size": 32},
        cycle=("linear_attention", "full_attention"),
        layers=4,
    ),
    "qwen3_5": _recipe(
        "Qwen3_5",
        {**_WIDE, **_LINEAR},
        cycle=("linear_attention", "full_attention"),
        layers=4,
        config="Qwen3_5TextConfig",
    ),
    "qwen3_5_moe": _recipe(
        "Qwen3_5Moe",
        {**_WIDE, **_LINEAR, **_EXPERTS, "shared_expert_intermediate_size": 32},
        cycle=("linear_attention", "full_attention"),
        layers=4,
        config="Qwen3_5MoeTextConfig",
    ),
    "phi3": _recipe("Phi3", {**_WIDE, **_SHORT}),
    "phimoe": _recipe(
        "Phimoe",
        {
            **_WIDE,
            **_SHORT,
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "attention_bias": True,
        },
    ),
    "smollm3": _recipe(
        "SmolLM3",
        {**_WIDE, **_SHORT, "use_sliding_window": True, "no_rope_layer_interval": 2},
        cycle=_SLIDING,
    ),
    "gemma2": _recipe(
        "Gemma2",
        {
            **_WIDE,
            **_SHORT,
            "query_pre_attn_scalar": 12,
            "attn_logit_softcapping": 4.0,
            "final_logit_softcapping": 10.0,
        },
        cycle=_SLIDING,
    ),
    "gemma3": _recipe(
        "Gemma3",
        {**_WIDE, **_SHORT, "query_pre_attn_scalar": 12},
        cycle=("sliding_attention", "sliding_attention", "full_attention"),
        layers=3,
        config="Gemma3TextConfig",
    ),
    # The upper half of the layers reads the keys and values of the last layers of the lower half.
    "gemma3n": _recipe(
        "Gemma3n",
        {
            **_WIDE,
            **_SHORT,
            **_PER_LAYER,
            "altup_num_inputs": 3,
            "laurel_rank": 8,
            "final_logit_softcapping": 10.0,
        },
        cycle=_SLIDING,
        layers=4,
        config="Gemma3nTextConfig",
    ),
    # Heads of full attention are wider, and share their keys among more.
    "gemma4": _recipe(
        "Gemma4",
        {
            **_WIDE,
            **_SHORT,
            **_PER_LAYER,
            "global_head_dim": 24,
            "attention_k_eq_v": True,
            "num_global_key_value_heads": 1,
        },
        cycle=_SLIDING,
        layers=4,
        config="Gemma4TextConfig",
    ),
    "lfm2": _recipe(
        "Lfm2",
        {**_GROUPED, "block_auto_adjust_ff_dim": False},
        cycle=("conv", "full_attention"),
        layers=4,
    ),
    "gpt2": _recipe(
        "GPT2",
        {"n_embd": 48, "n_head": 4, "n_positions": 256},
        length="n_layer",
        config="GPT2Config",
        model="GPT2LMHeadModel",
    ),
    "gpt_neox": _recipe("GPTNeoX", {**_WIDTH, "intermediate_size": 64}),
    "opt": _recipe("OPT", {**_WIDTH, "ffn_dim": 64, "word_embed_proj_dim": 32}),
    "starcoder2": _recipe("Starcoder2", {**_WIDE, **_SHORT}),
    "stablelm": _recipe(
        # 64 hidden channels, so that the rotated quarter of a head has an even width.
        "StableLm",
        {**_GROUPED, "hidden_size": 64, "use_qkv_bias": True, "qk_layernorm": True},
    ),
    "deepseek_v3": _recipe(
        "DeepseekV3",
        {
            **_GROUPED,
            "num_key_value_heads": 4,
            "q_lora_rank": 24,
            "kv_lora_rank": 16,
            "qk_rope_head_dim": 8,
            "qk_nope_head_dim": 12,
            "v_head_dim": 10,
            "moe_intermediate_size": 32,
            "n_routed_experts": 4,
            "num_experts_per_tok": 2,
            "n_group": 2,
            "topk_group": 1,
            "first_k_dense_replace": 1,
        },
    ),
    "gpt_oss": _recipe(
        "GptOss",
        {**_WIDE, **_SHORT, "num_local_experts": 4, "num_experts_per_tok": 2},
        cycle=_SLIDING,
    ),
    "bitnet": _recipe("BitNet", _GROUPED),
    "bloom": _recipe("Bloom", {"hidden_size": 48, "n_head": 4}, length="n_layer"),
    "falcon": _recipe(
        "Falcon", {**_WIDTH, "num_kv_heads": 2, "new_decoder_architecture": True, "bias": True}
    ),
    "mpt": _recipe("Mpt", {"d_model": 48, "n_heads": 4, "max_seq_len": 256}, length="n_layers"),
    "xglm": _recipe(
        "XGLM",
        {"d_model": 48, "ffn_dim": 64, "attention_heads": 4, "max_position_embeddings": 256},
        length="num_layers",
    ),
}

#: The architectures that headscope is checked against, by the ``model_type`` of their family.
ARCHITECTURES: tuple[str, ...] = tuple(_RECIPES)


def build(
    name: str,
    seed: int = 0,
    attn_implementation: str | None = None,
    layers: int | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> Any:
    """Build one tiny causal language model in evaluation mode, on the CPU and in float32.

    ``name`` is one of :data:`ARCHITECTURES`.  The weights follow from ``seed`` alone: the global
    random state is left as it was, and ``attn_implementation`` does not change them, so two models
    of one name and seed are the same function under two attention kernels.  ``layers`` sets the
    number of decoder layers (two to four by default) and ``overrides`` sets further fields of the
    configuration.  Raises :class:`~headscope.errors.InputError` for an unknown name.
    """
    import transformers

    recipe = _RECIPES.get(name)
    if recipe is None:
        close = difflib.get_close_matches(name, ARCHITECTURES, n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise InputError(
            f"unknown architecture {name!r}: {hint}known are {', '.join(ARCHITECTURES)}"
        )
    count = recipe.layers if layers is None else layers
    fields: dict[str, Any] = {
        "vocab_size": VOCABULARY,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "use_cache": True,
        **recipe.fields,
        recipe.length: count,
    }
    if recipe.cycle:
        fields["layer_types"] = [recipe.cycle[i % len(recipe.cycle)] for i in range(count)]
    fields.update(overrides or {})
    config = getattr(transformers, recipe.config)(**fields)
    return finished(getattr(transformers, recipe.model), config, attn_implementation, seed)


def finished(model_class: Any, config: Any, attn_implementation: str | None, seed: int) -> Any:
    """A model of ``model_class`` in evaluation mode, on the CPU and in float32, with weights that
    follow from ``seed`` alone; see `build`."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = model_class._from_config(config, attn_implementation=attn_implementation)
    model = model.to(dtype=torch.float32).eval()
    _spread_weights(model, seed)
    return model


def _spread_weights(model: nn.Module, seed: int) -> None:
    """Draw weights that make a fault visible.

    Matrices get a standard deviation of 1.5 over the root of their input width: query-key products
    then spread by about two, so attention is far from uniform without being a single spike.
    Vectors (norms, biases, sinks, decay rates) keep their initial value and move by 0.3, so that
    norms around 0 (Gemma) and around 1 both stay norms.
    """
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for module in model.modules():
            for weight in module.parameters(recurse=False):
                noise = torch.randn(weight.shape, generator=generator)
                if isinstance(module, nn.Embedding):
                    weight.copy_(noise)
                elif weight.dim() < 2:
                    weight.add_(0.3 * noise)
                else:
                    width = weight.shape[-1] if isinstance(module, nn.Linear) else weight.shape[-2]
                    weight.copy_(noise * (1.5 / max(width, 1) ** 0.5))
