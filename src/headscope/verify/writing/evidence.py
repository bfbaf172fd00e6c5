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
from numpy.typing import ArrayLike, NDArray

from headscope.measure.intervals import bootstrap_difference
from headscope.measure.statistics import least_p, p_draws, p_sentences
from headscope.verify.writing.arms import BASELINE, Arm, Name

__all__ = ["Measure", "Numbers", "evidence", "rates", "ratio"]

Array = NDArray[Any]
Progress = Callable[[str, int, int], None]


def ratio(statistics: ArrayLike) -> NDArray[np.float64]:
    """The mean of values from sums of (value, 1): (..., 2), the last axis is consumed."""
    sums = np.asarray(statistics, dtype=np.float64)
    return np.asarray(sums[..., 0] / sums[..., 1])


def rates(values: ArrayLike) -> Array:
    """Values (C, S) as statistics (C, S, 2) whose mean `ratio` gives."""
    array = np.asarray(values, dtype=np.float64)
    return np.stack([array, np.ones_like(array)], axis=-1)


@dataclass(frozen=True)
class Measure:
    """How sums of statistics become a score, and whether what is to be proved raises it."""

    score: Callable[[Array], Array]
    raises: bool = False

    def tested(self, sums: Array) -> Array:
        """The score, turned so that what is to be proved lowers it."""
        return -self.score(sums) if self.raises else self.score(sums)


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
) -> dict[str, Any]:
    """The figures over all groups and, under `name`, those of each.

    `controls` says for every chosen kind which random kinds stand beside it, each with the ending
    of the fields about it. Fields: `baseline` (measure: score), `conditions` (an entry for each
    other arm) and `effects`: by chosen kind and measure `value`, `change` (against the baseline),
    `against_random…`, `p_sentences…`, `p_draws…`, `distinct_draws…`, `random…` (mean of draws).
    Over several groups a kind counts where a group has it; `groups` says how many have.
    """
    found: dict[str, Any] = {}
    for number, (title, one) in enumerate(groups.items()):
        found[title] = _described([one], measures, controls, seed)
        if progress:
            progress("comparing", number + 1, len(groups) + 1)
    parts = list(groups.values())
    whole = _described(parts, measures, controls, seed) if len(parts) > 1 else found[title]
    if progress:
        progress("comparing", len(groups) + 1, len(groups) + 1)
    return {**whole, name: found}


def _described(
    groups: Sequence[Numbers],
    measures: Mapping[str, Measure],
    controls: Mapping[str, Mapping[str, str]],
    seed: int,
) -> dict[str, Any]:
    names = list(dict.fromkeys(arm.name for one in groups for arm in one.arms))
    alone = len(groups) == 1
    rows = []
    for each in names:
        having = [one for one in groups if each in one.places()]
        arm = having[0].arms[having[0].places()[each]]
        about = arm.as_dict() if alone else {"kind": each.kind, "draw": each.draw}
        rows.append(about | _scores(having, each, measures))
        if not alone:
            rows[-1]["groups"] = len(having)
    effects = {
        kind: {
            measure: effect
            for measure, how in measures.items()
            if (effect := _effect(groups, kind, endings, measure, how, seed)) is not None
        }
        for kind, endings in controls.items()
        if Name(kind) in names
    }
    base = next(row for row in rows if row["kind"] == BASELINE)
    return {
        "prompts": sum(one.prompts for one in groups),
        "baseline": {key: base[key] for key in measures},
        "conditions": [row for row in rows if row["kind"] != BASELINE],
        "effects": effects,
    }


def _scores(
    groups: Sequence[Numbers], name: Name, measures: Mapping[str, Measure]
) -> dict[str, float | None]:
    """The mean score of an arm by measure; None where a group lacks the measure."""
    found: dict[str, float | None] = {}
    for key, measure in measures.items():
        values = [_statistics(one, name, key) for one in groups]
        known = [float(measure.score(one.sum(axis=0))) for one in values if one is not None]
        found[key] = float(np.mean(known)) if len(known) == len(groups) else None
    return found


def _effect(
    groups: Sequence[Numbers],
    kind: str,
    endings: Mapping[str, str],
    key: str,
    measure: Measure,
    seed: int,
) -> dict[str, Any] | None:
    """A chosen kind by one measure, in the groups that have both; None if none has."""
    having = [
        one for one in groups if Name(kind) in one.places() and one.values.get(key) is not None
    ]
    if not having:
        return None
    treated = [_known(one, Name(kind), key) for one in having]
    untouched = [_known(one, Name(BASELINE), key) for one in having]
    found: dict[str, Any] = {
        "value": _mean(treated, measure),
        "baseline": _mean(untouched, measure),
        "change": _difference(treated, untouched, measure, seed),
        "groups": len(having),
    }
    for control, ending in endings.items():
        draws = [
            name
            for name in having[0].places()
            if name.kind == control and all(name in one.places() for one in having)
        ]
        if not draws:
            continue
        stacked = [np.stack([_known(one, draw, key) for draw in draws]) for one in having]
        different = _distinct(having, draws)
        scores = [
            float(np.mean([measure.tested(part[at].sum(axis=0)) for part in stacked]))
            for at in range(len(draws))
        ]
        raw = [0.0 - one if measure.raises else one for one in scores]
        score = float(np.mean([measure.tested(one.sum(axis=0)) for one in treated]))
        found |= {
            f"random{ending}": {"mean": float(np.mean(raw)), "low": min(raw), "high": max(raw)},
            f"against_random{ending}": _difference(treated, stacked, measure, seed),
            f"p_sentences{ending}": _p_prompts(treated, stacked, measure, seed),
            f"p_draws{ending}": p_draws(score, [scores[at] for at in different]),
            f"distinct_draws{ending}": len(different),
            f"least_p{ending}": least_p(len(different)),
        }
    return found


def _p_prompts(
    treated: Sequence[Array], controls: Sequence[Array], measure: Measure, seed: int
) -> float:
    """`p_sentences`, which is 1 where nothing differs, as with rates of what never happens."""
    if all((one == several).all() for one, several in zip(treated, controls, strict=True)):
        return 1.0
    return p_sentences(list(treated), list(controls), measure.tested, seed=seed)


def _distinct(groups: Sequence[Numbers], draws: Sequence[Name]) -> list[int]:
    """The draws whose heads, over all groups, have not come up in an earlier one: a set drawn
    again proves nothing more."""
    seen: dict[tuple[frozenset[str], ...], int] = {}
    for at, draw in enumerate(draws):
        heads = tuple(frozenset(map(str, one.arms[one.places()[draw]].heads)) for one in groups)
        seen.setdefault(heads, at)
    return list(seen.values())


def _difference(
    one: Sequence[Array], other: Sequence[Array], measure: Measure, seed: int
) -> dict[str, float]:
    value, low, high = bootstrap_difference(list(one), list(other), measure.score, seed=seed)
    return {"value": float(value), "low": float(low), "high": float(high)}


def _mean(groups: Sequence[Array], measure: Measure) -> float:
    return float(np.mean([measure.score(one.sum(axis=0)) for one in groups]))


def _statistics(one: Numbers, name: Name, key: str) -> Array | None:
    values = one.values.get(key)
    return None if values is None else values[one.places()[name]]


def _known(one: Numbers, name: Name, key: str) -> Array:
    found = _statistics(one, name, key)
    if found is None:
        raise ValueError(f"{key} was not measured")  # callers take only groups that have it
    return found
