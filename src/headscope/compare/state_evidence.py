"""What compared states show: means over samples with intervals, from what a run keeps of each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headscope.compare.states import CONDITIONS, CONTROLS, PAIRS, PAPER, PLACES
from headscope.measure import bootstrap_interval
from headscope.measure.statistics import counted
from headscope.measure.trial import Group, Trial

__all__ = ["describe"]

Floats = NDArray[np.floating[Any]]

#: Pairs whose likeliest tokens are counted against each other.
_SHARED = (("as is", "instructed"), ("masked", "instructed"), ("masked", "masked, instructed"))


def describe(tensors: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
    """The JSON of a comparison, from the arrays of `states.observe` over all samples.

    `pairs` holds for every two conditions the mean cosine by layer with its interval (bootstrap
    over samples), `controls` the same for shuffled masks beside the instructed model (mean over
    draws, and each draw's mean), `nearer` the paired differences that the paper's claim is about,
    also as the mean over the later half of the layers; for that mean there is p over draws and,
    swapping samples with those of a draw, over examples.
    """
    cosines = tensors["cosines"].astype(np.float64)
    place = {pair: number for number, pair in enumerate(PAIRS)}
    masked = cosines[place["instructed", "masked"]]
    plain = cosines[place["as is", "instructed"]]
    controls = {name: tensors[name].astype(np.float64) for name in CONTROLS if len(tensors[name])}
    nearer = {"as is": _nearer(masked - plain)}
    later = {}
    for name, drawn in controls.items():
        values = [counted(_later(one)) for one in (masked, *drawn)]
        trial = Trial([Group(values, sets=range(len(values)))])
        later[name] = against = trial.against(0, range(1, len(values)), "higher")
        nearer[name] = {
            **_nearer(masked - drawn.mean(axis=0)),
            "p_draws": against.p_draws,
            "p_examples": against.p_examples,
        }
    return {
        "samples": int(cosines.shape[1]),
        "layers": int(cosines.shape[3]),
        "pairs": [
            {
                "a": a,
                "b": b,
                "kind": "paper" if (a, b) in PAPER else "other",
                **_by_place(cosines[place[a, b]]),
            }
            for a, b in PAIRS
        ],
        "controls": [
            {
                "kind": name,
                "draws": len(drawn),
                "distinct_draws": later[name].distinct,
                "least_p": later[name].least_p,
                **_by_place(drawn.mean(axis=0)),
                "later_half_of_draws": list(later[name].draws.each),
            }
            for name, drawn in controls.items()
        ],
        "nearer": nearer,
        "shared_top": _shared(tensors["lens_tokens"]),
        "target_ranks": _ranks(tensors["ranks"].astype(np.float64)),
    }


def _by_place(values: Floats) -> dict[str, Any]:
    """Means by layer of (n, 2, L), after attention and after the layer."""
    return {name.replace(" ", "_"): _rows(values[:, at]) for at, name in enumerate(PLACES)}


def _rows(values: Floats) -> list[dict[str, float]]:
    """Mean and interval of each column of (n, columns)."""
    interval = bootstrap_interval(values, np.ones(len(values)))
    means = values.mean(axis=0)
    return [
        {"mean": float(mean), "low": float(low), "high": float(high)}
        for mean, low, high in zip(means, interval.low, interval.high, strict=True)
    ]


def _later(values: Floats) -> Floats:
    """Of (n, 2, L) the mean over the later half of the layers, after the layer: (n,)."""
    found: Floats = values[:, 1, values.shape[2] // 2 :].mean(axis=1)
    return found


def _nearer(difference: Floats) -> dict[str, Any]:
    return {**_by_place(difference), "later_half": _rows(_later(difference)[:, None])[0]}


def _shared(tokens: NDArray[Any]) -> list[dict[str, Any]]:
    """The share of the likeliest tokens that two conditions have in common, by layer.

    The first of L + 1 rows is that of the embedding.
    """
    at = {name: number for number, name in enumerate(CONDITIONS)}
    rows = []
    for a, b in _SHARED:
        one, other = tokens[at[a]], tokens[at[b]]
        same = (one[..., :, None] == other[..., None, :]).any(axis=-1).mean(axis=-1)
        rows.append({"a": a, "b": b, "layers": _rows(same)})
    return rows


def _ranks(ranks: Floats) -> dict[str, list[dict[str, float]]]:
    """The rank of the target's first token by condition and layer, the embedding's first.

    Median over samples, and the geometric mean with its interval.
    """
    found = {}
    for name, own in zip(CONDITIONS, ranks, strict=True):
        logs = _rows(np.log(own))
        found[name] = [
            {
                "median": float(median),
                "geometric_mean": float(np.exp(row["mean"])),
                "low": float(np.exp(row["low"])),
                "high": float(np.exp(row["high"])),
            }
            for median, row in zip(np.median(own, axis=0), logs, strict=True)
        ]
    return found
