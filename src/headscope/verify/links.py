"""Word links beside those that people made: counts of every sentence, and the table of evidence.

Precision is |A∩P| / |A| and recall |A∩S| / |S|, with A the links that an aligner makes, S those
of which people were sure, and P these and the possible ones; AER = 1 − (|A∩S| + |A∩P|) / (|A| +
|S|) (Och and Ney 2003).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headscope.data.pairs import Links, SentencePair, given_links
from headscope.errors import InputError
from headscope.estimates import Floats
from headscope.evidence.rows import SHARE, Condition, Evidence, Statistic
from headscope.evidence.table import evidence

F1, PRECISION, RECALL, AER = "f1", "precision", "recall", "aer"
#: The aligner that stands beside every other one, as the model as it is does elsewhere.
BESIDE = "eflomal"


def counted(made: Links | None, sure: Links, possible: Links) -> tuple[int, int, int, int]:
    """|A∩S|, |A∩P|, |A| and |S| of a sentence; without links of its own A is empty."""
    own = made or frozenset()
    return len(own & sure), len(own & (sure | possible)), len(own), len(sure)


def _quotient(part: Any, whole: Any) -> Floats:
    """0 where there is nothing to divide by."""
    return np.asarray(np.divide(part, whole, out=np.zeros(np.shape(whole)), where=whole > 0))


def precision(sums: NDArray[Any]) -> Floats:
    """From counts (..., 4), as `counted` gives them."""
    return _quotient(sums[..., 1], sums[..., 2])


def recall(sums: NDArray[Any]) -> Floats:
    """From counts (..., 4)."""
    return _quotient(sums[..., 0], sums[..., 3])


def f1(sums: NDArray[Any]) -> Floats:
    """The harmonic mean of precision and recall, from counts (..., 4)."""
    return _quotient(2 * precision(sums) * recall(sums), precision(sums) + recall(sums))


def aer(sums: NDArray[Any]) -> Floats:
    """From counts (..., 4)."""
    return 1 - _quotient(sums[..., 0] + sums[..., 1], sums[..., 2] + sums[..., 3])


STATISTICS: Mapping[str, Statistic] = {
    F1: Statistic("F1 of word links", unit=SHARE, digits=1, score=f1),
    PRECISION: Statistic("precision", unit=SHARE, digits=1, score=precision),
    RECALL: Statistic("recall", unit=SHARE, digits=1, score=recall),
    AER: Statistic("alignment error rate", "lower", unit=SHARE, digits=1, score=aer),
}


def gold(pairs: Sequence[SentencePair]) -> list[tuple[Links, Links]]:
    """Sure and possible links of every pair; InputError where there are none, or an aligner's."""
    sure = given_links(pairs)
    made = {pair.aligner for pair in pairs} - {None}
    if made:
        raise InputError(
            f"the links were made by {' and '.join(sorted(map(str, made)))}; give links that "
            "people made"
        )
    if not any(sure):
        raise InputError("no sentence pair has a word link; give links that people made")
    return [(links, pair.possible) for links, pair in zip(sure, pairs, strict=True)]


def links_evidence(
    conditions: Sequence[Condition],
    parts: Mapping[str, Sequence[NDArray[Any]]],
    seed: int = 0,
) -> Evidence:
    """The table of counts (sentences, 4) of every part under conditions, that of eflomal first."""
    return evidence(
        conditions,
        {part: dict.fromkeys(STATISTICS, own) for part, own in parts.items()},
        STATISTICS,
        seed,
        helps=lambda condition: True,
    )
