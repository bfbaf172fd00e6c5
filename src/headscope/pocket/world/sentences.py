"""What a sentence of the pocket world says, before any language says it.

A `Sentence` is one or two `Clause`s of concepts (see `concepts.tsv`). Every language renders the
same `Sentence` to `Piece`s, words that remember which *nodes* of the sentence they express. Two
words of two languages are aligned exactly when they share a node: no aligner is ever involved.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

Number = Literal["singular", "plural"]
Tense = Literal["present", "past"]
Question = Literal["", "polar", "who", "what"]
Connective = Literal["", "and", "but", "because", "that"]

PRONOUNS = ("i", "you", "we", "they")
NUMERALS = ("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


@dataclass(frozen=True)
class NounPhrase:
    """A noun, a name or a pronoun with what stands before it.

    `noun` is a concept id of the part of speech noun, name or pronoun. `determiner` is "the", "a"
    (plural: no article), "this", "my", "your", "our", "every", a numeral of `NUMERALS` (the
    number is then "plural"), or "" (names and pronouns).
    """

    noun: str
    determiner: str = ""
    number: Number = "singular"
    adjective: str = ""


@dataclass(frozen=True)
class Clause:
    """One finite clause. `question` "who" asks for the subject, "what" for the object.

    `subject` is None when `question` is "who"; `object` is None when the verb takes none or when
    `question` is "what". With the verb "be" there is either a predicate adjective in `predicate`
    or a `place`.
    """

    subject: NounPhrase | None
    verb: str
    object: NounPhrase | None = None
    predicate: str = ""
    place: tuple[str, NounPhrase] | None = None
    adverb: str = ""
    tense: Tense = "present"
    negated: bool = False
    question: Question = ""


@dataclass(frozen=True)
class Sentence:
    """One clause, or two joined by a connective ("that": the second is what is known or said)."""

    first: Clause
    connective: Connective = ""
    second: Clause | None = None


@dataclass(frozen=True)
class Piece:
    """One white-space word and the nodes of the sentence it expresses.

    Nodes are `{clause}.{part}`: clause "1" or "2"; part one of `subject.determiner`,
    `subject.adjective`, `subject.noun`, likewise `object.*` and `place.*`, `place.preposition`,
    `verb`, `negation`, `predicate`, `adverb`, `question` (who, what; the Turkish particle;
    English "do"); for the connective `connective`; for the final mark `end`.
    """

    text: str
    nodes: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Rendered:
    """A sentence in one language: its pieces and the text they make (joined by one space)."""

    pieces: tuple[Piece, ...]

    @property
    def text(self) -> str:
        return " ".join(piece.text for piece in self.pieces)

    def links(self, target: Rendered) -> frozenset[tuple[int, int]]:
        """Exact word links (source index, target index) by shared nodes.

        The final mark is part of the last piece, but two last words are not linked for that: they
        may say different things.
        """
        return frozenset(
            (i, j)
            for i, source_piece in enumerate(self.pieces)
            for j, target_piece in enumerate(target.pieces)
            if (source_piece.nodes & target_piece.nodes) - {"end"}
        )


class Language(Protocol):
    """What a language of the world offers; see `languages/en.py` for the smallest one."""

    code: str
    #: connectives before which a comma stands (put at the end of the word before).
    comma_before: frozenset[str]

    def clause(self, clause: Clause, index: int, connective: str = "") -> list[Piece]:
        """Render clause number `index` (1 or 2), without capitals and final mark.

        `connective` is the one that introduces this clause ("" for a main clause): it decides
        the word order of subordinate clauses where a language has one. The connective's own
        word is not part of the result.
        """
        ...

    def connective(self, connective: str) -> str:
        """The word(s) for a connective."""
        ...

    def citation(self, concept: str) -> str:
        """The dictionary form: nouns in the singular, adjectives masculine, verbs infinitive."""
        ...

    def plural(self, concept: str) -> str:
        """The plural (nominative) of a noun."""
        ...

    def past(self, concept: str) -> str:
        """Third person singular past (masculine) of a verb, without pronoun."""
        ...


def word(text: str, *nodes: str) -> list[Piece]:
    """Split `text` at spaces to pieces that all express the same nodes ("" gives none)."""
    return [Piece(part, frozenset(nodes)) for part in text.split()]


def render(sentence: Sentence, language: Language) -> Rendered:
    """Say `sentence` in `language`: clauses joined, first letter capital, final mark attached."""
    pieces = language.clause(sentence.first, 1)
    if sentence.second is not None:
        if sentence.connective in language.comma_before:
            pieces = _attach(pieces, ",")
        pieces += word(language.connective(sentence.connective), "connective")
        pieces += language.clause(sentence.second, 2, sentence.connective)
    asks = bool(sentence.first.question)
    last = pieces[-1]
    pieces[-1] = Piece(last.text + ("?" if asks else "."), last.nodes | {"end"})
    first = pieces[0]
    opening = "¿" if asks and language.code == "es" else ""
    pieces[0] = Piece(opening + _capital(first.text, language.code), first.nodes)
    return Rendered(tuple(pieces))


def _attach(pieces: Sequence[Piece], mark: str) -> list[Piece]:
    last = pieces[-1]
    return [*pieces[:-1], Piece(last.text + mark, last.nodes)]


def _capital(text: str, code: str) -> str:
    # Turkish has two letters i; Python's upper() knows only the dotless capital.
    first = "İ" if code == "tr" and text[0] == "i" else text[0].upper()
    return first + text[1:]


def texts(pieces: Iterable[Piece]) -> str:
    """The plain text of pieces, for messages and tests."""
    return " ".join(piece.text for piece in pieces)
