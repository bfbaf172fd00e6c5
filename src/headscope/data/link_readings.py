"""How the numbers of word links are to be read: from 0 or from 1, source or target first.

A file may hold either, and links that are read in the wrong way often lie in their sentences all
the same. Three signs tell: whether the links lie in their sentences; whether no link touches the
first word of any sentence, though links touch the same words elsewhere; and whether the words that
are linked recur together. For the last, Dice's coefficient of the two words over the other sentence
pairs is compared under both readings, pair by pair, by a sign test. In a file that counts from 1,
links of words that stand for none may name a 0 on one side: they are no link to a first word.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from math import comb, sqrt
from typing import NamedTuple

import numpy as np

Links = frozenset[tuple[int, int]]

#: Sentence pairs with links that are looked at.
LOOKED_AT = 2000
#: Links that are read rightly seem wrong with at most this probability, by each sign. Of 2,508
#: parts of 5 to 200 pairs, of 11 files that people or language models linked and of 40 of the
#: pocket model's, none did; of parts of 60 pairs written from 1, 99 to 100 % did, of such with the
#: target first 87 to 100 %.
IMPROBABLE = 1e-3
#: At most this share of pairs is taken for exceptions.
_FEW = 0.05
#: What such links are called in what is said.
_OF_NO_WORD = "those that name a word 0 on one side"


@dataclass(frozen=True)
class Reading:
    """Links count words from `start`, and are `swapped` where the target stands first."""

    start: int = 0
    swapped: bool = False

    @property
    def options(self) -> str:
        """What to give for it; nothing for links from 0, source first."""
        chosen = ["--links-from 1"] * (self.start == 1) + ["--links-swapped"] * self.swapped
        return " ".join(chosen)

    def read(self, links: Iterable[tuple[int, int]]) -> Links:
        """Links as they are written to links from 0, source first; below 0 where they count so."""
        return frozenset(
            (j - self.start, i - self.start) if self.swapped else (i - self.start, j - self.start)
            for i, j in links
        )


READINGS = tuple(Reading(start, swapped) for start in (0, 1) for swapped in (False, True))


class Linked(NamedTuple):
    """Links as they are written, and the words of both sentences."""

    links: Links
    source: Sequence[str]
    target: Sequence[str]

    def fits(self, reading: Reading) -> bool:
        """Whether all links lie in their sentences."""
        sizes = len(self.source), len(self.target)
        return all(0 <= i < sizes[0] and 0 <= j < sizes[1] for i, j in reading.read(self.links))


def remedy(rows: Iterable[Linked], reading: Reading) -> str:
    """Of links that do not fit their sentences in this reading, in which they do; or nothing."""
    linked = [row for row in rows if row.links]
    named, nulls = _named(linked)
    named, nulls = (named, nulls) if nulls <= len(linked) * _FEW else (linked, 0)
    misfits = [row for row in linked if not row.fits(reading)]
    together = _Together(linked)
    beyond = _Together(named) if nulls else together
    found = []
    for candidate in READINGS:
        counts_more = candidate.start > reading.start
        left = sum(not row.fits(candidate) for row in (named if counts_more else linked))
        if candidate != reading and left <= len(misfits) * _FEW:
            better, worse = (beyond if counts_more else together).chances(reading, candidate)
            if worse > IMPROBABLE:
                found.append((left, better, candidate))
    if not found:
        return ""
    left, _, other = min(found, key=lambda ranked: ranked[:2])
    links = "links" if not nulls or other.start <= reading.start else f"links but {_OF_NO_WORD}"
    fitting = f"the {links} of all but {left} pairs fit" if left else f"all {links} fit"
    return f"{fitting} {_with(other, reading)}"


def doubt(rows: Iterable[Linked], reading: Reading) -> str | None:
    """Why links that fit their sentences seem to be meant otherwise, with what to do; or None."""
    linked = [*islice((row for row in rows if row.links), LOOKED_AT)]
    named, nulls = _named(linked)

    def read_by(other: Reading) -> Sequence[Linked]:
        return named if other.start > reading.start else linked

    others = [candidate for candidate in READINGS if candidate != reading
              and all(row.fits(candidate) for row in read_by(candidate))]  # fmt: skip
    if not others:
        return None
    together = _Together(linked)
    beyond = _Together(named) if nulls else together
    chances = {
        candidate: (beyond if candidate.start > reading.start else together).chances(
            reading, candidate
        )
        for candidate in others
    }
    likely = {
        candidate: better for candidate, (better, _) in chances.items() if better < IMPROBABLE
    }
    best = min(likely, key=lambda candidate: likely[candidate], default=None)
    from_one = [candidate for candidate in others if candidate.start > reading.start
                and chances[candidate][1] > IMPROBABLE and nulls <= len(linked) * _FEW]  # fmt: skip
    sides = [name for side, name in enumerate(("source", "target"))
             if from_one and _untouched(linked, reading, side) < IMPROBABLE]  # fmt: skip
    if sides:
        best = best if best in from_one else from_one[0]
        first = f"word 0 of any {' or '.join(sides)} sentence"
        if nulls:
            return (
                f"no link touches {first} but in {nulls} pairs, where a 0 on one side may be no "
                f"word; if links count words from 1, remove such links and add {best.options}"
            )
        return f"no link touches {first}; if links count words from 1, add {best.options}"
    if best is None:
        return None
    fitting = f"all links but {_OF_NO_WORD}" if read_by(best) is not linked else "all links"
    return (
        "the words that links join stand together more often in other sentences "
        f"{_with(best, reading)}, where {fitting} fit, too"
    )


def _named(rows: Sequence[Linked]) -> tuple[Sequence[Linked], int]:
    """Rows without the links that name a 0 on one side, which count from 1 and stand for no word,
    and how many rows have such; all as they are, and 0, where a link names a 0 on both."""
    if any((0, 0) in row.links for row in rows):
        return rows, 0
    kept = [row._replace(links=frozenset(link for link in row.links if 0 not in link))
            for row in rows]  # fmt: skip
    nulls = sum(kept_row.links != row.links for kept_row, row in zip(kept, rows, strict=True))
    return ([row for row in kept if row.links], nulls) if nulls else (rows, 0)


def _with(other: Reading, reading: Reading) -> str:
    """`with --links-from 1`, or without what is given now."""
    if other.options:
        return f"with {other.options}"
    return f"without {reading.options}"


def _by_chance(more: int, fewer: int) -> float:
    """The probability of so many of two equally likely outcomes, or of more."""
    both = more + fewer
    return float(sum(comb(both, number) for number in range(more, both + 1)) / 2**both)


def _untouched(rows: Sequence[Linked], reading: Reading, side: int) -> float:
    """The probability that first words of a side are linked in so few rows, were they linked as
    often as the same words elsewhere; 1 unless they are few. Words that stand nowhere else count
    once each, as any word."""
    touched, seen = Counter[str](), Counter[str]()
    first, shares, linked_first = list[str](), dict[str, float](), 0
    for row in rows:
        words = [_plain(word) for word in (row.source, row.target)[side]]
        linked = {link[side] for link in reading.read(row.links)}
        linked_first += 0 in linked
        linked.discard(0)
        first.append(words[0])
        shares[words[0]] = min(len(linked) / len(words), shares.get(words[0], 1.0))
        seen.update(words[1:])
        touched.update(words[at] for at in linked)
    if linked_first > len(rows) * _FEW:  # as in most files from 0, which need no more of a look
        return 1.0
    chances = np.zeros(linked_first + 1)  # of so many rows whose first word is linked
    chances[0] = 1.0
    for word, count in Counter(first).items():
        share = 0.0
        if seen[word]:
            share = touched[word] / (seen[word] + 1)
        elif any(map(str.isalnum, word)):
            share = shares[word] * 0.999
        for _ in range(count if seen[word] else 1):
            chances[1:] += share * (chances[:-1] - chances[1:])
            chances[0] *= 1 - share
    return float(chances.sum())


def _plain(word: str) -> str:
    return word.casefold()


class _Together:
    """How often words stand in the same sentence pair, of those that some reading links."""

    def __init__(self, rows: Sequence[Linked]) -> None:
        self.rows = [
            Linked(row.links, [*map(_plain, row.source)], [*map(_plain, row.target)])
            for row in rows[:LOOKED_AT]
        ]
        wanted = defaultdict[str, set[str]](set)
        for row in self.rows:
            for i, j in (link for candidate in READINGS for link in candidate.read(row.links)):
                if 0 <= i < len(row.source) and 0 <= j < len(row.target):
                    wanted[row.source[i]].add(row.target[j])
        self.sources, self.targets = Counter[str](), Counter[str]()
        self.both = Counter[tuple[str, str]]()
        for row in self.rows:
            first, second = {*row.source}, {*row.target}
            self.sources.update(first)
            self.targets.update(second)
            self.both.update((a, b) for a in first for b in wanted[a] & second)

    def chances(self, reading: Reading, other: Reading) -> tuple[float, float]:
        """How probable it is that the other reading, were it as good, links words that stand
        together in so many pairs better, or in so many worse; of those whose links fit in both."""
        better = worse = 0
        for row in self.rows:
            if row.fits(reading) and row.fits(other):
                own, theirs = (self._mean(row, candidate) for candidate in (reading, other))
                better += theirs > own + 1e-9
                worse += own > theirs + 1e-9
        return _by_chance(better, worse), _by_chance(worse, better)

    def _mean(self, row: Linked, reading: Reading) -> float:
        """How far linked words stand together more often than by chance in all pairs but this one,
        as a correlation of where they stand."""
        found = 0.0
        for i, j in reading.read(row.links):
            first, second = row.source[i], row.target[j]
            one, other = self.sources[first] - 1, self.targets[second] - 1
            if one and other:
                excess = self.both[first, second] - 1 - one * other / (len(self.rows) - 1)
                found += excess / sqrt(one * other)
        return found / len(row.links)
