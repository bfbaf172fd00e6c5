"""Counting hits: peaks of one sentence against its word links, and against other sentences'.

A sentence is reduced to tables over (target token, key token); every count for all heads at once
is then one look-up of the peaks in such a table.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headscope.data.links import Links
from headscope.data.words import Word

Bools = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Sentence:
    """One pair as tokens and words.

    `target` (n, Wt): which target token belongs to which target word; `source` (T, Ws): which
    token of the whole sequence belongs to which source word. `links` holds (source word, target
    word); `identical` those of them whose words have the same surface form.
    """

    target: Bools
    source: Bools
    links: Links
    identical: Links

    @property
    def lengths(self) -> tuple[int, int]:
        """Number of source words and target words."""
        return self.source.shape[1], self.target.shape[1]


@dataclass(frozen=True, eq=False)
class Counts:
    """What one sentence contributes. Arrays over heads have the shape (L, W).

    `hits` / `total`: all linked target tokens; `identical_hits` / `identical_total`: those with a
    linked source word of the same surface form. `chance` is the expected score (macro) or the sum
    of hits (micro) under other sentences' links, with `chance_total` the number of draws or the
    sum of their denominators.
    """

    hits: NDArray[np.int32]
    total: int
    identical_hits: NDArray[np.int32]
    identical_total: int
    chance: NDArray[np.float64]
    chance_total: float


def identical_links(links: Links, source: Sequence[Word], target: Sequence[Word]) -> Links:
    """The links between words of the same surface form."""
    return frozenset((i, j) for i, j in links if source[i].text == target[j].text)


def allowed_keys(sentence: Sentence, links: Links) -> Bools:
    """Which keys are a hit for which target token under `links`, bool (n, T).

    Links that fall outside the sentence's words are dropped.
    """
    sources, targets = sentence.lengths
    matrix = np.zeros((targets, sources), dtype=np.int32)
    for i, j in links:
        if i < sources and j < targets:
            matrix[j, i] = 1
    reached = sentence.target.astype(np.int32) @ matrix @ sentence.source.T.astype(np.int32)
    return np.asarray(reached > 0)


def count_hits(
    sentence: Sentence,
    peaks: NDArray[np.integer],
    others: Sequence[Links],
    average: str,
    skip_identical: bool,
) -> Counts:
    """Score one sentence.

    Args:
        sentence: its words and links.
        peaks: (n, L, W), for each target token and head the token with the largest weight, an
            index into the whole sequence, -1 for none.
        others: links of other sentences, for chance.
        average: "macro" or "micro"; decides how chance is summed.
        skip_identical: leave out target tokens with a linked word of the same surface form, also
            for chance.
    """
    own = allowed_keys(sentence, sentence.links)
    linked = np.asarray(own.any(axis=1))
    same = np.asarray(allowed_keys(sentence, sentence.identical).any(axis=1)) & linked
    scored = ~same if skip_identical else np.ones_like(same)
    own, linked, same = own & scored[:, None], linked & scored, same & scored
    expected = np.zeros(own.shape, dtype=np.float64)
    weight = 0.0
    for links in others:
        allowed = allowed_keys(sentence, links) & scored[:, None]
        size = int(allowed.any(axis=1).sum())
        if size:
            expected += allowed if average == "micro" else allowed / size
            weight += size if average == "micro" else 1
    return Counts(
        _look_up(own, peaks).astype(np.int32),
        int(linked.sum()),
        _look_up(own & same[:, None], peaks).astype(np.int32),
        int(same.sum()),
        _look_up(expected, peaks).astype(np.float64),
        weight,
    )


def _look_up(table: NDArray[np.generic], peaks: NDArray[np.integer]) -> NDArray[np.generic]:
    """Sum over target tokens of `table[token, peak]` for every head; -1 counts as 0."""
    padded = np.concatenate([table, np.zeros((len(table), 1), table.dtype)], axis=1)
    places = peaks.reshape(len(table), int(np.prod(peaks.shape[1:]))).astype(np.int64)
    flat = np.take_along_axis(padded, places, axis=1)
    total: NDArray[np.generic] = flat.sum(axis=0).reshape(peaks.shape[1:])
    return total


def similar_sentences(
    lengths: Sequence[tuple[int, int]], draws: int, seed: int, pool: int = 3
) -> list[list[int]]:
    """For each sentence, `draws` others of similar lengths, by number of words on both sides.

    Drawn without replacement from the `pool` × `draws` nearest; fewer where there are fewer.
    """
    sizes = np.array(lengths, dtype=np.int64).reshape(-1, 2)
    chosen = []
    for index in range(len(sizes)):
        distance = np.abs(sizes - sizes[index]).sum(axis=1)
        distance[index] = np.iinfo(np.int64).max
        nearest = np.argsort(distance, kind="stable")[: min(pool * draws, len(sizes) - 1)]
        rng = random.Random(f"{seed} {index}")
        chosen.append(rng.sample(nearest.tolist(), min(draws, len(nearest))))
    return chosen
