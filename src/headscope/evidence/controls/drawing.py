"""How controls draw that look at places of heads alone, not at what heads do."""

from __future__ import annotations

from collections.abc import Callable

from headscope.evidence.rows import Basis
from headscope.heads import HeadSet
from headscope.heads.draws import Way, draw_sets


def drawing(way: Way, stream: str = "") -> Callable[[HeadSet, int, int, Basis], list[HeadSet]]:
    """`draw_sets` of the heads that the basis leaves; `stream` as there."""
    return lambda heads, draws, seed, basis: draw_sets(
        heads, draws, seed, way, basis.avoid, basis.watch, basis.gone, stream
    )
