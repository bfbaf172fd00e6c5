"""How many random draws a verdict takes, and how often it is wrong: simulations.

Nothing is special in the null cases: the selected heads are one more random set. What is counted is
how often they are *shown* to do more all the same, at level 0.05, and after how many draws; then
how often an effect is shown of which a share of random sets does as much.

    python bench/draws.py --runs 20000 --out bench/results/draws.json
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np
from machine import machine, tell
from numpy.typing import NDArray

from headscope.heads import Geometry, Head, HeadSet
from headscope.heads.draws import draw_sets
from headscope.measure.sequence import MOST_DRAWS, Standing, bet_on, draws_to_win

LEVEL = 0.05
#: Sets that a bet needs at least.
BET = draws_to_win(LEVEL)
#: Whether draws do at least as much as the selected heads, in order; by test where there are two.
AsFar = NDArray[np.bool_]
Drawn = Callable[[np.random.Generator], list[AsFar]]


def uniform(generator: np.random.Generator) -> list[AsFar]:
    """Scores that are all different."""
    scores = generator.random(MOST_DRAWS + 1)
    return [scores[1:] >= scores[0]]


def ties(generator: np.random.Generator) -> list[AsFar]:
    """Counts of few outputs, most of them equal; a tie does as much."""
    scores = generator.binomial(8, 0.03, MOST_DRAWS + 1)
    return [scores[1:] >= scores[0]]


def few(sets: int) -> Drawn:
    """Not more than so many sets exist beside the selected one, each drawn once."""

    def drawn(generator: np.random.Generator) -> list[AsFar]:
        scores = generator.permutation(sets + 1)
        return [scores[1:] >= scores[0]]

    return drawn


def of_heads(size: int, layers: int = 8, width: int = 4) -> Drawn:
    """Sets of a model whose heads matter unequally; draws share heads with the selected and with
    each other. Both controls, and a second statistic of the same sets."""
    geometry = Geometry.uniform(layers, width)

    def drawn(generator: np.random.Generator) -> list[AsFar]:
        effects = generator.pareto(1.5, (2, layers, width))
        effects[1] = 0.7 * effects[0] + 0.3 * effects[1]
        chosen = generator.choice(layers * width, size, replace=False)
        heads = HeadSet(geometry, tuple(Head(int(at) // width, int(at) % width) for at in chosen))
        seed = int(generator.integers(2**31))

        def harm(drawn_set: HeadSet) -> NDArray[np.float64]:
            return effects[:, *_places(drawn_set)].sum(axis=1)

        own = harm(heads)
        found = []
        for way in ("random", "same layers"):
            others = np.array([harm(s) for s in draw_sets(heads, MOST_DRAWS, seed, way)])
            found += [others[:, at] >= own[at] - 1e-12 for at in (0, 1)]
        return found

    return drawn


def _places(heads: HeadSet) -> tuple[list[int], list[int]]:
    return [head.layer for head in heads], [head.head for head in heads]


def tested(as_far: AsFar) -> Standing:
    """As a command tests: where too few sets exist for the bet, all of them by their rank."""
    if len(as_far) >= BET:
        return bet_on(as_far, LEVEL, len(as_far))
    done = int(as_far.sum())
    p = (1 + done) / (1 + len(as_far))
    return Standing(p, len(as_far), done, "shown" if p <= LEVEL else "limit")


def level_of(drawn: Drawn, runs: int, seed: int) -> dict[str, float]:
    """How often the first test shows something, and after how many draws."""
    generator = np.random.default_rng(seed)
    bets = [tested(drawn(generator)[0]) for _ in range(runs)]
    return _told([bet.ended == "shown" for bet in bets], [bet.draws for bet in bets])


def both_controls(size: int, runs: int, seed: int) -> dict[str, dict[str, float]]:
    """Of sets of heads: random ones, those of the same layers, both, and the second statistic,
    which is read when the first has ended."""
    generator, drawn = np.random.default_rng(seed), of_heads(size)
    shown: dict[str, list[bool]] = {}
    draws: dict[str, list[int]] = {}
    for _ in range(runs):
        free, other, matched, _ = drawn(generator)
        first, second = tested(free), tested(matched)
        # Where there are too few sets for a bet, all of them are drawn.
        beside = tested(other) if len(other) < BET else bet_on(other[: first.draws], LEVEL)
        rows = {
            "random": (first.ended == "shown", first.draws),
            "same layers": (second.ended == "shown", second.draws),
            "both": (first.ended == second.ended == "shown", first.draws + second.draws),
            "another statistic at the first's end": (beside.p <= LEVEL, first.draws),
        }
        for name, (is_shown, number) in rows.items():
            shown.setdefault(name, []).append(is_shown)
            draws.setdefault(name, []).append(number)
    return {name: _told(shown[name], draws[name]) for name in shown}


def power(share: float, runs: int, seed: int) -> dict[str, dict[str, float]]:
    """Of an effect that this share of random sets reaches: the bet, and fixed numbers of draws."""
    generator = np.random.default_rng(seed)
    as_far = generator.random((runs, MOST_DRAWS)) < share
    bets = [bet_on(row, LEVEL) for row in as_far]
    told = {"in sequence": _told([b.ended == "shown" for b in bets], [b.draws for b in bets])}
    for number in (19, 99):
        p = (1 + as_far[:, :number].sum(axis=1)) / (1 + number)
        told[f"{number} draws"] = _told((p <= LEVEL).tolist(), [number] * runs)
    return told


def _told(shown: list[bool], draws: list[int]) -> dict[str, float]:
    share = float(np.mean(shown))
    error = (share * (1 - share) / len(shown)) ** 0.5
    return {"shown": share, "error": round(error, 5), "mean_draws": float(np.mean(draws))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=20000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    before = machine("cpu")
    runs, seed = given.runs, given.seed
    cases = {"all different": uniform, "ties": ties}
    cases |= {f"{sets} sets": few(sets) for sets in (5, 20, 29, 30, 60, 150)}
    told = {
        "null": {name: level_of(drawn, runs, seed) for name, drawn in cases.items()},
        "heads": {f"{k} of 32": both_controls(k, max(200, runs // 10), seed) for k in (1, 3, 8)},
        "power": {
            str(share): power(share, runs // 4, seed) for share in (0.0, 0.005, 0.01, 0.02, 0.05)
        },
    }
    result = {"command": "bench/draws.py", "machine": before, "runs": runs, "level": LEVEL, **told}
    tell(result, given.out)


if __name__ == "__main__":
    main()
