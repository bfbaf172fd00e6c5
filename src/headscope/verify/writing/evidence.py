"""What arms show beside each other: scores, differences with intervals, tests.

Everything here follows from numbers stored for each prompt; no model takes part. Over several
groups every score is the plain mean of the groups', and tests and intervals resample prompts
within groups.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headscope.estimates import known
from headscope.measure.intervals import FromStatistics
from headscope.measure.statistics import counted_mean
from headscope.measure.trial import Group, Side, Trial
from headscope.progress import Progress
from headscope.results.writing import Comparison, Condition, Control, Effect
from headscope.verify.writing.texts import BASELINE, MATCHED, RANDOM, Arm, Name


@dataclass(frozen=True)
class Measure:
    """How sums of statistics become a score, and whether what is to be proved raises it."""

    score: FromStatistics = counted_mean
    raises: bool = False


@dataclass(frozen=True, eq=False)
class Numbers:
    """The arms of one group, and by measure the statistics (arms, prompts, features) or None."""

    arms: tuple[Arm, ...]
    values: Mapping[str, NDArray[Any] | None]

    @property
    def places(self) -> dict[Name, int]:
        """Where each arm stands."""
        return {arm.name: at for at, arm in enumerate(self.arms)}

    def group(self, names: Sequence[Name], key: str, score: FromStatistics, seed: int) -> Group:
        """One measure under the arms of these names, as far as this group has them."""
        values, at = self.values.get(key), self.places
        return Group(
            [None if values is None or name not in at else values[at[name]] for name in names],
            score,
            [frozenset(self.arms[at[name]].heads) if name in at else None for name in names],
            seed,
        )


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
    trials = {
        key: Trial([part.group(names, key, measure.score, seed) for part in groups.values()])
        for key, measure in measures.items()
    }
    parts: dict[str, Comparison] = {}
    for at, (title, numbers) in enumerate(groups.items()):
        own = {key: Trial([trial.groups[at]]) for key, trial in trials.items()}
        parts[title] = _compared([numbers], names, own, measures, controls, changes)
        if progress:
            progress("comparing", at + 1, len(groups) + 1)
    whole = parts[title]
    if len(groups) > 1:
        whole = _compared([*groups.values()], names, trials, measures, controls, changes)
    if progress:
        progress("comparing", len(groups) + 1, len(groups) + 1)
    return whole, parts


def _compared(
    groups: Sequence[Numbers],
    names: Sequence[Name],
    trials: Mapping[str, Trial],
    measures: Mapping[str, Measure],
    controls: Mapping[str, str],
    changes: bool,
) -> Comparison:
    rows = []
    for at, name in enumerate(names):
        arms = {
            number: group.arms[group.places[name]]
            for number, group in enumerate(groups)
            if name in group.places
        }
        if not arms:
            continue
        about: dict[str, Any] = {"groups": len(arms)}
        if len(groups) == 1:
            arm = arms[0]
            about = {"k": len(arm.heads), "gate": arm.gate, "filled_up": arm.filled_up,
                     "heads": tuple(map(str, arm.heads))}  # fmt: skip
        scores = {
            key: known(Trial([trial.groups[number] for number in arms]).scores[at])
            for key, trial in trials.items()
        }
        rows.append(Condition(kind=name.kind, draw=name.draw, **about, unknown=scores))
    return Comparison(
        prompts=sum(
            next((len(values[0]) for values in group.values.values() if values is not None), 0)
            for group in groups
        ),
        baseline=next(row.scores for row in rows if row.kind == BASELINE),
        conditions=tuple(row for row in rows if row.kind != BASELINE),
        effects={
            kind: {
                key: _effect(
                    names,
                    kind,
                    prefix,
                    trial,
                    "higher" if measures[key].raises else "lower",
                    changes,
                )
                for key, whole in trials.items()
                if (trial := whole.among(names.index(Name(kind)))).groups
            }
            for kind, prefix in controls.items()
            if any(Name(kind) in group.places for group in groups)
        },
    )


def _effect(
    names: Sequence[Name], kind: str, prefix: str, trial: Trial, side: Side, changes: bool
) -> Effect:
    """A chosen kind by one measure, in the groups that have both."""
    at, base = names.index(Name(kind)), names.index(Name(BASELINE))

    def control(random: str) -> Control | None:
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
        free=control(RANDOM),
        matched=control(MATCHED),
        p_change=trial.p_examples(at, [base], "two-sided") if changes else None,
    )
