"""What rating a corpus costs, against plain scoring passes, as JSON.

    python bench/rate.py --threads 1 --clock process --memory --out bench/results/rate.json
    python bench/rate.py --shape 8b --device cuda --dtype bfloat16 --documents 64 --tokens 2048 \\
        --batch-tokens 0 --out bench/results/rate-8b.json

For each first removed layer of --first (a share of the layers), every round takes other documents
and scores them in every way, in an order that changes: ``trater`` (`use.rating.rate_texts`),
``two_passes`` (plain, then plain under the gate), ``plain`` (one scoring pass: logits of a batch,
one cross-entropy), ``plain_in_chunks`` (the same with logits for some positions at a time), and
parts of a plain pass: ``tokenising`` and ``outside_the_layers``.  Ratios are taken within rounds,
and the median over rounds counts; smallest and largest are given too.

``bound`` is 1.05 × (1 + s + (1 - l0/L)(1 - s)) of a plain pass, where s is the share of it spent
outside the layers, and ``strict_bound`` the same with tokenising counted once.  Where tokens are
many, ``share_of_peak`` is the part of the measured speed of large matrix products that the
products needed for TRater reach.  --memory adds the peak memory at 128,000 words.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from machine import machine, tell
from peaks_models import SHAPES, build
from rate_memory import memory
from rate_ways import Ways, matrix_peak, operations
from timing import CLOCKS, load, moment, say, spread, wait

import headscope
from headscope.heads import Gate, HeadSet
from headscope.lm.model import LanguageModel
from headscope.pocket.sample import sample_documents
from headscope.use.rating import Rating, fitted

AIM = 1.05
WAYS = ("plain", "plain_in_chunks", "two_passes", "trater", "tokenising", "outside_the_layers")


def pocket_texts(lm: LanguageModel, seed: int, count: int, tokens: int) -> list[str]:
    """Development documents of the bundled model, a fifth of them in each language."""
    found: list[str] = []
    for code in ("en", "de", "es", "ru", "tr"):
        documents = sample_documents(code, "dev", -(-count // 5), seed).documents
        found += [document.text for document in documents]
    return found[:count]


def long_texts(lm: LanguageModel, seed: int, count: int, tokens: int) -> list[str]:
    """Random words, one a token, all of one length."""
    draw = random.Random(seed)
    size = int(lm.model.config.vocab_size)
    return [" ".join(f"w{draw.randrange(size)}" for _ in range(tokens)) for _ in range(count)]


def gate_from(lm: LanguageModel, first: int, count: int, seed: int = 0) -> Gate:
    """Removes ``count`` random heads from layer ``first`` on, one in that layer at least."""
    draw = random.Random(seed)
    heads = [head for head in lm.geometry.heads() if head.layer >= first]
    one = draw.choice([head for head in heads if head.layer == first])
    rest = draw.sample([head for head in heads if head != one], min(count, len(heads)) - 1)
    return HeadSet(lm.geometry, (one, *rest)).removed()


def rounds(
    lm: LanguageModel,
    gate: Gate,
    first: int,
    texts_of: Callable[[int], Sequence[str]],
    given: argparse.Namespace,
) -> dict[str, Any]:
    """Every way in every round, each round with documents of its own."""
    now = CLOCKS[given.clock]
    ways = Ways(lm, gate, given.batch_tokens, given.tokens)
    seconds: dict[str, list[float]] = {name: [] for name in given.ways}
    shuffle, gaps, used = random.Random(0), [0.0], []
    tokens: list[int] = []  # of every round, and the operations that they need
    needed: list[float] = []
    for place in range(given.rounds + 1):
        texts = texts_of(place)
        turn, found = list(given.ways), {}
        shuffle.shuffle(turn)
        for name in turn:
            if lm.device.type == "cuda":
                torch.cuda.reset_peak_memory_stats()
            wait(lm)
            start = now()
            with torch.no_grad():
                found[name] = getattr(ways, name)(texts)
            wait(lm)
            if place:  # the first round only warms up
                seconds[name].append(now() - start)
            if lm.device.type == "cuda" and name == "trater":
                used.append(torch.cuda.max_memory_allocated())
        lengths = [len(row) for row in ways.encode(texts)]
        if place:
            tokens.append(sum(lengths))
            needed.append(operations(lm, lengths, first))
        if "two_passes" in found:
            one, other = np.array(found["trater"]), np.array(found["two_passes"])
            gaps.append(float(np.abs(one - other).max()))
        say(f"round {place}: " + ", ".join(f"{n} {s[-1]:.3f}" for n, s in seconds.items() if s))
    result: dict[str, Any] = {
        "first_layer": first,
        "layers": lm.geometry.layers,
        "heads_removed": len(gate.removed_heads()),
        "batch_tokens": given.batch_tokens,
        "documents_a_round": len(lengths),
        "tokens_of_a_round": spread(tokens),
        "seconds": {name: spread(values) for name, values in seconds.items()},
        "largest_difference_nats": max(gaps),
        "peak_bytes": max(used) if used else None,
    }
    result |= _ratios(seconds, first / lm.geometry.layers)
    # Rounds have other documents, so each is divided by its own seconds.
    for name, amounts in (("tokens_per_second", tokens), ("operations_per_second", needed)):
        result[name] = median(a / s for a, s in zip(amounts, seconds["trater"], strict=True))
    return result


def _ratios(seconds: dict[str, list[float]], below: float) -> dict[str, Any]:
    """Costs in plain passes, and whether the bound holds; ``below`` is l0/L."""

    def ratio(name: str, to: str) -> list[float]:
        return [a / b for a, b in zip(seconds[name], seconds[to], strict=True)]

    found: dict[str, Any] = {"cost_in_plain_passes": spread(ratio("trater", "plain"))}
    if "plain_in_chunks" in seconds:
        found["cost_in_plain_passes_in_chunks"] = spread(ratio("trater", "plain_in_chunks"))
    if "two_passes" in seconds:
        found["speed_over_two_passes"] = spread(ratio("two_passes", "trater"))
    if "outside_the_layers" in seconds and "tokenising" in seconds:
        outside = spread(ratio("outside_the_layers", "plain"))
        tokenising = spread(ratio("tokenising", "plain"))
        s = outside["median"]
        bound = AIM * (1 + s + (1 - below) * (1 - s))
        cost = found["cost_in_plain_passes"]["median"]
        strict = bound - AIM * tokenising["median"]
        found |= {
            "share_outside_the_layers": outside,
            "share_tokenising": tokenising,
            "bound": bound,
            "within_bound": cost <= bound,
            "strict_bound": strict,
            "within_strict_bound": cost <= strict,
        }
        if "plain_in_chunks" in seconds:
            found["within_bound_of_chunks"] = (
                found["cost_in_plain_passes_in_chunks"]["median"] <= bound
            )
    return found


def main() -> None:
    """Measures and prints; progress goes to stderr."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--shape", default="pocket", choices=list(SHAPES))
    parser.add_argument("--documents", type=int, default=200, help="of a round")
    parser.add_argument("--tokens", type=int, default=512, help="longest document")
    parser.add_argument(
        "--first",
        type=float,
        nargs="+",
        default=[0.0, 1 / 3, 2 / 3],
        help="first layers with a removed head, as shares of the layers",
    )
    parser.add_argument("--heads", type=int, default=20, help="heads removed")
    parser.add_argument("--batch-tokens", type=int, default=8192, help="0: what memory holds")
    parser.add_argument("--chunk", type=int, help="logits held at once (numbers)")
    parser.add_argument("--ways", nargs="+", default=list(WAYS), choices=WAYS)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, help="of torch; by default its own choice")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--clock", default="wall", choices=list(CLOCKS))
    parser.add_argument("--memory", action="store_true", help="peak memory at 128,000 words too")
    parser.add_argument("--out", type=Path, help="also write the JSON there")
    parser.add_argument("--quick", action="store_true", help="only see that everything runs")
    given = parser.parse_args()
    if not {"plain", "trater"} <= set(given.ways):
        parser.error("--ways must name plain and trater, of which every ratio is made")
    if given.threads:
        torch.set_num_threads(given.threads)
    if given.chunk:
        from headscope.lm import losses

        losses.CHUNK = given.chunk
    if given.quick:
        given.documents, given.rounds = 5, 1
    result: dict[str, Any] = {
        "bench": "rate",
        "started": moment(),
        "machine": machine(given.device),
        "clock": given.clock,
        "quick": given.quick,
        "model": given.shape,
        "aim": AIM,
    }
    if given.memory:  # before anything else fills this process
        result["memory"] = memory(given.device, given.dtype, given.threads or 1, given.quick)
    bundled = given.shape == "pocket"
    if bundled:
        lm = headscope.load("pocket", device=given.device, dtype=given.dtype)
    else:
        lm, _ = build(given.shape, given.device, given.dtype)
    make = pocket_texts if bundled else long_texts
    firsts = sorted(
        {min(lm.geometry.layers - 1, round(s * lm.geometry.layers)) for s in given.first}
    )
    gates = {first: gate_from(lm, first, given.heads) for first in firsts}
    if not given.batch_tokens:
        config = fitted(lm, gates[firsts[0]], Rating(max_tokens=given.tokens))
        given.batch_tokens = config.batch_tokens
    result |= {
        "dtype": str(lm.dtype).removeprefix("torch."),
        "vocabulary": int(lm.model.config.vocab_size),
        "matrix_peak": matrix_peak(lm, CLOCKS[given.clock], 0.1 if given.quick else 2.0),
        "firsts": [
            rounds(
                lm,
                gate,
                first,
                lambda seed: make(lm, seed, given.documents, given.tokens),
                given,
            )
            for first, gate in gates.items()
        ],
    }
    peak = result["matrix_peak"]["operations_per_second"]
    for row in result["firsts"]:
        row["share_of_peak"] = row["operations_per_second"] / peak
    result["load_after"] = load()
    result["ended"] = moment()
    tell(result, given.out)


if __name__ == "__main__":
    main()
