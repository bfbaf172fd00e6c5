"""Word alignment: one aligner a file, and one function over them.

``links`` takes the links the data give, whoever made them, ``eflomal`` fits a statistical aligner
on the sentences, ``llm`` asks a language model, ``heads`` reads the attention of a decoder's heads
(a function that is given here, since data know no model). All give links between units with their
places in the sentences.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

from headscope.data.align.eflomal import (
    EFLOMAL,
    Eflomal,
    align_eflomal,
    check_eflomal,
    short_enough,
    symmetrise,
)
from headscope.data.align.llm import LlmAligner, align_llm
from headscope.data.languages import language_name
from headscope.data.pairs import (
    Links,
    PairFile,
    SentencePair,
    carried_links,
    further_pairs,
    given_links,
    linked_words,
    links_by,
    spans_of,
)
from headscope.data.words import (
    RULES,
    SPANS,
    WHITE_SPACE,
    Segmenter,
    Word,
    cuts_inside,
    split_words,
    units_name,
)
from headscope.errors import InputError, naming
from headscope.settings import UNSIGNED

ALIGNERS = ("links", "eflomal", "llm", "heads")

Splitter = Callable[[str], Sequence[Word]]
#: Of a pair the words of both sides.
Sides = tuple[tuple[Word, ...], tuple[Word, ...]]
#: Its name, and links of pairs between these words.
Linker = Callable[[Sequence[SentencePair], Sequence[Sides]], tuple[str, Sequence[Links | None]]]

__all__ = [
    "ALIGNERS",
    "EFLOMAL",
    "AlignWords",
    "Alignment",
    "Eflomal",
    "LlmAligner",
    "align_file",
    "align_words",
    "check_aligner",
    "choose_aligner",
    "linked_pairs",
    "symmetrise",
]


@dataclass(frozen=True)
class AlignWords:
    """How to align.

    ``aligner`` None: the data's links if every pair has them, else eflomal. ``tokens`` splits a
    sentence into units of another kind than words, such as a model's own tokens; it is recorded
    as ``tokens_name``. ``linker`` is what ``heads`` asks (see ``headscope.find.head_links``).
    """

    aligner: str | None = None
    eflomal: Eflomal = field(default_factory=Eflomal)
    llm: LlmAligner | None = None
    segmenter: Segmenter | None = None
    tokens: Splitter | None = None
    tokens_name: str = "tokens"
    linker: Linker | None = field(default=None, metadata=UNSIGNED)


@dataclass(frozen=True)
class Alignment:
    """Units of each pair, and links between them as (source unit, target unit) positions.

    ``aligner`` names what made the links (``links``: they are given), ``units`` the kind of unit;
    ``links`` is None for a pair that the aligner had to skip, ``stats`` says what was counted.
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


def check_aligner(file: PairFile, aligner: str | None = None) -> None:
    """Raises as `align_file` would for want of links, of an aligner, or of a file to fit it on."""
    with naming(file.path):
        if choose_aligner(file.pairs, aligner) == "eflomal":
            further_pairs(file)


def align_file(
    file: PairFile,
    options: AlignWords = AlignWords(),
    pairs: Sequence[SentencePair] | None = None,
    extra_pairs: Sequence[SentencePair] = (),
) -> Alignment:
    """As `align_words`, of the pairs of a file; eflomal is fitted on all of the file.

    ``pairs``: what is aligned instead, such as other translations of the same sentences.
    """
    own = file.pairs if pairs is None else pairs
    # What an endpoint refuses is no fault of the file.
    with nullcontext() if options.aligner == "llm" else naming(file.path):
        if choose_aligner(own, options.aligner) == "eflomal":
            extra_pairs = [*extra_pairs, *further_pairs(file)]
        return align_words(own, options, file.source_language, file.target_language, extra_pairs)


def align_words(
    pairs: Sequence[SentencePair],
    options: AlignWords = AlignWords(),
    source_language: str = "",
    target_language: str = "",
    extra_pairs: Sequence[SentencePair] = (),
) -> Alignment:
    """Aligns the words of sentence pairs.

    Units are those that given links point at (whichever aligner is used), else words by rule.
    ``extra_pairs`` are further pairs of the same languages that help eflomal. Language codes are
    needed by ``llm`` alone.
    """
    aligner = choose_aligner(pairs, options.aligner)
    given = bool(pairs) and all(pair.links is not None for pair in pairs)
    marked = given and any(pair.units is not None for pair in pairs)
    units = units_name(given, options.segmenter)

    def split(pair: SentencePair) -> Sides:
        if options.tokens is not None and aligner != "links":
            return tuple(options.tokens(pair.source)), tuple(options.tokens(pair.target))
        if given and (pair.links is not None or not marked):
            return pair.words if marked else linked_words(pair.source, pair.target)
        return by_rule(pair)

    def by_rule(pair: SentencePair) -> Sides:
        first, second = (
            tuple(split_words(text, False, options.segmenter))
            for text in (pair.source, pair.target)
        )
        return first, second

    words = [split(pair) for pair in pairs]
    if options.tokens is not None and aligner != "links":
        units = options.tokens_name
    elif marked:
        found = all(
            by_rule(pair) == pair_words for pair, pair_words in zip(pairs, words, strict=True)
        )
        units = units_name(False, options.segmenter) if found else SPANS
    texts = [(_texts(source), _texts(target)) for source, target in words]
    links: tuple[Links | None, ...]
    stats: dict[str, int] = {}
    name = aligner
    if aligner == "links":
        links, name = given_links(pairs), links_by(pairs)
    elif aligner == "eflomal":
        extra = [(_texts(source), _texts(target)) for source, target in map(split, extra_pairs)]
        links = align_eflomal(texts, extra, options.eflomal)
        stats["fitted_on"] = len(texts) + len(short_enough(extra))
    elif aligner == "heads":
        if options.linker is None:
            raise InputError("the aligner heads needs a model; give one")
        name, made = options.linker(pairs, words)
        links = tuple(made)
    else:
        if options.llm is None:
            raise InputError("the aligner llm needs the name of a model; give one")
        names = language_name(source_language), language_name(target_language)
        answer = align_llm(texts, options.llm, *names)
        links, name = answer.links, f"llm {options.llm.model}"
        stats.update(answer.stats)
    stats["pairs"] = len(links)
    stats["skipped"] = links.count(None)
    stats["links"] = sum(map(len, filter(None, links)))
    sources, targets = (tuple(pair_words[side] for pair_words in words) for side in (0, 1))
    return Alignment(name, units, sources, targets, links, stats)


def linked_pairs(pairs: Sequence[SentencePair], alignment: Alignment) -> tuple[SentencePair, ...]:
    """The pairs with their links, as a file of sentence pairs holds them; no text is changed.

    Links are between white-space pieces, those between smaller units being carried over to the
    pieces that hold them. Where pieces do not serve, all pairs keep the units: in scripts without
    spaces between words, and where units are not found by rule. Pairs that the aligner skipped are
    left out.
    """
    marked = any(pair.units is not None for pair in pairs) or any(
        cuts_inside(text, words, alignment.units != RULES)
        for side, texts in (
            (alignment.source_words, (pair.source for pair in pairs)),
            (alignment.target_words, (pair.target for pair in pairs)),
        )
        for text, words in zip(texts, side, strict=True)
    )
    name = alignment.aligner
    if alignment.units not in (WHITE_SPACE, RULES, SPANS):
        name += f" ({alignment.units})"
    given = alignment.aligner == links_by(pairs)
    result = []
    rows = zip(pairs, alignment.source_words, alignment.target_words, alignment.links, strict=True)
    for pair, source, target, links in rows:
        if links is None:
            continue
        words = source, target
        if not marked:
            links = carried_links(links, words, linked_words(pair.source, pair.target))
        units = spans_of(words) if marked else None
        aligner = pair.aligner if given else name
        possible = pair.possible if given else frozenset()
        made = replace(pair, links=links, units=units, aligner=aligner, possible=possible)
        result.append(made)
    return tuple(result)


def _texts(words: Sequence[Word]) -> list[str]:
    return [word.text for word in words]
