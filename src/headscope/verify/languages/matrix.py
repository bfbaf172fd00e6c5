"""Heads of one language, text of another: whose loss rises when a language's heads are removed.

The cross-language matrix of LAHIS (Liu et al. 2025, arXiv 2511.07498), as changes of the mean
negative log-likelihood, each beside what as many random heads do to the same text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headscope.measure.statistics import p_draws
from headscope.verify.languages.conditions import Condition, Role
from headscope.verify.languages.evidence import CONTROLS, change, different_sets, random_rows
from headscope.verify.languages.resampling import Resampled, Text, spread

__all__ = ["matrices"]

Floats = NDArray[np.float64]


def matrices(
    planned: Sequence[Condition],
    texts: Mapping[str, Text],
    drawn: Mapping[str, Resampled],
) -> list[dict[str, Any]]:
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
    roles: tuple[Role, ...] = ("chosen", "full")
    for role in roles:
        for k in sorted({one.k for one in planned if one.role == role and one.kind == "removed"}):
            rows = {
                one.of: at
                for at, one in enumerate(planned)
                if (one.role, one.k, one.kind) == (role, k, "removed")
            }
            found.append({"role": role, "k": k, **_matrix(rows, planned, texts, drawn)})
    return found


def _matrix(
    rows: Mapping[str, int],
    planned: Sequence[Condition],
    texts: Mapping[str, Text],
    drawn: Mapping[str, Resampled],
) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "heads_of": list(rows),
        "text_of": list(texts),
        "sizes": [len(planned[at].heads) for at in rows.values()],
        "change": [
            [change(at, texts[name], drawn[name]) for name in texts] for at in rows.values()
        ],
    }
    for kind, suffix in CONTROLS.items():
        cells = [
            [_beside(at, random_rows(at, planned, kind, name), texts[name], drawn[name])
             for name in texts]
            for at in rows.values()
        ]  # fmt: skip
        shown[f"random{suffix}"] = [[cell and cell[0] for cell in row] for row in cells]
        shown[f"above_random{suffix}"] = [[cell and cell[1] for cell in row] for row in cells]
    own = {
        name: _own(name, at, planned, texts, drawn)
        for name, at in rows.items()
        if name in texts and len(texts) > 1
    }
    return {**shown, "own": own, "answer": _answer(shown, own) if own else None}


def _beside(
    at: int, rows: Sequence[int], text: Text, drawn: Resampled
) -> tuple[dict[str, float], dict[str, float]] | None:
    """The mean of random draws on a text, and how much more the heads themselves do."""
    if not rows:
        return None
    mean, estimates = text.mean, drawn.mean
    random, random_estimates = mean[list(rows)].mean(), estimates[:, list(rows)].mean(axis=1)
    return (
        spread(random - mean[0], random_estimates - estimates[:, 0]),
        spread(mean[at] - random, estimates[:, at] - random_estimates),
    )


def _own(
    name: str,
    at: int,
    planned: Sequence[Condition],
    texts: Mapping[str, Text],
    drawn: Mapping[str, Resampled],
) -> dict[str, Any]:
    """A language's own text against the text of another language that rises most."""
    others = [one for one in texts if one != name]
    rises = {one: float(text.mean[at] - text.mean[0]) for one, text in texts.items()}
    largest = max(others, key=rises.__getitem__)
    estimates = {one: each.mean[:, at] - each.mean[:, 0] for one, each in drawn.items()}
    top = np.max([estimates[one] for one in others], axis=0)
    told: dict[str, Any] = {
        "own": rises[name],
        "largest_other": {"language": largest, "change": rises[largest]},
        "own_minus_largest_other": spread(rises[name] - rises[largest], estimates[name] - top),
    }
    for kind, suffix in CONTROLS.items():
        places = [
            place
            for place in random_rows(at, planned, kind, name)
            if all(one in planned[place].texts for one in others)
        ]
        if places:
            values = {place: _margin(name, place, texts) for place in places}
            told[f"random{suffix}"] = list(values.values())
            told[f"p_draws{suffix}"] = p_draws(
                -_margin(name, at, texts),
                [-values[place] for place in different_sets(places, planned)],
            )
    return told


def _margin(name: str, at: int, texts: Mapping[str, Text]) -> float:
    """How much more a condition raises the loss of one language than that of any other."""
    rises = {one: float(text.mean[at] - text.mean[0]) for one, text in texts.items()}
    return rises[name] - max(value for one, value in rises.items() if one != name)


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
