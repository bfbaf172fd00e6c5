"""Peak memory of rating above what the model takes, by size of a batch, at 128,000 words.

On a CPU every reading comes from a process of its own (`python bench/rate_memory.py …` is such a
process), as the rise of the largest resident size that Linux reports for it; on a GPU from the
allocator of torch.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
from peaks_memory import resident
from peaks_models import SHAPES, build
from rate_ways import Ways

from headscope.heads import Head, HeadSet
from headscope.lm.model import LanguageModel

SHAPE = "128k-words"
LENGTH = 256
SIZES = (1024, 2048, 4096, 8192)
#: Logits of a batch and their logarithms, 4 bytes each: larger ones are not tried.
LIMIT = 4 << 30


def memory(device: str, dtype: str, threads: int, quick: bool) -> dict[str, Any]:
    """Bytes by way and tokens of a batch; None for plain passes that would need too much."""
    found: dict[str, dict[str, int | None]] = {"plain": {}, "trater": {}}
    vocabulary = SHAPES[SHAPE].vocabulary
    for way, sizes in found.items():
        for size in SIZES[:2] if quick else SIZES:
            if way == "plain" and 8 * size * vocabulary > LIMIT:
                sizes[str(size)] = None
            elif device.startswith("cuda"):
                sizes[str(size)] = _on_gpu(_model(device, dtype), way, size)
            else:
                sizes[str(size)] = _in_process(way, size, dtype, threads)
            print(f"memory {way} {size}: {sizes[str(size)]}", file=sys.stderr)
    trater = [value for value in found["trater"].values() if value is not None]
    batches = [int(size) for size in found["trater"]]
    # What a token more in the batch costs; its logits alone are 4 bytes a word.
    slope = (trater[-1] - trater[0]) / (batches[-1] - batches[0])
    return {
        "shape": SHAPE,
        "vocabulary": vocabulary,
        "tokens_a_document": LENGTH,
        "bytes": found,
        "trater_bytes_a_token": slope,
        "bytes_of_the_logits_of_a_token": 4 * vocabulary,
        "grows_with_batch_times_vocabulary": slope > 0.1 * 4 * vocabulary,
    }


def _model(device: str, dtype: str) -> LanguageModel:
    lm, _ = build(SHAPE, device, dtype)
    return lm


def _run(lm: LanguageModel, way: str, batch_tokens: int) -> None:
    """Documents for one batch of that size."""
    gate = HeadSet(lm.geometry, (Head(len(lm.decoder_layers) - 1, 0),)).removed()
    words = " ".join(f"w{number}" for number in range(LENGTH))
    ways = Ways(lm, gate, batch_tokens, LENGTH)
    with torch.no_grad():
        getattr(ways, way)([words] * max(1, batch_tokens // LENGTH))


def _on_gpu(lm: LanguageModel, way: str, batch_tokens: int) -> int:
    _run(lm, way, LENGTH)
    torch.cuda.empty_cache()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    _run(lm, way, batch_tokens)
    return int(torch.cuda.max_memory_allocated()) - before


def _in_process(way: str, batch_tokens: int, dtype: str, threads: int) -> int:
    command = [sys.executable, __file__, way, str(batch_tokens), dtype, str(threads)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, env=os.environ)
    used: int = json.loads(done.stdout)
    return used


def main() -> None:
    """Prints the bytes one way needs on a CPU."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("way", choices=["plain", "trater"])
    parser.add_argument("batch_tokens", type=int)
    parser.add_argument("dtype")
    parser.add_argument("threads", type=int)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    lm = _model("cpu", given.dtype)
    _run(lm, given.way, 1)  # one document: what is loaded once is loaded
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")  # the maximum starts anew
    before = resident("VmRSS")
    _run(lm, given.way, given.batch_tokens)
    print(json.dumps(resident("VmHWM") - before))


if __name__ == "__main__":
    main()
