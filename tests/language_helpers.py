"""Small documents in two languages, and naive twins of what is measured on them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from headscope.heads import HeadSet
from headscope.lm import LanguageModel
from lm_helpers import folded

ENGLISH = ("the dog sees a cat", "a bird sings", "the cat eats the fish today", "we go", "it rains")
GERMAN = ("der Hund sieht den Kater", "ein Vogel singt", "der Kater isst heute", "wir gehen", "ja")


def write_documents(folder: Path, more: str = "") -> dict[str, Path]:
    """A text file a language, one document a line."""
    files = {}
    for language, texts in (("en", ENGLISH), ("de", GERMAN)):
        files[language] = folder / f"{language}{more}.txt"
        files[language].write_text("\n".join(f"{one}{more}" for one in texts) + "\n", "utf-8")
    return files


def data_of(files: Mapping[str, Path]) -> list[str]:
    """As words of a command line."""
    return [word for name, file in files.items() for word in ("--data", f"{name}={file}")]


def naive_losses(lm: LanguageModel, heads: HeadSet, rows: Sequence[Sequence[int]]) -> list[float]:
    """Summed losses of texts, one at a time, by a copy of the model whose W_O lacks the heads."""
    model = folded(lm, torch.as_tensor(heads.removed().values.copy()))
    found = []
    for row in rows:
        ids = torch.tensor([list(row)], device=lm.device)
        with torch.no_grad():
            logits = model(input_ids=ids, use_cache=False).logits[0].double()
        chances = torch.log_softmax(logits, dim=-1)
        found.append(-sum(float(chances[at - 1, token]) for at, token in enumerate(row) if at))
    return found


def naive_perplexities(nll: Sequence[float], tokens: Sequence[int]) -> tuple[float, float]:
    """exp of the mean over tokens, and the mean over documents of exp of each one's mean."""
    weighted = math.exp(math.fsum(nll) / sum(tokens))
    published = math.fsum(math.exp(a / b) for a, b in zip(nll, tokens, strict=True)) / len(tokens)
    return weighted, published
