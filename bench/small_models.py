"""Small models of many architectures, built from configurations alone.

They are randomly initialised, so they need no network and say nothing; but they are *hard*: grouped
keys and values where the family has them, a head dimension that is not ``hidden / heads`` where the
family allows it, sliding windows of six tokens, soft caps that bite, sinks and biases that are not
zero, norms whose weights differ by channel, and attention that is far from uniform.  What holds for
single heads on all of them can be expected to hold on their large relatives.

`build` makes those of the families in ``small_models.toml``. `build_registered` makes one of any
causal language model that the installed transformers registers: its configuration is made small
field by field, by the names that configurations use, so that nothing has to be known of it.
"""

from __future__ import annotations

import difflib
import functools
import operator
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from headscope.errors import InputError

#: Vocabulary of every tiny model; ids 0, 1 and 2 are padding, begin and end of text.
VOCABULARY = 96
#: Length of every sliding window, in tokens.
WINDOW = 6
#: Registered models with more parameters are not small; most have about a hundred thousand.
_MOST = 50_000_000

_TABLES = tomllib.loads((Path(__file__).parent / "small_models.toml").read_text(encoding="utf-8"))
_RECIPES: dict[str, dict[str, Any]] = _TABLES["architectures"]

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
    count = recipe.get("layers", 2) if layers is None else layers
    groups = [_TABLES["groups"][name] for name in recipe.get("with", ())]
    fields: dict[str, Any] = {
        "vocab_size": VOCABULARY,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "use_cache": True,
        **functools.reduce(operator.or_, groups, {}),
        **recipe.get("set", {}),
        recipe.get("depth", "num_hidden_layers"): count,
    }
    if cycle := recipe.get("cycle"):
        fields["layer_types"] = [cycle[at % len(cycle)] for at in range(count)]
    fields.update(overrides or {})
    stem = recipe["stem"]
    config = getattr(transformers, recipe.get("config", f"{stem}Config"))(**fields)
    model_class = getattr(transformers, recipe.get("model", f"{stem}ForCausalLM"))
    return finished(model_class, config, attn_implementation, seed)


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


_LAYERS = (
    *("num_hidden_layers", "n_layer", "n_layers", "num_layers", "decoder_layers", "depth"),
    *("num_decoder_layers", "encoder_layers", "num_encoder_layers", "num_layers_per_stack"),
)
_HEADS = 4
#: Fields of configurations by the value that makes them small.
_FIELDS: Mapping[int, str] = {
    VOCABULARY: "vocab_size vocab_size_per_layer_input decoder_vocab_size unpadded_vocab_size "
    "n_words audio_vocab_size encoder_hash_byte_group_vocab",
    64: "hidden_size d_model n_embd dim attention_hidden_size lru_width emb_dim embedding_dim "
    "hidden_size_global embedding_size input_embedding_size output_embedding_size "
    "word_embed_proj_dim backbone_hidden_size cross_attention_hidden_size intermediate_size "
    "ffn_dim decoder_ffn_dim encoder_ffn_dim ffn_hidden_size dim_ff dff d_ff n_inner d_inner "
    "feed_forward_size intermediate_size_mlp dense_intermediate_size mlp_dim hidden_dim",
    32: "moe_intermediate_size shared_expert_intermediate_size shared_intermediate_size "
    "moe_shared_expert_intermediate_size expert_ffn_hidden_size shared_experts_intermediate_size",
    _HEADS: "num_attention_heads n_head n_heads attention_heads decoder_attention_heads "
    "encoder_attention_heads num_decoder_attention_heads num_encoder_attention_heads num_heads "
    "swa_num_attention_heads index_n_heads linear_num_value_heads o_groups linear_num_heads "
    "conf_num_attention_heads n_mamba_heads num_experts num_local_experts n_routed_experts "
    "moe_num_experts zero_expert_num",
    2: "num_key_value_heads num_kv_heads swa_num_key_value_heads num_global_key_value_heads "
    "linear_num_key_heads num_query_groups num_experts_per_tok num_experts_per_token top_k_experts "
    "moe_k moe_topk n_group num_expert_group attn_layer_period expert_layer_period",
    16: "head_dim global_head_dim swa_head_dim attention_head_size kv_channels dim_head d_kv "
    "qk_nope_head_dim index_head_dim linear_key_head_dim linear_value_head_dim kv_lora_rank "
    "v_head_dim attention_head_dim linear_head_dim d_head o_lora_rank mamba_d_state state_size "
    "ssm_state_size hidden_size_per_layer_input laurel_rank adapter_rank hc_lowrank "
    "ple_embed_dim router_hidden_size mamba_d_head mamba_head_dim mamba_headdim",
    24: "q_lora_rank qk_head_dim",
    8: "qk_rope_head_dim rotary_dim mamba_n_heads mamba_num_heads time_step_rank mamba_dt_rank",
    128: "mamba_d_ssm",
    1: "topk_group n_shared_experts first_k_dense_replace attn_layer_offset expert_layer_offset "
    "split_ngram_parts",
    WINDOW: "sliding_window sliding_window_size attention_window_size window_size local_attention",
    256: "max_position_embeddings n_positions n_ctx max_seq_len max_target_positions "
    "context_length",
    997: "ngram_vocab_size_base",
}
_SMALL = {name: value for value, names in _FIELDS.items() for name in names.split()}
#: Fields without which a layer cannot be built although they may be left open.
_NEEDED = {
    *("head_dim", "num_experts", "n_routed_experts", "num_local_experts", "n_shared_experts"),
    *("num_experts_per_tok", "moe_intermediate_size", "num_key_value_heads"),
}
_KEY_HEADS = ("num_key_value_heads", "num_kv_heads", "swa_num_key_value_heads")
#: What the names do not tell.
_SPECIAL: Mapping[str, Mapping[str, Any]] = {
    "bamba": {"attn_layer_indices": [1], "mamba_expand": 2},
    "cohere_compass_text": {
        "rope_parameters": {
            kind: {"rope_type": "default", "rope_theta": 10000.0}
            for kind in ("full_attention", "sliding_attention")
        }
    },
    "dbrx": {"attn_config": {"kv_n_heads": 2, "clip_qkv": 8.0, "rope_theta": 10000.0}},
    "granitemoehybrid": {"layer_types": ["mamba", "attention"], "num_hidden_layers": 2},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"], "num_hidden_layers": 2},
    "mamba2": {"expand": 1, "n_groups": 1},
    "recurrent_gemma": {"num_hidden_layers": 3},
    "reformer": {"axial_pos_shape": [16, 16], "axial_pos_embds_dim": [32, 32]},
    "xmod": {"default_language": "en_XX"},
    "zamba2": {"attention_head_dim": 32, "attention_hidden_size": 128},
    "zaya": {"num_experts_per_tok": 1},
}


def registered() -> tuple[str, ...]:
    """The ``model_type`` of every causal language model that transformers registers."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    return tuple(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)


def build_registered(name: str, attn_implementation: str | None = None) -> Any:
    """A small model of a registered architecture, with random weights, in float32 on the CPU.

    Heads share keys and values in pairs where the architecture allows it. Raises whatever
    transformers raises where the small configuration does not suit it.
    """
    from transformers import CONFIG_MAPPING, MODEL_FOR_CAUSAL_LM_MAPPING

    kind = CONFIG_MAPPING[name]
    model_class: Any = MODEL_FOR_CAUSAL_LM_MAPPING[kind]
    if isinstance(model_class, tuple | list):
        model_class = model_class[0]
    default = kind()
    if not isinstance(default, model_class.config_class):
        # A model of text alone, registered under the configuration of a larger one.
        parts = (getattr(default, part, None) for part in (*kind.sub_configs, "decoder"))
        fitting = [part for part in parts if isinstance(part, model_class.config_class)]
        default = fitting[0] if fitting else default.get_text_config(decoder=True)
    fields = {**_shrunk(default), **_SPECIAL.get(name, {})}
    try:
        return _built(model_class, default, fields, attn_implementation)
    except (TypeError, ValueError, RuntimeError, AttributeError, KeyError, IndexError):
        alone = {key: _HEADS for key in _KEY_HEADS if key in fields}
        if not alone:
            raise
    return _built(model_class, default, {**fields, **alone}, attn_implementation)


def _built(model_class: Any, default: Any, fields: dict[str, Any], attention: str | None) -> Any:
    config = type(default)(**fields)
    with torch.device("meta"):
        size = sum(parameter.numel() for parameter in model_class(config).parameters())
    if size > _MOST:
        raise InputError(f"{size:,} parameters are left when every field known is small")
    # Building may write into the configuration.
    return finished(model_class, type(default)(**fields), attention, seed=0)


def _shrunk(config: Any) -> dict[str, Any]:
    fields = config.to_dict()
    depth = next((fields[field] for field in _LAYERS if isinstance(fields.get(field), int)), 0)
    by_layer = {
        key: value
        for key, value in fields.items()
        if isinstance(value, list) and len(value) == depth > 2
    }
    # One layer of each kind, twice where upper layers read the keys of lower ones.
    kinds = list(zip(*by_layer.values(), strict=True)) or [()] * 2
    chosen = sorted({kinds.index(kind) for kind in kinds})[:4] if by_layer else [0, 0]
    chosen = chosen * 2 if len(chosen) < 2 else chosen
    small: dict[str, Any] = {}
    if "num_kv_shared_layers" in fields:
        small["num_kv_shared_layers"] = len(chosen)
        chosen = chosen * 2
    for key, value in by_layer.items():
        small[key] = [_SMALL.get(key, value[at]) for at in chosen]
    for key, value in fields.items():
        if key in small or isinstance(value, dict | list | bool):
            continue
        if key in _LAYERS and value is not None:
            small[key] = len(chosen)
        elif key in _SMALL and (value is not None or key in _NEEDED):
            small[key] = _SMALL[key]
    if isinstance(fields.get("qk_rope_head_dim"), int):  # latent attention
        small.update(dict.fromkeys(set(_KEY_HEADS) & set(small), _HEADS))
        if fields.get("head_dim") == fields["qk_rope_head_dim"]:
            small["head_dim"] = small["qk_rope_head_dim"]
        elif fields.get("head_dim") is None:
            small.pop("head_dim", None)
    if "is_decoder" in fields:
        small["is_decoder"] = True
    for key in type(config).sub_configs:
        part = getattr(config, key, None)
        if part is not None and hasattr(part, "to_dict"):
            small[key] = type(part)(**_shrunk(part)).to_dict()
    if "vocab_size" in small:
        small.update(pad_token_id=0, bos_token_id=1, eos_token_id=2)
    return small
