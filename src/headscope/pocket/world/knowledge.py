"""What the pocket world knows beside its grammar: invented countries, people, word tasks.

Everything here is an *item* (a task, a language, an input) with one answer. Items are split like
sentences, by hash, so that a held-out item was never answered in training in that language.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from headscope.pocket.world.languages import CODES, language
from headscope.pocket.world.lexicon import of_kind
from headscope.pocket.world.sampling import Split

#: Share of items in test; dev has half as many.
HELD_OUT_ITEMS = 0.10

#: Countries and capitals, invented; their endings make them indeclinable in Russian.
CAPITALS = {
    "Veloro": "Amandi", "Sarimi": "Torlu", "Tandoru": "Bekelo", "Kelmo": "Ristani",
    "Brisandi": "Omuro", "Norvelu": "Pelindo", "Palgoro": "Zumari", "Mirenti": "Kosaro",
    "Dolvaru": "Lentimi", "Hasmino": "Gardolu", "Ubrani": "Sevimo", "Jomeru": "Tilando",
    "Orsindo": "Makeli", "Fadaru": "Nirosti", "Lumbaro": "Eskindi", "Yestoni": "Dramolu",
    "Gronimi": "Avesto", "Zendaro": "Hulimi", "Pistolu": "Berandi", "Kavirno": "Ostelu",
    "Rubendi": "Salmiro", "Ilmaro": "Fentoli", "Tosgeni": "Wardimo", "Medruno": "Iskari",
    "Balquori": "Denturo", "Sunoli": "Pragemi", "Ardento": "Lokuri", "Nulvani": "Cestoro",
    "Womiru": "Haldino", "Estravo": "Binduli", "Dermoli": "Yugaro", "Candiru": "Vosteli",
}  # fmt: skip

COLOURS = ("red", "green", "blue", "yellow", "white", "black")

_CYRILLIC = str.maketrans(
    dict(zip("abvgdezijklmnoprstufhcyqw", "абвгдезийклмнопрстуфхсйкв", strict=True))
)


@dataclass(frozen=True)
class Relation:
    """How a fact is stated and asked for in one language."""

    statement: str
    question: str


#: relation -> language -> wording. `{a}` is the country or person, `{b}` the answer.
RELATIONS: dict[str, dict[str, Relation]] = {
    "capital": {
        "en": Relation("The capital of {a} is {b}.", "What is the capital of {a}?"),
        "de": Relation("Die Hauptstadt von {a} ist {b}.", "Wie heißt die Hauptstadt von {a}?"),
        "es": Relation("La capital de {a} es {b}.", "¿Cuál es la capital de {a}?"),
        "ru": Relation("Столица страны {a} — {b}.", "Как называется столица страны {a}?"),
        "tr": Relation("{a} ülkesinin başkenti {b}.", "{a} ülkesinin başkenti neresi?"),
    },
    "origin": {
        "en": Relation("{a} comes from {b}.", "Where does {a} come from?"),
        "de": Relation("{a} kommt aus {b}.", "Woher kommt {a}?"),
        "es": Relation("{a} viene de {b}.", "¿De dónde viene {a}?"),
        "ru": Relation("{a} родом из страны {b}.", "Откуда родом {a}?"),
        "tr": Relation("{a} {b} ülkesinden geliyor.", "{a} nereden geliyor?"),
    },
    "colour": {
        "en": Relation("{a} likes the colour {b}.", "Which colour does {a} like?"),
        "de": Relation("{a} mag die Farbe {b}.", "Welche Farbe mag {a}?"),
        "es": Relation("A {a} le gusta el color {b}.", "¿Qué color le gusta a {a}?"),
        "ru": Relation("{a} любит {b} цвет.", "Какой цвет любит {a}?"),
        "tr": Relation("{a} {b} rengi seviyor.", "{a} hangi rengi seviyor?"),
    },
}

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


def word_items() -> list[Item]:
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
        for other in CODES:
            if other != code:
                items += [
                    Item(
                        "translate",
                        code,
                        speech.citation(c.id),
                        language(other).citation(c.id),
                        other,
                    )
                    for c in (*nouns, *adjectives, *verbs)
                ]
    return list(dict.fromkeys(items))
