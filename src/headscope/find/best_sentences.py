"""The sentences on which the best heads have the most hits, with every peak, kept in a run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from headscope.data.align import Alignment
from headscope.data.pairs import SentencePair
from headscope.find.alignment import Bools, Sentence, counted_keys
from headscope.find.capture import KEPT_HEADS, Captured
from headscope.find.scoring import RunPart
from headscope.heads import HeadScores
from headscope.results.translation import SENTENCES, BestSentence
from headscope.runs import encode

#: Sentences of a head, at most; those with fewer linked tokens come last.
KEPT_SENTENCES, FEWEST_LINKED = 10, 2


def keep_sentences(
    part: RunPart,
    pairs: Sequence[SentencePair],
    sentences: Sequence[Sentence],
    captured: Sequence[Captured],
    alignment: Alignment,
    scores: HeadScores,
    skip_identical: bool,
) -> None:
    """Write the best sentences of the best heads of a direction, one a line, into the run.

    They are those with the highest share of hits, of equal ones those with more hits; what
    `headscope.results.translation.best_sentences` reads.
    """
    if part.run is None:
        return
    hits, totals = (scores.statistics[name].astype(int) for name in ("hits", "totals"))
    rows = list[BestSentence]()
    for head in scores.top(min(KEPT_HEADS, scores.geometry.total)):
        own = hits[:, head.layer, head.head]
        few, share = totals < FEWEST_LINKED, own / np.maximum(totals, 1)
        order = [at for at in np.lexsort((-own, -share, few)).tolist() if totals[at]]
        for at in order[:KEPT_SENTENCES]:
            pair, sentence = pairs[at], sentences[at]
            peaks = captured[at].peaks[:, head.layer, head.head]
            counted = counted_keys(sentence, skip_identical)
            # Peaks of -1 take the last column, which is no key.
            hit = np.pad(counted, ((0, 0), (0, 1)))[np.arange(len(peaks)), peaks]
            linked = np.asarray(counted.any(axis=1))
            rows.append(
                BestSentence(
                    part=part.name,
                    head=str(head),
                    id=pair.id,
                    source=pair.source,
                    target=sentence.text,
                    words=tuple((word.start, word.end) for word in alignment.source_words[at]),
                    tokens=tuple(map(tuple, sentence.spans.tolist())),
                    peaks=tuple(_words_at(sentence, peaks)),
                    hit=tuple(bool(on) if of else None for on, of in zip(hit, linked, strict=True)),
                    hits=int(own[at]),
                    of=int(totals[at]),
                )
            )
    part.run.write_jsonl(f"{SENTENCES}/{part.name}.jsonl", map(encode, rows))


def _words_at(sentence: Sentence, peaks: NDArray[np.integer]) -> list[int]:
    """The source word that each peak (n,) lies on, -1 for none; of several a linked one."""
    links = np.zeros(sentence.lengths[::-1], dtype=int)
    for source, target in sentence.links:
        links[target, source] = 1
    on: Bools = np.pad(sentence.source, ((0, 1), (0, 0)))[peaks]
    best = on * (1 + (sentence.target.astype(int) @ links > 0))
    return [int(row.argmax()) if row.any() else -1 for row in best]
