"""What the entries of a GGUF file mean for the computation, and a configuration that says the same.

`transformers` takes some entries of an architecture and passes over the rest, which then have the
defaults of its configuration. Here every entry under the architecture's name is compared with what
the configuration makes the model compute. Where they differ, the configuration is put right if it
has a place for the value; else, and where an entry is not known, the file is refused.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from headscope.errors import InputError

if TYPE_CHECKING:
    from headscope.lm.gguf import GgufFile

ADVICE = "use the model's ordinary checkpoint (a folder or a Hub id)"
#: By how much each rotary frequency is divided: in every text, in short and in long ones.
DIVISORS, LONG, SHORT = (
    f"rope_{name}.weight" for name in ("freqs", "factors_long", "factors_short")
)
#: What Llama 3 models have as rotary settings beside their factor, and the factors in use.
_LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
_LLAMA3_CONTEXT, _LLAMA3_FACTORS = 8192, (8.0, 32.0)

#: Model types whose rotation may cover a part of each head, by a fraction in the configuration.
_PARTLY_ROTATED = frozenset(
    ("phi3", "stablelm", "nemotron", "minimax_m2", "qwen3_5_text", "qwen3_5_moe_text")
)
#: Those whose layers all have the window that the configuration names, and those where some have.
_ALL_WINDOWED = frozenset(("starcoder2", "phi3"))
_SOME_WINDOWED = frozenset(("gemma2", "gemma3_text", "gemma4_text", "gpt_oss"))
#: Those that divide scores by the root of a number of their own.
_OWN_SCALE = frozenset(("gemma2", "gemma3_text"))
#: The only widths of heads for which these have a number that the file need not name, and their
#: numbers of layers (the 27B models) whose number is the hidden size over the number of heads.
_SCALE_IS_WIDTH, _SCALE_IS_SHARE = 256, {"gemma2": 46, "gemma3_text": 62}
_LAYER_NORM = frozenset(("falcon", "bloom", "stablelm", "gpt2", "starcoder2", "nemotron"))
_SLIDING, _FULL = "sliding_attention", "full_attention"

#: Entries that change no logits of one text from its beginning.
_HARMLESS = frozenset(
    ("vocab_size", "tensor_data_layout", "pooling_type", "rope.scaling.finetuned", "name")
)
#: Entries of which these values say that there is nothing of the sort.
_NOTHING: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(
        ("logit_scale", "residual_scale", "embedding_scale", "expert_weights_scale"), (0, 1)
    ),
    **dict.fromkeys(("attention.output_scale", "rope.scaling.yarn_attn_factor"), (0, 1)),
    **dict.fromkeys(("expert_group_count", "expert_group_used_count"), (0, 1)),
    "attention.causal": (True,),
    "rope.scaling.yarn_ext_factor": (1, -1),
    "rope.scaling.alpha": (0, 1),
    **dict.fromkeys(
        (
            "attn_logit_softcapping",
            "final_logit_softcapping",
            "router_logit_softcapping",
            "attention.max_alibi_bias",
            "attention.clamp_kqv",
            "attention.sliding_window",
            "attention.shared_kv_layers",
            "attention.temperature_length",
            "attention.temperature_scale",
            "attention.head_count",
            "attention.head_count_kv",
            "feed_forward_length",
            "expert_count",
            "expert_used_count",
            "expert_shared_count",
            "expert_weights_norm",
            "leading_dense_block_count",
            "embedding_length_per_layer_input",
            "nextn_predict_layers",
            "n_deepstack_layers",
            "rope.scaling.yarn_log_multiplier",
            "ssm.dt_b_c_rms",
            "use_parallel_residual",
        ),
        (0,),
    ),
}
#: Entries whose 0 leaves the choice to the architecture.
_ITS_OWN = frozenset(("attention.scale", "expert_gating_func"))
#: Settings of scaled positions, which follow together from the entries `rope.scaling.…`.
_SCALING = frozenset(
    (
        *("rope.scale_linear", "rope.scaling.type", "rope.scaling.factor"),
        *("rope.scaling.original_context_length", "rope.scaling.attn_factor"),
        *("rope.scaling.yarn_beta_fast", "rope.scaling.yarn_beta_slow"),
    )
)
_OF_ANY_ROTATION = ("rope_theta", "partial_rotary_factor", "mrope_section", "mrope_interleaved")


@dataclass(frozen=True)
class _Meaning:
    """`read` gives what a model of a configuration computes, as a file would say it, or None where
    it computes nothing of the sort; `write` sets it, where the configuration has a place for it."""

    read: Callable[[Any], Any]
    write: Callable[[Any, Any], None] | None = None


def _field(*names: str) -> _Meaning:
    """The first of these fields that the class of the configuration declares."""

    def own(config: Any) -> str | None:
        declared = {field.name for field in dataclasses.fields(config)} | set(config.attribute_map)
        return next((name for name in names if name in declared), None)

    def read(config: Any) -> Any:
        name = own(config)
        return None if name is None else getattr(config, name)

    def write(config: Any, value: Any) -> None:
        name = own(config)
        if name is not None:
            setattr(config, name, value)

    return _Meaning(read, write)


def _width(config: Any, kind: str = _FULL) -> int:
    """The width of a head in the layers of one kind, where the kinds differ."""
    if config.model_type == "gemma4_text" and kind in config.layer_types:
        config = config.per_layer_config[config.layer_types.index(kind)]
    own = getattr(config, "head_dim", None)
    return int(own or config.hidden_size // config.num_attention_heads)


def _set_width(config: Any, width: int) -> None:
    if config.model_type != "gemma4_text":
        config.head_dim = width


def _rotation(config: Any, kind: str = _FULL) -> dict[str, Any] | None:
    """Rotary settings of the layers of one kind, as the configuration keeps them."""
    settings = getattr(config, "rope_parameters", None)
    if not isinstance(settings, dict) or not settings:
        return None
    own = settings.get(kind)
    return own if isinstance(own, dict) else settings


def _base(kind: str) -> _Meaning:
    def read(config: Any) -> Any:
        return (_rotation(config, kind) or {}).get("rope_theta")

    def write(config: Any, value: Any) -> None:
        if (place := _rotation(config, kind)) is not None:
            place["rope_theta"] = float(value)

    return _Meaning(read, write)


def _rotated(config: Any) -> int | None:
    """How many dimensions of a head are rotated."""
    place = _rotation(config)
    if place is None:
        return None
    share = place.get("partial_rotary_factor", 1.0)
    return int(_width(config) * share) if config.model_type in _PARTLY_ROTATED else _width(config)


def _set_rotated(config: Any, dimensions: int) -> None:
    place = _rotation(config)
    if place is not None and config.model_type in _PARTLY_ROTATED:
        place["partial_rotary_factor"] = dimensions / _width(config)


def _window(config: Any) -> int | None:
    if config.model_type in _ALL_WINDOWED:
        return config.sliding_window or None
    some = config.model_type in _SOME_WINDOWED and _SLIDING in config.layer_types
    return int(config.sliding_window) if some else None


def _set_window(config: Any, window: int) -> None:
    if config.model_type in _ALL_WINDOWED | _SOME_WINDOWED:
        config.sliding_window = window or None


def _pattern(config: Any) -> list[bool] | None:
    """For each layer whether it has a window."""
    if config.model_type in _SOME_WINDOWED:
        return [kind == _SLIDING for kind in config.layer_types]
    return None


def _set_pattern(config: Any, windowed: list[bool]) -> None:
    # What Gemma 4 has per layer follows from its kinds when the configuration is made.
    if config.model_type in _SOME_WINDOWED - {"gemma4_text"}:
        config.layer_types = [_SLIDING if is_windowed else _FULL for is_windowed in windowed]


def _scale(config: Any) -> float:
    """What products of queries and keys are multiplied by."""
    if config.model_type in _OWN_SCALE:
        return 1 / math.sqrt(config.query_pre_attn_scalar)
    return 1 / math.sqrt(_width(config))


def _set_scale(config: Any, scale: float) -> None:
    if config.model_type in _OWN_SCALE:
        config.query_pre_attn_scalar = round(scale**-2)


def _groups(config: Any) -> Any:
    """The number of key-value heads, of each layer where some have none."""
    if config.model_type == "falcon":
        # With more than one, llama.cpp has its rows in another order than transformers.
        return 1 if config.multi_query and not config.new_decoder_architecture else None
    if config.model_type == "lfm2":
        count = config.num_key_value_heads
        return [count if kind == _FULL else 0 for kind in config.layer_types]
    if config.model_type in ("bloom", "gpt2"):
        return config.num_attention_heads
    if config.model_type == "gemma4_text":
        layers = [config.per_layer_config[at] for at in range(config.num_hidden_layers)]
        counts = [layer.num_key_value_heads for layer in layers]
        return counts if len(set(counts)) > 1 else counts[0]
    own = getattr(config, "num_key_value_heads", None)
    return getattr(config, "num_attention_heads", None) if own is None else own


def _set_groups(config: Any, count: int) -> None:
    if config.model_type not in ("falcon", "lfm2", "bloom", "gpt2", "gemma4_text"):
        config.num_key_value_heads = count


def _gating(config: Any) -> int | None:
    """How experts are weighted, as llama.cpp numbers the ways."""
    ways = {"qwen2_moe": 1, "qwen3_moe": 1, "qwen3_5_moe_text": 1, "gpt_oss": 3, "minimax_m2": 2}
    return ways.get(config.model_type)


_EPSILON = _field(
    "rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", "norm_eps", "norm_epsilon"
)
_EXPERT_WIDTH = _field("moe_intermediate_size", "intermediate_size")
_MEANINGS: dict[str, _Meaning] = {
    "context_length": _field("max_position_embeddings"),
    "block_count": _Meaning(lambda config: config.num_hidden_layers),
    "embedding_length": _Meaning(lambda config: config.hidden_size),
    "feed_forward_length": _field("intermediate_size", "n_inner", "ffn_hidden_size"),
    "attention.head_count": _Meaning(lambda config: getattr(config, "num_attention_heads", None)),
    "attention.head_count_kv": _Meaning(_groups, _set_groups),
    "attention.key_length": _Meaning(_width, _set_width),
    "attention.value_length": _Meaning(_width),
    "attention.layer_norm_rms_epsilon": _EPSILON,
    "attention.layer_norm_epsilon": _EPSILON,
    "attention.sliding_window": _Meaning(_window, _set_window),
    "attention.sliding_window_pattern": _Meaning(_pattern, _set_pattern),
    "attention.scale": _Meaning(_scale, _set_scale),
    "attention.max_alibi_bias": _Meaning(
        lambda config: 8.0 if config.model_type == "bloom" else None
    ),
    "attn_logit_softcapping": _field("attn_logit_softcapping"),
    "final_logit_softcapping": _field("final_logit_softcapping"),
    "rope.freq_base": _base(_FULL),
    "rope.freq_base_swa": _base(_SLIDING),
    "rope.dimension_count": _Meaning(_rotated, _set_rotated),
    "expert_count": _field("num_experts", "num_local_experts"),
    "expert_used_count": _field("num_experts_per_tok", "top_k_experts"),
    "expert_feed_forward_length": _EXPERT_WIDTH,
    "expert_shared_feed_forward_length": _field("shared_expert_intermediate_size"),
    "expert_weights_norm": _field("norm_topk_prob"),
    "expert_gating_func": _Meaning(_gating),
    "use_parallel_residual": _field("use_parallel_residual"),
    "ssm.conv_kernel": _field("conv_kernel", "linear_conv_kernel_dim"),
    "ssm.state_size": _field("state_size", "linear_key_head_dim"),
    "ssm.time_step_rank": _field("time_step_rank", "linear_num_value_heads"),
    "shortconv.l_cache": _field("conv_L_cache"),
    "embedding_length_per_layer_input": _field("hidden_size_per_layer_input"),
    "attention.shared_kv_layers": _field("num_kv_shared_layers"),
}


def _stacked(config: Any) -> dict[str, _Meaning]:
    """What Qwen 3.5 says by entries that others lack: two kinds of layers, with states and with
    attention, and layers behind the last that predict further tokens, which are left out."""

    def inner(config: Any) -> int:
        return int(config.linear_num_value_heads * config.linear_value_head_dim)

    def interval(config: Any) -> int | None:
        period = config.layer_types.index(_FULL) + 1 if _FULL in config.layer_types else 0
        kinds = ["linear_attention"] * (period - 1) + [_FULL]
        repeats = all(kind == kinds[at % period] for at, kind in enumerate(config.layer_types))
        return period if period and repeats else None

    def sections(config: Any) -> list[int]:
        own = list((_rotation(config) or {}).get("mrope_section", ()))
        return own + [0] * (4 - len(own))

    return {
        "ssm.inner_size": _Meaning(inner),
        "ssm.group_count": _field("linear_num_key_heads"),
        "full_attention_interval": _Meaning(interval),
        "rope.dimension_sections": _Meaning(sections),
    }


def _meanings(file: GgufFile, config: Any) -> dict[str, _Meaning]:
    """What each entry of a file of this architecture means."""
    kind = config.model_type
    meanings = dict(_MEANINGS)
    if kind in ("qwen3_5_text", "qwen3_5_moe_text"):
        further = int(file.of_model("nextn_predict_layers") or 0)
        meanings |= _stacked(config) | {
            "block_count": _Meaning(lambda config: config.num_hidden_layers + further),
            "nextn_predict_layers": _Meaning(lambda config: further),
        }
    if kind == "mamba":
        meanings["ssm.inner_size"] = _Meaning(lambda config: config.intermediate_size)
    if kind == "gemma4_text":
        narrow = _Meaning(lambda config: _width(config, _SLIDING))
        named = ("attention.key_length_swa", "attention.value_length_swa")
        meanings |= dict.fromkeys((*named, "rope.dimension_count_swa"), narrow)
    if kind in ("gpt_oss", "minimax_m2"):
        # Every layer has experts, so nothing has this width.
        del meanings["feed_forward_length"]
    if kind == "bloom":
        four = _Meaning(lambda config: 4 * config.hidden_size)
        meanings |= {"feed_forward_length": four}
    return meanings


def _unneeded(config: Any) -> frozenset[str]:
    """Entries that mean nothing for this model."""
    kind = config.model_type
    names = {*_HARMLESS, *_SCALING}
    names.add(f"attention.layer_norm_{'rms_' if kind in _LAYER_NORM else ''}epsilon")
    if kind in ("gpt_oss", "minimax_m2"):
        names.add("feed_forward_length")
    if kind in ("bloom", "mamba"):  # biases by distance and states have no last position
        names.add("context_length")
    return frozenset(names)


def _implied(file: GgufFile, config: Any) -> dict[str, Any]:
    """What llama.cpp takes where a file has no entry, and the configuration might differ."""
    kind = config.model_type
    implied: dict[str, Any] = {"attention.head_count_kv": file.of_model("attention.head_count")}
    if _rotation(config) is not None and kind != "gemma4_text":
        implied["rope.freq_base"] = 10000.0
    if kind in _PARTLY_ROTATED:
        implied["rope.dimension_count"] = _width(config)
    if kind in _ALL_WINDOWED:
        implied["attention.sliding_window"] = 0
    elif kind == "gemma2":
        implied |= {
            "attention.sliding_window": 4096,
            "attn_logit_softcapping": 50.0,
            "final_logit_softcapping": 30.0,
        }
    elif kind == "gemma3_text":
        implied |= {"rope.freq_base_swa": 10000.0}
        if not file.of_model("attention.sliding_window"):
            implied["attention.sliding_window_pattern"] = [False] * config.num_hidden_layers
    return {
        key: value
        for key, value in implied.items()
        if value is not None and file.of_model(key) is None
    }


def complete(config: Any, file: GgufFile, name: str) -> None:
    """Make a configuration say what its file says; `name` is for messages.

    Raises `InputError` naming the entry and its value where the model would compute something else.
    """
    meanings, unneeded = _meanings(file, config), _unneeded(config)
    prefix = f"{file.architecture}."
    said = {
        key.removeprefix(prefix): value
        for key, value in file.metadata.items()
        if key.startswith(prefix)
    }
    epsilons = tuple(f"attention.layer_norm_{kind}epsilon" for kind in ("rms_", ""))
    if _EPSILON.read(config) is not None and not any(key in said for key in epsilons):
        raise InputError(
            f"{name}: nothing in it says by what epsilon its norms are kept from dividing by 0 "
            f"({prefix}{epsilons[config.model_type in _LAYER_NORM]}); {ADVICE}."
        )
    for key, value in {**_implied(file, config), **said}.items():
        if key not in unneeded and not (key in _ITS_OWN and value == 0):
            _settle(config, key, value, meanings.get(key), file, name)
    if config.model_type == "gemma4_text":
        config.vocab_size_per_layer_input = config.vocab_size
    if config.model_type in _OWN_SCALE and not said.get("attention.scale"):
        _settle_scale(config, name)
    _scale_positions(config, file, name)


def _settle(
    config: Any, key: str, value: Any, meaning: _Meaning | None, file: GgufFile, name: str
) -> None:
    """Let the configuration say what one entry says."""
    value = _normal(key, value, config)
    current = None if meaning is None else meaning.read(config)
    if _same(current, value) or (not current and _nothing(key, value, file)):
        return
    if meaning is not None and meaning.write is not None and _fits(current, value):
        meaning.write(config, value)
        if _same(meaning.read(config), value) or (
            not meaning.read(config) and _nothing(key, value, file)
        ):
            return
    instead = "without it" if current is None else f"with {_shown(current)}"
    raise InputError(
        f"{name}: its entry {file.architecture}.{key} is {_shown(value)}, and transformers would "
        f"compute {instead}; {ADVICE}."
    )


def _normal(key: str, value: Any, config: Any) -> Any:
    """A value as the configuration has it: a period of windows layer by layer."""
    if key != "attention.sliding_window_pattern":
        return value
    if isinstance(value, list):
        return [bool(flag) for flag in value]
    # The last layer of each period has no window; a period of 1 or 0 has none at all.
    return [bool(value) and at % value < value - 1 for at in range(config.num_hidden_layers)]


def _fits(current: Any, value: Any) -> bool:
    return isinstance(value, list) == isinstance(current, list) or current is None


def _same(current: Any, value: Any) -> bool:
    if isinstance(current, list) or isinstance(value, list):
        return bool(current == value)
    if current is None:
        return False
    if isinstance(value, float) or isinstance(current, float):
        return math.isclose(current, value, rel_tol=1e-6)  # files have 32 bits
    return bool(current == value)


def _nothing(key: str, value: Any, file: GgufFile) -> bool:
    """Whether a value says that there is nothing of the sort."""
    if key == "attention.sliding_window" and not isinstance(value, list):
        # A window over all positions hides nothing.
        return not value or value >= (file.of_model("context_length") or math.inf)
    if key == "attention.sliding_window_pattern":
        return not any(value)
    return not isinstance(value, list) and value in _NOTHING.get(key, ())


def _shown(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 60 else f"{text[:60]}…"


def _settle_scale(config: Any, name: str) -> None:
    """What Gemma 2 and 3 divide scores by, of which a file says nothing."""
    share = config.hidden_size // config.num_attention_heads
    if config.num_hidden_layers == _SCALE_IS_SHARE[config.model_type]:
        config.query_pre_attn_scalar = share
    elif _width(config) == _SCALE_IS_WIDTH:
        config.query_pre_attn_scalar = _SCALE_IS_WIDTH
    else:
        raise InputError(
            f"{name}: nothing in it says by what scores of attention are divided (llama.cpp takes "
            f"the root of {_width(config)}, transformers that of {config.query_pre_attn_scalar}), "
            f"since its heads are not {_SCALE_IS_WIDTH} wide; {ADVICE}."
        )


def _scale_positions(config: Any, file: GgufFile, name: str) -> None:
    """Set how rotary positions are scaled, by all entries and tensors that say so together."""
    place = _rotation(config)
    divisors = [tensor for tensor in (DIVISORS, LONG, SHORT) if tensor in file.tensors]
    factor = float(file.of_model("rope.scaling.factor") or file.of_model("rope.scale_linear") or 1)
    kind = str(file.of_model("rope.scaling.type") or "linear")
    strength = float(file.of_model("rope.scaling.attn_factor") or 1)
    original = file.of_model("rope.scaling.original_context_length")
    wanted: dict[str, Any] = {"rope_type": "default"}
    left_out: tuple[str, Any] | None = None if strength == 1 else ("attn_factor", strength)
    if kind in ("linear", "yarn") and factor != 1:
        wanted = {"rope_type": kind, "factor": factor}
        if kind == "yarn":
            context = int(original or config.max_position_embeddings)
            wanted["original_max_position_embeddings"] = context
            for end in ("fast", "slow"):
                if (turns := file.of_model(f"rope.scaling.yarn_beta_{end}")) is not None:
                    wanted[f"beta_{end}"] = float(turns)
            if config.model_type == "gpt_oss":
                wanted["truncate"] = False
    elif kind not in ("none", "linear", "yarn") and not {LONG, SHORT} <= set(divisors):
        left_out = ("type", kind)
    if divisors:
        if factor != 1:
            left_out = ("factor", factor)
        elif divisors == [DIVISORS]:
            wanted = _divided(file.tensors[DIVISORS].data, config, name)
        elif {LONG, SHORT} <= set(divisors):
            context = int(original or config.max_position_embeddings)
            wanted = {
                "rope_type": "longrope",
                "short_factor": [float(factor) for factor in file.tensors[SHORT].data],
                "long_factor": [float(factor) for factor in file.tensors[LONG].data],
                "original_max_position_embeddings": context,
                "attention_factor": strength,
                "factor": config.max_position_embeddings / context,
            }
            if hasattr(config, "original_max_position_embeddings"):
                config.original_max_position_embeddings = context
            left_out = None
        else:
            left_out = ("factors", f"in {' and '.join(divisors)} alone")
    if place is None and (divisors or wanted["rope_type"] != "default"):
        left_out = left_out or ("type", kind)
    if left_out is not None:
        raise InputError(
            f"{name}: its positions are scaled in a way ({file.architecture}.rope.scaling."
            f"{left_out[0]} is {left_out[1]}) that has no place in a configuration of "
            f"transformers; {ADVICE}."
        )
    if place is None or (place.get("rope_type") == "proportional" and not divisors):
        return
    kept = {key: place[key] for key in _OF_ANY_ROTATION if key in place}
    if place != kept | wanted:
        place.clear()
        place.update(kept | wanted)


def _divided(values: Any, config: Any, name: str) -> dict[str, Any]:
    """Rotary settings of models of which a file holds only what they come to: by how much each
    frequency is divided. Llama 3.1 and later divide the slow ones, Gemma 4 has some stand still."""
    divisors = torch.from_numpy(values.copy()).float()
    place = _rotation(config)
    if place is not None and place.get("rope_type") == "proportional":
        moving = divisors == 1
        if bool((divisors[~moving] > 1e20).all()):
            return {
                "rope_type": "proportional",
                "partial_rotary_factor": int(moving.sum()) / len(divisors),
            }
    elif place is not None:
        frequencies = float(place["rope_theta"]) ** -(torch.arange(len(divisors)) / len(divisors))
        turns = _LLAMA3_CONTEXT * frequencies / (2 * math.pi)
        low, high = _LLAMA3.values()
        smooth = ((turns - low) / (high - low)).clamp(0, 1)
        for factor in _LLAMA3_FACTORS:
            if torch.allclose(1 / (smooth + (1 - smooth) / factor), divisors, rtol=1e-3):
                return {
                    "rope_type": "llama3",
                    "factor": factor,
                    **_LLAMA3,
                    "original_max_position_embeddings": _LLAMA3_CONTEXT,
                }
    raise InputError(
        f"{name}: its rotary frequencies ({DIVISORS}) are not those of a Llama 3 model, and "
        f"transformers does not read them from a GGUF file; {ADVICE}."
    )
