"""Random heads beside chosen ones: drawn freely, or as many of each layer as the chosen ones have.

Token Alignment Heads (ICLR 2026) compares with random heads that are not token alignment heads;
drawing them from the same layers as well rules out that the depth of a head explains the effect.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Literal

from headscope.errors import InputError
from headscope.heads import Head, HeadSet, check_geometry
from headscope.heads.draws import Choices, distinct_sets

__all__ = ["Draw", "Pool", "draw_heads"]

Pool = Literal["non-alignment", "outside"]


@dataclass(frozen=True)
class Draw:
    """Random heads, by layer, then head.

    `filled_up` of them come from outside the pool or, in a layer-matched draw, from a layer that
    holds more of them than the chosen heads have there.
    """

    heads: HeadSet
    filled_up: int


def draw_heads(
    heads: HeadSet,
    draws: int,
    seed: int = 0,
    avoid: HeadSet | None = None,
    layer_matched: bool = False,
) -> list[Draw]:
    """`draws` different random sets of as many heads as `heads` has, none of them among `heads`.

    The pool holds the heads outside `heads` and `avoid` (the token alignment heads); where it has
    fewer than are needed, all of it is taken and the rest drawn from `avoid`. `layer_matched`
    takes from each layer as many as `heads` has there; where the pool has too few in a layer, the
    rest come from the nearest layers. Draw i is the same however many draws there are. Where fewer
    sets are possible than asked for, each of them is drawn once.

    Raises `InputError` if there is no head to compare, or fewer than needed are outside `heads`.
    """
    if not len(heads):
        raise InputError("the set of heads to remove is empty; name at least one head")
    if avoid is not None:
        check_geometry(avoid, heads.geometry, "the set of token alignment heads")
    outside = heads.complement()
    if len(outside) < len(heads):
        raise InputError(
            f"{len(heads)} of the model's {heads.geometry.total} heads are to be removed, which "
            f"leaves {len(outside)} for a control of as many random ones; choose a smaller k"
        )
    pool = outside if avoid is None else outside - avoid
    draw = _matched if layer_matched else _free
    possible, missing = (_matched_choices if layer_matched else _free_choices)(
        heads, pool, outside - pool
    )
    found = distinct_sets(
        possible,
        lambda stream: draw(heads, pool, outside - pool, stream),
        draws,
        f"{'layer-matched' if layer_matched else 'random'} heads {seed}",
    )
    return [Draw(HeadSet(heads.geometry, one), missing) for one in found]


def _free(heads: HeadSet, pool: HeadSet, spare: HeadSet, stream: random.Random) -> list[Head]:
    chosen = stream.sample(pool.heads, min(len(heads), len(pool)))
    return chosen + stream.sample(spare.heads, len(heads) - len(chosen))


def _free_choices(heads: HeadSet, pool: HeadSet, spare: HeadSet) -> tuple[Choices, int]:
    """What `_free` can give, and how many of its heads are from `spare`."""
    missing = max(0, len(heads) - len(pool))
    return Choices((pool.heads, spare.heads), {(len(heads) - missing, missing)}), missing


def _matched(heads: HeadSet, pool: HeadSet, spare: HeadSet, stream: random.Random) -> set[Head]:
    chosen: list[Head] = []
    missing: list[int] = []
    for layer, count in enumerate(_by_layer(heads)):
        there = [head for head in pool if head.layer == layer]
        chosen += stream.sample(there, min(count, len(there)))
        missing += [layer] * (count - min(count, len(there)))
    taken = set(chosen)
    for layer in missing:
        left = [head for head in pool if head not in taken]
        left = left or [head for head in spare if head not in taken]
        nearest = min(abs(head.layer - layer) for head in left)
        head = stream.choice([one for one in left if abs(one.layer - layer) == nearest])
        taken.add(head)
    return taken


def _matched_choices(heads: HeadSet, pool: HeadSet, spare: HeadSet) -> tuple[Choices, int]:
    """What `_matched` can give, and how many of its heads are from another layer or `spare`.

    The groups are the layers of the pool, then those of `spare`. Within a layer every choice is
    possible; two layers that are equally near make several ways to take from the layers.
    """
    layers = heads.geometry.layers
    groups = [
        tuple(head for head in part if head.layer == layer)
        for part in (pool, spare)
        for layer in range(layers)
    ]
    wanted = _by_layer(heads)
    taken = [min(count, len(groups[layer])) for layer, count in enumerate(wanted)]
    missing = [layer for layer in range(layers) for _ in range(wanted[layer] - taken[layer])]
    ways = {(*taken, *[0] * layers)}
    for layer in missing:
        further = set()
        for way in ways:
            left = [at for at, group in enumerate(groups) if way[at] < len(group)]
            left = [at for at in left if at < layers] or left
            nearest = min(abs(at % layers - layer) for at in left)
            for at in left:
                if abs(at % layers - layer) == nearest:
                    further.add((*way[:at], way[at] + 1, *way[at + 1 :]))
        ways = further
    return Choices(groups, ways), len(missing)


def _by_layer(heads: HeadSet) -> list[int]:
    counts = [0] * heads.geometry.layers
    for head in heads:
        counts[head.layer] += 1
    return counts
