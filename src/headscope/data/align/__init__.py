"""Word alignment: one aligner a file, and one function over them.

``links`` takes the links the data give, ``eflomal`` fits a statistical aligner on the sentences,
``llm`` asks a language model. All give links between units with their places in the sentences.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from headscope.data.align.eflomal import Eflomal, align_eflomal, check_eflomal, symmetrise
from headscope.data.align.llm import LlmAligner, align_llm
from headscope.data.languages import language_name
from headscope.data.pairs import Links, SentencePair, given_links
from headscope.data.words import (
    WHITE_SPACE,
    Segmenter,
    Word,
    is_unspaced,
    split_words,
    units_name,
)
from headscope.errors import InputError

ALIGNERS = ("links", "eflomal", "llm")

Splitter = Callable[[str], Sequence[Word]]

__all__ = [
    "ALIGNERS",
    "AlignWords",
    "Alignment",
    "Eflomal",
    "LlmAligner",
    "align_words",
    "choose_aligner",
    "linked_pairs",
    "symmetrise",
]


@dataclass(frozen=True)
class AlignWords:
    """How to align.

    ``aligner`` None: the data's links if every pair has them, else eflomal. ``tokens`` splits a
    sentence into units of another kind than words, such as a model's own tokens; it is recorded
    as ``tokens_name``.
    """

    aligner: str | None = None
    eflomal: Eflomal = field(default_factory=Eflomal)
    llm: LlmAligner | None = None
    segmenter: Segmenter | None = None
    tokens: Splitter | None = None
    tokens_name: str = "tokens"


@dataclass(frozen=True)
class Alignment:
    """Units of each pair, and links between them as (source unit, target unit) positions.

    ``links`` is None for a pair that the aligner had to skip; ``units`` names the kind of unit,
    ``stats`` says what the aligner counted.
    """

    aligner: str
    units: str
    source_words: tuple[tuple[Word, ...], ...]
    target_words: tuple[tuple[Word, ...], ...]
    links: tuple[Links | None, ...]
    stats: Mapping[str, int]

    @property
    def digest(self) -> str:
        """SHA-256 of the links, for the signature of what is computed from them."""
        plain = [None if links is None else sorted(links) for links in self.links]
        text = json.dumps([self.aligner, self.units, plain])
        return hashlib.sha256(text.encode("ascii")).hexdigest()

    def as_dict(self) -> dict[str, Any]:
        """Everything as a JSON object, as a run keeps it."""
        return {
            **vars(self),
            "source_words": [[{**vars(word)} for word in row] for row in self.source_words],
            "target_words": [[{**vars(word)} for word in row] for row in self.target_words],
            "links": [links and sorted(links) for links in self.links],
        }

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Alignment:
        """What `as_dict` made."""
        source, target = (
            tuple(tuple(Word(**word) for word in row) for row in stored[name])
            for name in ("source_words", "target_words")
        )
        links = tuple(
            None if pairs is None else frozenset((int(i), int(j)) for i, j in pairs)
            for pairs in stored["links"]
        )
        return cls(stored["aligner"], stored["units"], source, target, links, stored["stats"])


def choose_aligner(pairs: Sequence[SentencePair], aligner: str | None = None) -> str:
    """The aligner asked for, else the data's links if every pair has them, else eflomal.

    Raises ``InputError`` if there is none of that name or the pairs lack the links asked for,
    ``MissingExtra`` if eflomal is not installed.
    """
    if aligner is None:
        aligner = "links" if all(pair.links is not None for pair in pairs) else "eflomal"
    if aligner not in ALIGNERS:
        raise InputError(f"unknown aligner {aligner!r}; known: {', '.join(ALIGNERS)}")
    if aligner == "links":
        given_links(pairs)
    if aligner == "eflomal":
        check_eflomal()
    return aligner


def align_words(
    pairs: Sequence[SentencePair],
    options: AlignWords = AlignWords(),
    source_language: str = "",
    target_language: str = "",
    extra_pairs: Sequence[SentencePair] = (),
) -> Alignment:
    """Aligns the words of sentence pairs.

    Units are the white-space pieces where the pairs give links (whichever aligner is used), else
    words by rule. ``extra_pairs`` are further pairs of the same languages that help eflomal.
    Language codes are needed by ``llm`` alone.
    """
    aligner = choose_aligner(pairs, options.aligner)
    given = bool(pairs) and all(pair.links is not None for pair in pairs)
    split: Splitter
    if options.tokens is not None and aligner != "links":
        split, units = options.tokens, options.tokens_name
    else:
        units = units_name(given, options.segmenter)

        def split(text: str) -> Sequence[Word]:
            return split_words(text, given, options.segmenter)

    sources = tuple(tuple(split(pair.source)) for pair in pairs)
    targets = tuple(tuple(split(pair.target)) for pair in pairs)
    texts = [
        (_texts(source), _texts(target)) for source, target in zip(sources, targets, strict=True)
    ]
    links: tuple[Links | None, ...]
    stats: dict[str, int] = {}
    if aligner == "links":
        links = given_links(pairs)
    elif aligner == "eflomal":
        extra = [(_texts(split(pair.source)), _texts(split(pair.target))) for pair in extra_pairs]
        links = align_eflomal(texts, extra, options.eflomal)
        stats["fitted_on"] = len(texts) + len(extra)
    else:
        if options.llm is None:
            raise InputError("the aligner llm needs the name of a model; give one")
        names = language_name(source_language), language_name(target_language)
        answer = align_llm(texts, options.llm, *names)
        links = answer.links
        stats.update(answer.stats)
    stats["pairs"] = len(links)
    stats["skipped"] = links.count(None)
    stats["links"] = sum(map(len, filter(None, links)))
    return Alignment(aligner, units, sources, targets, links, stats)


def linked_pairs(pairs: Sequence[SentencePair], alignment: Alignment) -> tuple[SentencePair, ...]:
    """The pairs with links between white-space pieces, as a file of sentence pairs holds them.

    Links between smaller units are carried over to the pieces that hold them. In scripts without
    spaces between words a space is put between units, so that each can be linked; all other text
    stays as it is. Pairs that the aligner skipped are left out.
    """
    result = []
    rows = zip(pairs, alignment.source_words, alignment.target_words, alignment.links, strict=True)
    for pair, source_words, target_words, links in rows:
        if links is None:
            continue
        source, source_places = _pieces(pair.source, source_words, alignment.units)
        target, target_places = _pieces(pair.target, target_words, alignment.units)
        carried = {
            (i, j)
            for source_unit, target_unit in links
            for i in source_places[source_unit]
            for j in target_places[target_unit]
        }
        result.append(SentencePair(pair.id, source, target, frozenset(carried), pair.line))
    return tuple(result)


def _texts(words: Sequence[Word]) -> list[str]:
    return [word.text for word in words]


def _pieces(text: str, words: Sequence[Word], units: str) -> tuple[str, list[list[int]]]:
    """The text as it is written, and the white-space pieces in which each unit lies."""
    if units == WHITE_SPACE:
        return text, [[place] for place in range(len(words))]
    # Where a unit ends and the next begins without white space, a space is put in between if
    # either side is of a script without spaces.
    cuts = sorted(
        {
            place
            for word in words
            for place in (word.start, word.end)
            if 0 < place < len(text)
            and not text[place - 1].isspace()
            and not text[place].isspace()
            and (is_unspaced(text[place - 1]) or is_unspaced(text[place]))
        }
    )
    bounds = [0, *cuts, len(text)]
    spaced = " ".join(text[start:end] for start, end in pairwise(bounds))
    pieces = [
        (start + word.start, start + word.end)
        for start, end in pairwise(bounds)
        for word in split_words(text[start:end], links_given=True)
    ]
    return spaced, [
        [
            place
            for place, piece in enumerate(pieces)
            if piece[0] < word.end and word.start < piece[1]
        ]
        for word in words
    ]
