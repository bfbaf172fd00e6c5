"""What the pocket world knows besides its grammar: invented countries, people, word tasks.

Everything here is an *item* (a task, a language, an input) with one answer. Items are split like
sentences, by hash, so that a held-out item was never answered in training in that language.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache

from headscope.pocket.world.languages import CODES, language
from headscope.pocket.world.sampling import Split
from headscope.pocket.world.sentences import of_kind, rows

#: Share of items in test; dev has half as many.
HELD_OUT_ITEMS = 0.10

COLOURS = ("red", "green", "blue", "yellow", "white", "black")

_CYRILLIC = str.maketrans(
    dict(zip("abvgdezijklmnoprstufhcyqw", "абвгдезийклмнопрстуфхсйкв", strict=True))
)


@dataclass(frozen=True)
class Relation:
    """Statement and question of a fact in one language: `{a}` has the value `{b}`."""

    statement: str
    question: str


def _read() -> tuple[dict[str, dict[str, Relation]], dict[str, str]]:
    relations: dict[str, dict[str, Relation]] = {}
    capitals: dict[str, str] = {}
    for kind, name, *cells in rows("knowledge.tsv"):
        if kind == "country":
            (capitals[name],) = cells
        else:
            relations.setdefault(kind, {})[name] = Relation(*cells)
    return relations, capitals


#: Relation -> language -> wording, and the capitals of countries, all invented.
RELATIONS, CAPITALS = _read()
#: Word tasks and their instruction; "translate" has one variant a target language.
INSTRUCTIONS = {
    "antonym": "Give the opposite of this word",
    "plural": "Give the plural of this word",
    "past": "Give the past form of this word",
    "first_letter": "Give the first letter of this word",
    "capital": "Give the capital of this country",
}


@dataclass(frozen=True)
class Item:
    """One input of a word task with its answer, both in `language` (translate: answer in `to`)."""

    task: str
    language: str
    input: str
    output: str
    to: str = ""

    @property
    def split(self) -> Split:
        return item_split(f"{self.task} {self.language} {self.to} {self.input}")


def item_split(key: str) -> Split:
    """The split of an item, by the SHA-256 of its key."""
    share = int.from_bytes(hashlib.sha256(f"item {key}".encode()).digest()[:8], "big") / 2**64
    if share < HELD_OUT_ITEMS:
        return "test"
    return "dev" if share < 1.5 * HELD_OUT_ITEMS else "train"


def spelled(name: str, code: str) -> str:
    """An invented name as a language writes it (Cyrillic in Russian)."""
    return name.lower().translate(_CYRILLIC).capitalize() if code == "ru" else name


def colour(name: str, code: str) -> str:
    """The word for a colour as the colour statements need it."""
    form = language(code).citation(name)
    return form.capitalize() if code == "de" else form


@cache
def word_items() -> tuple[Item, ...]:
    """Every item of every word task, in a fixed order."""
    items: list[Item] = []
    nouns, adjectives = of_kind("noun"), of_kind("adjective")
    verbs = [verb for verb in of_kind("verb") if verb.id != "be"]
    for code in CODES:
        speech = language(code)
        items += [
            Item("antonym", code, speech.citation(a.id), speech.citation(a.antonym))
            for a in adjectives
            if a.antonym
        ]
        items += [Item("plural", code, speech.citation(n.id), speech.plural(n.id)) for n in nouns]
        items += [Item("past", code, speech.citation(v.id), speech.past(v.id)) for v in verbs]
        content = [speech.citation(c.id) for c in (*nouns, *adjectives)]
        items += [Item("first_letter", code, w, w[0]) for w in content]
        items += [
            Item("capital", code, spelled(country, code), spelled(capital, code))
            for country, capital in CAPITALS.items()
        ]
        for target in CODES:
            items += [
                Item(
                    "translate",
                    code,
                    speech.citation(c.id),
                    language(target).citation(c.id),
                    target,
                )
                for c in (*nouns, *adjectives, *verbs)
                if target != code
            ]
    return tuple(dict.fromkeys(items))
