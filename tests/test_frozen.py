"""Every comparison computes from its per-example numbers what it did: the files in `data/frozen`.

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

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from headscope.estimates import Draws
from headscope.measure.intervals import bootstrap_score, wilson_interval
from headscope.measure.metrics import bleu_from_statistics, chrf_from_statistics
from headscope.measure.statistics import counted_mean, overlap, p_draws
from headscope.measure.trial import Group, Trial

FROZEN = Path(__file__).parent / "data" / "frozen"
FILES = sorted(FROZEN.glob("*.json"))
Floats = NDArray[np.float64]
#: Entries of rows that are computed otherwise on purpose since the files were made, each with why.
CHANGED: dict[str, str] = {
    "p_examples": "it tests against the mean of the draws, where it swapped with single draws",
}


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


class Computed:
    """The levels and tests of a file, computed from its per-example numbers."""

    def __init__(self, held: Mapping[str, Any]) -> None:
        self.held = held
        self.groups = {
            (part, name): self._group(part, name, rows, of.get(f"{name} given"))
            for part, of in held["parts"].items()
            for name, rows in of.items()
            if name in held["statistics"]
        }

    def _group(self, part: str, name: str, rows: Sequence[Any], given: Any) -> Group:
        heads = [row["heads"] for row in self.held["conditions"]]
        sets = [own.get(part) if isinstance(own, dict) else own for own in heads]
        scoring = SCORES[self.held["statistics"][name]["score"]]
        return Group(
            [None if row is None else scoring.statistics(row) for row in rows],
            scoring.score,
            [None if own is None else tuple(own) for own in sets],
            self.held["seed"],
            None if given is None else [np.nan if value is None else value for value in given],
            self.held["by_size"],
        )

    def trial(self, row: Mapping[str, Any]) -> Trial:
        """The part of a row, or of the mean all parts where its condition was measured."""
        part, name = row["part"], row["statistic"]
        return Trial(
            [
                group
                for key, group in self.groups.items()
                if key == (part, name)
                or ((part, key[1]) == ("", name) and group.statistics[row["condition"]] is not None)
            ]
        )

    def level(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """What a row of `levels` says, as far as it says it."""
        at, trial = row["condition"], self.trial(row)
        found: dict[str, Any] = {"value": float(trial.scores[at])}
        # The interval of a share of examples was the bootstrap's, and is Wilson's.
        share = all(group.shares for group in trial.groups)
        if "low" in row and (row.get("interval") or not share):
            found["low"], found["high"] = self._interval(row, trial)
        if "change" in row:
            found["change"] = vars(trial.difference(at))
        return found

    def _interval(self, row: Mapping[str, Any], trial: Trial) -> tuple[float, float]:
        at, interval = row["condition"], row.get("interval", "")
        (group, *more) = trial.groups
        own = np.asarray(group.statistics[at])
        if group.score is counted_mean:
            own = own[own[:, 1] > 0]
        if interval == "wilson":
            return wilson_interval(int(own[:, 0].sum()), len(own))
        if interval.startswith("exp"):
            plain = Trial([Group([own], counted_mean, (), group.seed)])
            trial, at = plain, 0
        if interval.endswith("seed alone"):
            score = counted_mean if interval.startswith("exp") else group.score
            low, high = bootstrap_score(own, score, seed=self.held["seed"])
        else:
            level = trial.level(at)
            low, high = level.low, level.high
        assert not interval or not more
        ends = float(low), float(high)
        return (math.exp(ends[0]), math.exp(ends[1])) if interval.startswith("exp") else ends

    def test(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """What a row of `tests` says, as far as it says it."""
        at, others = row["condition"], row["against"]
        trial = self.trial({**row, "condition": np.ravel(at)[0]})
        found: dict[str, Any] = {"difference": vars(trial.difference(at, others))}
        if isinstance(at, int):
            against = trial.against(at, others, row["side"])
            draws, changes = (
                Draws.of(scores[list(others)])
                for scores in (trial.scores, trial.scores - trial.scores[0])
            )
            found |= {
                "p_examples": against.p_examples,
                "p_draws": against.p_draws,
                "draws": against.distinct,
                "least_p": against.least_p,
                "mean_of_draws": draws.mean,
                "range_of_draws": [draws.low, draws.high],
            }
            found["changes_of_draws"] = [changes.mean, changes.low, changes.high]
        return {key: value for key, value in found.items() if key in row}

    def own(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """How much more a language's own text rises than that other text which rises most."""
        at, part = row["condition"], row["part"]
        trials = {
            key: Trial([group]) for (key, name), group in self.groups.items()
            if name == row["statistic"]
        }  # fmt: skip
        others = [key for key in trials if key != part]
        rises = {key: trial.scores - trial.scores[0] for key, trial in trials.items()}
        margins = rises[part] - np.max([rises[key] for key in others], axis=0)
        drawn = {
            key: trial.estimates[:, at] - trial.estimates[:, 0] for key, trial in trials.items()
        }
        most = np.max([drawn[key] for key in others], axis=0)
        low, high = np.quantile(drawn[part] - most, [0.025, 0.975])
        found: dict[str, Any] = {"value": margins[at], "low": low, "high": high}
        for control in row.keys() & {"random", "same layers"}:
            draws = [
                place for place, other in enumerate(self.held["conditions"])
                if other["kind"] == control and not np.isnan(margins[place])
                and all(other[key] == self.held["conditions"][at][key]
                        for key in ("of", "role", "k"))
            ]  # fmt: skip
            different = trials[part].distinct(draws)
            found[control] = {
                "draws": margins[draws].tolist(),
                "p_draws": p_draws(-margins[at], -margins[different]),
            }
        return found


def overlapping(row: Mapping[str, Any]) -> dict[str, Any]:
    """How far two sets of heads are the same, beside random sets of their sizes."""
    return vars(overlap(row["a"], row["b"], row["total"]))


def differences(was: Any, now: Any, place: str) -> Iterator[str]:
    """Where stored numbers and computed ones are not the same; null is what is not known."""
    if isinstance(was, dict):
        # What never varies had the interval of its resamples, which has no width.
        constant = "low" in was and was["low"] == was.get("high")
        for key, value in was.items():
            if constant and key in ("low", "high"):
                continue
            yield from differences(value, now[key], f"{place}.{key}")
    elif isinstance(was, list):
        for at, (old, new) in enumerate(zip(was, now, strict=True)):
            yield from differences(old, new, f"{place}[{at}]")
    else:
        old, new = (math.nan if value is None else float(value) for value in (was, now))
        new = new if math.isfinite(new) else math.nan
        if not np.isclose(old, new, rtol=1e-9, atol=1e-12, equal_nan=True):
            yield f"{place} was {was} and is {now}"


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_levels_and_tests_follow_from_the_numbers_of_examples(file: Path) -> None:
    held = json.loads(file.read_text("utf-8"))
    computed = Computed(held)
    wrong: list[str] = []
    rows = {
        "levels": (held["levels"], computed.level),
        "tests": (held["tests"], computed.test),
        "own": (held["details"].get("own", []), computed.own),
        "overlaps": (held["overlaps"], overlapping),
    }
    for name, (several, compute) in rows.items():
        for at, row in enumerate(several):
            # A kind of token may be in no sentence, and no float may hold a perplexity.
            with np.errstate(invalid="ignore", over="ignore"):
                now = compute(row)
            was = {key: row[key] for key in row if key in now and key not in CHANGED}
            wrong += differences(was, now, f"{name}[{at}]")
    assert wrong == []
    assert held["levels"] or held["tests"] or held["overlaps"]
