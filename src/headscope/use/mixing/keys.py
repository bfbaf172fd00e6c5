"""Numbers of 64 bits that stand for texts, records and scores, and orders made of them.

Every draw is an order of the records by a number that depends on the seed, the purpose and the
record's content, so that neither the order nor the number of files changes what is drawn.
"""

from __future__ import annotations

import hashlib
import json

import numpy as np
from numpy.typing import NDArray

U64 = NDArray[np.uint64]
_SIGN = np.uint64(1 << 63)


def record_keys(text: str, language: str, identifier: object) -> tuple[int, int]:
    """Two numbers below 2⁶⁴: one for the text, one for the text with its language and id.

    The first 8 bytes of BLAKE2b digests.  Different texts share a number with a chance of about
    n² / 2⁶⁵ among n texts.
    """
    # Half of a surrogate pair can stand in JSON as an escape.
    whole = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
    more = json.dumps([language, identifier], sort_keys=True, default=str).encode()
    record = hashlib.blake2b(whole + more, digest_size=8).digest()
    return int.from_bytes(whole[:8], "big"), int.from_bytes(record, "big")


def mixed(keys: U64, seed: int, purpose: str) -> U64:
    """The keys in another order, drawn by seed and purpose (the finalizer of SplitMix64)."""
    salt = hashlib.blake2b(f"{seed}|{purpose}".encode(), digest_size=8).digest()
    z = keys ^ np.uint64(int.from_bytes(salt, "big"))
    z = z + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def score_order(scores: NDArray[np.float64]) -> U64:
    """Numbers that ascend where finite scores descend, equal for equal scores."""
    bits = (scores + 0.0).view(np.uint64)  # -0.0 + 0.0 is 0.0
    ascending = np.where(bits & _SIGN, ~bits, bits | _SIGN)
    return ~ascending
