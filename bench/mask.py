"""A step of mask training: the model frozen, against all its parameters requiring gradients; JSON.

    python bench/mask.py --shape 12-layer --threads 2 --out bench/results/mask.json
    python bench/mask.py --shape 8b --device cuda --dtype bfloat16 --fit

Both sides do the same step of `headscope find mask` (gates drawn for every row, losses of the
answers, backward pass to the weights of the gates, in parts of at most --batch-tokens tokens); one
of them also computes the gradients of all parameters, as a training loop does that forgot to freeze
the model.  Rounds take turns in who is
first; ratios are taken within rounds and the median counts.

Bytes are the peak of what torch has allocated above what lay there before the step: on a GPU as
its allocator counts them, on a CPU the largest running sum over all allocations and releases that
torch's own profiler saw in one step.  Weights lie there before, so they are added to both sides in
`with_weights`.  Gradients of parameters are made within the step and count.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from machine import machine, tell
from peaks_models import SHAPES, build
from timing import CLOCKS, largest, load, moment, say, spread, wait

from headscope.find.mask_config import MaskTraining, preset
from headscope.find.mask_training import gumbel_noise, starting_weights, straight_through
from headscope.lm.batching import collate, length_buckets
from headscope.lm.losses import checkpointed, frozen, row_losses
from headscope.lm.model import LanguageModel

AIMS = {"time": 0.75, "bytes": 0.6}


@dataclasses.dataclass(frozen=True)
class Work:
    """A step's samples: rows of random tokens, how many at the end are learned, and the parts."""

    rows: tuple[tuple[int, ...], ...]
    answer: int
    parts: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, lm: LanguageModel, rows: int, tokens: int, answer: int, batch_tokens: int) -> Work:
        """Rows of one length."""
        draw = random.Random(0)
        size = int(lm.model.config.vocab_size)
        ids = tuple(tuple(draw.randrange(size) for _ in range(tokens)) for _ in range(rows))
        parts = length_buckets([tokens] * rows, batch_tokens, batch_tokens)
        return cls(ids, answer, tuple(map(tuple, parts)))


def mask_step(lm: LanguageModel, work: Work, parameters: bool, number: int) -> float:
    """One step; with `parameters` the gradients of all parameters are made, too. Returns the loss.

    They are released at the end.
    """
    rows, count = len(work.rows), lm.geometry.layers * lm.geometry.width
    config = preset("small", lm.geometry.total)
    weights = torch.from_numpy(starting_weights(0, count, config.mean, config.spread))
    numbers = weights.to(lm.device).requires_grad_()
    noise = torch.from_numpy(gumbel_noise(0, number, rows, count)).to(lm.device)
    total = 0.0
    try:
        with contextlib.nullcontext() if parameters else frozen(lm.model):
            for part in work.parts:
                batch = collate([work.rows[row] for row in part], lm.pad_token_id)
                learned = torch.zeros(batch.input_ids.shape, dtype=torch.bool)
                learned[:, -work.answer :] = True
                own = noise[list(part)]
                gates = straight_through(numbers, own, config.temperature_at(number))
                with lm.gated(gates.reshape(len(part), *lm.geometry.shape)):
                    loss = row_losses(lm, batch, learned).sum() / rows
                    loss.backward()
                total += float(loss.detach())
    finally:
        lm.model.zero_grad(set_to_none=True)
    return total


def peak_bytes(lm: LanguageModel, work: Callable[[], object]) -> int:
    """Peak of the bytes that torch allocates while `work` runs, above those before."""
    if lm.device.type == "cuda":
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        work()
        torch.cuda.synchronize()
        return int(torch.cuda.max_memory_allocated()) - before
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
    ) as watched:
        work()
    found: Any = watched.profiler
    events = [event for event in found.kineto_results.events() if event.name() == "[memory]"]
    events.sort(key=lambda event: event.start_ns())
    held = peak = 0
    for event in events:
        held += event.nbytes()
        peak = max(peak, held)
    return peak


def compare(lm: LanguageModel, work: Work, number: int, clock: str) -> dict[str, Any]:
    """Seconds and bytes of both ways."""
    now = CLOCKS[clock]
    ways = {"frozen": False, "all_parameters": True}
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    losses: dict[str, list[float]] = {name: [] for name in ways}
    for place in range(number + 1):
        order = list(ways) if place % 2 else list(reversed(ways))
        for name in order:
            wait(lm)
            start = now()
            losses[name].append(mask_step(lm, work, ways[name], place))
            wait(lm)
            if place:  # the first round only warms up
                seconds[name].append(now() - start)
        say(f"round {place}: {[(name, rounds[-1:]) for name, rounds in seconds.items()]}")
    held = {
        name: peak_bytes(lm, lambda to=to: mask_step(lm, work, to, 0)) for name, to in ways.items()
    }
    own = sum(parameter.numel() * parameter.element_size() for parameter in lm.model.parameters())
    ratios = [a / b for a, b in zip(*seconds.values(), strict=True)]
    return {
        "seconds": {name: spread(values) for name, values in seconds.items()},
        "time_ratio": spread(ratios),
        "bytes": held,
        "bytes_ratio": held["frozen"] / held["all_parameters"],
        "bytes_of_weights": own,
        "bytes_ratio_with_weights": (held["frozen"] + own) / (held["all_parameters"] + own),
        "equal_losses": losses["frozen"] == losses["all_parameters"],
    }


def fitting(lm: LanguageModel, tokens: int, answer: int) -> dict[str, Any]:
    """On a GPU: the longest row, with and without checkpointing, and the most rows that fit."""

    def fits(rows: int, length: int, twice: bool, parameters: bool) -> bool:
        torch.cuda.empty_cache()
        try:
            with checkpointed(lm) if twice else contextlib.nullcontext():
                mask_step(lm, Work.of(lm, rows, length, answer, rows * length), parameters, 0)
        except torch.OutOfMemoryError:
            return False
        return True

    found: dict[str, Any] = {"context": lm.context_length}
    for name, twice, parameters in (
        ("frozen", False, False),
        ("frozen_checkpointed", True, False),
        ("all_parameters", False, True),
    ):
        longest = largest(lambda n, t=twice, p=parameters: fits(1, n, t, p), 128, 1 << 20)
        most = largest(lambda n, t=twice, p=parameters: fits(n, tokens, t, p), 1, 4096)
        found[name] = {"longest_row": longest, f"rows_of_{tokens}_tokens": most}
        say(f"{name}: {found[name]}")
    return found


def main() -> None:
    """Measures and prints; progress goes to stderr."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--shape", default="12-layer", choices=list(SHAPES))
    parser.add_argument("--rows", type=int, default=16, help="samples of a step")
    parser.add_argument("--tokens", type=int, default=64, help="of a row")
    parser.add_argument("--answer", type=int, default=32, help="learned tokens of a row")
    parser.add_argument("--batch-tokens", type=int, default=None)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, help="of torch; by default its own choice")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--clock", default="wall", choices=list(CLOCKS))
    parser.add_argument("--fit", action="store_true", help="find what fits (GPU)")
    parser.add_argument("--out", type=Path, help="also write the JSON there")
    parser.add_argument("--quick", action="store_true", help="only see that everything runs")
    given = parser.parse_args()
    if given.threads:
        torch.set_num_threads(given.threads)
    rounds = given.rounds
    if given.quick:
        given.shape, given.rows, given.tokens, given.answer, rounds = "tiny", 4, 16, 8, 2
    lm, weights = build(given.shape, given.device, given.dtype)
    # What a loaded model looks like before anybody freezes it.
    lm.model.requires_grad_(True)
    at_once = MaskTraining(batch_tokens=given.batch_tokens).at_once(lm.device.type)
    work = Work.of(lm, given.rows, given.tokens, given.answer, at_once)
    result: dict[str, Any] = {
        "bench": "mask",
        "started": moment(),
        "machine": machine(given.device),
        "clock": given.clock,
        "quick": given.quick,
        "device": given.device,
        "shape": given.shape,
        "weights": weights,
        "dtype": str(lm.dtype).removeprefix("torch."),
        "heads": lm.geometry.total,
        "rows": given.rows,
        "tokens": given.tokens,
        "answer_tokens": given.answer,
        "batch_tokens": at_once,
        "parts": len(work.parts),
        "aims": AIMS,
        **compare(lm, work, rounds, given.clock),
    }
    if given.fit:
        result["fit"] = fitting(lm, given.tokens, given.answer)
    result["load_after"] = load()
    result["ended"] = moment()
    tell(result, given.out)


if __name__ == "__main__":
    main()
