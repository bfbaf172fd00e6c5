"""Which words of an output are backed by something, and which words of a translation it lacks.

Everything here is about words of one language compared by their letters, and about a lexicon
learned from the rows themselves. Inflected forms of a word count as that word: an ending that
changed because a phrase was dropped is neither new content nor a lost detail.
"""

from __future__ import annotations

import math
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from headscope.data.align.eflomal import align_eflomal, check_eflomal
from headscope.data.align.outputs import bare, shared_words
from headscope.data.pairs import Links, Units, carried_links, linked_words
from headscope.data.words import split_words, words_of
from headscope.errors import MissingExtra
from headscope.results.failures import Backing

#: A word in more than this share of the sentences of a language for each of its letters joins other
#: words rather than saying something itself: frequent words are short, and articles, pronouns and
#: auxiliaries are more frequent than any noun of their length …
FREQUENT_PER_LETTER = 0.015
#: … where there are so many sentences that a share says something; else words so short do.
ENOUGH = 40
SHORT = 3
#: A word in more than this share of the sentences says nothing, even where it is left out.
COMMONPLACE = 0.2

#: Letters that two forms of a word begin with, and more than this share of the longer form; …
COMMON = 3
COMMON_SHARE = 0.6
#: … or so many letters, with the endings of one and of the other at most so long; …
STEM = 4
ENDINGS = (1, 3)
#: … or so many letters, of which one alone differs, and none of the first; …
ONE_OFF = (5, 2)
#: … or letters of a form that stands whole within another one (öffnet, geöffnet).
INSIDE = 4

#: Letters of a word that the lexicon compares.
PREFIX = 4


def plain_words(text: str, pieces: bool) -> list[str]:
    """The words of a sentence to compare, without signs; `pieces`: white-space pieces.

    Positions are those of the pieces or words: one that is signs alone is the empty text.
    """
    raw = [word.text for word in split_words(text, links_given=True)] if pieces else words_of(text)
    words = map(bare, raw)
    return [word if any(map(str.isalnum, word)) else "" for word in words]


@lru_cache(maxsize=1 << 16)
def letters(word: str) -> str:
    """A word without accents and the like: Väter and Vater are forms of one word."""
    marked = unicodedata.normalize("NFKD", word.casefold())
    # The marks of Latin, Greek and Cyrillic; those of other scripts are letters of their own.
    return "".join(char for char in marked if not "\u0300" <= char <= "\u036f") or word


@lru_cache(maxsize=1 << 16)
def size(word: str) -> int:
    """How much a word says, by its length in letters: the longer, the rarer (Zipf 1935).

    A Han character, a morpheme, counts as three letters, a katakana, a syllable, as two.
    """
    return sum(
        3 if _han(char) else 2 if "\u30a1" <= char <= "\u30fc" else 1 for char in letters(word)
    )


def _han(char: str) -> bool:
    return "\u3400" <= char <= "\u9fff" or char >= "\U00020000"


@lru_cache(maxsize=1 << 18)
def akin(word: str, other: str) -> bool:
    """Whether two words look like forms of one word."""
    a, b = letters(word), letters(other)
    if a == b:
        return True
    if any(map(str.isdigit, a + b)):
        return False  # figures have no endings
    if min(map(size, (a, b))) > SHORT and any(map(_han, set(a) & set(b))):
        return True  # a morpheme in common
    short, long = sorted((a, b), key=len)
    if len(short) >= INSIDE and short in long and len(short) >= COMMON_SHARE * len(long):
        return True
    common = next((at for at, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), len(short))
    if common >= COMMON and common > COMMON_SHARE * len(long):
        return True
    if (
        len(a) == len(b) >= ONE_OFF[0]
        and common >= ONE_OFF[1]
        and a[common + 1 :] == b[common + 1 :]
    ):
        return True
    return common >= STEM and len(short) - common <= ENDINGS[0] and len(long) - common <= ENDINGS[1]


@dataclass(frozen=True)
class Frequencies:
    """In how many different sentences of a language each word stands."""

    sentences: int
    counts: Mapping[str, int]
    joining: frozenset[str] = frozenset()

    @classmethod
    def of(cls, sentences: Iterable[Sequence[str]]) -> Frequencies:
        """Counted over sentences given as plain words."""
        different = {tuple(words) for words in sentences}
        counts = Counter(
            word for words in different for word in {letters(word) for word in words if word}
        )
        # Words whose first letters are those of a function word, and hardly of any other.
        stems: dict[str, list[int]] = {}
        lexicon = cls(len(different), counts)
        for word, count in counts.items():
            both = stems.setdefault(_stem(word), [0, 0])
            both[lexicon.content(word)] += count
        joining = frozenset(stem for stem, (no, yes) in stems.items() if no > yes)
        return cls(len(different), counts, joining)

    def content(self, word: str) -> bool:
        """Whether a word carries content, rather than joining words that do.

        A count is taken at one standard deviation below its value, so that chance in few
        sentences makes no function word.
        """
        if not word:
            return False
        plain = letters(word)
        if self.sentences < ENOUGH:
            return size(word) > SHORT or plain.isdigit()
        count = self.counts.get(plain, 0)
        return count - math.sqrt(count) <= FREQUENT_PER_LETTER * size(word) * self.sentences

    def telling(self, word: str) -> bool:
        """Whether a word says something if it is left out and nothing else is changed.

        That takes in pronouns and negations, but hardly articles.
        """
        return bool(word) and (
            self.sentences < ENOUGH
            or self.counts.get(letters(word), 0) <= COMMONPLACE * self.sentences
        )


@dataclass(frozen=True)
class Lexicon:
    """How often words of two languages are linked, by their first letters.

    ``least`` links, and ``share`` of all links of a target word, make it a translation.
    """

    least: int
    share: float
    linked: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    totals: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        sentences: Iterable[tuple[Sequence[str], Sequence[str], Collection[tuple[int, int]]]],
        least: int = 1,
        share: float = 0.2,
    ) -> Lexicon:
        """Counted over sentence pairs of plain words with their links."""
        linked: defaultdict[str, Counter[str]] = defaultdict(Counter)
        totals: Counter[str] = Counter()
        for source, target, links in sentences:
            for i, j in links:
                if source[i] and target[j]:
                    linked[_stem(target[j])][_stem(source[i])] += 1
                    totals[_stem(target[j])] += 1
        return cls(least, share, linked, totals)

    def sources(self, word: str, source: Sequence[str]) -> set[int]:
        """Positions of source words that a target word is known to translate."""
        stem = _stem(word)
        counts = self.linked.get(stem, {})
        needed = max(self.least, self.share * self.totals.get(stem, 0))
        return {i for i, src in enumerate(source) if src and counts.get(_stem(src), 0) >= needed}

    def joins(self, word: str, source: Frequencies) -> bool:
        """Whether a target word mostly translates source words that carry no content."""
        counts = self.linked.get(_stem(word), {})
        joining = sum(n for stem, n in counts.items() if stem in source.joining)
        return 2 * joining > sum(counts.values())


def _stem(word: str) -> str:
    plain = letters(word)
    return plain if any(map(str.isdigit, plain)) else plain[:PREFIX]


def matches(words: Sequence[str], others: Sequence[str]) -> dict[int, int]:
    """Each word with its counterpart among others, used once: the same word first, then forms."""
    matched: dict[int, int] = {}
    used: set[int] = set()
    for same in (True, False):
        for i, word in enumerate(words):
            if not word or i in matched:
                continue
            for j, candidate in enumerate(others):
                if (
                    candidate
                    and j not in used
                    and (letters(word) == letters(candidate) if same else akin(word, candidate))
                ):
                    matched[i] = j
                    used.add(j)
                    break
    return matched


#: Fitted links err, so that one alone makes no translation.
LEAST_FITTED = 2
SHARE_FITTED = 0.3


@dataclass(frozen=True)
class Sentences:
    """What is known of one sentence: `before` is a good translation, or None.

    `links` are those of source and reference, between white-space pieces or `units`, made by
    `aligner`, None: given.
    """

    source: str
    reference: str
    before: str | None
    links: Links | None = None
    units: Units | None = None
    aligner: str | None = None

    @property
    def links_of_words(self) -> Links:
        """The links between words, not units: words are what translations are compared by."""
        first, second = (
            split_words(text, False, words_of) for text in (self.source, self.reference)
        )
        units = linked_words(self.source, self.reference, self.units)
        return carried_links(self.links or frozenset(), units, (first, second))


@dataclass(frozen=True)
class Knowledge:
    """What the sentences of one direction say about its two languages.

    `pieces`: words are white-space pieces, since given links are between these. `lexicon` and
    `links` (of source and reference, by sentence) are None where nothing is linked; `linked_by` is
    `given`, the name of an aligner, or None.
    """

    pieces: bool
    source: Frequencies
    target: Frequencies
    lexicon: Lexicon | None
    links: tuple[Links, ...] | None
    linked_by: str | None = None

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
    given_links = all(sentence.links is not None for sentence in sentences)
    pieces = given_links and all(sentence.units is None for sentence in sentences)
    sources = [plain_words(sentence.source, pieces) for sentence in sentences]
    references = [plain_words(sentence.reference, pieces) for sentence in sentences]
    frequencies = Frequencies.of(sources), Frequencies.of(references)
    if given_links:
        given = tuple(
            (sentence.links or frozenset()) if pieces else sentence.links_of_words
            for sentence in sentences
        )
        made = {sentence.aligner for sentence in sentences} - {None}
        least = (LEAST_FITTED, SHARE_FITTED) if made else ()
        lexicon = Lexicon.of(zip(sources, references, given, strict=True), *least)
        by = " and ".join(sorted(filter(None, made))) or "given"
        return Knowledge(pieces, *frequencies, lexicon, given, by)
    if not align or not _has_eflomal():
        return Knowledge(pieces, *frequencies, None, None)
    texts = list(zip(sources, references, strict=True))
    texts += [
        (source, plain_words(sentence.before, pieces))
        for source, sentence in zip(sources, sentences, strict=True)
        if sentence.before is not None and sentence.before != sentence.reference
    ]
    fitted = align_eflomal(texts)
    linked = [(*text, links) for text, links in zip(texts, fitted, strict=True)]
    lexicon = Lexicon.of(linked, LEAST_FITTED, SHARE_FITTED)
    return Knowledge(pieces, *frequencies, lexicon, fitted[: len(sentences)], "eflomal")


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
    exact = {letters(word) for text in translations for word in text if word}
    backed = {
        word for text in translations for word in text if len(word) >= STEM or known.content(word)
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
    lacking = [_lacking(text, source, output, translated, known) for text in translations]
    shares = [(len(lack) / total, lack, total) for lack, total in lacking if total]
    least = min(shares, key=lambda share: share[0], default=None)
    more = len(unsupported) - len(least[1]) if least else 0
    totals = [total for _, total in lacking]
    cuts = [_left_out(text, output, known) for text in translations]
    cut = min(
        (
            (len(part) / total, part)
            for part, total in zip(cuts, totals, strict=True)
            if part is not None and total
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
    matched = matches(translation, output)
    spare = set(range(len(output))) - set(matched.values())
    lacking: list[str] = []
    for g in content:
        if g in matched:
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
    linked = [bool(link) for link in translated]
    if links is None:
        return None, linked
    covered: set[int] = set().union(*translated)
    matched = matches(reference, output)
    for i, r in links:
        if r in matched:
            covered.add(i)
            linked[matched[r]] = True
    left = {letters(word) for word in output if word}
    content = [i for i, word in enumerate(source) if known.source.content(word)]
    there = [i for i in content if i in covered or letters(source[i]) in left]
    return (len(there) / len(content) if content else None), linked


def _repeated(output: Sequence[str], others: Sequence[Sequence[str]]) -> int:
    counts = Counter(letters(word) for word in output if word)
    known = [Counter(letters(word) for word in text if word) for text in others]
    return sum(
        max(0, count - max(1, *(text[word] for text in known))) for word, count in counts.items()
    )


def _has_eflomal() -> bool:
    try:
        check_eflomal()
    except MissingExtra:
        return False
    return True
