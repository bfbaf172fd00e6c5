"""How many random draws a verdict takes, and how often it is wrong: simulations.

Nothing is special in the null cases: the selected heads are one more random set. What is counted is
how often they are *shown* to do more all the same, at level 0.05, and after how many draws; then
how often an effect is shown of which a share of random sets does as much. Families are 13 claims
tested together: how often one of them is shown that is not true, and which share of the true ones.

    python bench/draws.py --runs 20000 --out bench/results/draws.json
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from machine import machine, tell
from numpy.typing import NDArray

from headscope.heads import Geometry, Head, HeadSet
from headscope.heads.draws import draw_sets
from headscope.measure.sequence import (
    MOST_DRAWS,
    Standing,
    bet_on,
    draws_for,
    draws_to_win,
    until_first,
)
from headscope.measure.statistics import holm, max_t

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


#: Claims of a family, and how many of them are true where some are.
CLAIMS, TRUE = 13, 5
#: Heads of the model, and heads of a set.
HEADS, SIZE = 336, 20
#: By how many standard deviations of its draws a true claim's heads do more.
SHIFTS = (3.0, 6.0)
Scores = NDArray[np.float64]


@dataclass(frozen=True)
class Family:
    """Claims about sets of heads whose effects add up.

    Effects of heads are normal, or `heavy`: squares of Student's t with 2 degrees of freedom, of
    which a few heads have nearly all. Claims may share them, as statistics of one model do; the
    random sets; and the selected heads.
    """

    heavy: bool
    draws_shared: bool
    effects_shared: bool
    selected_shared: bool

    @property
    def name(self) -> str:
        shared = ", ".join(
            f"{what} {'shared' if shared else 'own'}"
            for what, shared in (
                ("draws", self.draws_shared),
                ("effects", self.effects_shared),
                ("selected", self.selected_shared),
            )
        )
        return f"{'heavy' if self.heavy else 'normal'}; {shared}"

    def scores(self, generator: np.random.Generator) -> Scores:
        """Of every claim its selected heads and its random sets, (CLAIMS, 1 + N)."""
        effects = self._effects(generator, 1 if self.effects_shared else CLAIMS)
        chosen = _sets(generator, 1 if self.selected_shared else CLAIMS)
        draws = draws_for(CLAIMS, LEVEL)
        if self.draws_shared:
            drawn = effects[:, _sets(generator, draws)].sum(axis=2)
        else:
            sets = _sets(generator, CLAIMS * draws).reshape(CLAIMS, draws, SIZE)
            drawn = np.stack([effects[at % len(effects)][of_claim].sum(axis=1)
                              for at, of_claim in enumerate(sets)])  # fmt: skip
        own = [effects[at % len(effects)][chosen[at % len(chosen)]].sum() for at in range(CLAIMS)]
        return np.column_stack([own, np.broadcast_to(drawn, (CLAIMS, draws))])

    def _effects(self, generator: np.random.Generator, number: int) -> Scores:
        if self.heavy:
            return np.asarray(generator.standard_t(2, (number, HEADS)) ** 2)
        return generator.standard_normal((number, HEADS))


def _sets(generator: np.random.Generator, number: int) -> NDArray[np.int64]:
    """So many random sets of heads, (number, SIZE)."""
    order = generator.random((number, HEADS), dtype=np.float32)
    return np.argpartition(order, SIZE, axis=1)[:, :SIZE]


def methods(scores: Scores, shared: bool) -> Iterator[tuple[str, list[float], float]]:
    """By name the corrected p of every claim, and the draws that one took on average."""
    as_far = scores[:, 1:] >= scores[:, :1]
    draws = as_far.shape[1]
    ends = [until_first(row, LEVEL, draws) for row in as_far]
    mean = float(np.mean([end.draws for end in ends]))
    yield f"Holm, {draws} draws ended early", holm([end.p for end in ends]), mean
    ranks = (1 + as_far.sum(axis=1)) / (1 + draws)
    yield f"Holm, {draws} draws", holm(ranks.tolist()), draws
    for number in (19, 99):
        name = f"max-T, {number} draws{' (not valid)' if shared else ''}"
        yield name, max_t(scores[:, 0], scores[:, 1 : 1 + number]), number


def family(kind: Family, runs: int, seed: int) -> dict[str, Any]:
    """By how far the selected heads of the true claims do more, and by method: how often a claim
    is shown that is not true, which share of the true ones is, and the draws a claim took."""
    generator = np.random.default_rng(seed)
    made: dict[tuple[str, str], list[tuple[bool, float, float]]] = {}
    for _ in range(runs):
        nothing = kind.scores(generator)
        spread = nothing[:TRUE, 1:].std(axis=1)
        for shift in (0.0, *SHIFTS):
            scores = nothing.copy()
            scores[:TRUE, 0] += shift * spread
            true = TRUE if shift else 0
            for name, p_values, draws in methods(scores, kind.draws_shared):
                shown = np.array(p_values) <= LEVEL
                found = float(shown[:true].mean()) if true else 0.0
                key = f"{true} true, {shift:g} sd" if true else "none true", name
                made.setdefault(key, []).append((bool(shown[true:].any()), found, draws))
    told: dict[str, Any] = {}
    for (case, name), rows in made.items():
        wrong, found, draws = (list(column) for column in zip(*rows, strict=True))
        own = told.setdefault(case, {})[name] = _told(wrong, draws)
        if case != "none true":
            own["true_shown"] = float(np.mean(found))
            own["true_error"] = round(float(np.std(found)) / len(found) ** 0.5, 5)
    return told


def families(runs: int, seed: int) -> dict[str, Any]:
    """All kinds of families."""
    kinds = [Family(*shared) for shared in product((False, True), repeat=4)]
    return {
        "claims": CLAIMS,
        "runs": runs,
        "kinds": {kind.name: family(kind, runs, seed) for kind in kinds},
    }


def _told(shown: list[bool], draws: Sequence[float]) -> dict[str, float]:
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
        "families": families(runs // 5, seed),
    }
    result = {"command": "bench/draws.py", "machine": before, "runs": runs, "level": LEVEL, **told}
    tell(result, given.out)


if __name__ == "__main__":
    main()
