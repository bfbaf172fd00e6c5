"""Tiny models and tokenizers for tests of headscope.lm."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from small_models import build
from torch import nn

from headscope.lm.batching import Batch, collate
from headscope.lm.inputs import forward_inputs
from headscope.lm.model import LanguageModel

#: Grouped keys, Conv1D, parallel residual, soft cap, hybrid, latent values, norm before W_O.
VARIED = ("llama", "gpt2", "gpt_neox", "gemma2", "qwen3_next", "deepseek_v3", "bitnet")

_SPECIAL = ("<pad>", "<s>", "</s>")
_PIECES = [chr(code) for code in range(32, 123)] + ["\n", "é"]


def tokenizer(replace: Mapping[int, str] | None = None, pad: bool = True) -> Any:
    """One token a character, 96 ids, the first three special; ``replace`` renames single ids."""
    from tokenizers import Tokenizer, decoders, models
    from transformers import PreTrainedTokenizerFast

    pieces = [*_SPECIAL, *_PIECES]
    for index, piece in (replace or {}).items():
        pieces[index] = piece
    inner = Tokenizer(models.BPE(vocab={p: i for i, p in enumerate(pieces)}, merges=[]))
    inner.decoder = decoders.Fuse()
    names = {"bos_token": "<s>", "eos_token": "</s>"}
    if pad:
        names["pad_token"] = "<pad>"
    return PreTrainedTokenizerFast(tokenizer_object=inner, **names)


def wrapped(name: str, seed: int = 0, **options: Any) -> LanguageModel:
    """A tiny model of one architecture with the character tokenizer."""
    return LanguageModel.wrap(build(name, seed, **options), tokenizer(), name=name, check=False)


def multimodal() -> LanguageModel:
    """A tiny model of images and text, whose decoder gets embeddings instead of token ids."""
    from transformers import Gemma3Config, Gemma3ForConditionalGeneration

    shape = {"hidden_size": 32, "intermediate_size": 32, "num_attention_heads": 4}
    config = Gemma3Config(
        text_config={
            **shape,
            "num_hidden_layers": 2,
            "num_key_value_heads": 2,
            "head_dim": 8,
            "vocab_size": 96,
        },
        vision_config={**shape, "num_hidden_layers": 3, "image_size": 28, "patch_size": 14},
        mm_tokens_per_image=4,
        image_token_index=90,
        boi_token_index=91,
        eoi_token_index=92,
    )
    return LanguageModel.wrap(Gemma3ForConditionalGeneration._from_config(config).eval())


def sample_batch(rows: tuple[int, ...] = (9, 5, 7), seed: int = 0) -> Batch:
    """Random tokens of unlike lengths, padded on the left."""
    generator = torch.Generator().manual_seed(seed)
    return collate([torch.randint(3, 96, (n,), generator=generator).tolist() for n in rows], 0)


def logits(model: Any, batch: Batch) -> torch.Tensor:
    with torch.no_grad():
        return model(**forward_inputs(model, batch)).logits


def full_weights(lm: LanguageModel, batch: Batch) -> torch.Tensor:
    """All heads' attention weights (B, N, T, S) of the same model under eager attention."""
    eager = copy.deepcopy(lm.model)
    eager.set_attn_implementation("eager")
    with torch.no_grad():
        found = eager(**forward_inputs(eager, batch), output_attentions=True).attentions
    return torch.cat([weights for weights in found if weights is not None], dim=1)


def hooks_of(model: nn.Module) -> int:
    """How many hooks all modules of a model have."""
    return sum(len(m._forward_pre_hooks) + len(m._forward_hooks) for m in model.modules())


def whole_text(batch: Batch, text: torch.Tensor) -> Batch:
    """A generated text behind the prompts of a batch, as one batch."""
    mask = torch.ones_like(text)
    mask[:, : batch.attention_mask.shape[1]] = batch.attention_mask
    return Batch(text, mask, (mask.cumsum(1) - 1).clamp(min=0))


def slice_of_w_o(projection: nn.Module, head: int, width: int) -> torch.Tensor:
    """The part of W_O that reads one head: columns of a Linear, rows of a Conv1D."""
    channels = slice(head * width, (head + 1) * width)
    if isinstance(projection, nn.Linear):
        return projection.weight[:, channels]
    return projection.weight[channels]


def folded(lm: LanguageModel, gate: torch.Tensor) -> Any:
    """A copy of the model with each head's slice of W_O multiplied by its gate."""
    model = copy.deepcopy(lm.model)
    with torch.no_grad():
        for site in lm.sites:
            projection = model.get_submodule(site.projection_name)
            for head in range(site.heads):
                part = slice_of_w_o(projection, head, site.head_width)
                part.mul_(float(gate[site.layer, head]))
    return model


def saved(folder: Path, name: str = "llama", **options: Any) -> Path:
    """A folder with a tiny model and its tokenizer, as anybody would save them."""
    build(name, **options).save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    return folder


def adapted(*names: str, seed: int = 0) -> Any:
    """A tiny model of PEFT with LoRA adapters of these names, none of which begins at zero."""
    from peft import LoraConfig, get_peft_model

    settings: dict[str, Any] = {"r": 2, "lora_alpha": 8, "init_lora_weights": False}
    settings["target_modules"] = ["q_proj", "v_proj", "o_proj"]
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = get_peft_model(build("llama"), LoraConfig(**settings), names[0])
        for name in names[1:]:
            model.add_adapter(name, LoraConfig(**settings))
    return model.eval()


#: Models that compute a text otherwise where its batch holds more than 24 columns.
CHANGING = ("longrope", "dynamic", "temperature")


def changing(kind: str) -> LanguageModel:
    """A tiny model of one of the kinds `CHANGING`, in plain transformers and wrapped."""
    import transformers

    common: dict[str, Any] = {
        "vocab_size": 96,
        "hidden_size": 48,
        "intermediate_size": 64,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "initializer_range": 0.3,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 0,
        "max_position_embeddings": 128,
    }
    rope: dict[str, Any] = {"rope_theta": 10000.0}
    torch.manual_seed(0)
    if kind == "longrope":
        factors = {"short_factor": [1.0] * 6, "long_factor": [2.0 + at for at in range(6)]}
        rope |= {"rope_type": "longrope", "original_max_position_embeddings": 24, **factors}
        made: Any = transformers.Phi3ForCausalLM(
            transformers.Phi3Config(
                **common, original_max_position_embeddings=24, rope_parameters=rope
            )
        )
    elif kind == "dynamic":
        rope |= {"rope_type": "dynamic", "factor": 8.0}
        common["max_position_embeddings"] = 24
        made = transformers.LlamaForCausalLM(
            transformers.LlamaConfig(**common, rope_parameters=rope)
        )
    else:
        made = transformers.Llama4ForCausalLM(
            transformers.Llama4TextConfig(
                **common,
                intermediate_size_mlp=64,
                head_dim=16,
                num_local_experts=2,
                attention_chunk_size=20,
                no_rope_layers=[1, 0, 1],
                attn_temperature_tuning=True,
                floor_scale=25,
                attn_scale=2.0,
            )
        )
    return LanguageModel.wrap(made.eval(), tokenizer(), name=kind)


def fresh(lm: LanguageModel) -> Any:
    """The plain transformers model of the same weights, which has not met any row yet."""
    made = type(lm.model)(lm.model.config)
    made.load_state_dict(lm.model.state_dict())
    return made.eval()


#: What want of memory is raised by: torch on a GPU and on a CPU, and Python or numpy.
SCARCE = ("gpu", "cpu", "python")


def no_memory(where: str) -> None:
    """Raise the error of memory that does not suffice."""
    if where == "gpu":
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 9 GiB")
    if where == "python":
        raise MemoryError
    torch.empty(1 << 50)
