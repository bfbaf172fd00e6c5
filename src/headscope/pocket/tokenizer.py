"""The pocket model's tokenizer: byte-level BPE, trained on the train split of its own world.

Byte-level, so that any text of any language can be given to the model; a `<bos>` is put before
every text by the tokenizer itself, as most decoders' tokenizers do.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

from headscope.pocket.mixture import documents

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

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
