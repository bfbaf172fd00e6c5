"""From what was computed of every example to values, intervals and differences, as JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headscope.data.tasks import Task
from headscope.measure.intervals import bootstrap_difference, bootstrap_score, wilson_interval
from headscope.measure.metrics import bleu_from_statistics, chrf_from_statistics
from headscope.measure.statistics import least_p, p_draws, p_sentences
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


def _ratio(sums: NDArray[Any]) -> Floats:
    return np.asarray(sums[..., 0] / sums[..., 1], dtype=np.float64)


def _exponential(sums: NDArray[Any]) -> Floats:
    # Over 700 nats a token no float holds the perplexity; infinity is what is left to say.
    with np.errstate(over="ignore"):
        return np.exp(_ratio(sums))


#: By name: `nll` is the mean over examples of the mean over the output's tokens, as published (and
#: called PPL there); `nll_tokens` the mean over all tokens; `perplexity` its exponential.
MEASURES: dict[str, Measure] = {
    "nll": Measure(_ratio, higher=False),
    "nll_tokens": Measure(_ratio, higher=False),
    "perplexity": Measure(_exponential, higher=False),
    "rouge_l": Measure(_ratio, higher=True),
    "chrf": Measure(chrf_from_statistics, higher=True),
    "bleu": Measure(bleu_from_statistics, higher=True),
    "bleu_published": Measure(_ratio, higher=True),
    "accuracy": Measure(_ratio, higher=True, share=True),
    "accuracy_words": Measure(_ratio, higher=True, share=True),
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
    score = MEASURES
    taken = [name for name in score if name in numbers[0]]
    rows: list[dict[str, Any]] = []
    for condition, own in zip(conditions, numbers, strict=True):
        row: dict[str, Any] = {
            "kind": condition.kind,
            "name": condition.name,
            "draw": condition.draw,
            "of": condition.of,
            "instructed": condition.instructed,
            "kept": None if condition.mask is None else len(condition.mask.kept),
        }
        row |= dict.fromkeys(score)
        row |= {
            name: float(score[name].score(own[name].sum(axis=0))) for name in taken if name in own
        }
        row["intervals"] = {
            name: _interval(score[name], own[name], seed) for name in taken if name in own
        }
        if condition is not conditions[0]:
            row["change"] = _against(taken, own, [numbers[0]], seed)
        rows.append(row)
    for at, condition in enumerate(conditions):
        if condition.draw is not None:
            continue
        for place, other in enumerate(conditions):
            if other.name in beside and place != at:
                name = f"against_{_key(other.name)}"
                rows[at][name] = _against(taken, numbers[at], [numbers[place]], seed)
        if condition.mask is None:
            continue
        for kind, places in _draws_for(condition, conditions).items():
            others = [numbers[place] for place in places]
            rows[at][f"against_{_key(kind)}"] = _against(taken, numbers[at], others, seed)
            rows[at][f"distinct_draws_{_key(kind)}"] = len(places)
            rows[at][f"least_p_{_key(kind)}"] = least_p(len(places))
            signs = {  # by which what is claimed becomes low
                name: -1.0 if score[name].higher != condition.harmful else 1.0
                for name in rows[at][f"against_{_key(kind)}"]
            }
            rows[at][f"p_draws_{_key(kind)}"] = {
                name: p_draws(sign * rows[at][name], [sign * rows[place][name] for place in places])
                for name, sign in signs.items()
            }
            rows[at][f"p_examples_{_key(kind)}"] = {
                name: _swapped(
                    score[name], sign, numbers[at][name], [one[name] for one in others], seed
                )
                for name, sign in signs.items()
                if name != "perplexity"
            }
    return rows


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


def _against(
    taken: Sequence[str],
    own: Mapping[str, Floats],
    others: Sequence[Mapping[str, Floats]],
    seed: int,
) -> dict[str, dict[str, float]]:
    found = {}
    for name in taken:
        if name in own and all(name in one for one in others):
            difference = bootstrap_difference(
                own[name], np.stack([one[name] for one in others]), MEASURES[name].score, seed=seed
            )
            found[name] = difference._asdict()
    return found


def _swapped(
    measure: Measure, sign: float, own: Floats, others: Sequence[Floats], seed: int
) -> float:
    """p over examples that the measure, times `sign`, is lower than under the draws."""
    return p_sentences(own, np.stack(others), lambda sums: sign * measure.score(sums), seed=seed)
