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
from headscope.results.writing import Comparison, Condition, Control, Effect
from headscope.verify.writing.arms import BASELINE, MATCHED, RANDOM, Arm, Name

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
    controls: Mapping[str, str],
    seed: int = 0,
    progress: Progress | None = None,
    changes: bool = False,
) -> tuple[Comparison, dict[str, Comparison]]:
    """The figures over all groups, and those of each.

    `controls` are the chosen kinds, each with what the names of its random kinds begin with. Over
    several groups a kind counts where a group has it. With `changes` effects have `p_change`.
    """
    names = list(dict.fromkeys(arm.name for numbers in groups.values() for arm in numbers.arms))
    trials = _trials(names, list(groups.values()), measures, seed)
    found: dict[str, Comparison] = {}
    for at, (title, numbers) in enumerate(groups.items()):
        own = {key: Trial([trial.groups[at]]) for key, trial in trials.items()}
        found[title] = _compared([numbers], names, own, measures, controls, changes)
        if progress:
            progress("comparing", at + 1, len(groups) + 1)
    parts = list(groups.values())
    whole = found[title]
    if len(parts) > 1:
        whole = _compared(parts, names, trials, measures, controls, changes)
    if progress:
        progress("comparing", len(groups) + 1, len(groups) + 1)
    return whole, found


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


def _compared(
    groups: Sequence[Numbers],
    names: Sequence[Name],
    trials: Mapping[str, Trial],
    measures: Mapping[str, Measure],
    controls: Mapping[str, str],
    changes: bool,
) -> Comparison:
    places = [numbers.places() for numbers in groups]
    rows = []
    for at, name in enumerate(names):
        having = [number for number, arms in enumerate(places) if name in arms]
        if not having:
            continue
        scores = {
            key: known(Trial([trial.groups[number] for number in having]).scores[at])
            for key, trial in trials.items()
        }
        if len(groups) == 1:
            rows.append(groups[0].arms[places[0][name]].scored(scores))
        else:
            rows.append(
                Condition(kind=name.kind, draw=name.draw, groups=len(having), unknown=scores)
            )
    effects = {
        kind: {
            key: _effect(names, kind, prefix, trial, measures[key].side, changes)
            for key, whole in trials.items()
            if (trial := whole.among(names.index(Name(kind)))).groups
        }
        for kind, prefix in controls.items()
        if any(Name(kind) in arms for arms in places)
    }
    return Comparison(
        prompts=sum(numbers.prompts for numbers in groups),
        baseline=next(row.scores for row in rows if row.kind == BASELINE),
        conditions=tuple(row for row in rows if row.kind != BASELINE),
        effects=effects,
    )


def _effect(
    names: Sequence[Name], kind: str, prefix: str, trial: Trial, side: Side, changes: bool
) -> Effect:
    """A chosen kind by one measure, in the groups that have both."""
    at, base = names.index(Name(kind)), names.index(Name(BASELINE))

    def beside(random: str) -> Control | None:
        draws = [
            place
            for place, name in enumerate(names)
            if name.kind == prefix + random and not np.isnan(trial.scores[place])
        ]
        if not draws:
            return None
        against = trial.against(at, draws, side)
        return Control(against.draws, against)

    return Effect(
        value=float(trial.scores[at]),
        baseline=float(trial.scores[base]),
        change=trial.difference(at, [base]),
        groups=len(trial.groups),
        free=beside(RANDOM),
        matched=beside(MATCHED),
        p_change=trial.p_examples(at, [base], "two-sided") if changes else None,
    )
