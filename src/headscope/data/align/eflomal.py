"""Statistical word alignment with eflomal (Östling and Tiedemann 2016), fitted on the sentences.

eflomal samples an IBM model with word order and fertility in both directions. It has no seed:
two fits differ in a few links, so links are computed once and stored.

Inflected forms scatter the counts of rare words, of which a small text is full. Words seen a few
times only are therefore compared by their first letters, a crude stem, while words seen often
keep their form. The two numbers were chosen on the English-Russian development set of XL-WA, in a
fit on 1,302 pairs.
"""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from importlib import import_module
from types import MappingProxyType

from headscope.data.pairs import Links, parse_links
from headscope.errors import InputError, MissingExtra, OptionalPart, check_parts, first_line
from headscope.scratch import scratch

_Set = Set[tuple[int, int]]


def intersection(forward: _Set, backward: _Set) -> Links:
    """Links that both directions give: the most precise choice."""
    return frozenset(forward) & frozenset(backward)


def union(forward: _Set, backward: _Set) -> Links:
    """Links that either direction gives."""
    return frozenset(forward) | frozenset(backward)


#: Neighbours of a link in the order of Moses: of one word first, then the diagonal ones.
_NEIGHBOURS = ((-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1))


def grow_diag(forward: _Set, backward: _Set) -> Links:
    """The intersection, grown by neighbouring links of the union (Koehn et al. 2005).

    A neighbour (diagonal ones last) is added if its source or its target word has no link yet; all
    links are gone through in ascending order, new ones among them, until nothing changes.
    """
    candidates = frozenset(forward) | frozenset(backward)
    links = set(forward) & set(backward)
    grown = True
    while grown:
        grown = False
        for i, j in sorted(candidates):
            for link in ((i + di, j + dj) for di, dj in _NEIGHBOURS if (i, j) in links):
                if link in candidates and link not in links and any(_free(link, links)):
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


# A sentence of this many words or more would silently be left unaligned by eflomal.
_TOO_LONG = 1024
EFLOMAL = OptionalPart(
    "statistical word alignment", "eflomal", ("eflomal",), " (built from source, by a C compiler)"
)

Units = Sequence[str]


@dataclass(frozen=True)
class Eflomal:
    """How to fit.

    ``symmetrise`` joins the two directions. Words seen at most ``rare`` times are cut to their
    first ``prefix`` characters (0: no word is cut). The rest are eflomal's own, at its defaults:
    ``samplers`` chains are averaged; ``iterations`` is relative to the number it derives from the
    size of the text; ``null_prior`` is the prior probability that a word has no counterpart.
    """

    symmetrise: str = "intersection"
    prefix: int = 4
    rare: int = 20
    samplers: int = 3
    iterations: float = 1.0
    null_prior: float = 0.2


def align_eflomal(
    pairs: Sequence[tuple[Units, Units]],
    extra_pairs: Sequence[tuple[Units, Units]] = (),
    options: Eflomal = Eflomal(),
) -> tuple[Links, ...]:
    """Links of each pair, a source and a target sentence as sequences of units.

    ``extra_pairs`` are further translations of the same languages, which only help the fit: with
    a few hundred sentences alone links are noticeably worse. Those with too many words for eflomal
    are left out (see `short_enough`). Units are compared in lower case. A pair with an empty side
    gets no links. Raises ``MissingExtra`` where eflomal is not installed.
    """
    if options.symmetrise not in SYMMETRISERS:
        symmetrise(frozenset(), frozenset(), options.symmetrise)
    everything = [*pairs, *short_enough(extra_pairs)]
    for number, sentences in enumerate(pairs, 1):
        if not short_enough([sentences]):
            longest = max(map(len, sentences))
            raise InputError(
                f"sentence pair {number} has {longest} words on one side and eflomal aligns fewer "
                f"than {_TOO_LONG}; split the sentence or leave it out"
            )
    # A pair with an empty side says nothing about translation.
    kept = [number for number, (source, target) in enumerate(everything) if source and target]
    if not kept or kept[0] >= len(pairs):
        return tuple(frozenset() for _ in pairs)
    forward, backward = _fit([everything[number] for number in kept], options)
    links: list[Links] = [frozenset()] * len(pairs)
    for number, first, second in zip(kept, forward, backward, strict=True):
        if number < len(pairs):
            links[number] = symmetrise(first, second, options.symmetrise)
    return tuple(links)


def short_enough(pairs: Sequence[tuple[Units, Units]]) -> list[tuple[Units, Units]]:
    """The pairs that eflomal can align."""
    return [pair for pair in pairs if max(map(len, pair)) < _TOO_LONG]


def check_eflomal() -> None:
    """Raises ``MissingExtra`` with the install line where eflomal cannot be imported."""
    check_parts([EFLOMAL])
    try:
        import_module("eflomal")
    except ImportError as error:
        raise MissingExtra(
            f"{EFLOMAL.purpose} needs eflomal, which is installed, but cannot be imported "
            f"({first_line(error)}); build it anew: pip install --force-reinstall --no-deps eflomal"
        ) from error


def _fit(pairs: Sequence[tuple[Units, Units]], options: Eflomal) -> tuple[list[Links], list[Links]]:
    """Links of both directions, each as (source, target) positions."""
    check_eflomal()
    aligner = import_module("eflomal").Aligner(
        n_samplers=options.samplers,
        rel_iterations=options.iterations,
        null_prior=options.null_prior,
    )
    with scratch("align") as folder:
        files = [folder / name for name in ("forward", "backward")]
        try:
            aligner.align(
                _numbered([source for source, _ in pairs], options),
                _numbered([target for _, target in pairs], options),
                links_filename_fwd=str(files[0]),
                links_filename_rev=str(files[1]),
            )
        except subprocess.CalledProcessError as error:
            raise RuntimeError(f"eflomal ended with status {error.returncode}") from error
        forward, backward = (
            [parse_links(line) for line in file.read_text("ascii").splitlines()] for file in files
        )
    return forward, backward


def _numbered(sentences: Sequence[Units], options: Eflomal) -> list[str]:
    """Sentences with a number for each distinct unit, lower-cased and, if rare, cut.

    Numbers, because eflomal splits its lines at white space, which a unit may hold (a token with
    the space before it).
    """
    plain = [[unit.strip().lower() for unit in units] for units in sentences]
    counts = Counter(unit for units in plain for unit in units)
    vocabulary: dict[str, int] = {}

    def number(unit: str) -> str:
        # Figures have no endings: 20170 and 20171 have nothing to do with each other.
        if options.prefix and counts[unit] <= options.rare and not any(map(str.isdigit, unit)):
            unit = unit[: options.prefix]
        return str(vocabulary.setdefault(unit, len(vocabulary)))

    return [" ".join(map(number, units)) for units in plain]
