"""This machine as rates: a few passes and steps of a model at two sizes, and what they took."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING

import torch

from headscope.find.gate_gradients import batch_gradients, ones_gate
from headscope.lm.batching import collate
from headscope.lm.generation import generate_batch
from headscope.lm.losses import token_losses
from headscope.studies.costs.estimate import Machine, Rate
from headscope.studies.costs.shapes import Shape, shape_of

if TYPE_CHECKING:
    from headscope.lm import LanguageModel

Clock = Callable[[], float]
#: Rows and length of the passes, and rows of the steps of generation, small and large.
_PASSES = ((2, 24), (16, 40))
#: On a GPU the large one has to be so large that its operations take longer than their launching.
_LARGE = (8, 256)
_ROWS = (2, 16)
_PROMPT, _STEPS = 16, 10
#: Rounds of anything, and of what takes so few seconds that more can be had for nothing.
_ROUNDS, _MORE, _SHORT = 3, 7, 0.1
#: What a run and a text take beside passes, in passes of two tokens: these, too, are mostly Python
#: (measured with the bundled model's studies, see `bench/costs.py`).
_LEAST = (1, 2)
_START, _TEXT = 35.0, 0.2
#: The machine is taken to be idle where threads get this share of their cores, seen for so many
#: seconds, and the middle one of some rounds takes no more than so many times the shortest.
_ENOUGH, _PROBE, _STEADY = 0.85, 0.3, 1.5


def measure_machine(lm: LanguageModel, clock: Clock = time.perf_counter) -> Machine:
    """The machine that a model is on, measured with that model in a second or two.

    Passes, passes with gradients for gates, and steps of generation are timed at a small and a
    large size; a line through the shortest of a few rounds (others only add to it) gives what a
    pass costs by itself and what its operations take. On a GPU the small one is all launching, and
    the large one all operations. It is done with as many threads as torch
    takes for every command. With another model the rates are a first guess.

    Args:
        lm: the model.
        clock: seconds, of the wall or of the process.
    """
    shape = shape_of(lm)
    spreads: list[float] = []
    draw = random.Random(0)
    size = shape.vocabulary

    def rows(count: int, length: int) -> list[list[int]]:
        return [[draw.randrange(size // 8, size) for _ in range(length)] for _ in range(count)]

    def passes(count: int, length: int, start: int = 1) -> tuple[float, float]:
        """Operations and seconds of passes with the logits of the tokens from `start` on."""
        some, starts = rows(count, length), [start] * count
        seconds, _ = _timed(
            lm, clock, lambda: token_losses(lm, some, starts, batch_tokens=1 << 20), spreads
        )
        return count * length * shape.forward(length, (length - start) / length), seconds

    def gradients(count: int, length: int) -> tuple[float, float]:
        """The same of passes with gradients, without what the logits take."""
        some, gate = rows(count, length), ones_gate(lm, count)
        seconds, _ = _timed(lm, clock, lambda: batch_gradients(lm, some, gate, False), spreads)
        layers = count * length * shape.backward(length, 0.0)
        last = count * length * shape.backward(length, batch=count * length) - layers
        return layers, max(seconds - last / logits, seconds / 4)

    def steps(count: int) -> tuple[float, float]:
        batch = collate(rows(count, _PROMPT), lm.pad_token_id)

        def write(limit: int) -> int:
            made = generate_batch(lm, batch, [limit] * count, stop_at_newline=False)
            return max(len(new) for new in made)

        first, _ = _timed(lm, clock, lambda: write(1), spreads)
        seconds, written = _timed(lm, clock, lambda: write(1 + _STEPS), spreads)
        done = max(1, written - 1)
        # A step takes no less than half of the mean over prompt and steps, whatever noise says.
        each = max((seconds - first) / done, seconds / (done + 1) / 2)
        return count * shape.forward(_PROMPT + done / 2), each

    bandwidth = _bandwidth(lm.device)
    reading = (shape.read_by(_ROWS[0]) + _ROWS[0] * _PROMPT * shape.cache) / bandwidth
    overlaps = lm.device.type == "cuda"
    sizes = (_PASSES[0], _LARGE if overlaps else _PASSES[1])
    whole = [passes(*rows_and_length) for rows_and_length in sizes]
    bare = [passes(*rows_and_length, start=rows_and_length[1] - 1) for rows_and_length in sizes]
    logits = _of_logits(whole[-1], bare[-1])
    _, least = passes(*_LEAST)
    both_ways = [gradients(*rows_and_length) for rows_and_length in sizes]
    written = [steps(count) for count in _ROWS]
    if overlaps:
        forward = _overlapped(bare, shape)
        # Few rows show nothing of the operations of a step.
        step = replace(forward, layer=written[0][1] / shape.layers)
        rates = forward, _overlapped(both_ways, shape), step
    else:
        rates = _rate(bare, shape), _rate(both_ways, shape), _rate(written, shape, reading)
    share = _share() if lm.device.type == "cpu" else 1.0
    threads = torch.get_num_threads()
    return Machine(
        "here",
        *rates,
        bandwidth,
        _memory(lm.device),
        overlaps=overlaps,
        measured=f"{lm.name} on {lm.device}, {threads} thread{'' if threads == 1 else 's'}",
        start=_START * least,
        text=_TEXT * least,
        logits=logits,
        busy=_busy(share, median(spreads)),
    )


def _of_logits(whole: tuple[float, float], bare: tuple[float, float]) -> float:
    """Operations a second of the logits, from passes with all of them and with hardly any.

    Where these take no time that can be seen, they are taken to be as fast as a whole pass.
    """
    (all_operations, longer), (few, shorter) = whole, bare
    seconds = longer - shorter
    return (all_operations - few) / seconds if seconds > 0 else all_operations / longer


def _timed(
    lm: LanguageModel, clock: Clock, work: Callable[[], object], spreads: list[float]
) -> tuple[float, int]:
    """The shortest seconds of a few rounds, and what the last made.

    `spreads` gets how much longer the round in the middle took.
    """
    seconds: list[float] = []
    made: object = None
    while len(seconds) < _ROUNDS or (
        len(seconds) < _MORE and (sum(seconds) < _SHORT or median(seconds) > _STEADY * min(seconds))
    ):
        began = clock()
        made = work()
        if lm.device.type == "cuda":
            torch.cuda.synchronize(lm.device)
        seconds.append(clock() - began)
    spreads.append(median(seconds) / max(min(seconds), 1e-9))
    return min(seconds), made if isinstance(made, int) else 0


def _share() -> float:
    """The share of the time that torch's threads get of as many cores, when all of them work."""
    square = torch.ones(1024, 1024)
    square @ square
    wall, own = time.perf_counter(), time.process_time()
    while time.perf_counter() - wall < _PROBE:
        square @ square
    return (time.process_time() - own) / (time.perf_counter() - wall) / torch.get_num_threads()


def _busy(share: float, spread: float) -> str | None:
    """Why rates may be too low: others work here, or there are more threads than cores."""
    if share >= _ENOUGH and spread <= _STEADY:
        return None
    threads = torch.get_num_threads()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    if cores and threads > cores:
        return (
            f"torch uses {threads} threads on {cores} cores, which makes all of this slow; set "
            f"OMP_NUM_THREADS={cores}"
        )
    load = f"load average {os.getloadavg()[0]:.1f} on {cores} cores, " if share < _ENOUGH else ""
    return (
        f"the machine is busy ({load}its threads get {share:.0%} of their cores, rounds take "
        f"{spread:.2g} times the shortest), so the hours may be far too many; repeat it when "
        "nothing else runs"
    )


def _rate(points: Sequence[tuple[float, float]], shape: Shape, reading: float = 0.0) -> Rate:
    """The line through (operations, seconds) of two sizes; nothing of it is below 0.

    `reading` is what the small size takes at least, since weights have to be read.
    """
    (few, short), (many, long) = points
    # Where the large size takes no longer, half of it is taken for the pass itself.
    slope = (long - short) / (many - few) if long > short else long / many / 2
    return Rate(1 / slope, max(0.0, short - max(slope * few, reading)) / shape.layers)


def _overlapped(points: Sequence[tuple[float, float]], shape: Shape) -> Rate:
    """Of (operations, seconds) of two sizes: the small is launching alone, the large operations."""
    (_, short), (many, long) = points
    return Rate(many / long, short / shape.layers)


def _bandwidth(device: torch.device) -> float:
    """Bytes a second at which a large tensor is read."""
    # A GPU's cache holds the smaller one, and reading it takes no longer than waiting for it.
    size, times = (1 << 26, 16) if device.type == "cuda" else (1 << 24, 1)
    numbers = torch.ones(size, device=device)
    least = float("inf")
    for _ in range(4):
        began = time.perf_counter()
        sums = [numbers.sum() for _ in range(times)]
        float(sums[-1])
        least = min(least, time.perf_counter() - began)
    return times * numbers.nbytes / least


def _memory(device: torch.device) -> float:
    if device.type == "cuda":
        return float(torch.cuda.get_device_properties(device).total_memory)
    return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
