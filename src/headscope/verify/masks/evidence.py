"""From what was computed of every example to values, intervals and differences, as JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headscope.data.tasks import Task
from headscope.measure.intervals import bootstrap_score, wilson_interval
from headscope.measure.metrics import bleu_from_statistics, chrf_from_statistics
from headscope.measure.statistics import counted_mean
from headscope.measure.trial import Group, Side, Trial
from headscope.verify.masks.asking import Condition, Kind, Record
from headscope.verify.masks.marking import marks

__all__ = ["MEASURES", "Measure", "describe", "statistics", "together"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Measure:
    """A number of a condition, computed from sums over examples.

    Attributes:
        score: from sums of statistics (..., features) to values.
        higher: whether more is better.
        share: whether it is a share of examples, whose interval is Wilson's.
    """

    score: Callable[[NDArray[Any]], Floats]
    higher: bool
    share: bool = False


def _exponential(sums: NDArray[Any]) -> Floats:
    # Over 700 nats a token no float holds the perplexity; infinity is what is left to say.
    with np.errstate(over="ignore"):
        return np.exp(counted_mean(sums))


#: By name: `nll` is the mean over examples of the mean over the output's tokens, as published (and
#: called PPL there); `nll_tokens` the mean over all tokens; `perplexity` its exponential.
MEASURES: dict[str, Measure] = {
    "nll": Measure(counted_mean, higher=False),
    "nll_tokens": Measure(counted_mean, higher=False),
    "perplexity": Measure(_exponential, higher=False),
    "rouge_l": Measure(counted_mean, higher=True),
    "chrf": Measure(chrf_from_statistics, higher=True),
    "bleu": Measure(bleu_from_statistics, higher=True),
    "bleu_published": Measure(counted_mean, higher=True),
    "accuracy": Measure(counted_mean, higher=True, share=True),
    "accuracy_words": Measure(counted_mean, higher=True, share=True),
}


def statistics(task: Task, record: Record) -> dict[str, Floats]:
    """The statistics of every example by measure, each (examples, features)."""
    nll = np.asarray(record.nll, dtype=np.float64)
    tokens = np.asarray(record.tokens, dtype=np.float64)
    both = np.stack([nll, tokens], axis=1)
    found = {
        "nll": np.stack([nll / tokens, np.ones(len(nll))], axis=1),
        "nll_tokens": both,
        "perplexity": both,
    }
    return found | (marks(task, record.texts) if record.texts else {})


def describe(
    conditions: Sequence[Condition],
    numbers: Sequence[Mapping[str, Floats]],
    seed: int = 0,
    beside: Sequence[str] = (),
) -> list[dict[str, Any]]:
    """What each condition shows, as JSON; the first is the one that all are compared with.

    Each has its measures by name (None where one was not taken), `intervals` (95 %, over examples)
    and, but for the first, `change`: the difference to the first, paired, with its interval.
    Conditions of one mask that was not drawn at random have `against_shuffled` and
    `against_shuffled_layer_matched`, the difference to the mean of the draws, and by measure two
    p-values that it is better (worse, for conditions that are meant to harm): `p_draws_…`,
    (1 + draws at least as good) / (1 + draws), never below `least_p_…`, and `p_examples_…`, by
    swapping examples with those of a draw (see `p_sentences`). Perplexity, which is one number of
    all tokens and may be infinite, has none over examples: that of `nll_tokens` says the same.
    `beside` names conditions of which each other one also gets its difference, under
    `against_NAME`.
    """
    trials = _trials(conditions, numbers, seed)
    rows = [_levels(at, conditions, trials) for at in range(len(conditions))]
    for at, (row, condition) in enumerate(zip(rows, conditions, strict=True)):
        if at:
            row["change"] = _differences(trials, at, 0)
        if condition.draw is not None:
            continue
        for place, other in enumerate(conditions):
            if other.name in beside and place != at:
                row[f"against_{_key(other.name)}"] = _differences(trials, at, place)
        if condition.mask is not None:
            for kind, draws in _draws_for(condition, conditions).items():
                row |= _against(trials, at, draws, condition.harmful, _key(kind))
    return rows


def _trials(
    conditions: Sequence[Condition], numbers: Sequence[Mapping[str, Floats]], seed: int
) -> dict[str, Trial]:
    """A trial of each measure that the first condition has."""
    sets = [
        None if condition.mask is None else condition.mask.gate.values.tobytes()
        for condition in conditions
    ]
    return {
        name: Trial([Group([own.get(name) for own in numbers], measure.score, sets, seed)])
        for name, measure in MEASURES.items()
        if name in numbers[0]
    }


def _levels(
    at: int, conditions: Sequence[Condition], trials: Mapping[str, Trial]
) -> dict[str, Any]:
    """A condition with its measures and their intervals."""
    condition = conditions[at]
    row: dict[str, Any] = {
        "kind": condition.kind,
        "name": condition.name,
        "draw": condition.draw,
        "of": condition.of,
        "instructed": condition.instructed,
        "kept": None if condition.mask is None else len(condition.mask.kept),
        **dict.fromkeys(MEASURES),
        "intervals": {},
    }
    for name, trial in trials.items():
        (group,) = trial.groups
        own = group.statistics[at]
        if own is not None:
            row[name] = float(trial.scores[at])
            row["intervals"][name] = _interval(MEASURES[name], own, group.seed)
    return row


def _differences(trials: Mapping[str, Trial], at: int, place: int) -> dict[str, Any]:
    """The difference of two conditions in each measure that both have."""
    return {
        name: trial.difference(at, [place]).record()
        for name, trial in trials.items()
        if _measured(trial, at, place)
    }


def _measured(trial: Trial, *places: int) -> bool:
    return all(trial.groups[0].statistics[place] is not None for place in places)


def _against(
    trials: Mapping[str, Trial], at: int, draws: Sequence[int], harmful: bool, kind: str
) -> dict[str, Any]:
    """A condition beside random masks of one kind, by measure."""
    against = {}
    for name, trial in trials.items():
        if _measured(trial, at, *draws):
            side: Side = "lower" if MEASURES[name].higher == harmful else "higher"
            against[name] = trial.against(at, draws, side, swaps=name != "perplexity")
    first = next(iter(against.values()))
    return {
        f"against_{kind}": {name: one.difference.record() for name, one in against.items()},
        f"distinct_draws_{kind}": first.distinct,
        f"least_p_{kind}": first.least_p,
        f"p_draws_{kind}": {name: one.p_draws for name, one in against.items()},
        f"p_examples_{kind}": {
            name: one.p_examples for name, one in against.items() if name != "perplexity"
        },
    }


def together(tasks: Sequence[Sequence[dict[str, Any]]]) -> list[dict[str, Any]]:
    """The conditions of all tasks as one list: those of a single task as they are.

    Of several tasks plain means of every condition that all of them have, without intervals.
    """
    first = tasks[0]
    if len(tasks) == 1:
        return list(first)
    found = []
    for row in first:
        same = [next((one for one in rows if one["name"] == row["name"]), None) for rows in tasks]
        if any(one is None for one in same):
            continue
        there = [one for one in same if one is not None]
        values = {
            name: (
                None
                if any(one[name] is None for one in there)
                else float(np.mean([one[name] for one in there]))
            )
            for name in MEASURES
        }
        kept = ("kind", "name", "draw", "of", "instructed", "kept")
        found.append({**{name: row[name] for name in kept}, **values})
    return found


def _draws_for(condition: Condition, conditions: Sequence[Condition]) -> dict[Kind, list[int]]:
    """Where the random masks stand that a condition is compared with, by kind."""
    found: dict[Kind, list[int]] = {}
    for place, other in enumerate(conditions):
        alike = other.instructed == condition.instructed
        if other.draw is not None and alike and other.of in (None, condition.name):
            found.setdefault(other.kind, []).append(place)
    return found


def _key(name: str) -> str:
    return name.replace("-", "_").replace(" ", "_")


def _interval(measure: Measure, own: Floats, seed: int) -> dict[str, float]:
    if measure.share:
        low, high = wilson_interval(int(own[:, 0].sum()), len(own))
        return {"low": low, "high": high}
    found = bootstrap_score(own, measure.score, seed=seed)
    return {"low": float(found.low), "high": float(found.high)}
