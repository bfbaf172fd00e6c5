"""What arms show beside each other: scores, differences with intervals, tests.

Everything here follows from numbers stored for each prompt; no model takes part. Over several
groups every score is the plain mean of the groups', and tests and intervals resample prompts
within groups.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headscope.estimates import known
from headscope.measure.intervals import FromStatistics
from headscope.measure.statistics import counted_mean
from headscope.measure.trial import Group, Side, Trial
from headscope.verify.writing.arms import BASELINE, Arm, Name

__all__ = ["Measure", "Numbers", "evidence"]

Array = NDArray[Any]
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Measure:
    """How sums of statistics become a score, and whether what is to be proved raises it."""

    score: FromStatistics = counted_mean
    raises: bool = False

    @property
    def side(self) -> Side:
        """Where the score lies if what is to be proved holds."""
        return "higher" if self.raises else "lower"


@dataclass(frozen=True, eq=False)
class Numbers:
    """The arms of one group, and by measure the statistics (arms, prompts, features) or None."""

    arms: tuple[Arm, ...]
    values: Mapping[str, Array | None]

    @property
    def prompts(self) -> int:
        """How many prompts the group has."""
        return next((len(one[0]) for one in self.values.values() if one is not None), 0)

    def places(self) -> dict[Name, int]:
        """Where each arm stands."""
        return {arm.name: at for at, arm in enumerate(self.arms)}


def evidence(
    groups: Mapping[str, Numbers],
    measures: Mapping[str, Measure],
    controls: Mapping[str, Mapping[str, str]],
    seed: int = 0,
    progress: Progress | None = None,
    name: str = "languages",
    changes: bool = False,
) -> dict[str, Any]:
    """The figures over all groups and, under `name`, those of each.

    `controls` says for every chosen kind which random kinds stand beside it, each with the ending
    of the fields about it. Fields: `baseline` (measure: score), `conditions` (an entry for each
    other arm) and `effects`: by chosen kind and measure `value`, `change` (against the baseline),
    `against_random…`, `p_sentences…`, `p_draws…`, `distinct_draws…`, `random…` (mean of draws).
    Over several groups a kind counts where a group has it; `groups` says how many have. With
    `changes` effects have `p_change`, a paired test of the prompts before and after.
    """
    names = list(dict.fromkeys(arm.name for numbers in groups.values() for arm in numbers.arms))
    trials = _trials(names, list(groups.values()), measures, seed)
    found: dict[str, Any] = {}
    for at, (title, numbers) in enumerate(groups.items()):
        own = {key: Trial([trial.groups[at]]) for key, trial in trials.items()}
        found[title] = _described([numbers], names, own, measures, controls, changes)
        if progress:
            progress("comparing", at + 1, len(groups) + 1)
    parts = list(groups.values())
    whole = found[title]
    if len(parts) > 1:
        whole = _described(parts, names, trials, measures, controls, changes)
    if progress:
        progress("comparing", len(groups) + 1, len(groups) + 1)
    return {**whole, name: found}


def _trials(
    names: Sequence[Name],
    groups: Sequence[Numbers],
    measures: Mapping[str, Measure],
    seed: int,
) -> dict[str, Trial]:
    """A trial of each measure; the conditions are the arms that any group has."""
    places = [numbers.places() for numbers in groups]
    heads = [
        [frozenset(numbers.arms[at[name]].heads) if name in at else None for name in names]
        for numbers, at in zip(groups, places, strict=True)
    ]

    def statistics(numbers: Numbers, at: Mapping[Name, int], key: str) -> list[Array | None]:
        values = numbers.values.get(key)
        return [None if values is None or name not in at else values[at[name]] for name in names]

    return {
        key: Trial(
            [
                Group(statistics(numbers, at, key), measure.score, sets, seed)
                for numbers, at, sets in zip(groups, places, heads, strict=True)
            ]
        )
        for key, measure in measures.items()
    }


def _described(
    groups: Sequence[Numbers],
    names: Sequence[Name],
    trials: Mapping[str, Trial],
    measures: Mapping[str, Measure],
    controls: Mapping[str, Mapping[str, str]],
    changes: bool,
) -> dict[str, Any]:
    alone = len(groups) == 1
    places = [numbers.places() for numbers in groups]
    rows = []
    for at, name in enumerate(names):
        having = [number for number, arms in enumerate(places) if name in arms]
        if not having:
            continue
        arm = groups[having[0]].arms[places[having[0]][name]]
        about = arm.as_dict() if alone else {"kind": name.kind, "draw": name.draw}
        scores = {
            key: known(Trial([trial.groups[number] for number in having]).scores[at])
            for key, trial in trials.items()
        }
        rows.append(about | scores)
        if not alone:
            rows[-1]["groups"] = len(having)
    effects = {
        kind: {
            key: _effect(names, kind, endings, trial, measures[key].side, changes)
            for key, whole in trials.items()
            if (trial := whole.among(names.index(Name(kind)))).groups
        }
        for kind, endings in controls.items()
        if any(Name(kind) in arms for arms in places)
    }
    base = next(row for row in rows if row["kind"] == BASELINE)
    return {
        "prompts": sum(numbers.prompts for numbers in groups),
        "baseline": {key: base[key] for key in measures},
        "conditions": [row for row in rows if row["kind"] != BASELINE],
        "effects": effects,
    }


def _effect(
    names: Sequence[Name],
    kind: str,
    endings: Mapping[str, str],
    trial: Trial,
    side: Side,
    changes: bool,
) -> dict[str, Any]:
    """A chosen kind by one measure, in the groups that have both."""
    at, base = names.index(Name(kind)), names.index(Name(BASELINE))
    found: dict[str, Any] = {
        "value": float(trial.scores[at]),
        "baseline": float(trial.scores[base]),
        "change": trial.difference(at, [base]).record(),
        "groups": len(trial.groups),
    }
    for control, ending in endings.items():
        draws = [
            place
            for place, name in enumerate(names)
            if name.kind == control and not np.isnan(trial.scores[place])
        ]
        if draws:
            against = trial.against(at, draws, side)
            found[f"random{ending}"] = against.draws.record()
            found |= against.record("sentences", ending)
    if changes:
        found["p_change"] = trial.p_examples(at, [base], "two-sided")
    return found
