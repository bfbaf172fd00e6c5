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
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from headscope.data.align import Sides
from headscope.data.align.eflomal import symmetrise
from headscope.data.pairs import Links, PairFile, SentencePair
from headscope.data.words import membership, within
from headscope.find.alignment import check_lengths, prompts_of
from headscope.find.capture import rows_before, shared_prefix
from headscope.find.translation_config import HeadLinks, TranslationScore
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
    return [(row, int(own.argmax())) for row, own in enumerate(table) if own.max(initial=0) > 0]


class _Text(NamedTuple):
    """A pair as tokens; the places of target and source tokens that belong to words, and which of
    them belong to which, (rows, target words) and (keys, source words)."""

    ids: tuple[int, ...]
    rows: NDArray[np.intp]
    keys: NDArray[np.intp]
    targets: NDArray[np.float32]
    sources: NDArray[np.float32]


class Reader:
    """Reads pairs of a file for the attention from target to source words (`words` has those of the
    source first). InputError for a pair that does not fit the model's context."""

    def __init__(
        self, lm: LanguageModel, file: PairFile, words: Sequence[Sides], config: TranslationScore
    ) -> None:
        self._lm, self._how, self.texts = lm, config.head_links or HeadLinks(), list[_Text]()
        prompts = prompts_of(lm, file, config)
        full = [p.with_target(own.target) for p, own in zip(prompts, file.pairs, strict=True)]
        encoded = [lm.encoded(each.text, each.special) for each in full]
        check_lengths(encoded, lm.context_length, file)
        for text, each, (source, target) in zip(encoded, full, words, strict=True):
            first, second = (
                membership(text.spans, side, start) & within(text.spans, start, end)[:, None]
                for side, (start, end) in ((target, each.target_span), (source, each.source_span))
            )
            rows, keys = (np.flatnonzero(table.any(axis=1)) for table in (first, second))
            both = first[rows].astype(np.float32), second[keys].astype(np.float32)
            self.texts.append(_Text(text.ids, rows, keys, *both))
        ids, rows_ = [text.ids for text in self.texts], [text.rows for text in self.texts]
        self._prefix = shared_prefix(lm, ids, rows_) if ids else None

    def attention(self, some: Sequence[int], heads: Sequence[Head]) -> list[Attention]:
        """Of these texts, heads as they are given."""
        texts, prefix = [self.texts[at] for at in some], self._prefix
        batch = prefix.batch(some) if prefix else self._lm.collate([text.ids for text in texts])
        places = torch.full((len(some), max(len(text.keys) for text in texts)), -1)
        for at, (text, padding) in enumerate(zip(texts, batch.padding, strict=True)):
            places[at, : len(text.keys)] = torch.from_numpy(text.keys + padding)
        shift = 1 if self._how.rows == "predict" else 0
        rows = rows_before(batch, [text.rows for text in texts], shift)
        found = weights_in(self._lm, batch, WeightRequest(places, tuple(heads), rows))
        of_row, weights = found.rows[:, 0].numpy(), found.weights.cpu().numpy()
        return [
            self._by_word(text, weights[of_row == at, :, : len(text.keys)])
            for at, text in enumerate(texts)
        ]

    def _by_word(self, text: _Text, seen: NDArray[np.float32]) -> Attention:
        """From weights (rows, heads, keys); equal largest ones have equal shares."""
        if self._how.weights == "peak":
            largest = seen.max(axis=2, keepdims=True, initial=0)
            seen = ((seen == largest) & (seen > 0)).astype(np.float32)
        total = seen.sum(axis=2, keepdims=True)
        seen = np.divide(seen, total, out=np.zeros_like(seen), where=total > 0)
        shares = text.targets / np.maximum(text.targets.sum(axis=0), 1)
        return np.asarray(shares.T @ (seen.transpose(1, 0, 2) @ text.sources))


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
        readers = [Reader(self.lm, self.file, words, self.config)]
        if (self.config.head_links or HeadLinks()).prompts != "one":
            other = [(target, source) for source, target in words]
            readers.append(Reader(self.lm, turned(self.file), other, self.config))

        def work(some: list[int]) -> list[list[Attention]]:
            return [reader.attention([numbers[at] for at in some], heads) for reader in readers]

        lengths = [len(readers[0].texts[number].ids) for number in numbers]
        for some, (first, *back) in self.lm.in_batches(lengths, self.config.batch_tokens, work):
            for place, at in enumerate(some):
                second = back[0][place].transpose(0, 2, 1) if back else first[place]
                yield numbers[at], first[place], second
