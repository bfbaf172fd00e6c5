"""The sentences on which the best heads have the most hits, with every peak, kept in a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from headscope.data.align import Alignment
from headscope.data.pairs import SentencePair
from headscope.find.capture import KEPT_HEADS, Captured
from headscope.find.hits import Sentence, by_second, counted_hits, hits_at
from headscope.find.scoring import RunPart
from headscope.heads import HeadScores
from headscope.results.translation_score import SENTENCES, BestSentence
from headscope.runs import encode

#: Sentences of a head, at most; those with fewer linked tokens come last.
KEPT_SENTENCES, FEWEST_LINKED = 10, 2
#: Tokens, or words, of a sentence that is kept whole, at most; and tokens that are kept of others.
LONGEST, EXCERPT = 512, 128


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
    `headscope.results.translation_score.best_sentences` reads.
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
            counted = counted_hits(sentence, skip_identical)
            hit = np.isin(hits_at(peaks), counted)
            linked = np.isin(np.arange(len(peaks)), counted >> 32)
            row = BestSentence(
                part=part.name,
                head=head.key,
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
            rows.append(excerpt(row) if max(len(row.tokens), len(row.words)) > LONGEST else row)
    part.run.write_jsonl(f"{SENTENCES}/{part.name}.jsonl", map(encode, rows))


def _words_at(sentence: Sentence, peaks: NDArray[np.integer]) -> list[int]:
    """The source word that each peak (n,) lies on, -1 for none; of several a linked one."""
    words_of = by_second(sentence.source[::-1])
    of_links = np.array(sorted(sentence.links), dtype=np.intp).reshape(-1, 2)
    links = by_second((of_links[:, 0], of_links[:, 1]))
    linked = {
        token: {word for at in targets for word in links.get(at, ())}
        for token, targets in by_second(sentence.target[::-1]).items()
    }
    found = []
    for token, peak in enumerate(peaks.tolist()):
        words = words_of.get(peak, [-1])
        found.append(next((word for word in words if word in linked.get(token, ())), words[0]))
    return found


def excerpt(row: BestSentence) -> BestSentence:
    """The stretch of a long target with most hits, and the source words on which it peaks."""
    hits = np.cumsum([0, *(hit is True for hit in row.hit)])
    size = min(EXCERPT, len(row.tokens))
    start = int((hits[size:] - hits[: len(hits) - size]).argmax())
    here = slice(start, start + size)
    shift, end = row.tokens[here][0][0], row.tokens[here][-1][1]
    kept = sorted({word for word in row.peaks[here] if word >= 0})
    source, words = "", list[tuple[int, int]]()
    for before, word in zip([-1, *kept], kept, strict=False):
        a, b = row.words[word]
        source += row.source[row.words[before][1] : a] if before == word - 1 >= 0 else " \u2026 "
        words.append((len(source), len(source) + b - a))
        source += row.source[a:b]
    return replace(
        row,
        id=f"{row.id}, tokens {start + 1} to {start + size} of {len(row.tokens)}",
        source=source,
        target=row.target[shift:end],
        words=tuple(words),
        tokens=tuple((a - shift, b - shift) for a, b in row.tokens[here]),
        peaks=tuple(kept.index(word) if word >= 0 else -1 for word in row.peaks[here]),
        hit=row.hit[here],
    )
