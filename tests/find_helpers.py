"""Tokenizers, tiny models and sentences for tests of headscope.find."""

from __future__ import annotations

import copy
import functools
from collections.abc import Sequence
from typing import Any

from small_models import build

from headscope.data.pairs import PairFile
from headscope.lm.model import LanguageModel
from headscope.pocket.sample import sample_pairs

PAD, BOS, EOS, UNK = "<pad>", "<s>", "</s>", "<unk>"
VOCABULARY = 420

#: A model like the bundled one (grouped keys, tied embeddings), a sliding window with a soft cap,
#: learned positions, and norms on queries and keys.
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "pocket-like": (
        "llama",
        {
            "hidden_size": 64,
            "num_attention_heads": 8,
            "num_key_value_heads": 2,
            "head_dim": 8,
            "tie_word_embeddings": True,
        },
    ),
    "gemma2": ("gemma2", {"sliding_window": 24}),
    "gpt2": ("gpt2", {"n_positions": 512}),
    "qwen3": ("qwen3", {"sliding_window": 40}),
}
#: A model whose first layer has no attention heads.
HYBRID: dict[str, tuple[str, dict[str, Any]]] = {"hybrid": ("qwen3_next", {})}


def corpus() -> list[str]:
    """Sentences of several scripts to train small tokenizers on."""
    texts = ["Translate this sentence from English to German\nSentence: x\nAnswer: y\n"] * 20
    for direction in ("en-de", "tr-ru"):
        for pair in sample_pairs(direction, "train", 150, 3).pairs:
            texts += [pair.source, pair.target, f"{pair.source} {pair.target}"]
    return texts


def _trained(kind: str, vocabulary: int) -> Any:
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

    special = [PAD, BOS, EOS, UNK]
    options = {"vocab_size": vocabulary, "special_tokens": special, "show_progress": False}
    trainer: Any
    if kind == "wordpiece":
        inner = Tokenizer(models.WordPiece(unk_token=UNK))
        inner.normalizer = normalizers.BertNormalizer(lowercase=True)
        inner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        inner.decoder = decoders.WordPiece()
        trainer = trainers.WordPieceTrainer(**options)
    elif kind == "metaspace":
        inner = Tokenizer(models.BPE(unk_token=UNK))
        inner.pre_tokenizer = pre_tokenizers.Metaspace()
        inner.decoder = decoders.Metaspace()
        trainer = trainers.BpeTrainer(**options)
    else:
        inner = Tokenizer(models.BPE())
        inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        inner.decoder = decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(**options, initial_alphabet=alphabet)
    inner.train_from_iterator(corpus(), trainer)
    return inner


@functools.cache
def tokenizer(kind: str = "bytes", vocabulary: int = VOCABULARY, trim: bool = True) -> Any:
    """A tokenizer that puts <s> in front: bytes, metaspace or wordpiece.

    `trim`: whether the byte-level one leaves the space in front out of a token's characters.
    """
    from tokenizers import processors
    from transformers import PreTrainedTokenizerFast

    inner = _trained(kind, vocabulary)
    begin = processors.TemplateProcessing(
        single=f"{BOS} $A", special_tokens=[(BOS, inner.token_to_id(BOS))]
    )
    if kind == "bytes":
        begin = processors.Sequence([processors.ByteLevel(trim_offsets=trim), begin])
    inner.post_processor = begin
    return PreTrainedTokenizerFast(
        tokenizer_object=inner, bos_token=BOS, eos_token=EOS, pad_token=PAD, unk_token=UNK
    )


def model(name: str, attn_implementation: str | None = None, seed: int = 0, **more: Any) -> Any:
    """A tiny model of `MODELS` or `HYBRID` whose vocabulary fits the tokenizers."""
    architecture, fields = (MODELS | HYBRID)[name]
    ids = {"vocab_size": VOCABULARY, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    return build(architecture, seed, attn_implementation, overrides={**ids, **fields, **more})


def wrapped(name: str, kind: str = "bytes", seed: int = 0, **more: Any) -> LanguageModel:
    # A test may give it a chat template, which others are not to see.
    own = copy.deepcopy(tokenizer(kind))
    return LanguageModel.wrap(model(name, seed=seed, **more), own, name=name, check=False)


def pairs(direction: str = "en-de", n: int = 4, seed: int = 0) -> PairFile:
    return sample_pairs(direction, "dev", n, seed)


def links_by_rule(source: Sequence[str], target: Sequence[str]) -> frozenset[tuple[int, int]]:
    """A stand-in for an aligner: a few crossing links that follow from the words alone."""
    return frozenset(
        ((j * 7 + len(word)) % len(source), j)
        for j, word in enumerate(target)
        if source and (j + len(word)) % 4
    ) | frozenset((i, j) for i, a in enumerate(source) for j, b in enumerate(target) if a == b)


def eflomal_is_there() -> None:
    """In place of a look for the aligner."""


def align_by_rule(texts: Sequence[Any], extra: Any, options: Any) -> tuple[Any, ...]:
    return tuple(links_by_rule(*words) for words in texts)


#: What stands in for the statistical aligner, which has no seed.
ALIGNER = {
    "headscope.data.align.check_eflomal": eflomal_is_there,
    "headscope.data.align.align_eflomal": align_by_rule,
}
