"""How many passes random removals need to find the heads that single removal finds, as JSON.

    python bench/knockouts.py --out bench/results/knockouts-pocket.json
    python bench/knockouts.py --model qwen-0.5b.gguf --dtype bfloat16 --data en-es.tsv \
        --pair en-es --sentences 6 --gates 672 --remove 2 --remove 5% \
        --out bench/results/knockouts-qwen.json

The loss of the same reference translations is measured without each head alone (a pass a head, and
one of the whole model) and under random gates. `hits` are how many of the ten heads whose removal
alone costs most are among the ten highest of knockouts, on average over disjoint blocks of so many
gates; `fewer_sentences` the same of single removal on a fifth of the sentences, which costs a
fifth. `held_out`: the rank correlation of the loss under gates that were not fitted with the sum of
the scores of the heads that they remove. Losses are kept in --runs, and an interrupted run goes on
there.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from machine import asked, machine, tell

from headscope.evidence.rows import Condition
from headscope.find.knockouts_regression import fitted, random_gates
from headscope.measure.ranking import centred, correlation, mid_ranks
from headscope.runs import open_run
from headscope.studies.bars import progress
from headscope.studies.models import ModelChoice, resolved_chat
from headscope.studies.pairs import PairsChoice, read_directions
from headscope.studies.verify.removal import measured_alone
from headscope.verify.removal_translations import Removal

TOP, FIFTH, BLOCKS = 10, 5, 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="pocket")
    parser.add_argument("--dtype")
    parser.add_argument("--data", nargs="*", default=[])
    parser.add_argument("--pair", default="en-de")
    parser.add_argument("--sentences", type=int, default=50)
    parser.add_argument("--gates", type=int, default=1920)
    parser.add_argument("--remove", action="append", help="repeatable; 2, 5%%, 10%% and 20%%")
    parser.add_argument("--runs", type=Path, default=Path("runs/bench-knockouts"))
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    before = machine("cpu")
    model = ModelChoice(given.model, **({"dtype": given.dtype} if given.dtype else {}))
    pairs = PairsChoice((given.pair,), tuple(given.data), limit=given.sentences)
    directions = read_directions(pairs, given.model, "dev", given.sentences)
    lm = model.load_for()
    removal = resolved_chat(lm, Removal(measure=("loss",)))
    every = [*lm.geometry.heads()]
    removes = given.remove or ["2", "5%", "10%", "20%"]
    gates = {count: random_gates(lm.geometry, given.gates, count, 0) for count in removes}
    sets = [
        (),
        *((head,) for head in every),
        *(heads for drawn in gates.values() for heads in drawn),
    ]
    planned = [
        Condition("random", k=len(heads), gate=0.0, heads=tuple(map(str, heads))) for heads in sets
    ]
    settings = {
        "given": [str(given.model), given.dtype, given.pair, given.sentences, removes, given.gates]
    }
    data = {name: file.digest for name, file in directions.items()}
    folder = given.runs / Path(given.model).stem
    with progress() as update, open_run(folder, "bench knockouts", settings, data) as run:
        _, nll, counted = measured_alone(lm, directions, planned, removal, run, progress=update)
    (numbers,) = (np.stack(statistics) for statistics in counted.values())
    losses = numbers[..., 0] / numbers[..., 1]
    heads, results = len(every), {}
    changes = losses[1 : heads + 1] - losses[0]
    for place, (remove, drawn) in enumerate(gates.items()):
        removed = np.array([[head in heads for head in every] for heads in drawn])
        own = numbers[heads + 1 + place * given.gates :][: given.gates]
        results[remove] = compared(changes, removed, own, nll)
    result = {
        "command": "bench/knockouts.py",
        "machine": before,
        "given": asked(given),
        "heads": heads,
        "sentences": numbers.shape[1],
        "single_removal": {
            "passes": heads + 1,
            "top": {str(every[at]): float(changes.mean(axis=1)[at])
                    for at in np.argsort(-changes.mean(axis=1))[:TOP]},
            "fewer_sentences": fewer(changes),
        },
        "knockouts": results,
    }  # fmt: skip
    tell(result, given.out)


def hits(first: np.ndarray, second: np.ndarray) -> int:
    """Heads that are among the `TOP` highest of both."""
    return len({*np.argsort(-first)[:TOP]} & {*np.argsort(-second)[:TOP]})


def fewer(changes: np.ndarray) -> float:
    """Hits of single removal on a fifth of the sentences, on average over draws of them."""
    number, draw = changes.shape[1], np.random.default_rng(0)
    some = [draw.permutation(number)[: max(1, number // FIFTH)] for _ in range(100)]
    return float(
        np.mean([hits(changes.mean(axis=1), changes[:, rows].mean(axis=1)) for rows in some])
    )


def compared(changes: np.ndarray, removed: np.ndarray, counted: np.ndarray, nll: Any) -> Any:
    """Hits by number of gates, and what of the losses is predicted with all of them."""
    heads, every = len(changes), len(removed)
    wanted, rows = changes.mean(axis=1), []
    sizes = [heads // FIFTH, heads // 2, heads, 2 * heads, 4 * heads, 8 * heads, every]
    for size in sorted({size for size in sizes if size <= every}):
        blocks = [slice(at, at + size) for at in range(0, every - size + 1, size)][:BLOCKS]
        fits = [fitted(removed[rows], counted[rows], nll, draws=1) for rows in blocks]
        found = [hits(wanted, fit[0]) for fit in fits]
        rows.append({
            "gates": size, "blocks": len(blocks), "hits": float(np.mean(found)),
            "least": min(found), "most": max(found),
            "explained": float(np.mean([fit[-1] for fit in fits])),
        })  # fmt: skip
    enough = [row["gates"] for row in rows if row["hits"] >= TOP - 1]
    held, fits = every // 4, {}
    losses = np.array([sums.sum(axis=0)[0] / sums.sum(axis=0)[1] for sums in counted[-held:]])
    for size in (heads, every - held):
        if size <= every - held:
            fits[f"knockouts, {size} gates"] = fitted(removed[:size], counted[:size], nll, draws=1)[
                0
            ]
    predicted = {
        name: rank_correlation(removed[-held:] @ scores, losses)
        for name, scores in {"single removal": wanted, **fits}.items()
    }
    result = {"gates": held, "rank_correlation": predicted}
    return {"sizes": rows, "gates_for_nine": min(enough, default=None), "held_out": result}


def rank_correlation(first: np.ndarray, second: np.ndarray) -> float:
    """Spearman's."""
    return float(correlation(centred(mid_ranks(first)), centred(mid_ranks(second))))


if __name__ == "__main__":
    main()
