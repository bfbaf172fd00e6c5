"""Models of known shapes for measuring, with random weights and one word per token."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

from headscope.errors import InputError
from headscope.lm.model import LanguageModel
from headscope.pocket import weights


@dataclasses.dataclass(frozen=True)
class Shape:
    """A decoder of the Llama family.

    Attributes:
        layers, hidden, inner, heads, shared, width, vocabulary: numbers of layers, channels,
            channels of the feed-forward part, query heads, key heads, channels of a head, tokens.
        spread: standard deviation of the random weights.
        aims: the largest ratio hoped for, by length in tokens, of the forward pass with peaks to
            the plain one; ``greedy_aim`` the same for greedy decoding.
    """

    name: str
    layers: int
    hidden: int
    inner: int
    heads: int
    shared: int
    width: int
    vocabulary: int
    context: int = 8192
    tied: bool = False
    spread: float = 0.02
    aims: tuple[tuple[int, float], ...] = ()
    greedy_aim: float | None = None

    def aim(self, tokens: int) -> float | None:
        return dict(self.aims).get(tokens)


SHAPES = {
    shape.name: shape
    for shape in (
        Shape("12-layer", 12, 768, 2048, 12, 12, 64, 32000, aims=((512, 1.10),), greedy_aim=1.10),
        # Forty tokens are the length of a prompt with its translation in its own world.
        Shape("pocket", 6, 160, 384, 16, 4, 16, 3072, tied=True, aims=((40, 1.20),)),
        Shape("8b", 32, 4096, 14336, 32, 8, 128, 128256, aims=((256, 1.05),)),
        # 4.3 million parameters; its queries and keys are wide enough for attention with peaks.
        Shape("small", 8, 192, 432, 8, 8, 24, 3072, spread=0.072),
        Shape("tiny", 2, 64, 128, 4, 2, 16, 512),
        # A context of books; weights so wide that heads differ in what they look at.
        Shape("long", 4, 64, 128, 8, 2, 16, 4096, context=33024, spread=0.2),
        # So many words that logits are larger than everything else.
        Shape("128k-words", 2, 64, 128, 4, 2, 16, 128000),
    )
}


def build(name: str, device: str, dtype: str, seed: int = 0) -> tuple[LanguageModel, str]:
    """A model of a shape, and whether its weights are ``random`` or ``bundled``.

    Texts never end early: there is no token for their end.
    """
    from transformers import LlamaConfig, LlamaForCausalLM

    shape = SHAPES[name]
    folder = _bundled(name)
    if folder is not None:
        model: Any = LlamaForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype))
        model.to(device)
    else:
        config = LlamaConfig(
            vocab_size=shape.vocabulary,
            hidden_size=shape.hidden,
            intermediate_size=shape.inner,
            num_hidden_layers=shape.layers,
            num_attention_heads=shape.heads,
            num_key_value_heads=shape.shared,
            head_dim=shape.width,
            max_position_embeddings=shape.context,
            tie_word_embeddings=shape.tied,
            initializer_range=shape.spread,
        )
        torch.manual_seed(seed)
        before = torch.get_default_dtype()
        torch.set_default_dtype(getattr(torch, dtype))
        try:
            with torch.device(device):
                model = LlamaForCausalLM(config)
        finally:
            torch.set_default_dtype(before)
    for settings in (model.config, model.generation_config):
        settings.bos_token_id = settings.eos_token_id = None
        settings.pad_token_id = 0
    model.set_attn_implementation("sdpa")
    model.requires_grad_(False)
    model.eval()
    lm = LanguageModel.wrap(model, _words(int(model.config.vocab_size)), name, check=False)
    return lm, "random" if folder is None else "bundled"


def _bundled(name: str) -> Any:
    if name != "pocket":
        return None
    try:
        return weights.path()
    except InputError:  # this copy has none
        return None


def _words(size: int) -> Any:
    """A tokenizer whose token ``i`` is the word ``wi``."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    inner = Tokenizer(models.WordLevel({f"w{i}": i for i in range(size)}, unk_token="w0"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    fast: Any = PreTrainedTokenizerFast  # untyped
    return fast(tokenizer_object=inner, pad_token="w0")
