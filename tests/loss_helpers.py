"""Linked sentences, and the losses of one reference found character by character."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

import find_helpers
from headscope.data.pairs import SentencePair, write_pairs
from headscope.data.prompts import Prompt, Template
from headscope.lm import LanguageModel
from headscope.lm.tokens import tokenise

CHATML = (
    "{{ bos_token }}{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}</s>\n"
    "{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
TEMPLATE = Template("Translate from {source_language} to {target_language}: {source} =>")


def data(folder: Path, direction: str, size: int = 7) -> Path:
    """Sentences of which some words are linked, some twice and some not at all."""
    pairs = [
        replace(one, links=frozenset((i, j) for i, j in one.links or () if (i + j) % 3))
        for one in find_helpers.pairs(direction, size).pairs
    ]
    write_pairs(folder / f"{direction}.tsv", pairs)
    return folder / f"{direction}.tsv"


def of_sentence(lm: LanguageModel, model: Any, prompt: Prompt, pair: SentencePair) -> list[Any]:
    """The losses of one reference's tokens by kind, words found character by character."""
    text, start = f"{prompt.text}{prompt.joint}{pair.target}", len(prompt.text + prompt.joint)
    tokens = tokenise(lm.tokenizer, text, prompt.special)
    with torch.no_grad():
        ids = torch.tensor([tokens.ids], device=lm.device)
        log_p = model(input_ids=ids).logits[0].log_softmax(-1)
    linked = {j for _, j in pair.links or ()}
    words = [(m.start() + start, m.end() + start) for m in re.finditer(r"\S+", pair.target)]
    losses: list[list[float]] = [[], [], []]
    begun: set[int] = set()
    for at, (low, high) in enumerate(tokens.spans):
        if not low < high or high <= start:
            continue
        inside = {
            j for j in linked if any(words[j][0] <= c < words[j][1] for c in range(low, high))
        }
        kind = 2 if not inside else 0 if inside - begun else 1
        begun |= inside
        losses[kind].append(-float(log_p[at - 1, tokens.ids[at]]))
    return losses
