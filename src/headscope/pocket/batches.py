"""The batches of the pocket model's training: what a step sees depends on its number alone."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from headscope.pocket.mixture import Document, documents

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedTokenizerFast

    from headscope.pocket.train import PocketTraining

__all__ = ["Batch", "corpus_batches", "step_batches"]

#: Share of documents whose prompt is learned too. The source sentence of a translation cannot be
#: foreseen, and computing its loss every time costs a quarter of a step on a CPU.
PROMPT_SHARE = 0.2
#: Steps whose batches are drawn together, so that documents of like length share a batch.
GROUP = 16
#: Share of a training on a corpus after which documents of every length are let in.
RAMP = 0.5


@dataclass(frozen=True)
class Batch:
    """Token ids (B, T) padded on the right, and which positions' next token is learned (B, T)."""

    input_ids: torch.Tensor
    learned: torch.Tensor


def step_batches(
    tokenizer: PreTrainedTokenizerFast, config: PocketTraining, first: int = 0
) -> Iterator[Batch]:
    """The batches from step `first` on; what a step sees depends on the seed and the step."""
    group = first // GROUP
    skip = first % GROUP
    while True:
        yield from _group(tokenizer, config, group)[skip:]
        group, skip = group + 1, 0


def _group(tokenizer: PreTrainedTokenizerFast, config: PocketTraining, number: int) -> list[Batch]:
    """`GROUP` batches of documents of like length, in random order."""
    rng = random.Random(f"group {config.seed} {number}")
    stream = documents("train", f"{config.seed} {number}")
    wanted = GROUP * config.batch_tokens
    encoded: list[tuple[list[int], int]] = []
    size = 0
    longest = config.first_words + number * config.more_words
    while size < wanted * 1.1:
        some = [d for d in islice(stream, 256) if len(d.target.split()) <= longest]
        for ids, start in _encode(tokenizer, some):
            learn_prompt = rng.random() < PROMPT_SHARE
            encoded.append((ids, 0 if learn_prompt else start))
            size += len(ids)
    return _batches(tokenizer, encoded, config.batch_tokens, rng)[:GROUP]


def _batches(
    tokenizer: PreTrainedTokenizerFast,
    encoded: list[tuple[list[int], int]],
    batch_tokens: int,
    rng: random.Random,
) -> list[Batch]:
    """Batches of documents of like length, in random order."""
    chunks: list[list[tuple[list[int], int]]] = [[]]
    for pair in sorted(encoded, key=lambda pair: len(pair[0])):
        if chunks[-1] and (len(chunks[-1]) + 1) * len(pair[0]) > batch_tokens:
            chunks.append([])
        chunks[-1].append(pair)
    rng.shuffle(chunks)
    return [_collate(tokenizer, chunk) for chunk in chunks]


def _encode(
    tokenizer: PreTrainedTokenizerFast, batch: list[Document]
) -> Iterator[tuple[list[int], int]]:
    """Token ids of each document with its end mark, and where its target begins.

    Prompt and target are separate pieces of the tokenizer's first split (the target begins with
    a space), so encoding them apart gives the same tokens as encoding them as one string.
    """
    prompts = tokenizer([d.prompt for d in batch], add_special_tokens=False)["input_ids"]
    targets = tokenizer(
        [f" {d.target}" if d.prompt else d.target for d in batch], add_special_tokens=False
    )["input_ids"]
    for prompt, target in zip(prompts, targets, strict=True):
        yield [tokenizer.bos_token_id, *prompt, *target, tokenizer.eos_token_id], len(prompt)


def _collate(tokenizer: PreTrainedTokenizerFast, chunk: list[tuple[list[int], int]]) -> Batch:
    import torch

    width = max(len(ids) for ids, _ in chunk)
    input_ids = torch.full((len(chunk), width), int(tokenizer.pad_token_id))
    learned = torch.zeros((len(chunk), width), dtype=torch.bool)
    for row, (ids, start) in enumerate(chunk):
        input_ids[row, : len(ids)] = torch.tensor(ids)
        learned[row, start : len(ids) - 1] = True
    return Batch(input_ids, learned)


def corpus_batches(
    tokenizer: PreTrainedTokenizerFast, corpus: Sequence[Document], batch_tokens: int, seed: int
) -> list[Batch]:
    """Batches that hold every document of `corpus` once, the same for the same seed.

    Short documents open the training, as in the world's own stream: over the first `RAMP` of it
    longer and longer ones are let in. Documents of like length share a batch.
    """
    rng = random.Random(f"corpus {seed}")
    encoded = []
    for start in range(0, len(corpus), 4096):
        for ids, begins in _encode(tokenizer, list(corpus[start : start + 4096])):
            encoded.append((ids, 0 if rng.random() < PROMPT_SHARE else begins))
    longest = max((len(ids) for ids, _ in encoded), default=1)
    placed = []
    for pair in encoded:
        opens = RAMP * len(pair[0]) / longest
        placed.append((opens + (1 - opens) * rng.random(), pair))
    placed.sort(key=lambda one: one[0])
    batches: list[Batch] = []
    group: list[tuple[list[int], int]] = []
    size = 0
    for _, pair in placed:
        group.append(pair)
        size += len(pair[0])
        if size >= GROUP * batch_tokens:
            batches += _batches(tokenizer, group, batch_tokens, rng)
            group, size = [], 0
    return batches + (_batches(tokenizer, group, batch_tokens, rng) if group else [])
