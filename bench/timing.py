"""What benchmarks that time several ways of one piece of work share."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from statistics import median

import torch

from headscope.lm.model import LanguageModel

#: What seconds are: of the wall, or of this process on all its cores (for a busy machine).
CLOCKS = {"wall": time.perf_counter, "process": time.process_time}


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median, smallest and largest, and of how many."""
    return {"median": median(values), "min": min(values), "max": max(values), "n": len(values)}


def wait(lm: LanguageModel) -> None:
    """Until the model's device has done what it was given; a clock read before says too little."""
    if lm.device.type == "cuda":
        torch.cuda.synchronize(lm.device)


def largest(fits: Callable[[int], bool], start: int, end: int) -> int:
    """The largest power of two times `start`, at most `end`, that fits; 0 if none does."""
    best, size = 0, start
    while size <= end and fits(size):
        best, size = size, size * 2
    return best


def moment() -> str:
    """Date and time, UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def load() -> list[float] | None:
    """How busy the machine was in the last 1, 5 and 15 minutes, where it says so."""
    return list(os.getloadavg()) if hasattr(os, "getloadavg") else None


def say(what: str) -> None:
    """Progress, on stderr."""
    print(what, file=sys.stderr, flush=True)
