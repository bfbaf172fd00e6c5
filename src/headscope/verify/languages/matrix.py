"""Heads of one language, text of another: whose loss rises when a language's heads are removed.

The cross-language matrix of LAHIS (Liu et al. 2025, arXiv 2511.07498), as changes of the mean
negative log-likelihood, each beside what as many random heads do to the same text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from headscope.measure.statistics import p_draws
from headscope.measure.trial import Estimate, Trial
from headscope.verify.languages.conditions import Condition, Role
from headscope.verify.languages.evidence import TextTrial, random_rows
from headscope.verify.removal.outputs import CONTROLS

__all__ = ["matrices"]


def matrices(planned: Sequence[Condition], trials: Mapping[str, TextTrial]) -> list[dict[str, Any]]:
    """One matrix for each role of heads and each k, as JSON.

    `change[a][b]` is the change of NLL of text b without the heads of a, with its bootstrap
    interval; `random[a][b]` that of the mean of the free draws beside these heads, and
    `above_random[a][b]` the difference of both, where the draws were read on text b, else null.
    `own[a]` compares a's own text with the others: `own_minus_largest_other` is the change of its
    NLL less that of the text that rises most among the others, which is chosen anew in every
    bootstrap draw; `random` holds the same figure of each free draw of random heads, and `p_draws`
    how often chance does as well, each different set counted once. `answer` counts the languages
    for which it is above zero, and for how many surely (the whole interval); likewise for the rise
    of the own text above random heads.
    """
    found = []
    nll = {name: trial.nll for name, trial in trials.items()}
    roles: tuple[Role, ...] = ("chosen", "full")
    for role in roles:
        for k in sorted({one.k for one in planned if one.role == role and one.kind == "removed"}):
            rows = {
                one.of: at
                for at, one in enumerate(planned)
                if (one.role, one.k, one.kind) == (role, k, "removed")
            }
            found.append({"role": role, "k": k, **_matrix(rows, planned, nll)})
    return found


def _matrix(
    rows: Mapping[str, int], planned: Sequence[Condition], trials: Mapping[str, Trial]
) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "heads_of": list(rows),
        "text_of": list(trials),
        "sizes": [len(planned[at].heads) for at in rows.values()],
        "change": [
            [trial.difference(at).record() for trial in trials.values()] for at in rows.values()
        ],
    }
    for kind, suffix in CONTROLS.items():
        shown[f"random{suffix}"], shown[f"above_random{suffix}"] = [], []
        for at in rows.values():
            drawn = {name: random_rows(at, planned, kind, name) for name in trials}
            shown[f"random{suffix}"].append(
                [trials[name].difference(draws).record() if draws else None
                 for name, draws in drawn.items()]
            )  # fmt: skip
            shown[f"above_random{suffix}"].append(
                [trials[name].difference(at, draws).record() if draws else None
                 for name, draws in drawn.items()]
            )  # fmt: skip
    own = {
        name: _own(name, at, planned, trials)
        for name, at in rows.items()
        if name in trials and len(trials) > 1
    }
    return {**shown, "own": own, "answer": _answer(shown, own) if own else None}


def _own(
    name: str, at: int, planned: Sequence[Condition], trials: Mapping[str, Trial]
) -> dict[str, Any]:
    """A language's own text against the text of another language that rises most."""
    others = [other for other in trials if other != name]
    rises = {other: trial.scores - trial.scores[0] for other, trial in trials.items()}
    margins = rises[name] - np.max([rises[other] for other in others], axis=0)
    largest = max(others, key=lambda other: float(rises[other][at]))
    estimates = {
        other: trial.estimates[:, at] - trial.estimates[:, 0] for other, trial in trials.items()
    }
    top = np.max([estimates[other] for other in others], axis=0)
    found: dict[str, Any] = {
        "own": float(rises[name][at]),
        "largest_other": {"language": largest, "change": float(rises[largest][at])},
        "own_minus_largest_other": Estimate.of(margins[at], estimates[name] - top).record(),
    }
    for kind, suffix in CONTROLS.items():
        places = [
            place
            for place in random_rows(at, planned, kind, name)
            if all(other in planned[place].texts for other in others)
        ]
        if places:
            found[f"random{suffix}"] = margins[places].tolist()
            different = trials[name].distinct(places)
            found[f"p_draws{suffix}"] = p_draws(-margins[at], -margins[different])
    return found


def _answer(shown: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, int]:
    margins = [one["own_minus_largest_other"] for one in own.values()]
    answer = {
        "languages": len(own),
        "own_rises_most": sum(one["value"] > 0 for one in margins),
        "own_rises_most_surely": sum(one["low"] > 0 for one in margins),
    }
    for suffix in CONTROLS.values():
        cells = [
            shown[f"above_random{suffix}"][shown["heads_of"].index(name)][
                shown["text_of"].index(name)
            ]
            for name in own
        ]
        known = [cell for cell in cells if cell is not None]
        if known:
            answer[f"above_random{suffix}"] = sum(cell["value"] > 0 for cell in known)
            answer[f"above_random{suffix}_surely"] = sum(cell["low"] > 0 for cell in known)
    return answer
