"""The pocket model's shape: a small Llama with 96 query heads in groups of four."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headscope.pocket.tokenizer import CONTEXT

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM, PreTrainedTokenizerFast


def new_model(tokenizer: PreTrainedTokenizerFast, seed: int) -> LlamaForCausalLM:
    """A randomly initialised pocket model in float32 (2.2 million parameters)."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=160,
        intermediate_size=384,
        num_hidden_layers=6,
        num_attention_heads=16,
        num_key_value_heads=4,
        head_dim=16,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=True,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return LlamaForCausalLM(config)
