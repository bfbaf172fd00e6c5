"""Every causal language model that the installed transformers registers, tried as a small one.

A configuration is made small field by field, by the names that configurations use, so that nothing
has to be known about the architecture. Each one is tried in a process of its own: one that crashes
or never ends says so in its line.
"""

from __future__ import annotations

import dataclasses
import logging
import multiprocessing
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing.connection import Connection
from typing import Any, Literal, get_args

import torch

from headscope.errors import InputError
from headscope.lm.architectures import VOCABULARY, WINDOW, finished
from headscope.lm.matrix import check_gates, check_model
from headscope.lm.model import LanguageModel

#: Seconds for building and checking one architecture.
_SECONDS = 180.0
#: Models with more parameters are not small; most have about a hundred thousand.
_MOST = 50_000_000

#: What every child needs, beyond what this module imports.
_PRELOADED = [
    "headscope.lm.registered",
    "transformers.models.auto.modeling_auto",
    "transformers.models.llama.modeling_llama",
    "transformers.generation.utils",
]

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


Measure = Callable[[LanguageModel], Any]
Outcome = Literal["passes", "gates", "fails", "refused", "not built"]
_OUTCOMES: tuple[str, ...] = get_args(Outcome)


@dataclasses.dataclass(frozen=True)
class Trial:
    """What became of one registered architecture.

    Attributes:
        name: its ``model_type``.
        outcome: ``passes``: gates, peaks, generation and gradient are right; ``gates``: gates are
            right, and peaks are refused; ``refused``: it is not loaded; ``fails``: it is loaded and
            something is not right; ``not built``: no small model of it could be made, or not in
            time.
        heads: query heads of each layer, where they were found.
        reason: why it does not pass, or what to know if it does.
        measured: what was asked for beside the checks, of a model that is loaded.
    """

    name: str
    outcome: Outcome
    heads: tuple[int, ...] = ()
    reason: str = ""
    measured: Any = None


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


def try_one(name: str, measure: Measure | None = None) -> Trial:
    """Build and check one registered architecture; `measure` looks at its model, too."""
    try:
        model = build_registered(name)
    except Exception as error:  # whatever a stranger's code raises is the answer
        return Trial(name, "not built", reason=f"{type(error).__name__}: {_short(error)}")
    try:
        lm = LanguageModel.wrap(model, name=name)
    except InputError as error:
        return Trial(name, "refused", reason=_short(error))
    trial = _checked(name, lm)
    return trial if measure is None else dataclasses.replace(trial, measured=measure(lm))


def _checked(name: str, lm: LanguageModel) -> Trial:
    heads = lm.geometry.counts
    try:
        try:
            report = check_model(lm, gradient=True)
        except InputError:  # Falcon, for one, shows its weights under eager attention alone
            lm = LanguageModel.wrap(build_registered(name, "eager"), name=name)
            try:
                report = check_model(lm, 'peaks need attn_implementation="eager"', gradient=True)
            except InputError as error:
                exact = check_gates(lm)
                return Trial(name, "gates" if exact else "fails", heads, _short(error))
    except Exception as error:
        return Trial(name, "fails", heads, f"{type(error).__name__}: {_short(error)}")
    return Trial(name, "passes" if report.passed else "fails", heads, report.note)


def _short(error: Exception) -> str:
    text = " ".join(str(error).split()).split("; ")[0].rstrip(".")
    return textwrap.shorten(text, 240, placeholder=" …")


def try_all(
    names: Sequence[str], measure: Measure | None = None, preload: Sequence[str] = ()
) -> Iterator[Trial]:
    """Try architectures one by one, each in a process of its own.

    `measure` is a function of a module; `preload` names modules that it needs.
    """
    ways = multiprocessing.get_all_start_methods()
    # A server that has imported everything and computed nothing: its children start at once.
    context: Any = multiprocessing.get_context("forkserver" if "forkserver" in ways else "spawn")
    if "forkserver" in ways:
        context.set_forkserver_preload([*_PRELOADED, *preload])
    for name in names:
        here, there = context.Pipe(duplex=False)
        child = context.Process(target=_child, args=(name, there, measure), daemon=True)
        child.start()
        there.close()
        try:
            if here.poll(_SECONDS):
                yield here.recv()
            else:
                yield Trial(name, "not built", reason=f"not done within {_SECONDS:.0f} seconds")
        except EOFError:
            child.join()
            yield Trial(name, "not built", reason=f"its process ended with {child.exitcode}")
        finally:
            child.kill()
            child.join()


def trials_markdown(trials: Sequence[Trial], version: str) -> str:
    """How many of transformers ``version``'s architectures pass, and why the others do not."""
    passing = [trial for trial in trials if trial.outcome == "passes"]
    rest = [trial for trial in trials if trial not in passing or trial.reason]
    names = ", ".join(trial.name for trial in passing)
    lines = [
        "## Every registered architecture",
        "",
        f"transformers {version} registers {len(trials)} architectures of causal language models. "
        "Of each a small model with random weights was made from its configuration, with grouped "
        "heads where that is allowed, and checked as above in a process of its own; gradients of "
        "gates were compared with those of W_O. Encoders that can be decoders were built as such. "
        "Models that are not loaded are refused before any number is computed; *gates* means that "
        "heads can be removed and weighed, and that asking for peaks is refused. "
        "`headscope architectures --registered` does this for the installed version.",
        "",
        f"**{len(passing)} pass**: {names}.",
        "",
        "| architecture | outcome | why, or what to know |",
        "|---|---|---|",
    ]
    for trial in sorted(rest, key=lambda trial: (_OUTCOMES.index(trial.outcome), trial.name)):
        reason = trial.reason.replace("|", "\\|")
        lines.append(f"| {trial.name} | {trial.outcome} | {reason} |")
    return "\n".join(lines) + "\n"


def _child(name: str, there: Connection, measure: Measure | None) -> None:
    import os
    import warnings

    import transformers

    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity(logging.ERROR)
    os.environ["HF_HUB_OFFLINE"] = "1"
    torch.set_num_threads(1)
    there.send(try_one(name, measure))
    there.close()
