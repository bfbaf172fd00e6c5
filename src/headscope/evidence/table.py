"""From numbers of single examples to the table of evidence; no model takes part.

A part is a direction, a language or a task. Over several parts every statistic is the plain mean
over those where a condition was measured, and examples are resampled and swapped within parts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headscope.evidence.controls import CONTROLS
from headscope.evidence.rows import (
    SELECTED,
    WHOLE,
    Condition,
    Evidence,
    Level,
    Statistic,
    Tested,
)
from headscope.measure.statistics import counted_mean
from headscope.measure.trial import Group, Side, Trial
from headscope.progress import Progress

#: Of a part, by statistic, the numbers of its examples under each condition, (examples, features);
#: None where it was not measured.
Counted = Mapping[str, Sequence[NDArray[Any] | None]]
#: The same, where an array may hold those of all conditions, (conditions, examples, features).
Numbers = Mapping[str, Sequence[NDArray[Any] | None] | NDArray[Any]]


def evidence(
    conditions: Sequence[Condition],
    parts: Mapping[str, Counted],
    statistics: Mapping[str, Statistic],
    seed: int = 0,
    tested: Collection[str] | None = None,
    apart: Collection[str] = (),
    helps: Callable[[Condition], bool] = lambda condition: False,
    progress: Progress | None = None,
    by_size: bool = True,
    given: Mapping[str, Mapping[str, Sequence[float]]] | None = None,
    means: Mapping[str, Collection[str]] | None = None,
    harmed: Collection[str] = (),
    sets: Mapping[str, Sequence[frozenset[str] | None]] | None = None,
) -> Evidence:
    """Levels of every statistic under every condition, and tests of the selected ones.

    Args:
        conditions: the original model first.
        parts: numbers of examples by part, statistic and condition.
        statistics: in the order of the rows; what a part lacks is left out there and of the mean.
        tested: the statistics in which selected heads are compared with controls; None: all.
        apart: statistics that have no mean over parts.
        helps: whether selected heads are said to improve the statistics instead of harming them.
        by_size: as of `Group`.
        given: scores by part, statistic and condition that follow from no numbers of examples.
        means: further means over some parts, by name.
        harmed: statistics in which harm is looked for even so.
        sets: the heads of each condition in a part, where parts differ in them.
    """
    heads = [frozenset(condition.heads) for condition in conditions]
    groups = {
        part: {
            name: Group(
                counted[name],
                statistic.score or counted_mean,
                heads if sets is None else sets[part],
                seed,
                (given or {}).get(part, {}).get(name),
                by_size,
            )
            for name, statistic in statistics.items()
            if name in counted
        }
        for part, counted in parts.items()
    }
    trials = {
        part: {n: Trial([array]) for n, array in named.items()} for part, named in groups.items()
    }
    over = {WHOLE: list(groups), **(means or {})} if len(groups) > 1 else {}
    pooled = {
        name: {
            statistic: Trial([groups[part][statistic] for part in parts])
            for statistic in statistics
            if statistic not in apart and all(statistic in groups[part] for part in parts)
        }
        for name, parts in over.items()
    }
    trials = {**{n: t for n, t in pooled.items() if n == WHOLE}, **trials, **pooled}
    levels: list[Level] = []
    tests: list[Tested] = []
    for number, (part, named) in enumerate(trials.items(), 1):
        for name, trial in named.items():
            levels += _levels(part, name, trial, conditions)
            if tested is None or name in tested:
                helpful = (lambda condition: False) if name in harmed else helps
                tests += _tests(part, name, trial, conditions, statistics[name], helpful)
        if progress:
            progress("comparing", number, len(trials))
    measured = {row.statistic for row in levels}
    drawn = {condition.kind for condition in conditions}
    return Evidence(
        statistics={name: statistic for name, statistic in statistics.items() if name in measured},
        controls={name: control for name, control in CONTROLS.items() if name in drawn},
        conditions=tuple(conditions),
        levels=tuple(levels),
        tests=tuple(tests),
    )


def evidence_of_parts(
    conditions: Mapping[str, Sequence[Condition]],
    parts: Mapping[str, Numbers],
    statistics: Mapping[str, Statistic],
    seed: int = 0,
    **how: Any,
) -> Evidence:
    """`evidence` where every part has conditions of its own; `how` goes on to it.

    Conditions of one id whose heads differ between parts hold none in the table.
    """
    by_id: dict[str, list[Condition]] = {}
    for of_part in conditions.values():
        for condition in of_part:
            by_id.setdefault(condition.id, []).append(condition)
    common = [
        alike[0]
        if len({condition.heads for condition in alike}) == 1
        else replace(alike[0], heads=())
        for alike in by_id.values()
    ]
    counted: dict[str, Counted] = {}
    sets: dict[str, list[frozenset[str] | None]] = {}
    for part, by_statistic in parts.items():
        places = {condition.id: at for at, condition in enumerate(conditions[part])}
        counted[part] = {
            name: [numbers[places[key]] if key in places else None for key in by_id]
            for name, numbers in by_statistic.items()
        }
        sets[part] = [
            frozenset(conditions[part][places[key]].heads) if key in places else None
            for key in by_id
        ]
    return evidence(common, counted, statistics, seed, sets=sets, **how)


def own_heads(
    conditions: Mapping[str, Iterable[Condition]], table: Evidence
) -> dict[str, dict[str, tuple[str, ...]]]:
    """By part the heads of its conditions by id, where parts differ in them and the table of
    `evidence_of_parts` lists none."""
    listed = {condition.id: condition.heads for condition in table.conditions}
    heads = {
        part: {
            condition.id: condition.heads
            for condition in of_part
            if condition.heads != listed[condition.id]
        }
        for part, of_part in conditions.items()
    }
    return {part: of_part for part, of_part in heads.items() if of_part}


def _measured(trial: Trial, at: int) -> Trial | None:
    """The groups in which a condition was measured; None where no score follows from them."""
    groups = [
        group
        for group in trial.groups
        if group.statistics[at] is not None or group.given is not None
    ]
    own = trial if len(groups) == len(trial.groups) else Trial(groups)
    return None if not groups or np.isnan(own.scores[at]) else own


def _levels(part: str, name: str, trial: Trial, conditions: Sequence[Condition]) -> Iterator[Level]:
    for at, condition in enumerate(conditions):
        own = _measured(trial, at)
        if own is not None:
            level, change = own.level(at), own.difference(at) if at else None
            examples = sum(group.examples for group in own.groups)
            yield Level(
                value=level.value, low=level.low, high=level.high, part=part,
                condition=condition.id, statistic=name, examples=examples, change=change,
            )  # fmt: skip


def _tests(
    part: str,
    name: str,
    trial: Trial,
    conditions: Sequence[Condition],
    statistic: Statistic,
    helps: Callable[[Condition], bool],
) -> Iterator[Tested]:
    for at, condition in enumerate(conditions):
        own = _measured(trial, at) if condition.kind == SELECTED else None
        if own is None:
            continue
        side: Side = "lower" if (statistic.better == "higher") != helps(condition) else "higher"
        for control, about in CONTROLS.items():
            draws = [
                place
                for place, drawn in enumerate(conditions)
                if drawn.kind == control
                and drawn.controls(condition)
                and not np.isnan(own.scores[place])
            ]
            if not draws:
                continue
            against = own.against(at, draws, side)
            yield Tested(
                part=part,
                condition=condition.id,
                statistic=name,
                control=control,
                difference=against.difference,
                p_examples=against.p_examples,
                p_draws=against.p_draws if about.null else None,
                draws=against.distinct,
                at_least_as_harmful=None if against.as_far is None else sum(against.as_far),
                as_far=against.as_far or (),
                least_p=against.least_p if about.null else None,
                shared=_shared([group.sets for group in own.groups], at, draws),
                side=side,
            )


def _shared(sets: Sequence[Sequence[Any]], at: int, draws: Sequence[int]) -> float | None:
    """The mean share of the selected heads that a draw holds, over all groups; None where no heads
    are told."""
    shares = [
        len(heads[at] & heads[draw]) / len(heads[at])
        for heads in sets
        for draw in draws
        if heads[at] and heads[draw]
    ]
    return float(np.mean(shares)) if shares else None
