"""How many heads are token alignment heads, and which, by the number of sentence pairs.

    python bench/stability.py NAME=RUN ... --published FILE ... --out FILE

RUN is a finished run of `find translation-score`, whose counts of every sentence are resampled with
replacement. FILE is a matrix of scores in the form of AlignAtt4LLM, which tells no sentences: its
tokens are drawn as if they were independent, so its ranges are too narrow. No model is needed.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from machine import machine, tell
from numpy.typing import NDArray

from headscope.heads import read_scores

#: Pairs of a sample, samples of each size, and the score above which a head aligns tokens.
SIZES, DRAWS, THRESHOLD = (50, 100, 200, 400, 900), 400, 0.1
Array = NDArray[Any]


def by_size(draw: Callable[[int], Array], whole: Array) -> dict[str, Any]:
    """Of samples of each size how many heads lie above the threshold, and how far they are those
    of another sample and of all pairs (Jaccard): means, and 95 % ranges of the number."""
    sizes = {}
    for size in SIZES:
        sets = [draw(size) > THRESHOLD for _ in range(DRAWS)]
        counts = [int(stable.sum()) for stable in sets]
        sizes[str(size)] = {
            "heads": float(np.mean(counts)),
            "low": float(np.percentile(counts, 2.5)),
            "high": float(np.percentile(counts, 97.5)),
            "jaccard": float(np.mean([jaccard(a, b) for a, b in pairwise(sets)])),
            "jaccard_with_all": float(np.mean([jaccard(a, whole > THRESHOLD) for a in sets])),
        }
    return {"heads": int((whole > THRESHOLD).sum()), "of": int(whole.size), "sizes": sizes}


def jaccard(first: Array, second: Array) -> float:
    """Of two sets of heads, bool (L, H); 1 where both are empty."""
    union = int((first | second).sum())
    return int((first & second).sum()) / union if union else 1.0


def of_run(path: Path, seed: int) -> dict[str, Any]:
    """By the counts that a run kept of every sentence."""
    scores = read_scores(path)["mean"]
    totals = scores.statistics["totals"]
    rates = scores.statistics["hits"][totals > 0] / totals[totals > 0][:, None, None]
    stream = np.random.default_rng(seed)

    def draw(size: int) -> Array:
        return np.asarray(rates[stream.integers(0, len(rates), size)].mean(axis=0))

    return {"pairs": len(rates), **by_size(draw, rates.mean(axis=0))}


def of_published(path: Path, seed: int) -> dict[str, Any]:
    """By the tokens that a published matrix is said to be of."""
    known = json.loads(path.read_text("utf-8"))
    matrix = np.array(known["ts_matrix"], dtype=np.float64)
    tokens = known["used_target_tokens"] / known["used_pairs"]
    stream = np.random.default_rng(seed)

    def draw(size: int) -> Array:
        many = round(tokens * size)
        return np.asarray(stream.binomial(many, matrix.clip(0, 1)) / many)

    return {"pairs": known["used_pairs"], **by_size(draw, matrix)}


def main() -> None:
    """Tells all runs and all published matrices."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="*", metavar="NAME=RUN")
    parser.add_argument("--published", nargs="*", type=Path, default=[])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    named = [name.partition("=")[::2] for name in given.runs]
    result = {
        "command": "bench/stability.py", "machine": machine("cpu"), "draws": DRAWS,
        "threshold": THRESHOLD,
        "runs": {name: of_run(Path(path), given.seed) for name, path in named},
        "published": {path.stem: of_published(path, given.seed) for path in given.published},
    }  # fmt: skip
    tell(result, given.out)


if __name__ == "__main__":
    main()
