"""Numbers of examples of every comparison, and what followed from them: `data/frozen`.

A file is one run of a command, in names that no result has:

`conditions`: the model as it is first, then heads and what is done to them. `kind` is `original`,
    `selected`, a control's name, or what else a command compares; `of` names whose heads they are.
`parts`: directions, languages, tasks; of each by statistic a row a condition, null where it was not
    measured, and in a row a number or a list an example. What an example holds, and how a score
    follows from the sums over examples, is its statistic's `score`:
    mean: a number, or null where the example does not count. Σ / number.
    ratio: [sum, tokens]. Σ sum / Σ tokens; `exp of ratio` is the exponential of this.
    chrf, bleu: sacrebleu's counts.
    difference of means: [a, b], each a number or null. Mean of a − mean of b.
    given: no score follows from examples; `STATISTIC given` has the score of each condition.
`levels`: a score, `low` and `high` of its 95 % interval, and the paired `change` from the original
    model. The part "" is the mean over the parts where the condition was measured; examples are
    resampled within parts. `interval` is `wilson` of a share, `seed alone` where resamples follow
    from the seed and not from the number of examples too, `exp` where the bounds of a mean are
    exponentiated.
`tests`: a condition, or the mean of several, minus the mean of the conditions `against`, which lie
    on that `side` of the claim; p, `draws` (different sets among these) and `least_p`, and the
    mean and the range of the draws' scores, or of their changes from the original model.
`overlaps`: sets of heads `a` and `b` of a model's `total` heads, and how far they are the same.
`details`: what only this command has. `own` says how much more the loss of a language's own text
    rises than that of the other text which rises most; all else is kept as it was, uncomputed.

A row lacks what the code did not compute when the file was made. All numbers are compared to 1e-9.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headscope.measure.metrics import bleu_from_statistics, chrf_from_statistics
from headscope.measure.statistics import counted_mean

FILES = sorted((Path(__file__).parent / "data" / "frozen").glob("*.json"))
Floats = NDArray[np.float64]


def _means(row: Sequence[float | None]) -> Floats:
    """Of numbers or nulls (examples,) the number and whether there is one, (examples, 2)."""
    return np.array([(0.0, 0.0) if value is None else (value, 1.0) for value in row])


def _two_means(row: Sequence[Sequence[float | None]]) -> Floats:
    return np.concatenate([_means(column) for column in zip(*row, strict=True)], axis=1)


def _exp(sums: Floats) -> Floats:
    return np.exp(counted_mean(sums))


def _difference(sums: Floats) -> Floats:
    return counted_mean(sums[..., :2]) - counted_mean(sums[..., 2:])


@dataclass(frozen=True)
class Scoring:
    """From the examples of a row to sums' statistics, and from sums to a score."""

    statistics: Callable[[Any], Floats]
    score: Callable[[Floats], Floats]


def _array(row: Any) -> Floats:
    return np.asarray(row, dtype=np.float64)


SCORES = {
    "mean": Scoring(_means, counted_mean),
    "given": Scoring(_means, counted_mean),
    "exp of mean": Scoring(_means, _exp),
    "ratio": Scoring(_array, counted_mean),
    "exp of ratio": Scoring(_array, _exp),
    "chrf": Scoring(_array, chrf_from_statistics),
    "bleu": Scoring(_array, bleu_from_statistics),
    "difference of means": Scoring(_two_means, _difference),
}
