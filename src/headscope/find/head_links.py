"""Word links from the attention of chosen heads, while a model reads a translation.

Of a source and its translation A[j, i] is the attention that the tokens of target word j, or those
before them, pay to source word i: of the weights on the source alone, summed over the tokens of i,
and the mean over the tokens of j and over heads. The largest of a row links a target word, the
largest of a column a source word, and the two directions are joined. The model may read the pair
in both directions, since it translates both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from headscope.data.align import Sides
from headscope.data.align.eflomal import symmetrise
from headscope.data.pairs import Links, PairFile, SentencePair
from headscope.data.words import belonging, within
from headscope.find.alignment import check_lengths, prompts_of
from headscope.find.capture import rows_before, shared_prefix
from headscope.find.translation_config import HeadLinks, TranslationScore
from headscope.heads import Head, HeadSet, resolve_heads
from headscope.lm.attention.weights import WeightRequest, weights_in

if TYPE_CHECKING:
    from headscope.lm import LanguageModel
    from headscope.lm.generation.pool import SharedPrefix

#: Attention of each head: float32 (heads, target words, source words).
Attention = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class HeadLinker:
    """Links the words of pairs of a file by the heads of `config.head_links`; a `Linker`.

    Its prompts are those of `config`, with the shots and language names of the file. Which heads
    and rows must be said (see `headscope.find.translation.with_heads`).
    """

    lm: LanguageModel
    file: PairFile
    config: TranslationScore

    @property
    def how(self) -> HeadLinks:
        return self.config.head_links or HeadLinks()

    @property
    def heads(self) -> HeadSet:
        return resolve_heads(str(self.how.heads), None, self.lm.geometry)

    def __call__(
        self, pairs: Sequence[SentencePair], words: Sequence[Sides]
    ) -> tuple[str, tuple[Links, ...]]:
        found: dict[int, Links] = {}
        heads, reader = self.heads.heads, self.reader(pairs, words)

        def work(some: list[int]) -> list[Links]:
            return [links_of(*both, self.how) for both in reader.attention(some, heads)]

        for some, linked in self.lm.in_batches(reader.lengths, self.config.batch_tokens, work):
            found.update(zip(some, linked, strict=True))
        return f"heads {self.how.heads}", tuple(found[at] for at in range(len(pairs)))

    def reader(self, pairs: Sequence[SentencePair], words: Sequence[Sides]) -> Reader:
        """What reads these pairs, between these words, in both directions or one.

        InputError for a pair that does not fit the model's context.
        """
        file = replace(self.file, pairs=tuple(pairs))
        back = None
        if self.how.prompts != "one":
            other = [(target, source) for source, target in words]
            back = _Read.of(self, turned(file), other)
        return Reader(_Read.of(self, file, words), back)


@dataclass(frozen=True, eq=False)
class Reader:
    """Pairs as the model reads them, source to target and perhaps target to source."""

    forth: _Read
    back: _Read | None

    @property
    def lengths(self) -> list[int]:
        """Tokens of every pair."""
        return self.forth.lengths

    def attention(
        self, some: Sequence[int], heads: Sequence[Head]
    ) -> list[tuple[Attention, Attention | None]]:
        """Of these pairs the attention of heads from target to source words, and that from source
        to target words while the model translates back; both (heads, target words, source words).
        """
        first = self.forth.attention(some, heads)
        if self.back is None:
            return [(own, None) for own in first]
        second = self.back.attention(some, heads)
        return [(own, other.transpose(0, 2, 1)) for own, other in zip(first, second, strict=True)]


def turned(file: PairFile) -> PairFile:
    """The file with source and target exchanged."""

    def back(pairs: Sequence[SentencePair]) -> tuple[SentencePair, ...]:
        return tuple(
            replace(
                pair,
                source=pair.target,
                target=pair.source,
                links=None if pair.links is None else frozenset((j, i) for i, j in pair.links),
                possible=frozenset((j, i) for i, j in pair.possible),
                units=pair.units and pair.units[::-1],
            )
            for pair in pairs
        )

    return replace(
        file,
        pairs=back(file.pairs),
        shots=back(file.shots),
        reference=back(file.reference),
        source_language=file.target_language,
        target_language=file.source_language,
        names=file.language_names[::-1],
        read=None,
    )


def links_of(first: Attention, second: Attention | None, how: HeadLinks) -> Links:
    """Links as (source word, target word), from the attention of heads in each direction.

    A word whose largest number is zero has no link; of equal ones the first word counts.
    """
    forth = first.mean(axis=0)
    back = forth if second is None else second.mean(axis=0)
    if how.prompts == "multiplied":
        forth = back = forth * back
    by_target = {(int(i), j) for j, i in enumerate(_largest(forth)) if i >= 0}
    by_source = {(i, int(j)) for i, j in enumerate(_largest(back.T)) if j >= 0}
    return symmetrise(by_target, by_source, how.join)


def _largest(table: NDArray[np.float32]) -> NDArray[np.intp]:
    """The place of each row's largest number, -1 where none is above zero."""
    if not table.shape[1]:
        return np.full(len(table), -1)
    return np.where(table.max(axis=1) > 0, table.argmax(axis=1), -1)


@dataclass(frozen=True, eq=False)
class _Read:
    """The texts of one direction as tokens, and how to read the attention in them.

    `rows` and `keys` are the places of target and source tokens that belong to words, `shares`
    (target words, rows) takes the mean over a word's tokens, `sums` (keys, source words) the sum.
    """

    linker: HeadLinker
    ids: list[tuple[int, ...]]
    rows: list[NDArray[np.intp]]
    keys: list[NDArray[np.intp]]
    shares: list[NDArray[np.float32]]
    sums: list[NDArray[np.float32]]

    @classmethod
    def of(cls, linker: HeadLinker, file: PairFile, words: Sequence[Sides]) -> _Read:
        lm, read = linker.lm, cls(linker, [], [], [], [], [])
        prompts = prompts_of(lm, file, linker.config)
        fulls = [p.with_target(pair.target) for p, pair in zip(prompts, file.pairs, strict=True)]
        texts = [lm.encoded(full.text, full.special) for full in fulls]
        check_lengths(texts, lm.context_length, file)
        for text, full, (source, target) in zip(texts, fulls, words, strict=True):
            member = []
            for span, side in ((full.target_span, target), (full.source_span, source)):
                tokens, of_word = belonging(text.spans, side, span[0])
                inside = within(text.spans[tokens], *span)
                table = np.zeros((len(text.ids), len(side)), dtype=np.float32)
                table[tokens[inside], of_word[inside]] = 1
                member.append(table)
            rows, keys = (np.flatnonzero(table.any(axis=1)) for table in member)
            shares = member[0][rows].T
            read.ids.append(text.ids)
            read.rows.append(rows)
            read.keys.append(keys)
            read.shares.append(shares / np.maximum(shares.sum(axis=1, keepdims=True), 1))
            read.sums.append(member[1][keys])
        return read

    @property
    def lengths(self) -> list[int]:
        return [len(ids) for ids in self.ids]

    @cached_property
    def _prefix(self) -> SharedPrefix | None:
        return shared_prefix(self.linker.lm, self.ids, self.rows)

    def attention(self, some: Sequence[int], heads: Sequence[Head]) -> list[Attention]:
        """The attention from word to word in these texts, (heads, target words, source words)."""
        lm, how = self.linker.lm, self.linker.how
        rows, keys = ([own[at] for at in some] for own in (self.rows, self.keys))
        prefix = self._prefix
        batch = prefix.batch(some) if prefix else lm.collate([self.ids[at] for at in some])
        places = torch.full((len(some), max(map(len, keys))), -1)
        for at, (own, padding) in enumerate(zip(keys, batch.padding, strict=True)):
            places[at, : len(own)] = torch.from_numpy(own + padding)
        shift = 1 if how.rows == "predict" else 0
        request = WeightRequest(places, tuple(heads), rows_before(batch, rows, shift))
        found = weights_in(lm, batch, request)
        of_row, weights = found.rows[:, 0].numpy(), found.weights.cpu().numpy()
        return [
            self._by_word(at, weights[of_row == row, :, : len(keys[row])])
            for row, at in enumerate(some)
        ]

    def _by_word(self, at: int, weights: NDArray[np.float32]) -> Attention:
        """From weights (rows, heads, keys) of a text."""
        total = weights.sum(axis=2, keepdims=True)
        if self.linker.how.weights == "peak":
            peaks = np.zeros_like(weights)
            np.put_along_axis(peaks, weights.argmax(axis=2)[..., None], 1, axis=2)
            weights = peaks * (total > 0)
        else:
            weights = np.divide(weights, total, out=np.zeros_like(weights), where=total > 0)
        return np.asarray(self.shares[at] @ (weights.transpose(1, 0, 2) @ self.sums[at]))
