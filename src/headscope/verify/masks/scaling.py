"""Heads outside a mask at part of their strength (Heads Up!, section 5).

A gate α between 0 and 1 takes the place of 0: 1 is the model as it is, 0 the mask itself. The best
α is chosen by the loss of the instructed task on some held-out examples; what it is worth is then
measured on others.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from headscope.data.split import sentence_digest
from headscope.data.tasks import Task
from headscope.errors import InputError
from headscope.measure.intervals import resamples
from headscope.results.mask_tests import AlphaOutcome, Outcome
from headscope.verify.masks.asking import Condition, random_conditions
from headscope.verify.masks.mask import Mask, shuffled

#: The values of α that are tried.
GRID = tuple(step / 10 for step in range(11))
RESAMPLES = 1000


def check_grid(grid: Sequence[float]) -> tuple[float, ...]:
    """The values in ascending order, 0 and 1 among them; InputError for others than 0 to 1."""
    for value in grid:
        if not 0 <= value <= 1:
            raise InputError(f"α is {value:g}; it lies between 0 (the mask) and 1 (no mask)")
    return tuple(sorted({0.0, 1.0, *grid}))


def halves_of(task: Task, seed: int = 0) -> tuple[Task, Task]:
    """Examples to choose α on, and others to measure on: two halves by a hash of the input.

    No input is in both. Raises `InputError` if there are fewer than two inputs.
    """

    def rank(key: str) -> bytes:
        return hashlib.sha256(f"scaling {seed} {key}".encode("ascii")).digest()

    keys = [sentence_digest(example.input) for example in task.examples]
    ranked = sorted(set(keys), key=rank)
    if len(ranked) < 2:
        raise InputError(
            f"the task {task.name!r} has one held-out input, too few to choose α on some and "
            "measure on others; hold more out"
        )
    chosen = set(ranked[: len(ranked) // 2])
    pairs = list(zip(keys, task.examples, strict=True))
    first = tuple(example for key, example in pairs if key in chosen)
    second = tuple(example for key, example in pairs if key not in chosen)
    return replace(task, examples=first), replace(task, examples=second)


def check_apart(choose: Task, check: Task) -> None:
    """Raises `InputError` if an input that α is chosen on is also one it is measured on."""
    known = {sentence_digest(example.input) for example in choose.examples}
    both = sum(sentence_digest(example.input) in known for example in check.examples)
    if both:
        raise InputError(
            f"{check.path}: {both} of {len(check.examples)} inputs are among the "
            f"{len(choose.examples)} examples that α is chosen on; give other sentences to "
            "measure on, or leave --check-data out"
        )


def grid_conditions(
    mask: Mask, grid: Sequence[float], draws: int, seed: int = 0
) -> list[Condition]:
    """The instructed model under every α, the model as it is first; then shuffled masks likewise,
    and the uninstructed model without and with the mask."""
    planned = [_scaled(mask, alpha) for alpha in sorted(grid, reverse=True)]
    for number, other in enumerate(shuffled(mask, draws, seed)):
        for alpha in grid:
            if alpha < 1:
                name, scaled = f"shuffled {number} at {alpha:g}", other.outside(alpha)
                planned.append(Condition("shuffled", name, scaled, True, number, _name(alpha)))
    return [*planned, Condition("as-is", "as is"), Condition("masked", "masked", mask)]


def check_conditions(mask: Mask, alpha: float, draws: int, seed: int = 0) -> list[Condition]:
    """Instructed: the model as it is, under the mask, under the scaled mask, and under shuffled
    masks scaled alike."""
    planned = [
        Condition("instructed", "instructed", instructed=True),
        Condition("masked", "masked and instructed", mask, instructed=True),
        Condition("scaled", "scaled and instructed", mask.outside(alpha), instructed=True),
    ]
    if alpha == 1:  # every mask at full strength is no mask
        return planned
    scaled = [other.outside(alpha) for other in shuffled(mask, draws, seed)]
    return planned + random_conditions("shuffled", scaled, "scaled and instructed")


def best_alpha(losses: Mapping[float, float]) -> float:
    """The α with the lowest loss; of equal ones the largest, which changes the model least."""
    return min(losses, key=lambda alpha: (losses[alpha], -alpha))


def chosen_again(losses: Mapping[float, NDArray[np.float64]], seed: int = 0) -> dict[float, float]:
    """How often each α would be chosen on other examples: shares of 1,000 bootstrap resamples.

    `losses` holds the mean loss of every example, (examples,), by α.
    """
    alphas = sorted(losses, reverse=True)  # arg min takes the first of equal ones
    table = np.stack([losses[alpha] for alpha in alphas])
    chosen = np.empty(RESAMPLES, dtype=np.int64)
    for rows, weights in resamples(table.shape[1], RESAMPLES, np.random.default_rng(seed)):
        chosen[rows] = (table @ weights.T).argmin(axis=0)
    return {alpha: float((chosen == at).mean()) for at, alpha in enumerate(alphas)}


def alpha_outcomes(grid: Sequence[float], outcomes: Sequence[Outcome]) -> tuple[AlphaOutcome, ...]:
    """What came of the grid by ascending α, each with the losses of its shuffled masks."""
    by_name = {outcome.name: outcome for outcome in outcomes}
    return tuple(
        AlphaOutcome(
            **vars(by_name[_name(alpha)]),
            alpha=alpha,
            shuffled=tuple(each.nll for each in outcomes if each.of == _name(alpha)),
        )
        for alpha in sorted(grid)
    )


def _scaled(mask: Mask, alpha: float) -> Condition:
    if alpha == 1:
        return Condition("instructed", _name(alpha), instructed=True)
    return Condition("scaled", _name(alpha), mask.outside(alpha), instructed=True)


def _name(alpha: float) -> str:
    return f"α {alpha:g}"
