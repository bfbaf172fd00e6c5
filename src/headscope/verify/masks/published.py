"""The BLEU that Heads Up! publishes (Table 8), for comparison with its figures.

It is a sentence BLEU over characters: punctuation is removed, each paragraph of an output is scored
by itself, and the best counts; an order without a match counts as a tenth of one. The scores of
sentences are averaged. Characters match far more often than words, so the numbers are high. The
published code puts spaces between words found by the segmenter jieba before it counts; here the
text's own spaces are kept.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

ORDERS = 4
#: What counts as the matches of an order that has none.
EPSILON = 0.1
_PARAGRAPHS = re.compile(r"\n\n")


def cleaned(text: str) -> str:
    """The text without punctuation, with single spaces."""
    return re.sub(r"\s+", " ", re.sub(r"[^\w\s]", "", text)).strip()


def character_bleu(output: str, reference: str) -> float:
    """BLEU of one output over characters, 0 to 1, orders 1 to 4 with equal weight.

    0 if no character matches. Orders longer than the output count as one n-gram without a match.
    """
    if not output:
        return 0.0
    logarithms = []
    for order in range(1, ORDERS + 1):
        mine, theirs = _grams(output, order), _grams(reference, order)
        matches = sum((mine & theirs).values())
        if order == 1 and not matches:
            return 0.0
        logarithms.append(math.log((matches or EPSILON) / max(1, sum(mine.values()))))
    short = min(0.0, 1 - len(reference) / len(output))
    return math.exp(short + math.fsum(logarithms) / ORDERS)


def paragraph_bleu(outputs: Sequence[str], references: Sequence[str]) -> NDArray[np.float64]:
    """The score of each output's best paragraph, 0 to 1, shape (outputs,).

    Of a reference of several paragraphs the second counts, as published.
    """
    scores = []
    for output, reference in zip(outputs, references, strict=True):
        parts = _PARAGRAPHS.split(reference)
        wanted = cleaned(parts[1] if len(parts) > 1 else reference)
        paragraphs = [cleaned(part) for part in _PARAGRAPHS.split(output)]
        scores.append(max(character_bleu(part, wanted) for part in paragraphs))
    return np.asarray(scores, dtype=np.float64)


def _grams(text: str, order: int) -> Counter[str]:
    return Counter(text[at : at + order] for at in range(len(text) - order + 1))
