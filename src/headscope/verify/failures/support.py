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

from headscope.data.align.outputs import bare
from headscope.data.segmenters import words_of
from headscope.data.words import split_words

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
    found = [one.text for one in split_words(text, links_given=True)] if pieces else words_of(text)
    words = map(bare, found)
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
def akin(one: str, other: str) -> bool:
    """Whether two words look like forms of one word."""
    a, b = letters(one), letters(other)
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
        found = cls(len(different), counts)
        for word, count in counts.items():
            both = stems.setdefault(_stem(word), [0, 0])
            both[found.content(word)] += count
        joining = frozenset(stem for stem, (no, yes) in stems.items() if no > yes)
        return cls(len(different), counts, joining)

    def content_stem(self, stem: str) -> bool:
        """Whether words with these first letters mostly carry content."""
        return stem not in self.joining

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
        return {i for i, one in enumerate(source) if one and counts.get(_stem(one), 0) >= needed}

    def joins(self, word: str, source: Frequencies) -> bool:
        """Whether a target word mostly translates source words that carry no content."""
        counts = self.linked.get(_stem(word), {})
        joining = sum(n for stem, n in counts.items() if not source.content_stem(stem))
        return 2 * joining > sum(counts.values())


def _stem(word: str) -> str:
    plain = letters(word)
    return plain if any(map(str.isdigit, plain)) else plain[:PREFIX]


def matches(words: Sequence[str], others: Sequence[str]) -> dict[int, int]:
    """Each word with its counterpart among others, used once: the same word first, then forms."""
    found: dict[int, int] = {}
    used: set[int] = set()
    for same in (True, False):
        for i, word in enumerate(words):
            if not word or i in found:
                continue
            for j, other in enumerate(others):
                if (
                    other
                    and j not in used
                    and (letters(word) == letters(other) if same else akin(word, other))
                ):
                    found[i] = j
                    used.add(j)
                    break
    return found
