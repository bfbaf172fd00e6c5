"""An output held against its source and the translations known to be right, word by word."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from headscope.data.align.eflomal import align_eflomal, check_eflomal
from headscope.data.align.outputs import shared_words
from headscope.data.links import Links
from headscope.errors import MissingExtra
from headscope.results.failures import Backing
from headscope.verify.failures.support import (
    STEM,
    Frequencies,
    Lexicon,
    akin,
    letters,
    matches,
    plain_words,
)

#: Fitted links err, so that one alone makes no translation.
LEAST_FITTED = 2
SHARE_FITTED = 0.3


@dataclass(frozen=True)
class Sentences:
    """What is known of one sentence: `before` is a good translation, or None.

    `links` are those of source and reference, between white-space pieces.
    """

    source: str
    reference: str
    before: str | None
    links: Links | None = None


@dataclass(frozen=True)
class Knowledge:
    """What the sentences of one direction say about its two languages.

    `pieces`: words are white-space pieces, since links are given. `lexicon` and `links` (of
    source and reference, by sentence) are None where nothing is linked.
    """

    pieces: bool
    source: Frequencies
    target: Frequencies
    lexicon: Lexicon | None
    links: tuple[Links, ...] | None

    @property
    def linked_by(self) -> str | None:
        """What linked the words: `given` links, `eflomal`, or None."""
        return "given" if self.pieces else None if self.links is None else "eflomal"

    def content(self, word: str) -> bool:
        """Whether a word of the target language carries content.

        One that is too rare to be told by its frequency may still be known to translate words
        without content, such as a form of an article.
        """
        return self.target.content(word) and not (
            self.lexicon is not None and self.lexicon.joins(word, self.source)
        )


def learn(sentences: Sequence[Sentences], align: bool = True) -> Knowledge:
    """Frequencies, and a lexicon from given links, or else from eflomal's if it is installed.

    Only references and good translations count, never an output that is to be judged. eflomal has
    no seed: two fits differ in a few links.
    """
    pieces = all(one.links is not None for one in sentences)
    sources = [plain_words(one.source, pieces) for one in sentences]
    references = [plain_words(one.reference, pieces) for one in sentences]
    frequencies = Frequencies.of(sources), Frequencies.of(references)
    if pieces:
        given = tuple(one.links for one in sentences if one.links is not None)
        lexicon = Lexicon.of(zip(sources, references, given, strict=True))
        return Knowledge(pieces, *frequencies, lexicon, given)
    if not align or not _has_eflomal():
        return Knowledge(pieces, *frequencies, None, None)
    texts = list(zip(sources, references, strict=True))
    texts += [
        (source, plain_words(one.before, pieces))
        for source, one in zip(sources, sentences, strict=True)
        if one.before is not None and one.before != one.reference
    ]
    fitted = align_eflomal(texts)
    linked = [(*text, links) for text, links in zip(texts, fitted, strict=True)]
    lexicon = Lexicon.of(linked, LEAST_FITTED, SHARE_FITTED)
    return Knowledge(pieces, *frequencies, lexicon, fitted[: len(sentences)])


def back(sentence: Sentences, links: Links | None, output_text: str, known: Knowledge) -> Backing:
    """Holds one output against its sentence; `links` are the sentence's among `known`'s."""
    source = plain_words(sentence.source, known.pieces)
    output = plain_words(output_text, known.pieces)
    translations = [plain_words(sentence.reference, known.pieces)]
    if sentence.before is not None:
        translations.append(plain_words(sentence.before, known.pieces))
    words = sum(map(bool, output))
    if not words:
        return Backing()
    content = [j for j, word in enumerate(output) if known.content(word)]
    translated = [_translates(word, source, known) for word in output]
    exact = {letters(word) for one in translations for word in one if word}
    backed = {
        word for one in translations for word in one if len(word) >= STEM or known.content(word)
    }
    from_source = {letters(word) for word in source if word}
    unsupported = [
        output[j]
        for j in content
        if not translated[j]
        and letters(output[j]) not in from_source | exact
        and not any(akin(output[j], word) for word in backed)
    ]
    copied = [
        i for i, _ in shared_words(output, source) if output[i] and letters(output[i]) not in exact
    ]
    lacking = [_lacking(one, source, output, translated, known) for one in translations]
    shares = [(len(lack) / total, lack, total) for lack, total in lacking if total]
    least = min(shares, key=lambda share: share[0], default=None)
    more = len(unsupported) - len(least[1]) if least else 0
    totals = [total for _, total in lacking]
    cuts = [_left_out(one, output, known) for one in translations]
    cut = min(
        (
            (len(one) / total, one)
            for one, total in zip(cuts, totals, strict=True)
            if one is not None and total
        ),
        key=lambda share: share[0],
        default=(0.0, []),
    )
    covered, linked = _coverage(source, translations[0], output, translated, links, known)
    return Backing(
        copied=len(copied) / words,
        unsupported=len(unsupported) / len(content) if content else None,
        unsupported_words=tuple(unsupported),
        missing=least[0] if least else None,
        missing_words=tuple(least[1]) if least else (),
        added=max(0, more) / len(content) if content else None,
        dropped=max(0, -more) / least[2] if least else None,
        left_out=cut[0],
        left_out_words=tuple(cut[1]),
        source_covered=covered,
        output_covered=sum(linked[j] for j in content) / len(content)
        if content and links is not None
        else None,
        repeated=_repeated(output, [*translations, source]) / words,
    )


def _translates(word: str, source: Sequence[str], known: Knowledge) -> set[int]:
    """Source content words that an output word translates by the lexicon."""
    if known.lexicon is None or not word:
        return set()
    return {i for i in known.lexicon.sources(word, source) if known.source.content(source[i])}


def _lacking(
    translation: Sequence[str],
    source: Sequence[str],
    output: Sequence[str],
    translated: Sequence[set[int]],
    known: Knowledge,
) -> tuple[list[str], int]:
    """Content words of a translation that the output lacks, and how many it has in all.

    A word of the output that the translation has not may stand for one by the lexicon, or be the
    source word itself, left as it was.
    """
    content = [g for g, word in enumerate(translation) if known.content(word)]
    found = matches(translation, output)
    spare = set(range(len(output))) - set(found.values())
    lacking: list[str] = []
    for g in content:
        if g in found:
            continue
        meant = _translates(translation[g], source, known)
        left = {letters(source[i]) for i in meant}
        stands = next(
            (j for j in sorted(spare) if translated[j] & meant or letters(output[j]) in left), None
        )
        if stands is None:
            lacking.append(translation[g])
        else:
            spare.remove(stands)
    return lacking, len(content)


def _left_out(
    translation: Sequence[str], output: Sequence[str], known: Knowledge
) -> list[str] | None:
    """Words left out of a translation that is the same otherwise; None if anything else differs."""
    rest = iter([letters(word) for word in output if word])
    left_out: list[str] = []
    following = next(rest, None)
    for word in translation:
        if word and letters(word) == following:
            following = next(rest, None)
        elif known.target.telling(word):
            left_out.append(word)
    return left_out if following is None else None


def _coverage(
    source: Sequence[str],
    reference: Sequence[str],
    output: Sequence[str],
    translated: Sequence[set[int]],
    links: Links | None,
    known: Knowledge,
) -> tuple[float | None, list[bool]]:
    """The share of source content words translated, and which output words translate any."""
    linked = [bool(one) for one in translated]
    if links is None:
        return None, linked
    covered: set[int] = set().union(*translated)
    found = matches(reference, output)
    for i, r in links:
        if r in found:
            covered.add(i)
            linked[found[r]] = True
    left = {letters(word) for word in output if word}
    content = [i for i, word in enumerate(source) if known.source.content(word)]
    there = [i for i in content if i in covered or letters(source[i]) in left]
    return (len(there) / len(content) if content else None), linked


def _repeated(output: Sequence[str], others: Sequence[Sequence[str]]) -> int:
    """How many output words come more often than in any of the other sentences."""
    counts = Counter(letters(word) for word in output if word)
    known = [Counter(letters(word) for word in one if word) for one in others]
    return sum(
        max(0, count - max(1, *(one[word] for one in known))) for word, count in counts.items()
    )


def _has_eflomal() -> bool:
    try:
        check_eflomal()
    except MissingExtra:
        return False
    return True
