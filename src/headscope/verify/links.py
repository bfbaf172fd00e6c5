"""Word links beside those that people made: counts of every sentence, and the table of evidence.

Precision is |A∩P| / |A| and recall |A∩S| / |S|, with A the links that an aligner makes, S those
of which people were sure, and P these and the possible ones; AER = 1 − (|A∩S| + |A∩P|) / (|A| +
|S|) (Och and Ney 2003).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headscope.data.align import Sides
from headscope.data.pairs import Links, SentencePair, given_links
from headscope.errors import InputError
from headscope.estimates import Floats
from headscope.evidence.rows import SHARE, Condition, Evidence, Statistic, statistic
from headscope.evidence.runner import Within, kept_units
from headscope.evidence.table import evidence
from headscope.find.head_links import HeadLinker, links_of
from headscope.heads import Head
from headscope.progress import Progress
from headscope.runs import Run

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


@statistic("F1 of word links", unit=SHARE, digits=1)
def f1(sums: NDArray[Any]) -> Floats:
    """The harmonic mean of precision and recall, from counts (..., 4)."""
    both = precision(sums), recall(sums)
    return _quotient(2 * both[0] * both[1], both[0] + both[1])


@statistic("alignment error rate", "lower", unit=SHARE, digits=1)
def aer(sums: NDArray[Any]) -> Floats:
    """From counts (..., 4)."""
    return 1 - _quotient(sums[..., 0] + sums[..., 1], sums[..., 2] + sums[..., 3])


STATISTICS: Mapping[str, Statistic] = {
    F1: f1,
    PRECISION: Statistic("precision", unit=SHARE, digits=1, score=precision),
    RECALL: Statistic("recall", unit=SHARE, digits=1, score=recall),
    AER: aer,
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


def counts_of(
    linker: HeadLinker,
    words: Sequence[Sides],
    conditions: Sequence[Condition],
    run: Run,
    part: str,
    progress: Progress | None = None,
) -> NDArray[np.int64]:
    """Counts (conditions, sentences, 4) of the pairs of a file under heads of several conditions,
    from one pass over them in each direction; kept by sentence."""
    lm, pairs, wanted = linker.lm, linker.file.pairs, gold(linker.file.pairs)
    sets = [[*each.in_model(lm.geometry)] for each in conditions]
    every = list(dict.fromkeys(head for own in sets for head in own))
    at: dict[Head, int] = {head: place for place, head in enumerate(every)}
    places = [[at[head] for head in own] for own in sets]
    reader = linker.reader(pairs, words)
    lengths = reader.lengths

    def work(some: list[int]) -> list[list[tuple[int, int, int, int]]]:
        made = []
        for number, (first, second) in zip(some, reader.attention(some, every), strict=True):
            linked = (
                links_of(first[own], None if second is None else second[own], linker.how)
                for own in places
            )
            made.append([counted(links, *wanted[number]) for links in linked])
        return made

    def compute(mine: Sequence[str], within: Within) -> Iterator[tuple[str, Any]]:
        left = [int(name) for name in mine]
        for some, made in lm.in_batches(
            [lengths[number] for number in left],
            linker.config.batch_tokens,
            lambda batch: work([left[each] for each in batch]),
        ):
            for each, numbers in zip(some, made, strict=True):
                yield str(left[each]), numbers

    units = {str(number): length for number, length in enumerate(lengths)}
    kept = kept_units(run, f"links {part}", f"linking words: {part}", units, compute, progress)
    counts = [kept[str(number)] for number in range(len(pairs))]
    return np.array(counts, dtype=np.int64).transpose(1, 0, 2)


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
