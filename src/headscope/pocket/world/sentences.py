"""What a sentence of the pocket world says, before any language says it.

A `Sentence` is one or two `Clause`s of concepts (see `concepts.tsv`). Every language renders the
same `Sentence` to `Piece`s, words that remember which *nodes* of the sentence they express. Two
words of two languages are aligned exactly when they share a node: no aligner is ever involved.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal, Protocol

from headscope.data.files import packaged_rows

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

    @property
    def several(self) -> bool:
        """Whether it stands for more than one."""
        many = self.noun in ("we", "they") or self.determiner in NUMERALS
        return many or self.number == "plural"


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
    #: Connectives before which a comma stands (put at the end of the word before).
    comma_before: frozenset[str]
    #: Renders clause number 1 or 2, without capitals and final mark, and without the connective
    #: that introduces it ("" for a main clause), which decides the word order of subordinate ones.
    clause: Callable[[Clause, int, str], list[Piece]]
    #: The dictionary form: nouns in the singular, adjectives masculine, verbs infinitive.
    citation: Callable[[str], str]
    #: The plural (nominative) of a noun.
    plural: Callable[[str], str]
    #: Third person singular past (masculine) of a verb, without pronoun.
    past: Callable[[str], str]


def word(text: str, *nodes: str) -> list[Piece]:
    """Split `text` at spaces to pieces that all express the same nodes ("" gives none)."""
    return [Piece(part, frozenset(nodes)) for part in text.split()]


def render(sentence: Sentence, language: Language) -> Rendered:
    """Say `sentence` in `language`: clauses joined, first letter capital, final mark attached."""
    pieces = language.clause(sentence.first, 1, "")
    if sentence.second is not None:
        if sentence.connective in language.comma_before:
            pieces[-1] = Piece(f"{pieces[-1].text},", pieces[-1].nodes)
        pieces += word(language.citation(sentence.connective), "connective")
        pieces += language.clause(sentence.second, 2, sentence.connective)
    asks = bool(sentence.first.question)
    last = pieces[-1]
    pieces[-1] = Piece(last.text + ("?" if asks else "."), last.nodes | {"end"})
    first = pieces[0]
    opening = "¿" if asks and language.code == "es" else ""
    # Turkish has two letters i; Python's upper() knows only the dotless capital.
    dotted = language.code == "tr" and first.text[0] == "i"
    capital = "İ" if dotted else first.text[0].upper()
    pieces[0] = Piece(opening + capital + first.text[1:], first.nodes)
    return Rendered(tuple(pieces))


@dataclass(frozen=True)
class Concept:
    """A concept: `id` is an English lemma, `kind` its part of speech, `classes` its class(es).

    For verbs `subjects` and `objects` are the noun classes allowed there (empty: takes no
    object), `place` whether a place phrase may follow. `antonym` is another concept's id.
    """

    id: str
    kind: str
    classes: frozenset[str]
    subjects: frozenset[str] = frozenset()
    objects: frozenset[str] = frozenset()
    place: bool = False
    antonym: str = ""


@cache
def concepts() -> dict[str, Concept]:
    """All concepts by id, in the file's order."""
    entries: dict[str, Concept] = {}
    for name, kind, classes, *rest in rows("concepts.tsv"):
        frame = (_set(rest[0]), _set(rest[1]), "place" in rest[2:]) if kind == "verb" else ()
        antonyms = [cell.removeprefix("antonym=") for cell in rest if cell.startswith("antonym=")]
        antonym = antonyms[-1] if antonyms else ""
        # "that" is a connective and nothing else; ids are unique by construction (tested).
        entries[name] = replace(Concept(name, kind, _set(classes), *frame), antonym=antonym)
    return entries


def of_kind(kind: str) -> list[Concept]:
    """The concepts of one part of speech, in the file's order."""
    return [concept for concept in concepts().values() if concept.kind == kind]


@cache
def table(language: str) -> dict[str, dict[str, str]]:
    """A language's lexicon `languages/{code}.tsv`: concept id -> column -> form.

    The file's rows are `concept<TAB>column=form<TAB>…`; a row names only what is not regular.
    """
    entries: dict[str, dict[str, str]] = {}
    for concept, *cells in rows(f"languages/{language}.tsv"):
        entries[concept] = dict(cell.split("=", 1) for cell in cells)
    return entries


def _set(text: str) -> frozenset[str]:
    return frozenset(part for part in text.split(",") if part != "-")


def forms(**rows: str) -> dict[str, list[str]]:
    """A table of forms by name, written with spaces between them and "-" where there is none."""
    return {name: [form.strip("-") for form in row.split()] for name, row in rows.items()}


def rows(name: str) -> list[list[str]]:
    """The cells of a table of the world, line by line."""
    return packaged_rows("headscope.pocket.world", name)
