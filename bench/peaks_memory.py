"""Peak memory of one forward pass above what the model itself takes.

On a CPU every reading comes from a process of its own (`python bench/peaks_memory.py …` is such a
process), as the rise of the largest resident size that Linux reports for it; on a GPU from the
allocator of torch. A way that needs more than the limit counts as not fitting.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from peaks_models import build
from peaks_ways import Long, Reference, eager, random_rows

WAYS = ("plain_last_logits", "peaks", "eager_attentions")
#: What else is done with a long text.
LONG = ("peaks_eager", "peaks_shared", "losses", "losses_mean", "losses_resample", "explorer")
#: Room for what an allocation limit counts although it is never resident (address space).
_SLACK = 1 << 30


def measure(
    shape: str,
    lengths: list[int],
    device: str,
    dtype: str,
    limit: int,
    threads: int,
    names: Sequence[str] = WAYS,
) -> dict[str, Any]:
    """Bytes by way and length, one row of tokens each; None where the limit was too small."""
    if device.startswith("cuda"):
        lm, _ = build(shape, device, dtype)

        def one(way: str, tokens: int) -> int | None:
            return _on_gpu(lm, way, tokens, limit)

    else:

        def one(way: str, tokens: int) -> int | None:
            return _in_process(shape, way, tokens, dtype, limit, threads)

    ways = {way: _ascending(one, way, lengths) for way in names}
    return {
        "shape": shape,
        "batch": 1,
        "limit_bytes": limit,
        "ways": {
            way: {"bytes": sizes, "exponent": _exponent(sizes)} for way, sizes in ways.items()
        },
    }


def _ascending(
    one: Callable[[str, int], int | None], way: str, lengths: list[int]
) -> dict[str, int | None]:
    found: dict[str, int | None] = {}
    for tokens in sorted(lengths):
        found[str(tokens)] = one(way, tokens)
        print(f"memory {way} {tokens}: {found[str(tokens)]}", file=sys.stderr)
        if found[str(tokens)] is None:  # longer ones need more
            break
    return found


def _exponent(found: dict[str, int | None]) -> float | None:
    """Slope of log bytes over log length by least squares: 1 is linear, 2 quadratic."""
    points = [(math.log(int(n)), math.log(b)) for n, b in found.items() if b]
    if len(points) < 2:
        return None
    x, y = (sum(values) / len(points) for values in zip(*points, strict=True))
    slope: float = sum((a - x) * (b - y) for a, b in points) / sum((a - x) ** 2 for a, _ in points)
    return slope


def _run(lm: Any, way: str, tokens: int) -> None:
    reference = (Long if way in LONG else Reference)(lm, random_rows(lm, 1, tokens))
    if way == "eager_attentions":
        with eager(lm):
            reference.eager_attentions()
    else:
        getattr(reference, way)()


def _on_gpu(lm: Any, way: str, tokens: int, limit: int) -> int | None:
    _run(lm, way, 64)
    torch.cuda.empty_cache()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    total = torch.cuda.get_device_properties(lm.device).total_memory
    torch.cuda.set_per_process_memory_fraction(min(1.0, (before + limit) / total))
    try:
        _run(lm, way, tokens)
    except torch.OutOfMemoryError:
        return None
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    return int(torch.cuda.max_memory_allocated()) - before


def _in_process(
    shape: str, way: str, tokens: int, dtype: str, limit: int, threads: int
) -> int | None:
    numbers = [str(tokens), str(limit), str(threads)]
    command = [sys.executable, __file__, shape, way, dtype, *numbers]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, env=os.environ)
    used: int | None = json.loads(done.stdout)
    return used


def resident(name: str) -> int:
    """A size of this process in bytes, as Linux names it.

    The maximum in ``getrusage`` will not do: a child starts with its parent's.
    """
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise OSError(f"/proc/self/status has no {name}")


def main() -> None:
    """Prints the bytes one way needs on a CPU, or null."""
    import resource

    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("shape")
    parser.add_argument("way", choices=(*WAYS, *LONG))
    parser.add_argument("dtype")
    parser.add_argument("tokens", type=int)
    parser.add_argument("limit", type=int)
    parser.add_argument("threads", type=int)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    lm, _ = build(given.shape, "cpu", given.dtype)
    _run(lm, given.way, 128)
    space = resident("VmSize") + given.limit + _SLACK
    resource.setrlimit(resource.RLIMIT_AS, (space, space))
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")  # the maximum starts anew
    before = resident("VmRSS")
    used: int | None
    try:
        _run(lm, given.way, given.tokens)
        used = resident("VmHWM") - before
    except RuntimeError as error:  # how torch says it on a CPU
        if "memory" not in str(error):
            raise
        used = None
    print(json.dumps(used if used is None or used <= given.limit else None))


if __name__ == "__main__":
    main()
