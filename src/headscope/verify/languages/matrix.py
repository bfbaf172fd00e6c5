"""Heads of one language, text of another: whose loss rises when a language's heads are removed.

The cross-language matrix of LAHIS (Liu et al. 2025, arXiv 2511.07498), as changes of the mean
negative log-likelihood, each beside what as many random heads do to the same text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from headscope.estimates import Estimate
from headscope.measure.statistics import p_draws
from headscope.measure.trial import Trial
from headscope.results.language_texts import Answer, Matrix, OtherText, OwnText, Role
from headscope.results.removal import CONTROLS
from headscope.verify.languages.conditions import Condition
from headscope.verify.languages.evidence import TextTrial, random_rows


def matrices(planned: Sequence[Condition], trials: Mapping[str, TextTrial]) -> list[Matrix]:
    """One matrix for each role of heads and each k.

    A language's own text is compared with the other that rises most, which is chosen anew in every
    bootstrap draw; for p over draws each different set is counted once.
    """
    nll = {name: trial.nll for name, trial in trials.items()}
    roles: tuple[Role, ...] = ("chosen", "full")
    return [
        _matrix(role, k, planned, nll)
        for role in roles
        for k in sorted({one.k for one in planned if (one.role, one.kind) == (role, "removed")})
    ]


def _matrix(
    role: Role, k: int, planned: Sequence[Condition], trials: Mapping[str, Trial]
) -> Matrix:
    rows = {
        one.of: at
        for at, one in enumerate(planned)
        if (one.role, one.k, one.kind) == (role, k, "removed")
    }

    def beside(kind: str, above: bool) -> tuple[tuple[Estimate | None, ...], ...]:
        """What random draws do to each text, or with `above` how much more the heads do."""
        return tuple(
            tuple(
                None
                if not (draws := random_rows(at, planned, kind, name))
                else trial.difference(at, draws)
                if above
                else trial.difference(draws)
                for name, trial in trials.items()
            )
            for at in rows.values()
        )

    random: dict[str, Any] = {}
    for kind, suffix in CONTROLS.items():
        random[f"random{suffix}"] = beside(kind, above=False)
        random[f"above_random{suffix}"] = beside(kind, above=True)
    own = {
        name: _own(name, at, planned, trials)
        for name, at in rows.items()
        if name in trials and len(trials) > 1
    }
    matrix = Matrix(
        role=role,
        k=k,
        heads_of=tuple(rows),
        text_of=tuple(trials),
        sizes=tuple(len(planned[at].heads) for at in rows.values()),
        change=tuple(
            tuple(trial.difference(at) for trial in trials.values()) for at in rows.values()
        ),
        **random,
        own=own,
    )
    return replace(matrix, answer=_answer(matrix)) if own else matrix


def _own(name: str, at: int, planned: Sequence[Condition], trials: Mapping[str, Trial]) -> OwnText:
    """A language's own text against the text of another language that rises most."""
    others = [other for other in trials if other != name]
    rises = {other: trial.scores - trial.scores[0] for other, trial in trials.items()}
    margins = rises[name] - np.max([rises[other] for other in others], axis=0)
    largest = max(others, key=lambda other: float(rises[other][at]))
    estimates = {
        other: trial.estimates[:, at] - trial.estimates[:, 0] for other, trial in trials.items()
    }
    top = np.max([estimates[other] for other in others], axis=0)
    random: dict[str, Any] = {}
    for kind, suffix in CONTROLS.items():
        places = [
            place
            for place in random_rows(at, planned, kind, name)
            if all(other in planned[place].texts for other in others)
        ]
        if places:
            random[f"random{suffix}"] = tuple(margins[places].tolist())
            different = trials[name].distinct(places)
            random[f"p_draws{suffix}"] = p_draws(-margins[at], -margins[different])
    return OwnText(
        own=float(rises[name][at]),
        largest_other=OtherText(largest, float(rises[largest][at])),
        own_minus_largest_other=Estimate.of(margins[at], estimates[name] - top),
        **random,
    )


def _answer(matrix: Matrix) -> Answer:
    margins = [one.own_minus_largest_other for one in matrix.own.values()]
    above: dict[str, Any] = {}
    for suffix in CONTROLS.values():
        cells = matrix.above_random_layer_matched if suffix else matrix.above_random
        own = [
            cells[matrix.heads_of.index(name)][matrix.text_of.index(name)] for name in matrix.own
        ]
        if known := [cell for cell in own if cell is not None]:
            above[f"above_random{suffix}"] = sum(cell.value > 0 for cell in known)
            above[f"above_random{suffix}_surely"] = sum(cell.low > 0 for cell in known)
    return Answer(
        languages=len(margins),
        own_rises_most=sum(one.value > 0 for one in margins),
        own_rises_most_surely=sum(one.low > 0 for one in margins),
        **above,
    )
