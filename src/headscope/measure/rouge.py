"""ROUGE-L: the longest sequence of units that an output and its reference have in common.

Lin 2004, "ROUGE: A Package for Automatic Evaluation of Summaries", section 3: with LCS the length
of the longest common subsequence, recall is LCS / units of the reference, precision LCS / units of
the output, and F1 their harmonic mean. A score over many texts is the mean of theirs.

What a unit is decides the caller, since it depends on the language; `data.words.plain_words` gives
words, and single characters for scripts that put no spaces between words. (The package rouge-score
sees Latin letters and digits alone, so that every Russian or Hindi text scores 0 there.)
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from headscope.measure.metrics import check_texts

Units = Sequence[Hashable]


@dataclass(frozen=True, eq=False)
class RougeL:
    """The mean F1 over texts, and the counts it came from.

    `value` and the F1 of each text, `texts` (float64, (T,)), are between 0 and 100. `statistics`
    (read-only int64, (T, 3)) holds for each text the length of the longest common subsequence, the
    units of the output and those of the reference; `rouge_l_from_statistics` gives `texts` again.
    """

    value: float
    texts: NDArray[np.float64]
    statistics: NDArray[np.int64]


def rouge_l(outputs: Sequence[Units], references: Sequence[Units]) -> RougeL:
    """ROUGE-L F1 of every output against its one reference, both as sequences of units.

    A text without units has nothing in common with any other, so it scores 0, also against
    another empty one. Raises `InputError` if there are no texts, or not one reference each.
    """
    check_texts(outputs, "text", references=references)
    statistics = np.array(
        [
            (common_length(output, reference), len(output), len(reference))
            for output, reference in zip(outputs, references, strict=True)
        ],
        dtype=np.int64,
    )
    statistics.flags.writeable = False
    texts = rouge_l_from_statistics(statistics)
    return RougeL(float(texts.mean()), texts, statistics)


def rouge_l_from_statistics(statistics: ArrayLike) -> NDArray[np.float64]:
    """F1 of each text, 0 to 100, from counts (..., 3); the last axis is consumed.

    The harmonic mean of LCS / m and LCS / n is 2 LCS / (m + n).
    """
    counts = np.asarray(statistics, dtype=np.float64)
    common, both = counts[..., 0], counts[..., 1] + counts[..., 2]
    return np.asarray(200 * np.divide(common, both, where=both > 0, out=np.zeros_like(common)))


def common_length(a: Units, b: Units) -> int:
    """The length of the longest common subsequence of two sequences.

    A row of the usual table is kept as the bits of one number (Hyyrö 2004, "Bit-parallel
    LCS-length computation revisited"): a bit of it is 0 where the row grows by one, so that one
    addition does the work of a whole row. Texts of thousands of words take milliseconds.
    """
    places: dict[Hashable, int] = {}
    for at, unit in enumerate(a):
        places[unit] = places.get(unit, 0) | 1 << at
    every = (1 << len(a)) - 1
    row = every
    for unit in b:
        matches = row & places.get(unit, 0)
        row = ((row + matches) | (row - matches)) & every
    return len(a) - row.bit_count()
