"""Word links between sources and what a model made of them.

Where the data link each source to its reference, an output word that the reference has too
inherits the reference word's links, which needs no aligner; a word that only the output has gets
none. Words are white-space pieces where links point at these, else they are found by rule, and
links between other units go over to the words that share characters with them. Without links
eflomal is fitted on references and outputs together, where links of an output that is no
translation mean little.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headscope.data.align.eflomal import Eflomal, align_eflomal, check_eflomal
from headscope.data.pairs import Links, PairFile, carried_links, further_pairs, given_links
from headscope.data.words import Word, split_words
from headscope.errors import InputError, MissingExtra

REFERENCE = "reference"
EFLOMAL = "eflomal"
METHODS = (REFERENCE, EFLOMAL)

Span = tuple[int, int]


@dataclass(frozen=True)
class OutputLinks:
    """Words of a source and of an output as (start, end) in characters, and links between them.

    ``links`` holds (source word, output word) positions in ascending order. ``method`` is one of
    ``METHODS``, or None where nothing could be linked.
    """

    source_spans: tuple[Span, ...]
    output_spans: tuple[Span, ...]
    links: tuple[tuple[int, int], ...]
    method: str | None


def align_conditions(
    pairs: PairFile, outputs: Mapping[str, Sequence[str]], method: str | None = None
) -> dict[str, list[OutputLinks]]:
    """The word links of one output a pair, in their order, of conditions by name.

    ``method`` None: ``reference`` where the pairs have links, else ``eflomal`` (fitted once for all
    conditions) where it is installed, else no links. The references themselves are linked by
    giving them as outputs. Raises ``InputError`` if the method is unknown or lacks its links, or if
    there is not one output a pair, ``MissingExtra`` if eflomal is asked for and not installed.
    """
    for name, texts in outputs.items():
        if len(texts) != len(pairs.pairs):
            of = f" of {name}" if name else ""
            raise InputError(
                f"there are {len(texts)} outputs{of} but {len(pairs.pairs)} sentence pairs; give "
                "one output a pair"
            )
    method = _choose(pairs, method)
    pieces = all(pair.links is not None and pair.units is None for pair in pairs.pairs)
    split = [split_words(pair.source, pieces) for pair in pairs.pairs]
    words = {name: [split_words(text, pieces) for text in texts] for name, texts in outputs.items()}
    links: Mapping[str, Sequence[Links]] = {
        name: [frozenset[tuple[int, int]]()] * len(split) for name in outputs
    }
    if method == REFERENCE:
        links = {name: _inherited(pairs, split, made, pieces) for name, made in words.items()}
    elif method == EFLOMAL:
        links = _fitted(pairs, split, words, pieces)
    return {
        name: [
            OutputLinks(_spans(source), _spans(output), tuple(sorted(linked)), method)
            for source, output, linked in zip(split, made, links[name], strict=True)
        ]
        for name, made in words.items()
    }


def shared_words(first: Sequence[str], second: Sequence[str]) -> list[tuple[int, int]]:
    """Positions of words that two sentences share, each word once, in ascending order.

    Words are compared without letter case and without the signs around them. A longest common
    subsequence is taken first; of the rest, words that are left over once on both sides are
    joined although they stand in another order.
    """
    left, right = [bare(word) for word in first], [bare(word) for word in second]
    longest = [[0] * (len(right) + 1) for _ in range(len(left) + 1)]
    for i in reversed(range(len(left))):
        for j in reversed(range(len(right))):
            longest[i][j] = (
                longest[i + 1][j + 1] + 1
                if left[i] == right[j]
                else max(longest[i + 1][j], longest[i][j + 1])
            )
    shared: list[tuple[int, int]] = []
    i = j = 0
    while i < len(left) and j < len(right):
        if left[i] == right[j]:
            shared.append((i, j))
            i, j = i + 1, j + 1
        elif longest[i + 1][j] >= longest[i][j + 1]:
            i += 1
        else:
            j += 1
    free_left = [i for i in range(len(left)) if i not in {place for place, _ in shared}]
    free_right = [j for j in range(len(right)) if j not in {place for _, place in shared}]
    counts = [Counter(left[i] for i in free_left), Counter(right[j] for j in free_right)]
    for i in free_left:
        if all(count[left[i]] == 1 for count in counts):
            shared.append((i, next(j for j in free_right if right[j] == left[i])))
    return sorted(shared)


def bare(word: str) -> str:
    """A word without letter case and the signs around it; of signs alone, the signs."""
    folded = word.casefold()
    first = next((at for at, char in enumerate(folded) if char.isalnum()), None)
    if first is None:
        return folded
    last = next(at for at in reversed(range(len(folded))) if _within(folded[at]))
    return folded[first : last + 1]


def _within(char: str) -> bool:
    """Whether a character can end a word; combining marks can, as vowels of Hindi or Thai."""
    return char.isalnum() or unicodedata.category(char)[0] == "M"


def _choose(pairs: PairFile, method: str | None) -> str | None:
    if method is None:
        if pairs.has_links:
            return REFERENCE
        try:
            check_eflomal()
        except MissingExtra:
            return None
        return EFLOMAL
    if method not in METHODS:
        raise InputError(f"unknown way {method!r} of linking outputs; known: {', '.join(METHODS)}")
    if method == REFERENCE:
        given_links(pairs.pairs)
    else:
        check_eflomal()
    return method


def _inherited(
    pairs: PairFile,
    split: Sequence[Sequence[Word]],
    outputs: Sequence[Sequence[Word]],
    pieces: bool,
) -> list[Links]:
    """Links of output words that stand in the reference, from the reference's."""
    result: list[Links] = []
    rows = zip(pairs.pairs, given_links(pairs.pairs), split, outputs, strict=True)
    for pair, links, source, output in rows:
        reference = split_words(pair.target, pieces)
        sources: dict[int, list[int]] = {}
        for i, j in carried_links(links, pair.words, (source, reference)):
            sources.setdefault(j, []).append(i)
        texts = [word.text for word in reference]
        result.append(
            frozenset(
                (i, made)
                for j, made in shared_words(texts, [word.text for word in output])
                for i in sources.get(j, ())
            )
        )
    return result


def _fitted(
    pairs: PairFile,
    sources: Sequence[Sequence[Word]],
    outputs: Mapping[str, Sequence[Sequence[Word]]],
    pieces: bool,
) -> dict[str, list[Links]]:
    plain = [[word.text for word in words] for words in sources]
    translations = [
        [[word.text for word in split_words(text, pieces)] for text in (pair.source, pair.target)]
        for pair in (*pairs.pairs, *further_pairs(pairs))
    ]
    extra = [(source, target) for source, target in translations]
    texts = [
        (source, [word.text for word in output])
        for made in outputs.values()
        for source, output in zip(plain, made, strict=True)
    ]
    links = iter(align_eflomal(texts, extra, Eflomal()))
    return {name: [next(links) for _ in made] for name, made in outputs.items()}


def _spans(words: Sequence[Word]) -> tuple[Span, ...]:
    return tuple((word.start, word.end) for word in words)
