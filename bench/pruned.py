"""Size and speed of a model before and after groups of its heads are taken out.

For each model the first groups of every even layer and the last of every odd one are removed,
exported with `--as pruned`, and both models are loaded by plain transformers in float32. A pass
over 128 random tokens and 32 greedy tokens behind a prompt of 128 are timed in turn, first one
model, then the other; medians are told, and the medians of the ratios of neighbours. Which heads
are removed does not matter for size and speed, so the heads are not chosen by use.

    nice python bench/pruned.py pocket=2 FOLDER=1 --out bench/results/pruned.json
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from machine import machine, tell

from headscope.errors import InputError
from headscope.heads import Gate
from headscope.lm.checkpoints import read_config, resolve, tokenizer_of
from headscope.lm.geometry import key_value_heads
from headscope.lm.hollow import hollow_model, without_products
from headscope.results.export import ExportedModel
from headscope.studies.models import ModelChoice
from headscope.studies.use.export import UseExport, use_export
from headscope.studies.use.gates import GateChoice

TOKENS, NEW = 128, 32


def main() -> None:
    """Export, time in turn, tell."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", default=["pocket=2"], metavar="MODEL=GROUPS")
    parser.add_argument("--repeats", type=int, default=41)
    parser.add_argument("--quick", action="store_true", help="a few passes, to see that it runs")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    told = machine("cpu")
    repeats = 3 if asked.quick else asked.repeats
    rows = [measure(*model.rsplit("=", 1), repeats) for model in asked.models]
    result = {"bench": "pruned", "machine": told, "tokens": TOKENS, "new_tokens": NEW,
              "repeats": repeats, "dtype": "float32", "models": rows}  # fmt: skip
    tell(result, asked.out)


def measure(name: str, dropped: str, repeats: int) -> dict[str, Any]:
    """Figures of one model, or why no heads can be taken out of it."""
    folder, commit = resolve(name, None)
    config = read_config(folder, name)
    lm = hollow_model(name, folder, config, tokenizer_of(folder, name, None), commit)
    with without_products():
        groups = key_value_heads(lm)[0]
    size, values = lm.sites[0].heads // groups, np.ones(lm.geometry.shape)
    for layer, row in enumerate(values):
        part = (
            slice(0, size * int(dropped)) if layer % 2 == 0 else slice(-size * int(dropped), None)
        )
        row[part] = 0
    label = Path(name).name
    with tempfile.TemporaryDirectory(prefix="headscope-pruned-") as place:
        Gate(lm.geometry, values).save_pretrained(Path(place) / "gate")
        choice = GateChoice(gate=str(Path(place) / "gate"))
        settings = UseExport(gate=choice, model=ModelChoice(model=name), form="pruned")
        try:
            done = use_export(settings, Path(place) / "run")
        except InputError as error:
            return {"model": label, "refused": str(error).replace(name, label)}
        return {"model": label, **figures(done, folder, Path(done.path), repeats)}


def figures(done: ExportedModel, before: Path, after: Path, repeats: int) -> dict[str, Any]:
    """Sizes, the proof, and times in turn."""
    from transformers import AutoModelForCausalLM

    pruned, proof = done.written.pruned, done.check
    assert pruned is not None and proof is not None
    models = [
        AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        for folder in (before, after)
    ]
    ids = torch.randint(3, models[0].config.vocab_size, (1, TOKENS),
                        generator=torch.Generator().manual_seed(0))  # fmt: skip
    mask = torch.ones_like(ids)

    def a_pass(model: Any) -> None:
        model(input_ids=ids, attention_mask=mask)

    def text(model: Any) -> None:
        model.generate(input_ids=ids, attention_mask=mask, max_new_tokens=NEW, min_new_tokens=NEW,
                       do_sample=False, pad_token_id=0)  # fmt: skip

    return {
        "groups": [pruned.groups_before, pruned.groups_before - pruned.groups_dropped],
        "query_heads": [model.config.num_attention_heads for model in models],
        "parameters": [sum(weight.numel() for weight in model.parameters()) for model in models],
        "bytes": [sum(file.stat().st_size for file in folder.glob("*.safetensors"))
                  for folder in (before, after)],
        "cache_bytes_a_token": [cache_bytes(model.config) for model in models],
        "largest_difference": proof.largest_difference,
        "largest_logit": proof.largest_logit,
        "untouched_difference": proof.untouched_difference,
        "pass": in_turn(a_pass, models, repeats),
        "generate": in_turn(text, models, max(3, repeats // 4)),
    }  # fmt: skip


def cache_bytes(config: Any) -> int:
    """Keys and values of one token in all layers, in float32."""
    return int(2 * 4 * config.num_hidden_layers * config.num_key_value_heads * config.head_dim)


def in_turn(work: Callable[[Any], None], models: list[Any], repeats: int) -> dict[str, Any]:
    """Median milliseconds of both models, and of the ratios of neighbours with their quartiles."""
    times: list[list[float]] = [[], []]
    with torch.no_grad():
        for turn in range(repeats + 2):
            for at in (0, 1) if turn % 2 == 0 else (1, 0):
                began = time.perf_counter()
                work(models[at])
                if turn >= 2:  # the first two warm up
                    times[at].append(1000 * (time.perf_counter() - began))
    ratios = [after / before for before, after in zip(*times, strict=True)]
    return {
        "milliseconds": [statistics.median(milliseconds) for milliseconds in times],
        "ratio": statistics.median(ratios),
        "ratio_quartiles": [float(at) for at in np.quantile(ratios, (0.25, 0.75))],
    }


if __name__ == "__main__":
    main()
