"""Joining the links of two aligner directions into one set."""

from __future__ import annotations

from collections.abc import Callable, Set
from types import MappingProxyType

from headscope.data.links import Links
from headscope.errors import InputError

_Set = Set[tuple[int, int]]


def intersection(forward: _Set, backward: _Set) -> Links:
    """Links that both directions give: the most precise choice."""
    return frozenset(forward) & frozenset(backward)


def union(forward: _Set, backward: _Set) -> Links:
    """Links that either direction gives."""
    return frozenset(forward) | frozenset(backward)


def grow_diag(forward: _Set, backward: _Set) -> Links:
    """The intersection, grown by neighbouring links of the union (Koehn et al. 2003).

    A neighbour (diagonal ones included) is added if its source or its target word has no link
    yet, in ascending order, until nothing changes.
    """
    candidates = frozenset(forward) | frozenset(backward)
    links = set(forward) & set(backward)
    grown = True
    while grown:
        grown = False
        for i, j in sorted(links):
            for link in ((i + di, j + dj) for di in (-1, 0, 1) for dj in (-1, 0, 1)):
                if link in candidates and link not in links and _free(link, links) != (False,) * 2:
                    links.add(link)
                    grown = True
    return frozenset(links)


def grow_diag_final_and(forward: _Set, backward: _Set) -> Links:
    """``grow_diag``, then links of either direction between two words without any link."""
    links = set(grow_diag(forward, backward))
    for direction in (forward, backward):
        for link in sorted(direction):
            if all(_free(link, links)):
                links.add(link)
    return frozenset(links)


def _free(link: tuple[int, int], links: _Set) -> tuple[bool, bool]:
    """Whether the source and the target word of a link have no link yet."""
    return all(i != link[0] for i, _ in links), all(j != link[1] for _, j in links)


SYMMETRISERS: MappingProxyType[str, Callable[[_Set, _Set], Links]] = MappingProxyType(
    {
        "intersection": intersection,
        "union": union,
        "grow-diag": grow_diag,
        "grow-diag-final-and": grow_diag_final_and,
    }
)


def symmetrise(forward: _Set, backward: _Set, how: str = "intersection") -> Links:
    """Joins two sets of links; ``how`` is a key of ``SYMMETRISERS``."""
    if how not in SYMMETRISERS:
        raise InputError(
            f"unknown way {how!r} of joining two directions; known: {', '.join(SYMMETRISERS)}"
        )
    return SYMMETRISERS[how](forward, backward)
