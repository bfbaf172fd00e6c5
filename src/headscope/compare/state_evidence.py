"""What compared states show: means over samples with intervals, from what a run keeps of each."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headscope.compare.states import CONDITIONS, CONTROLS, PAIRS, PAPER, PLACES
from headscope.estimates import Mean
from headscope.measure import bootstrap_interval
from headscope.measure.statistics import counted
from headscope.measure.trial import Group, Trial
from headscope.results.states import Control, Nearer, Pair, Rank, SharedTop, StatesFound

Floats = NDArray[np.floating[Any]]

#: Pairs whose likeliest tokens are counted against each other.
_SHARED = (("as is", "instructed"), ("masked", "instructed"), ("masked", "masked, instructed"))


def describe(tensors: Mapping[str, NDArray[Any]]) -> StatesFound:
    """What the arrays of `states.observe` over all samples show.

    Intervals are of the bootstrap over samples, and `nearer` has paired differences. For the later
    half of the layers there is p over draws and, swapping samples with those of a draw, over
    examples.
    """
    cosines = tensors["cosines"].astype(np.float64)
    place = {pair: number for number, pair in enumerate(PAIRS)}
    masked = cosines[place["instructed", "masked"]]
    plain = cosines[place["as is", "instructed"]]
    nearer = {"as is": _nearer(masked - plain)}
    controls = []
    for name in CONTROLS:
        drawn = tensors[name].astype(np.float64)
        if not len(drawn):
            continue
        values = [counted(_later(one)) for one in (masked, *drawn)]
        trial = Trial([Group(values, sets=range(len(values)))])
        against = trial.against(0, range(1, len(values)), "higher")
        nearer[name] = replace(
            _nearer(masked - drawn.mean(axis=0)),
            p_draws=against.p_draws,
            p_examples=against.p_examples,
        )
        controls.append(
            Control(
                kind=name,
                draws=len(drawn),
                distinct_draws=against.distinct,
                least_p=against.least_p,
                **_by_place(drawn.mean(axis=0)),
                later_half_of_draws=against.draws.each,
            )
        )
    return StatesFound(
        samples=cosines.shape[1],
        layers=cosines.shape[3],
        pairs=tuple(
            Pair(
                a=a,
                b=b,
                kind="paper" if (a, b) in PAPER else "other",
                **_by_place(cosines[place[a, b]]),
            )
            for a, b in PAIRS
        ),
        controls=tuple(controls),
        nearer=nearer,
        shared_top=_shared(tensors["lens_tokens"]),
        target_ranks=_ranks(tensors["ranks"].astype(np.float64)),
    )


def _by_place(values: Floats) -> dict[str, Any]:
    """Of (n, 2, L), after attention and after the layer, the fields of a `ByPlace`."""
    return {name.replace(" ", "_"): _rows(values[:, at]) for at, name in enumerate(PLACES)}


def _rows(values: Floats) -> tuple[Mean, ...]:
    """Mean and interval of each column of (n, columns)."""
    interval = bootstrap_interval(values, np.ones(len(values)))
    rows = (values.mean(axis=0), np.asarray(interval.low), np.asarray(interval.high))
    return tuple(map(Mean, *(row.tolist() for row in rows)))


def _later(values: Floats) -> Floats:
    """Of (n, 2, L) the mean over the later half of the layers, after the layer: (n,)."""
    found: Floats = values[:, 1, values.shape[2] // 2 :].mean(axis=1)
    return found


def _nearer(difference: Floats) -> Nearer:
    return Nearer(**_by_place(difference), later_half=_rows(_later(difference)[:, None])[0])


def _shared(tokens: NDArray[Any]) -> tuple[SharedTop, ...]:
    """The share of the likeliest tokens that two conditions have in common, by layer.

    The first of L + 1 rows is that of the embedding.
    """
    at = {name: number for number, name in enumerate(CONDITIONS)}
    rows = []
    for a, b in _SHARED:
        one, other = tokens[at[a]], tokens[at[b]]
        same = (one[..., :, None] == other[..., None, :]).any(axis=-1).mean(axis=-1)
        rows.append(SharedTop(a, b, _rows(same)))
    return tuple(rows)


def _ranks(ranks: Floats) -> dict[str, tuple[Rank, ...]]:
    """The rank of the target's first token by condition and layer, the embedding's first."""
    return {
        name: tuple(
            Rank(median, *map(math.exp, (log.mean, log.low, log.high)))
            for median, log in zip(np.median(own, axis=0).tolist(), _rows(np.log(own)), strict=True)
        )
        for name, own in zip(CONDITIONS, ranks, strict=True)
    }
