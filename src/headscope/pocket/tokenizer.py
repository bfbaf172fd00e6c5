"""The pocket model's tokenizer and shape.

The tokenizer is a byte-level BPE, trained on the train split of its own world: any text of any
language can be given to the model. It puts a `<bos>` before every text by itself, as most decoders'
tokenizers do.

The model is a small Qwen3 with 96 query heads in groups of four. Qwen3 rather than Llama because it
normalises queries and keys: without that, attention of a model this small saturates early in
training and heads that copy or align never form.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

from headscope.pocket.mixture import documents

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

VOCABULARY = 3072
BOS, EOS, PAD = "<bos>", "<eos>", "<pad>"
CONTEXT = 1024

#: One user message becomes the bare prompt of the mixture: the text, then "Answer:".
CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}"
    "{% if message['role'] == 'assistant' %} {{ message['content'] }}{{ eos_token }}"
    "{% else %}{{ message['content'] }}\nAnswer:{% endif %}{% endfor %}"
)


def train_tokenizer(seed: int = 0, texts: int = 60_000) -> PreTrainedTokenizerFast:
    """Train on `texts` documents of the train split (about half a minute)."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[PAD, BOS, EOS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    stream = islice(documents("train", f"tokenizer-{seed}"), texts)
    tokenizer.train_from_iterator((f"{d.prompt} {d.target}" for d in stream), trainer)
    bos = tokenizer.token_to_id(BOS)
    tokenizer.post_processor = processors.Sequence(
        [
            processors.ByteLevel(trim_offsets=False),
            processors.TemplateProcessing(single=f"{BOS} $A", special_tokens=[(BOS, bos)]),
        ]
    )
    make: Any = PreTrainedTokenizerFast
    fast: PreTrainedTokenizerFast = make(
        tokenizer_object=tokenizer,
        bos_token=BOS,
        eos_token=EOS,
        pad_token=PAD,
        model_max_length=CONTEXT,
        clean_up_tokenization_spaces=False,
    )
    fast.chat_template = CHAT_TEMPLATE
    return fast


def new_model(tokenizer: PreTrainedTokenizerFast, seed: int) -> Qwen3ForCausalLM:
    """A randomly initialised pocket model in float32 (2.2 million parameters)."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(seed)
    config = Qwen3Config(
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
    return Qwen3ForCausalLM(config)
