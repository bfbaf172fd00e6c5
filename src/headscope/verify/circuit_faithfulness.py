"""Circuits: the best heads of a ranking alone, and what the model still does with the others
replaced.

Faithfulness is (m(C) - m(0)) / (m(M) - m(0)) of a measure m with the heads C kept, none, and all
(M). Its area over the shares of heads kept (CPR), and the area between it and 1 (CMD), are those of
MIB (Mueller et al. 2025, arXiv 2504.13151, section 4): trapezoids over the shares 0.1 % to 100 %.
A circuit is minimal if faithfulness falls without any one of its heads, and complete if without the
same part of it circuit and model do the same (Wang et al. 2022, arXiv 2211.00593, section 4).
"""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headscope.errors import InputError
from headscope.estimates import Floats
from headscope.evidence.rows import CURVE, KEPT, SELECTED, Condition, Evidence, Statistic
from headscope.evidence.table import evidence
from headscope.heads import Amount, Geometry, Head, count_of
from headscope.heads.geometry import keys_of
from headscope.measure.intervals import FromStatistics
from headscope.measure.statistics import counted_mean

#: The shares of heads that MIB keeps.
SHARES = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
#: The model without any head.
NOTHING = "nothing"
#: How a random ranking is drawn: any heads in any order, or heads of the same layers in a row.
WAYS = ("random", "same layers")
FAITHFULNESS, CPR, CMD = "faithfulness", "cpr", "cmd"
#: A circuit without one of its heads, and circuit and model without the same part of its heads; how
#: far faithfulness falls by the first, and how far the others lie apart.
DROPPED, PART, REST = "circuit without", "circuit without part", "model without part"
DROP, INCOMPLETE = "drop", "incompleteness"
#: Parts of a circuit that are drawn.
PARTS = 10


class Size(NamedTuple):
    """So many heads are kept, at this place of the axis."""

    share: float
    k: int


def sizes_of(named: Sequence[Amount], geometry: Geometry) -> tuple[Size, ...]:
    """The sizes in ascending order, all heads last; without names those of MIB, which rounds down.

    InputError for a number of heads that the model does not have.
    """
    total = geometry.total
    if not named:
        return tuple(Size(share, int(share * total)) for share in SHARES)
    counts = {count_of(amount, total) for amount in named} | {total}
    return tuple(Size(k / total, k) for k in sorted(counts))


def random_rankings(
    ranking: Sequence[Head], geometry: Geometry, draws: int, seed: int, way: str
) -> list[tuple[Head, ...]]:
    """Rankings as long as `ranking`, of any heads or place by place of the same layer.

    Every such ranking is equally likely, that of the selected heads too; ranking i does not depend
    on the number of draws.
    """
    made = []
    for number in range(draws):
        stream = random.Random(f"rankings, {way} {seed} {number}")
        if way == "random":
            made.append(tuple(stream.sample(list(geometry.heads()), len(ranking))))
            continue
        left = [
            iter(stream.sample(layer_heads, len(layer_heads)))
            for layer_heads in geometry.by_layer()
        ]
        made.append(tuple(next(left[head.layer]) for head in ranking))
    return made


def planned(
    ranking: Sequence[Head],
    others: Mapping[str, Sequence[Sequence[Head]]],
    sizes: Sequence[Size],
    geometry: Geometry,
    replacement: str,
    inside: int = 0,
    seed: int = 0,
) -> list[Condition]:
    """The model as it is and without any head; then the selected ranking and `others`, by control,
    each with its first k heads kept; what `inside` looks into, the circuit of so many heads, with
    parts that the seed draws; and last the rankings as a whole."""
    every = tuple(geometry.heads())
    done: dict[str, Any] = {"gate": 0.0, "replacement": replacement}
    names = keys_of(every)
    orders: dict[tuple[str, int | None], Sequence[Head]] = {(SELECTED, None): ranking}
    for control, rankings in others.items():
        orders |= {(control, number): order for number, order in enumerate(rankings)}
    conditions = [Condition(), Condition(NOTHING, of=KEPT, k=len(every), heads=names, **done)]

    def keeping(kept: Collection[Head]) -> tuple[str, ...]:
        return tuple(head.key for head in every if head not in kept)

    counts = {size.k for size in sizes} - {0, len(every)}
    for k in sorted(counts | ({inside} - {0})):
        for (kind, draw), order in orders.items():
            if k in counts or kind == SELECTED:
                removed = keeping(order[:k])
                conditions.append(Condition(kind, of=KEPT, k=k, draw=draw, heads=removed, **done))
    circuit = ranking[:inside]
    for at, head in enumerate(circuit):
        kept = {*circuit} - {head}
        own = Condition(DROPPED, head.key, inside, draw=at, heads=keeping(kept), **done)
        conditions.append(own)
    for at, part in enumerate(_parts(circuit, seed)):
        left, gone = keeping({*circuit} - part), keeping({*every} - part)
        conditions += [
            Condition(PART, k=inside, draw=at, heads=left, **done),
            Condition(REST, k=len(part), draw=at, heads=gone, **done),
        ]
    curves = (Condition(kind, of=CURVE, draw=draw, **done) for kind, draw in orders)
    return [*conditions, *curves]


def _parts(circuit: Sequence[Head], seed: int) -> list[frozenset[Head]]:
    """All of a circuit, and different parts in which each head is with probability 1/2."""
    stream = random.Random(f"parts {seed}")
    drawn = [
        frozenset(head for head in circuit if stream.random() < 0.5) for _ in range(10 * PARTS)
    ]
    return [part for part in dict.fromkeys([frozenset(circuit), *drawn]) if part][: PARTS + 1]


def faithfulness(scores: Floats, without: Floats, whole: Floats) -> Floats:
    """How much of what all heads do is left, 0 as without any and 1 as with all."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray((scores - without) / (whole - without))


def areas(shares: Sequence[float], values: Floats) -> tuple[Floats, Floats]:
    """CPR and CMD of faithfulness (..., sizes) at these shares of heads."""
    under, over = (np.trapezoid(curve, shares) for curve in (values, np.abs(1 - values)))
    return np.asarray(under), np.asarray(over)


def circuit_evidence(
    conditions: Sequence[Condition],
    sizes: Sequence[Size],
    parts: Mapping[str, Sequence[NDArray[Any]]],
    measure: tuple[str, Statistic],
    seed: int = 0,
) -> Evidence:
    """The table of a measure, of faithfulness at every size, and of both areas.

    `parts` has, of each part, the numbers of its examples under every condition, (examples,
    features), but for the curves, which come last. InputError where the model does no better than
    without any head.
    """
    name, statistic = measure
    score: FromStatistics = statistic.score or counted_mean
    shares = [size.share for size in sizes]
    total = conditions[1].k

    def of(sums: NDArray[Any], parts: int) -> list[Floats]:
        return [np.asarray(score(part)) for part in np.split(sums, parts, axis=-1)]

    def area(sums: NDArray[Any], which: int) -> Floats:
        *kept, without, whole = of(sums, len(sizes) + 2)
        return areas(shares, np.stack([faithfulness(e, without, whole) for e in kept], -1))[which]

    def drop(sums: NDArray[Any]) -> Floats:
        """Of two kinds of heads kept, by how much the second keeps more."""
        less, more, *ends = of(sums, 4)
        return faithfulness(more, *ends) - faithfulness(less, *ends)

    places = {
        (condition.kind, condition.of, condition.k, condition.draw): at
        for at, condition in enumerate(conditions)
    }
    rest = {condition.draw: at for at, condition in enumerate(conditions) if condition.kind == REST}
    # By statistic and condition whose numbers it takes, before those without any head and with all.
    taken: dict[str, dict[int, list[int]]] = {
        name: {} for name in (FAITHFULNESS, CPR, DROP, INCOMPLETE)
    }
    for at, planned in enumerate(conditions):
        if planned.of == CURVE:
            taken[CPR][at] = [
                {0: 1, total: 0}[k]
                if k in (0, total)
                else places[planned.kind, KEPT, k, planned.draw]
                for _, k in sizes
            ]
        elif planned.k not in (0, total):
            taken[FAITHFULNESS][at] = [at]
        if planned.kind == DROPPED:
            taken[DROP][at] = [at, places[SELECTED, KEPT, planned.k, None]]
        elif planned.kind == PART:
            taken[INCOMPLETE][at] = [at, rest[planned.draw]]
    curves = taken[CPR]
    counted: dict[str, dict[str, list[NDArray[Any] | None]]] = {}
    for part, numbers in parts.items():
        gain = float(score(numbers[0].sum(axis=0)) - score(numbers[1].sum(axis=0)))
        if not statistic.sign * gain < 0:  # also where one of both is no number
            raise InputError(
                f"{part}: {statistic.words} is no better than without any head, so no part of "
                "the heads can keep it; use another measure, model or other examples"
            )
        counted[part] = {name: [*numbers, *[None] * len(curves)]}
        for which, by in taken.items():
            counted[part][which] = [
                np.concatenate([numbers[place] for place in (*by[at], 1, 0)], axis=1)
                if at in by
                else None
                for at in range(len(conditions))
            ]
        counted[part][CMD] = counted[part][CPR]
    every = {*conditions[1].heads}

    def held(at: int, condition: Condition) -> frozenset[str]:
        if at in curves:  # its circuits, between no head and all
            inner = (conditions[place] for place in curves[at] if place > 1)
            return frozenset(f"{condition.k} {condition.key}" for condition in inner)
        return frozenset(every - {*condition.heads} if condition.of == KEPT else condition.heads)

    sets = list(map(held, range(len(conditions)), conditions))
    return evidence(
        conditions,
        counted,
        {
            name: statistic,
            FAITHFULNESS: Statistic("faithfulness", score=lambda sums: faithfulness(*of(sums, 3))),
            CPR: Statistic("CPR, area under faithfulness", score=lambda sums: area(sums, 0)),
            CMD: Statistic(
                "CMD, area between faithfulness and 1", "lower", score=lambda sums: area(sums, 1)
            ),
            DROP: Statistic("fall of faithfulness", score=drop),
            INCOMPLETE: Statistic("faithfulness, model minus circuit", score=drop),
        },
        seed,
        (FAITHFULNESS, CPR, CMD),
        helps=lambda condition: True,
        sets=dict.fromkeys(parts, sets),
    )
