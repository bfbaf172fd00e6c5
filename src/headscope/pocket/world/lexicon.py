"""Concepts of the pocket world and the tables that name them, read once from the package's TSV."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import resources


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
    found: dict[str, Concept] = {}
    for fields in _rows("concepts.tsv"):
        name, kind, classes, *rest = fields
        subjects = objects = frozenset[str]()
        place, antonym = False, ""
        if kind == "verb":
            subjects = _set(rest[0])
            objects = _set(rest[1])
            place = "place" in rest[2:]
        for extra in rest:
            antonym = extra.removeprefix("antonym=") if extra.startswith("antonym=") else antonym
        # "that" is a connective and nothing else; ids are unique by construction (tested).
        found[name] = Concept(name, kind, _set(classes), subjects, objects, place, antonym)
    return found


def of_kind(kind: str) -> list[Concept]:
    """The concepts of one part of speech, in the file's order."""
    return [concept for concept in concepts().values() if concept.kind == kind]


@cache
def table(language: str) -> dict[str, dict[str, str]]:
    """A language's lexicon `languages/{code}.tsv`: concept id -> column -> form.

    The file's rows are `concept<TAB>column=form<TAB>…`; a row names only what is not regular.
    """
    found: dict[str, dict[str, str]] = {}
    for concept, *cells in _rows(f"languages/{language}.tsv"):
        found[concept] = dict(cell.split("=", 1) for cell in cells)
    return found


def _set(text: str) -> frozenset[str]:
    return frozenset(part for part in text.split(",") if part != "-")


def _rows(name: str) -> list[list[str]]:
    text = resources.files(__package__).joinpath(name).read_text(encoding="utf-8")
    return [line.split("\t") for line in text.splitlines() if line and not line.startswith("#")]
