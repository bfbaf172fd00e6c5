"""Word links from the attention of chosen heads, while a model reads a translation.

Of a source and its translation A[j, i] is the attention that the tokens of target word j, or those
before them, pay to source word i: of the weights on the source alone, summed over the tokens of i,
and the mean over the tokens of j and over heads. The largest of a row links a target word, the
largest of a column a source word, and the two directions are joined. The model may read the pair
in both directions, since it translates both.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from headscope.data.align import Sides
from headscope.data.align.eflomal import symmetrise
from headscope.data.pairs import Links, PairFile, SentencePair, spans_of
from headscope.find.capture import rows_before, shared_prefix
from headscope.find.hits import Sentence, given_texts
from headscope.find.scoring import NOWHERE
from headscope.find.translation_score_config import HeadLinks, TranslationScore
from headscope.heads import Head
from headscope.lm.attention.weights import WeightRequest, weights_in

if TYPE_CHECKING:
    from headscope.lm import LanguageModel

#: Attention of each head: float32 (heads, target words, source words).
Attention = NDArray[np.float32]


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
        file, pairs=back(file.pairs), shots=back(file.shots), reference=back(file.reference),
        source_language=file.target_language, target_language=file.source_language,
        names=file.language_names[::-1], read=None,
    )  # fmt: skip


def links_of(first: Attention, second: Attention, how: HeadLinks) -> Links:
    """Links as (source word, target word), from the attention of heads in each direction.

    A word whose largest number is zero has no link; of equal ones the first word counts.
    """
    forth, back = first.mean(axis=0), second.mean(axis=0)
    if how.prompts == "multiplied":
        forth = back = forth * back
    by_target = {(i, j) for j, i in _largest(forth)}
    return symmetrise(by_target, set(_largest(back.T)), how.join)


def _largest(table: NDArray[np.float32]) -> list[tuple[int, int]]:
    """Rows with the place of their largest number, where that is above zero."""
    return [(row, int(hits.argmax())) for row, hits in enumerate(table) if hits.max(initial=0) > 0]


class Reader:
    """Reads the pairs of a file, with their prompts, for the attention from target to source words.

    InputError for a pair that does not fit the model's context.
    """

    def __init__(self, lm: LanguageModel, file: PairFile, config: TranslationScore) -> None:
        self._lm, self._how = lm, config.head_links or HeadLinks()
        given = replace(config, decode="reference", aligner="links", head_links=None)
        self.texts, _ = given_texts(lm, file, given, NOWHERE)
        ids, rows = [text.ids for text in self.texts], [text.rows for text in self.texts]
        self._prefix = shared_prefix(lm, ids, rows) if ids else None

    def attention(self, some: Sequence[int], heads: Sequence[Head]) -> list[Attention]:
        """Of these texts, heads as they are given."""
        texts, prefix = [self.texts[at] for at in some], self._prefix
        batch = prefix.batch(some) if prefix else self._lm.collate([text.ids for text in texts])
        keys = [np.unique(text.words.source[0]) for text in texts]
        places = torch.full((len(some), max(map(len, keys))), -1)
        for at, (word_keys, padding) in enumerate(zip(keys, batch.padding, strict=True)):
            places[at, : len(word_keys)] = torch.from_numpy(word_keys + padding)
        shift = 1 if self._how.rows == "predict" else 0
        rows = rows_before(batch, [text.rows for text in texts], shift)
        found = weights_in(self._lm, batch, WeightRequest(places, tuple(heads), rows))
        of_row, weights = found.rows[:, 0].numpy(), found.weights.cpu().numpy()
        return [
            self._by_word(text.words, word_keys, weights[of_row == at, :, : len(word_keys)])
            for at, (text, word_keys) in enumerate(zip(texts, keys, strict=True))
        ]

    def _by_word(
        self, words: Sentence, keys: NDArray[np.intp], seen: NDArray[np.float32]
    ) -> Attention:
        """From weights (rows, heads, keys); equal largest ones have equal shares."""
        if self._how.weights == "peak":
            largest = seen.max(axis=2, keepdims=True, initial=0)
            seen = ((seen == largest) & (seen > 0)).astype(np.float32)
        total = seen.sum(axis=2, keepdims=True)
        seen = np.divide(seen, total, out=np.zeros_like(seen), where=total > 0)
        sources = np.zeros((len(keys), words.lengths[0]), dtype=np.float32)
        targets = np.zeros((len(seen), words.lengths[1]), dtype=np.float32)
        sources[np.searchsorted(keys, words.source[0]), words.source[1]] = 1
        targets[words.target] = 1
        shares = targets / np.maximum(targets.sum(axis=0), 1)
        return np.asarray(shares.T @ (seen.transpose(1, 0, 2) @ sources))


@dataclass(frozen=True, eq=False)
class HeadLinker:
    """Links the words of pairs of a file by the heads and rows that `config.head_links` names; a
    `Linker`. Prompts are those of `config`, with the shots and language names of the file."""

    lm: LanguageModel
    file: PairFile
    config: TranslationScore

    def __call__(
        self, pairs: Sequence[SentencePair], words: Sequence[Sides]
    ) -> tuple[str, list[Links]]:
        how = self.config.head_links or HeadLinks()
        linker = replace(self, file=replace(self.file, pairs=tuple(pairs)))
        heads = list(map(Head.parse, str(how.heads).split(",")))
        read = linker.attention(words, heads, range(len(pairs)))
        links = {at: links_of(first, second, how) for at, first, second in read}
        return f"heads {how.heads}", [links[at] for at in range(len(pairs))]

    def attention(
        self, words: Sequence[Sides], heads: Sequence[Head], numbers: Sequence[int]
    ) -> Iterator[tuple[int, Attention, Attention]]:
        """Of these pairs of the file, between their words: the attention from target to source, and
        that from source to target while the model translates back (if it does not, the first)."""
        rows = zip(self.file.pairs, words, strict=True)
        marked = (replace(p, links=frozenset(), units=spans_of(words)) for p, words in rows)
        file = replace(self.file, pairs=tuple(marked))
        both = (self.config.head_links or HeadLinks()).prompts != "one"
        readers = [
            Reader(self.lm, direction, self.config)
            for direction in (file, turned(file))[: 1 + both]
        ]

        def work(some: list[int]) -> list[list[Attention]]:
            return [reader.attention([numbers[at] for at in some], heads) for reader in readers]

        lengths = [len(readers[0].texts[number].ids) for number in numbers]
        for some, (first, *back) in self.lm.in_batches(lengths, self.config.batch_tokens, work):
            for place, at in enumerate(some):
                second = back[0][place].transpose(0, 2, 1) if back else first[place]
                yield numbers[at], first[place], second
