"""Word links beside those that people made: counts of every sentence, and the table of evidence.

Precision is |A∩P| / |A| and recall |A∩S| / |S|, with A the links that an aligner makes, S those
of which people were sure, and P these and the possible ones; AER = 1 − (|A∩S| + |A∩P|) / (|A| +
|S|) (Och and Ney 2003).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
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


def measures(counts: NDArray[Any]) -> dict[str, Floats]:
    """F1 (the harmonic mean of precision and recall), precision, recall and AER of counts (..., 4),
    as `counted` gives them."""
    sure, possible, made, wanted = np.moveaxis(np.asarray(counts, dtype=np.float64), -1, 0)
    precision, recall = _quotient(possible, made), _quotient(sure, wanted)
    return {
        F1: _quotient(2 * precision * recall, precision + recall),
        PRECISION: precision,
        RECALL: recall,
        AER: 1 - _quotient(sure + possible, made + wanted),
    }


def _measure(name: str, counts: NDArray[Any]) -> Floats:
    return measures(counts)[name]


_NAMES = {F1: "F1 of word links", PRECISION: PRECISION, RECALL: RECALL, AER: "alignment error rate"}
STATISTICS: Mapping[str, Statistic] = {
    name: Statistic(
        words, "lower" if name == AER else "higher", SHARE, 1, score=partial(_measure, name)
    )
    for name, words in _NAMES.items()
}


def gold(pairs: Sequence[SentencePair]) -> list[tuple[Links, Links]]:
    """Sure and possible links of every pair; InputError where there are none, or an aligner's."""
    sure = given_links(pairs, "")
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
        {part: dict.fromkeys(STATISTICS, counts) for part, counts in parts.items()},
        STATISTICS,
        seed,
        helps=lambda condition: True,
    )
