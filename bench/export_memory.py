"""Peak memory of `headscope use export` beside the size of the checkpoint it folds.

A checkpoint of a Llama's shape is made of random numbers in a temporary folder, split into shards,
exported in a process of its own, looked over, and deleted. The peak is the largest resident size
that Linux reports for that process; `imports_bytes` is what it takes before it begins, from another
process that only imports what an export imports.

    python bench/export_memory.py --gigabytes 8 --out bench/results/export_memory.json
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from machine import machine, tell

from headscope.use.exporting.checkpoint import companions
from headscope.use.exporting.tensors import INDEX, Stored, stored_tensors, write_tensors

#: Layer shapes: hidden width, inner width, heads, key heads, vocabulary.
SHAPES = {
    "tiny": (256, 512, 8, 4, 1024),
    "8b": (4096, 14336, 32, 8, 128256),
    "70b": (8192, 28672, 64, 8, 128256),
}
_IMPORTS = """
import torch, transformers, safetensors, safetensors.torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM
import headscope.studies.use.export, headscope.use.exporting
print(next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if "VmHWM" in line))
"""


def main() -> None:
    """Make, export, look over, tell."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", choices=sorted(SHAPES), default="8b")
    parser.add_argument("--gigabytes", type=float, default=8.0, help="size of the checkpoint")
    parser.add_argument("--shard", default="2GB", help="size of its weight files, and of ours")
    parser.add_argument("--quick", action="store_true", help="a tiny one, to see that it runs")
    parser.add_argument("--export-only", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    if asked.export_only:
        _export(*asked.export_only)
        return
    if asked.quick:
        asked.shape, asked.gigabytes, asked.shard = "tiny", 0.004, "1MB"
    told = machine("cpu")
    with tempfile.TemporaryDirectory(prefix="headscope-export-") as name:
        folder = Path(name)
        layers = make(folder / "model", asked.shape, asked.gigabytes, asked.shard)
        done = _child([__file__, "--export-only", str(folder / "model"), str(folder / "run"),
                       asked.shard])  # fmt: skip
        looked = look_over(folder / "model", folder / "run" / "checkpoint")
        imports = int(_child(["-c", _IMPORTS])["number"])
    result = {
        "bench": "export_memory",
        "machine": told,
        "shape": asked.shape,
        "layers": layers,
        **looked,
        "peak_bytes": done["peak_bytes"],
        "imports_bytes": imports,
        "rise_bytes": done["peak_bytes"] - imports,
        "peak_share_of_checkpoint": done["peak_bytes"] / looked["checkpoint_bytes"],
        "seconds": done["seconds"],
        "export_seconds": done["export_seconds"],
    }
    tell(result, asked.out)


def make(folder: Path, shape: str, gigabytes: float, shard: str) -> int:
    """Write a checkpoint of about this size, and return its number of layers."""
    from transformers import LlamaConfig, LlamaForCausalLM

    from headscope.pocket import weights
    from headscope.use.exporting.checkpoint import bytes_of

    hidden, inner, heads, keys, words = SHAPES[shape]
    a_layer = 2 * (2 * hidden * hidden + 2 * hidden * hidden * keys // heads + 3 * hidden * inner)
    layers = max(2, round((gigabytes * 1e9 - 4 * hidden * words) / a_layer))
    config = LlamaConfig(
        vocab_size=words,
        hidden_size=hidden,
        intermediate_size=inner,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=keys,
        dtype="bfloat16",
        architectures=["LlamaForCausalLM"],
    )
    with torch.device("meta"):
        state = LlamaForCausalLM._from_config(config).state_dict()
    config.save_pretrained(folder)
    for file in companions(Path(weights.path())):
        if "token" in file.name:
            shutil.copy(file, folder)
    groups: list[list[Stored]] = [[]]
    for name, like in state.items():
        size = 2 * like.numel()
        if groups[-1] and sum(tensor.size for tensor in groups[-1]) + size > bytes_of(shard):
            groups.append([])
        groups[-1].append(Stored(name, folder, "BF16", tuple(like.shape), 0, size))
    places = {}
    for at, group in enumerate(groups, 1):
        file = f"model-{at:05d}-of-{len(groups):05d}.safetensors"
        write_tensors(folder / file, group, _random)
        places |= {tensor.name: file for tensor in group}
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": places}))
    return layers


def _random(tensor: Stored) -> Iterator[bytes]:
    """Random finite bfloat16 numbers around 0.01, which differ from tensor to tensor."""
    stream = np.random.default_rng(len(tensor.name) + tensor.size)
    left = tensor.size // 2
    while left:
        some = min(left, 1 << 22)
        bits = stream.integers(0, 1 << 16, some, dtype=np.uint16)
        yield ((bits & 0x80FF) | 0x3C00).astype("<u2").tobytes()
        left -= some


def look_over(source: Path, written: Path) -> dict[str, Any]:
    """Sizes, and whether W_O is folded and the rest is as it was, on a sample of tensors."""
    before = {tensor.name: tensor for tensor in stored_tensors(source)}
    after = {tensor.name: tensor for tensor in stored_tensors(written)}
    assert before.keys() == after.keys()
    folded = [name for name in before if name.endswith("o_proj.weight")]
    others = [name for name in before if not name.endswith("o_proj.weight")]
    changed = 0
    for name in (folded[0], folded[-1]):
        old, new = (torch.frombuffer(tensors[name].read(), dtype=torch.bfloat16).float().view(
            tensors[name].shape) for tensors in (before, after))  # fmt: skip
        changed += int((new[:, 0] == 0).all()) and int(torch.equal(old[:, -1], new[:, -1]))
    same = [
        before[name].read() == after[name].read() for name in others[:: max(1, len(others) // 8)]
    ]
    return {
        "checkpoint_bytes": sum(tensor.size for tensor in before.values()),
        "largest_tensor_bytes": max(tensor.size for tensor in before.values()),
        "largest_folded_tensor_bytes": max(before[name].size for name in folded),
        "files": len({tensor.file for tensor in after.values()}),
        "folded_as_meant": changed == 2,
        "others_as_they_were": all(same),
    }


def _export(model: str, out: str, shard: str) -> None:
    from headscope.studies.models import ModelChoice
    from headscope.studies.use.export import UseExport, use_export
    from headscope.studies.use.gates import GateChoice

    layers = json.loads((Path(model) / "config.json").read_text())["num_hidden_layers"]
    heads = ",".join(f"{layer}.0" for layer in range(layers))
    began = time.monotonic()
    config = UseExport(
        GateChoice(heads=heads, scale=0.0), ModelChoice(model), max_shard_size=shard, check=False
    )
    result = use_export(config, Path(out))
    # Not from getrusage, whose figure a process inherits from the one that started it.
    status = Path("/proc/self/status").read_text().splitlines()
    peak = next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))
    told = {"peak_bytes": peak, "seconds": time.monotonic() - began}
    print(json.dumps(told | {"export_seconds": result.seconds}))


def _child(arguments: list[str]) -> dict[str, Any]:
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    value = json.loads(done.stdout.strip().splitlines()[-1])
    return value if isinstance(value, dict) else {"number": value}


if __name__ == "__main__":
    main()
