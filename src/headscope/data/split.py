"""Keeping sentences used to find heads apart from those used to verify them."""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Collection, Iterable, Sequence

from headscope.data.pairs import SentencePair
from headscope.errors import InputError


def sentence_digest(sentence: str) -> str:
    """SHA-256 of a sentence; spacing and the Unicode form of accents make no difference."""
    plain = " ".join(unicodedata.normalize("NFC", sentence).split())
    return hashlib.sha256(plain.encode("utf-8")).hexdigest()


def halves(
    pairs: Sequence[SentencePair],
) -> tuple[tuple[SentencePair, ...], tuple[SentencePair, ...]]:
    """Splits pairs in two, by a hash of the source sentence: one to find on, one to verify on.

    A sentence falls into the same half in every file, wherever it stands. Raises ``InputError``
    if one half is left empty.
    """
    find: list[SentencePair] = []
    verify: list[SentencePair] = []
    for pair in pairs:
        (verify if int(sentence_digest(pair.source)[:2], 16) & 1 else find).append(pair)
    if not find or not verify:
        raise InputError(
            f"{len(pairs)} sentence pairs are too few to find heads on one half and verify them "
            "on the other; give more pairs, or separate files"
        )
    return tuple(find), tuple(verify)


def source_digests(pairs: Iterable[SentencePair]) -> frozenset[str]:
    """Digests of the source sentences, to be stored with what was found on them."""
    return frozenset(sentence_digest(pair.source) for pair in pairs)


def leakage(find_digests: Collection[str], test_pairs: Iterable[SentencePair]) -> int:
    """How many test pairs have a source sentence that heads were found on."""
    known = frozenset(find_digests)
    return sum(sentence_digest(pair.source) in known for pair in test_pairs)
