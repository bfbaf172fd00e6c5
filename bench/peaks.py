"""What capturing attention peaks costs, against the plain forward pass and the usual ways, as JSON.

    python bench/peaks.py --threads 2                          # 12-layer and pocket shapes, CPU
    python bench/peaks.py --device cuda --dtype bfloat16 --shape 8b --out bench/results/NAME.json

Ways are timed side by side in one run: every round runs each of them once, in a new order (so that
none always inherits the caches of the same other). Seconds are medians over rounds; a ratio is the
median of the ratios within rounds. Of each the smallest and largest are given too.

``plain`` is what a user runs for logits, ``plain_last_logits`` the same without the logits, which
no capture needs; ``peaks`` is headscope's way from token ids to arrays; ``eager_attentions`` takes
the arg max of all attention matrices of a batch; ``token_by_token`` feeds one sentence at a time,
one target token after another, through a cache and reads the attention weights of each step. The
last is run on the first sentences only, in the first rounds only, and its seconds are scaled to the
batch.
"""

from __future__ import annotations

import argparse
import dataclasses
import random
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from machine import machine, tell
from peaks_memory import LONG, WAYS, measure
from peaks_models import SHAPES, build
from peaks_ways import Greedy, Reference, eager, random_rows
from timing import CLOCKS, moment, say, spread

from headscope.lm.model import LanguageModel

PARTS = ("reference", "greedy", "memory")
#: (rows, tokens) of the reference passes by shape.
SIZES = {
    "12-layer": [(4, 512)],
    "pocket": [(100, 40), (8, 512)],
    "8b": [(32, 256), (16, 512), (8, 1024), (4, 2048)],
    "tiny": [(2, 32)],
}
MEMORY_LENGTHS = [512, 1024, 1536, 2048, 3072, 4096, 6144, 8192]
MEMORY_LIMIT = 8 << 30

Way = tuple[Callable[[], Any], Callable[[], AbstractContextManager[None]]]


@dataclasses.dataclass(frozen=True)
class Timing:
    """How often and by which clock; a way named in ``slow`` takes part in fewer rounds."""

    rounds: int
    clock: str
    slow: tuple[str, ...] = ("token_by_token",)
    slow_rounds: int = 3


def timed(
    lm: LanguageModel, ways: dict[str, Way], timing: Timing
) -> tuple[dict[str, list[float]], dict[str, Any]]:
    """Seconds of every way by round, after one call of each that is not counted (slow ways do
    without); and what each returned last."""
    now = CLOCKS[timing.clock]
    on_gpu = lm.device.type == "cuda"
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    results: dict[str, Any] = {}
    order = random.Random(0)
    for number in range(timing.rounds + 1):
        slow = 1 <= number <= timing.slow_rounds
        names = [name for name in ways if slow or name not in timing.slow]
        order.shuffle(names)
        for name in names:
            call, context = ways[name]
            results.pop(name, None)
            with context():
                if on_gpu:
                    torch.cuda.synchronize()
                start = now()
                result = call()
                if on_gpu:
                    torch.cuda.synchronize()
                took = now() - start
            results[name] = result
            if number:
                seconds[name].append(took)
    return seconds, results


def ratios(seconds: dict[str, list[float]], base: str) -> dict[str, dict[str, float]]:
    """Each way's seconds over those of ``base`` in the same round; slow ways have the first
    rounds only."""
    return {
        name: spread(
            [taken / reference for taken, reference in zip(times, seconds[base], strict=False)]
        )
        for name, times in seconds.items()
        if name != base
    }


def reference(
    lm: LanguageModel, shape: str, size: tuple[int, int], timing: Timing, sentences: int
) -> dict[str, Any]:
    """Given texts of one length, the second half of each captured."""
    batch, tokens = size
    run = Reference(lm, random_rows(lm, batch, tokens))
    sentences = min(sentences, batch)

    def switched() -> AbstractContextManager[None]:
        return eager(lm)

    ways: dict[str, Way] = {
        "plain": (run.plain, nullcontext),
        "plain_last_logits": (run.plain_last_logits, nullcontext),
        "peaks": (run.peaks, nullcontext),
        "eager_attentions": (run.eager_attentions, switched),
        "token_by_token": (lambda: run.token_by_token(sentences), switched),
    }
    seconds, found = timed(lm, ways, timing)
    seconds["token_by_token"] = [taken * batch / sentences for taken in seconds["token_by_token"]]
    ours = found["peaks"]
    return {
        "shape": shape,
        "rows": batch,
        "tokens": tokens,
        "captured_tokens": tokens - run.half,
        "token_by_token_sentences": sentences,
        "seconds": {name: spread(times) for name, times in seconds.items()},
        "ratio_to_plain": ratios(seconds, "plain"),
        "ratio_to_plain_last_logits": ratios(seconds, "plain_last_logits"),
        "aim": SHAPES[shape].aim(tokens),
        # In half precision others differ: softmax weights rounded to it often tie at the top, and
        # hidden states depend on the kernel.
        "equal_peaks": {
            "eager_attentions": float(np.mean(ours == found["eager_attentions"])),
            "token_by_token": float(np.mean(ours[:sentences] == found["token_by_token"])),
        },
    }


def greedy(
    lm: LanguageModel, shape: str, size: tuple[int, int, int], timing: Timing
) -> dict[str, Any]:
    """Continuing prompts of one length; ``size`` is rows, tokens of a prompt, new tokens."""
    batch, tokens, new_tokens = size
    run = Greedy(lm, random_rows(lm, batch, tokens), new_tokens)
    ways: dict[str, Way] = {
        "generate": (run.generate, nullcontext),
        "generate_own": (run.generate_own, nullcontext),
        "capture": (run.capture, nullcontext),
    }
    seconds, found = timed(lm, ways, timing)
    return {
        "shape": shape,
        "rows": batch,
        "prompt_tokens": tokens,
        "new_tokens": new_tokens,
        "seconds": {name: spread(times) for name, times in seconds.items()},
        "ratio_to_generate": ratios(seconds, "generate"),
        "ratio_to_generate_own": ratios(seconds, "generate_own"),
        "aim": SHAPES[shape].greedy_aim,
        "equal_tokens": float(np.mean(found["capture"] == found["generate"])),
    }


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--shape", nargs="+", choices=list(SHAPES), help="12-layer and pocket")
    parser.add_argument("--part", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16", "float16"])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--slow-rounds", type=int, default=3, help="of the token-by-token way")
    parser.add_argument("--clock", default="wall", choices=list(CLOCKS))
    parser.add_argument("--threads", type=int, help="of torch; by default its own choice")
    parser.add_argument("--sentences", type=int, default=1, help="for the token-by-token way")
    parser.add_argument("--decode-rows", type=int, default=32)
    parser.add_argument("--prompt-tokens", type=int, default=48)
    parser.add_argument("--new-tokens", type=int, default=48)
    parser.add_argument("--memory-shape", choices=list(SHAPES), help="the first shape")
    parser.add_argument("--memory-ways", nargs="+", choices=(*WAYS, *LONG))
    parser.add_argument("--memory-lengths", nargs="+", type=int, default=MEMORY_LENGTHS)
    parser.add_argument("--memory-limit", type=int, default=MEMORY_LIMIT, help="bytes")
    parser.add_argument("--out", type=Path, help="also write the JSON there")
    parser.add_argument("--quick", action="store_true", help="only see that everything runs")
    given = parser.parse_args()
    if given.quick:
        given.shape = given.shape or ["tiny"]
        given.rounds, given.decode_rows, given.prompt_tokens, given.new_tokens = 2, 2, 8, 4
        given.memory_lengths = [256]
    given.shape = given.shape or ["12-layer", "pocket"]
    return given


def main() -> None:
    """Measures and prints; progress goes to stderr."""
    given = arguments()
    timing = Timing(given.rounds, given.clock, slow_rounds=given.slow_rounds)
    if given.threads:
        torch.set_num_threads(given.threads)
    result: dict[str, Any] = {
        "bench": "peaks",
        "started": moment(),
        "machine": machine(given.device),
        "device": given.device,
        "dtype": given.dtype,
        "clock": given.clock,
        "quick": given.quick,
        "weights": {},
        "reference": [],
        "greedy": [],
        "memory": None,
    }
    for shape in given.shape if {"reference", "greedy"} & set(given.part) else []:
        lm, result["weights"][shape] = build(shape, given.device, given.dtype)
        if "reference" in given.part:
            for size in SIZES[shape]:
                say(f"reference {shape} {size}")
                result["reference"].append(reference(lm, shape, size, timing, given.sentences))
        if "greedy" in given.part:
            length = given.decode_rows, given.prompt_tokens, given.new_tokens
            say(f"greedy {shape} {length}")
            result["greedy"].append(greedy(lm, shape, length, timing))
        del lm
    if "memory" in given.part:
        result["memory"] = measure(
            given.memory_shape or given.shape[0],
            given.memory_lengths,
            given.device,
            given.dtype,
            given.memory_limit,
            torch.get_num_threads(),
            given.memory_ways or (("peaks", "eager_attentions") if given.quick else WAYS),
        )
    result["ended"] = moment()
    tell(result, given.out)


if __name__ == "__main__":
    main()
