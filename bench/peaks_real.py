"""Peaks of real models beside returned attention, row by row, as JSON.

    python bench/peaks_real.py MODEL PAIRS.tsv --pair en-es --out FILE.json

Every key that `attention_peaks` finds is compared with the largest weight of the attention matrices
that the model returns under its eager kernel, for prompts with three examples and the translation.
A flip is another key; it may only be one whose weight differs by less than 1e-6.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch
from machine import machine, tell
from timing import say

import headscope
from headscope.data.pairs import PairSource, read_pairs
from headscope.data.split import with_shots
from headscope.find.hits import prompts_of
from headscope.find.translation_score_config import TranslationScore
from headscope.lm import LanguageModel
from headscope.lm.attention.peaks import PeakRequest
from headscope.lm.tokens import encode

SHOTS = 3
CLOSE = 1e-6


def differences(lm: LanguageModel, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """By layer, head and row: whether the key differs, and how far its weight lies below."""
    with torch.no_grad(), lm.attention_peaks(PeakRequest("all")) as peaks:
        lm.model(input_ids=ids)
    kernel = lm.model.config._attn_implementation
    lm.model.set_attn_implementation("eager")
    try:
        with torch.no_grad():
            weights = lm.model(input_ids=ids, output_attentions=True).attentions
    finally:
        lm.model.set_attn_implementation(kernel)
    returned = torch.stack([layer[0] for layer in weights])
    found = torch.as_tensor(peaks.keys).permute(1, 2, 0)[..., None].long()
    lost = returned.amax(dim=-1) - returned.gather(-1, found)[..., 0]
    return returned.argmax(dim=-1) != found[..., 0], lost


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("pairs", type=Path)
    parser.add_argument("--pair", default="en-es")
    parser.add_argument("--limit", type=int, default=40)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    lm = headscope.load(given.model, dtype="float32")
    file = read_pairs(PairSource(str(given.pairs), given.pair, limit=given.limit + SHOTS))
    shown = with_shots(file, SHOTS)
    flips = wrong = rows = 0
    largest = 0.0
    prompts = prompts_of(lm, shown, TranslationScore())
    for number, (pair, prompt) in enumerate(zip(shown.pairs, prompts, strict=True), 1):
        full = prompt.with_target(pair.target)
        ids = torch.tensor([encode(lm.tokenizer, full.text, full.special).ids])
        other, lost = differences(lm, ids)
        flips += int(other.sum())
        wrong += int((lost >= CLOSE).sum())
        largest = max(largest, float(lost.max()))
        rows += lost.numel()
        say(f"{number} of {len(shown.pairs)}: {flips} flips of {rows}, {wrong} wrong")
    result: dict[str, Any] = {
        "command": "bench/peaks_real.py",
        "machine": machine("cpu"),
        "model": Path(given.model).name,
        "prompt": "chat template"
        if any(prompt.special is False for prompt in prompts)
        else "plain",
        "pairs": len(shown.pairs),
        "peaks": rows,
        "flips": flips,
        "wrong": wrong,
        "largest_difference": largest,
    }
    tell(result, given.out)


if __name__ == "__main__":
    main()
