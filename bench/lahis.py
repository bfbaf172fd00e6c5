"""Gate gradients of documents: batches with a gate a row against one document at a time, as JSON.

    python bench/lahis.py --threads 2 --out bench/results/lahis.json

For each length of --tokens, every round takes other documents cut there and does the same work
twice, in an order that changes: once as `headscope find lahis` does it (`find.gate_gradients`),
once as a plain loop over documents with the model, its gate and a loss over all logits.  Ratios
are taken within rounds, and the median over rounds counts; smallest and largest are given too.
Beside them stands how far the importance of heads differs, relative to the largest.  On a GPU the
longest document and the largest batch that fit are found as well (--fit).
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from machine import machine, tell
from numpy.typing import NDArray
from peaks_models import SHAPES, build
from timing import CLOCKS, largest, load, moment, say, spread, wait

import headscope
from headscope.find.gate_gradients import gate_gradients
from headscope.find.importance import importance
from headscope.lm.model import LanguageModel
from headscope.lm.prompting import Answered
from headscope.pocket.sample import sample_documents


def plain_loop(lm: LanguageModel, texts: Sequence[Answered]) -> NDArray[np.float32]:
    """∂loss/∂g of every document, (documents, L, W), one forward and backward pass each."""
    found = []
    for text in texts:
        ids = torch.tensor([text.ids], device=lm.device)
        gate = torch.ones(lm.geometry.shape, device=lm.device, requires_grad=True)
        with lm.gated(gate):
            logits = lm.model(input_ids=ids, use_cache=False).logits[0, :-1]
            loss = torch.nn.functional.cross_entropy(logits.float(), ids[0, 1:])
            loss.backward()
        assert gate.grad is not None
        found.append(gate.grad.cpu().numpy())
    return np.stack(found)


def batched(lm: LanguageModel, texts: Sequence[Answered], batch_tokens: int) -> NDArray[np.float32]:
    """The same in batches."""
    return gate_gradients(lm, texts, batch_tokens).products


def pocket_texts(lm: LanguageModel, seed: int, count: int, tokens: int) -> list[Answered]:
    """Development documents of the bundled model, a fifth of them in each language."""
    codes = ("en", "de", "es", "ru", "tr")
    found = []
    for code in codes:
        documents = sample_documents(code, "dev", -(-count // len(codes)), seed).documents
        found += [Answered(tuple(lm.encode(one.text)[:tokens]), 1, one.id) for one in documents]
    return found[:count]


def random_texts(lm: LanguageModel, seed: int, count: int, tokens: int) -> list[Answered]:
    """Random tokens, from a quarter of the length to the whole of it."""
    draw = random.Random(seed)
    size = int(lm.model.config.vocab_size)
    lengths = [draw.randint(max(2, tokens // 4), tokens) for _ in range(count)]
    return [Answered(tuple(draw.randrange(size) for _ in range(n)), 1, str(n)) for n in lengths]


def rounds(
    lm: LanguageModel,
    texts_of: Callable[[int], list[Answered]],
    number: int,
    clock: str,
    batch_tokens: int,
) -> dict[str, Any]:
    """Both ways in every round, each with documents of its own."""
    now = CLOCKS[clock]
    ways: dict[str, Callable[[Sequence[Answered]], NDArray[np.float32]]] = {
        "plain_loop": lambda texts: plain_loop(lm, texts),
        "batched": lambda texts: batched(lm, texts, batch_tokens),
    }
    rates: dict[str, list[float]] = {name: [] for name in ways}
    shuffle, lengths = random.Random(0), []
    gaps, sets = [], []
    for place in range(number + 1):
        texts = texts_of(place)
        turn, found = list(ways), {}
        shuffle.shuffle(turn)
        for name in turn:
            wait(lm)
            start = now()
            found[name] = ways[name](texts)
            wait(lm)
            if place:  # the first round only warms up
                rates[name].append(len(texts) / (now() - start))
        one, other = (importance(found[name]) for name in ways)
        gaps.append(float(np.abs(one - other).max() / np.abs(one).max()))
        bounds = [np.quantile(values, 0.9) for values in (one, other)]
        sets.append(bool(((one > bounds[0]) == (other > bounds[1])).all()))
        lengths += [len(text.ids) for text in texts]
        say(f"round {place}: " + ", ".join(f"{n} {r[-1]:.1f}/s" for n, r in rates.items() if r))
    ratio = [b / a for a, b in zip(rates["plain_loop"], rates["batched"], strict=True)]
    return {
        "documents_a_round": len(texts_of(0)),
        "tokens_a_document": {
            "mean": float(np.mean(lengths)),
            "min": min(lengths),
            "max": max(lengths),
        },
        "batch_tokens": batch_tokens,
        "documents_per_second": {name: spread(values) for name, values in rates.items()},
        "speedup": spread(ratio),
        "largest_relative_difference": max(gaps),
        "rounds_with_equal_important_heads": sum(sets),
        "rounds_compared": len(sets),
    }


def fitting(lm: LanguageModel) -> dict[str, Any]:
    """The longest document, with and without checkpointing, and the most rows of 128 tokens."""

    def fits(rows: int, tokens: int, checkpoint: bool) -> bool:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        texts = random_texts(lm, 0, 1, tokens)
        whole = Answered((texts[0].ids * tokens)[:tokens], 1, "0")
        try:
            _one_batch(lm, [whole] * rows, checkpoint)
        except torch.OutOfMemoryError:
            return False
        return True

    context = lm.context_length
    found: dict[str, Any] = {"context": context}
    for checkpoint in (False, True):
        name = "checkpointed" if checkpoint else "plain"
        longest = largest(lambda n, c=checkpoint: fits(1, n, c), 128, context)
        rows = largest(lambda n, c=checkpoint: fits(n, 128, c), 1, 4096)
        found[name] = {"longest_document": longest, "rows_of_128_tokens": rows}
        say(f"{name}: {found[name]}")
    return found


def _one_batch(lm: LanguageModel, texts: Sequence[Answered], checkpoint: bool) -> None:
    """One batch that is neither halved nor tried again."""
    from headscope.find import gate_gradients as module

    rows = [text.ids for text in texts]
    module.batch_gradients(lm, rows, module.ones_gate(lm, len(rows)), checkpoint)


def main() -> None:
    """Measures and prints; progress goes to stderr."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--shape", default="pocket", choices=list(SHAPES))
    parser.add_argument("--documents", type=int, default=50, help="of a round")
    parser.add_argument(
        "--tokens", type=int, nargs="+", default=[16, 32, 64, 128], help="longest document"
    )
    parser.add_argument("--batch-tokens", type=int, default=2048)
    parser.add_argument("--rounds", type=int, default=7)
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
    bundled = given.shape == "pocket"
    if bundled:
        lm = headscope.load("pocket", device=given.device, dtype=given.dtype)
    else:
        lm, _ = build(given.shape, given.device, given.dtype)
    make = pocket_texts if bundled else random_texts
    count, number = (5, 1) if given.quick else (given.documents, given.rounds)
    result: dict[str, Any] = {
        "bench": "lahis",
        "started": moment(),
        "machine": machine(given.device),
        "clock": given.clock,
        "quick": given.quick,
        "model": given.shape,
        "dtype": str(lm.dtype).removeprefix("torch."),
        "heads": lm.geometry.total,
        "aim": 2.0,
        "lengths": [
            {
                "longest": tokens,
                **rounds(
                    lm,
                    lambda seed, tokens=tokens: make(lm, seed, count, tokens),
                    number,
                    given.clock,
                    given.batch_tokens,
                ),
            }
            for tokens in given.tokens
        ],
    }
    if given.fit:
        result["fit"] = fitting(lm)
    result["load_after"] = load()
    result["ended"] = moment()
    tell(result, given.out)


if __name__ == "__main__":
    main()
