"""Keeping sentences used to find heads apart from those used to verify them."""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from headscope.data.pairs import PairFile, SentencePair
from headscope.errors import InputError

T = TypeVar("T")


def sentence_digest(sentence: str) -> str:
    """SHA-256 of a sentence; spacing and the Unicode form of accents make no difference."""
    plain = " ".join(unicodedata.normalize("NFC", sentence).split())
    return hashlib.sha256(plain.encode("utf-8")).hexdigest()


def halves(
    pairs: Sequence[SentencePair], others: Iterable[SentencePair] = ()
) -> tuple[tuple[SentencePair, ...], tuple[SentencePair, ...]]:
    """Splits pairs in two, by a hash of the source sentence: one to find on, one to verify on.

    A sentence falls into the same half in every file, wherever it stands. Where several directions
    are split, give the pairs of all of them as `others`: the sources of one may be the targets of
    another, so pairs among them that share a sentence on either side then fall into one half.
    Raises ``InputError`` if one half is left empty.
    """
    first = _first_sources(others)
    find: list[SentencePair] = []
    verify: list[SentencePair] = []
    for pair in pairs:
        digest = sentence_digest(pair.source)
        (verify if int(first.get(digest, digest)[:2], 16) & 1 else find).append(pair)
    if not find or not verify:
        raise InputError(
            f"{len(pairs)} sentence pairs are too few to find heads on one half and verify them "
            "on the other; give more pairs, or separate files"
        )
    return tuple(find), tuple(verify)


def _first_sources(pairs: Iterable[SentencePair]) -> dict[str, str]:
    """By the digest of each sentence, that of one source for all sentences it is tied to.

    Two sentences are tied where they stand in one pair, and to all that these are tied to.
    """
    parents: dict[str, str] = {}

    def root(digest: str) -> str:
        while (parent := parents.setdefault(digest, digest)) != digest:
            parents[digest] = parents[parent]
            digest = parent
        return digest

    sources: set[str] = set()
    for pair in pairs:
        source = sentence_digest(pair.source)
        sources.add(source)
        parents[root(source)] = root(sentence_digest(pair.target))
    # Ordered by what does not decide the half: the first of many digests begins with zeros.
    first: dict[str, str] = {}
    for source in sorted(sources, key=lambda digest: digest[2:]):
        first.setdefault(root(source), source)
    return {digest: first[root(digest)] for digest in list(parents)}


def draw_shots(
    pairs: Sequence[SentencePair], number: int, seed: int, path: str
) -> tuple[SentencePair, ...]:
    """Draws so many pairs with different sources, by a hash of seed and source sentence.

    More of them extend fewer, and a sentence has the same chance wherever it stands. Raises
    ``InputError`` if there are too few sources.
    """
    by_source = {sentence_digest(pair.source): pair for pair in reversed(pairs)}
    if len(by_source) < number:
        raise InputError(
            f"{path} has {len(by_source)} different sentences, too few for {number} shots; give "
            "fewer shots or more sentences"
        )
    return draw_apart(by_source, number, f"shot {seed}")


def with_shots(pairs: PairFile, shots: int, seed: int = 0) -> PairFile:
    """The pairs with so many of them as shots, and without any sentence of a shot.

    Raises ``InputError`` if there are too few sentences.
    """
    drawn = draw_shots(pairs.pairs, shots, seed, pairs.path)
    taken = known_digests({"shots": text_digests(drawn)})
    kept = tuple(pair for pair in pairs.pairs if not leakage(taken, [pair]))
    return replace(pairs, pairs=kept, shots=drawn)


def draw_reference(
    directions: Mapping[str, Sequence[SentencePair]],
    number: int,
    seed: int,
    paths: Mapping[str, str] | None = None,
) -> dict[str, tuple[SentencePair, ...]]:
    """Draws at most so many pairs of each direction, and at most a quarter of its sentences.

    By a hash, as shots are; where directions share sentences they get the same ones, so that few
    are lost to others. Raises ``InputError`` if a direction has fewer than four sentences, with the
    file that ``paths`` has of it.
    """
    tied = _first_sources(pair for pairs in directions.values() for pair in pairs)
    apart = {}
    for name, pairs in directions.items():
        by_source = {sentence_digest(pair.source): pair for pair in reversed(pairs)}
        apart[name] = draw_apart(
            by_source,
            reference_size(len(by_source), number, (paths or {}).get(name, name)),
            f"reference {seed}",
            tied,
        )
    return apart


def reference_size(there: int, number: int, name: str) -> int:
    """How many of the examples there are may be set aside as a reference: at most a quarter."""
    if there < 4:
        raise InputError(
            f"{name} has too few different texts ({there}) to set a quarter aside for mean or "
            "resample ablation; give at least 4"
        )
    return min(number, there // 4)


def draw_apart(
    items: Mapping[str, T], number: int, name: str, tied: Mapping[str, str] | None = None
) -> tuple[T, ...]:
    """Draws so many items by a hash of `name` and the digest that stands for each of them.

    More of them extend fewer. Digests that are `tied` to one digest are drawn together.
    """

    def place(digest: str) -> tuple[str, str]:
        return sentence_digest(f"{name} {(tied or {}).get(digest, digest)}"), digest

    return tuple(items[digest] for digest in sorted(items, key=place)[:number])


def text_keys(texts: Iterable[str]) -> NDArray[np.uint64]:
    """A number of 64 bits for each text, to draw by."""
    first = (hashlib.sha256(text.encode("utf-8")).digest()[:8] for text in texts)
    return np.array([int.from_bytes(digest) for digest in first], dtype=np.uint64)


def places_by_text(name: str, keys: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """A random number for each of some texts by their `keys`, another one for each `name`.

    It depends on the text and the name alone: the order of the smallest is a draw that is the same
    wherever a text stands, and whatever stands beside it.
    """
    mixed = keys ^ text_keys([name])
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):  # of splitmix64
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return mixed ^ (mixed >> np.uint64(31))


def source_digests(pairs: Iterable[SentencePair]) -> frozenset[str]:
    """Digests of the source sentences."""
    return frozenset(sentence_digest(pair.source) for pair in pairs)


def text_digests(pairs: Iterable[SentencePair]) -> dict[str, list[str]]:
    """Digests of both sides, sorted, to be stored with what was found on these sentences."""
    both = list(pairs)
    return {
        "source": sorted(source_digests(both)),
        "target": sorted({sentence_digest(pair.target) for pair in both}),
    }


def known_digests(found_on: Mapping[str, Any]) -> frozenset[str]:
    """All digests that `text_digests` gave for any direction.

    Sentences are pooled over directions and sides: the sources of one direction are the targets
    of another. A plain list for a direction, as early runs stored it, holds sources alone. Raises
    ``InputError`` if `found_on` is something else.
    """
    known: set[str] = set()
    for name, stored in found_on.items():
        sides = list(stored.values()) if isinstance(stored, Mapping) else [stored]
        for side in sides:
            if not isinstance(side, list) or not all(isinstance(digest, str) for digest in side):
                raise InputError(
                    f"what is stored for {name} is no list of digests; find the heads again"
                )
            known.update(side)
    return frozenset(known)


def leakage(find_digests: Collection[str], test_pairs: Iterable[SentencePair]) -> int:
    """How many test pairs have a source or a target sentence that heads were found on."""
    known = frozenset(find_digests)
    return sum(
        sentence_digest(pair.source) in known or sentence_digest(pair.target) in known
        for pair in test_pairs
    )
