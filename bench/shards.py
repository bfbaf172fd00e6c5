"""Everything that is asked of heads, of models divided among two processes and of whole ones.

Each small architecture is loaded whole, then with `tp_plan="auto"` by two processes over gloo. What
is told is the largest difference of each quantity, or why the model cannot be divided.

    python bench/shards.py --out bench/results/shards.json [NAME ...]
"""

from __future__ import annotations

import argparse
import os
import pickle
import subprocess
import sys
import tempfile
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from machine import machine, tell
from small_models import ARCHITECTURES, build
from tokenizers import Tokenizer
from tokenizers.models import BPE
from transformers import PreTrainedTokenizerFast

from headscope.errors import InputError
from headscope.lm import LanguageModel
from headscope.lm.attention.weights import WeightRequest
from headscope.lm.loading import load
from headscope.lm.losses import row_losses, token_losses
from headscope.lm.queries import query_gated
from headscope.lm.replacement import replacement_of

PROCESSES = 2
ROWS = [
    torch.randint(3, 96, (length,), generator=torch.Generator().manual_seed(length)).tolist()
    for length in (14, 7, 11)
]


def values(lm: LanguageModel) -> dict[str, Any]:
    """Arrays by name; the sentence of an error where something cannot be had of this model."""
    chance = torch.Generator().manual_seed(1)
    gate = torch.rand(*lm.geometry.shape, generator=chance)
    of_rows = torch.rand(len(ROWS), *lm.geometry.shape, generator=chance)
    batch, starts = lm.collate(ROWS), [3] * len(ROWS)
    learned = batch.attention_mask.bool()
    for row, padding in enumerate(batch.padding):
        learned[row, : padding + 1] = False

    def losses(context: AbstractContextManager[Any]) -> np.ndarray:
        with context:
            return np.concatenate(token_losses(lm, ROWS, starts))

    def gradient(gated: Any) -> np.ndarray:
        gates = of_rows.clone().requires_grad_()
        with gated(gates):
            row_losses(lm, batch, learned).sum().backward()
        assert gates.grad is not None
        return gates.grad.numpy()

    def attention() -> np.ndarray:
        keys = torch.arange(14).expand(len(ROWS), -1)
        with torch.no_grad(), lm.attention_weights(WeightRequest(keys)) as weights:
            lm.forward(batch)
        return weights.weights.cpu().numpy()

    def peaks() -> np.ndarray:
        with torch.no_grad(), lm.attention_peaks() as found:
            lm.forward(batch)
        return found.keys.cpu().numpy()

    wanted: dict[str, Any] = {
        "losses": lambda: losses(nullcontext()),
        "gated": lambda: losses(lm.gated(gate)),
        "mean": lambda: losses(lm.gated(gate, replacement_of("mean", lm, ROWS, starts))),
        "resample": lambda: losses(lm.gated(gate, replacement_of("resample", lm, ROWS, starts))),
        "gradient": lambda: gradient(lm.gated),
        "peaks": peaks,
        "weights": attention,
        "queries": lambda: losses(query_gated(lm, gate)),
        "queries' gradient": lambda: gradient(lambda gates: query_gated(lm, gates)),
    }
    made: dict[str, Any] = {}
    for name, make in wanted.items():
        try:
            made[name] = make()
        except (InputError, RuntimeError) as error:
            made[name] = f"{type(error).__name__}: {error}".splitlines()[0]
    return made


def compared(whole: dict[str, Any], divided: dict[str, Any]) -> dict[str, Any]:
    """The largest difference of each quantity that the whole model has."""
    return {
        name: float(np.abs(array.astype(float) - divided[name]).max())
        if isinstance(divided[name], np.ndarray)
        else divided[name]
        for name, array in whole.items()
        if isinstance(array, np.ndarray)
    }


def _divided(folder: Path) -> None:
    """In each of the processes: the values of every model in the folder, kept by the first."""
    for place in sorted(folder.iterdir()):
        try:
            made: Any = values(load(place, tp_plan="auto", check="always"))
        except InputError as error:
            made = str(error).replace(str(place), place.name)
        if os.environ["RANK"] == "0":
            (place / "divided.pickle").write_bytes(pickle.dumps(made))


def main() -> None:
    """Compare, and tell."""
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("names", nargs="*", default=ARCHITECTURES)
    options.add_argument("--out", type=Path)
    options.add_argument("--divided", type=Path, help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.divided:
        _divided(given.divided)
        return
    with tempfile.TemporaryDirectory() as kept:
        whole, letters = {}, {chr(at + 32): at for at in range(96)}
        for name in given.names:
            place = Path(kept) / name
            build(name).save_pretrained(place)
            read = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(BPE(letters, [])))
            read.save_pretrained(place)
            whole[name] = values(load(place, device="cpu", check="never"))
        start = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(PROCESSES)]
        subprocess.run([*start, __file__, "--divided", kept], check=True)
        found: dict[str, Any] = {}
        for name, array in whole.items():
            made = pickle.loads((Path(kept) / name / "divided.pickle").read_bytes())
            found[name] = made if isinstance(made, str) else compared(array, made)
    tell({"machine": machine("cpu"), "processes": PROCESSES, "models": found}, given.out)


if __name__ == "__main__":
    main()
