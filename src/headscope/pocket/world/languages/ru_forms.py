"""Russian word forms: declension by ending and gender, adjectives, determiners, verbs.

Columns of `ru.tsv` for nouns: `base`; `gender` (m, f, n)
where the ending does not tell it; `stem` where the nominative differs from the other cases;
`stress=end` where a stressed ending keeps its о or ё; `instrumental`, `nominative_plural`,
`genitive_plural`, `instrumental_plural` where irregular; `locative` (as in "в лесу");
`in` (the preposition of "in", where it is not "в"); `indeclinable`.
For verbs: `first`, `second`, `they` (present), `past`, `past_feminine`, `perfective` (its past),
`perfective_feminine`, `object` (case of the object, if not the accusative).
"""

from __future__ import annotations

from functools import cache
from typing import Literal

from headscope.pocket.world.lexicon import concepts, table

Case = Literal[
    "nominative", "genitive", "dative", "accusative", "instrumental", "prepositional", "locative"
]
#: How a noun phrase agrees: a gender in the singular, "p" in the plural.
Agreement = Literal["m", "f", "n", "p"]

CASES: tuple[Case, ...] = (
    "nominative",
    "genitive",
    "dative",
    "accusative",
    "instrumental",
    "prepositional",
)
VOWELS = "аеёиоуыэюя"
_HUSHING = "жчшщ"
_VELAR = "гкх"

#: Endings of adjectives by agreement in the order of `CASES`; "=" marks an accusative that is
#: the nominative or (animate) the genitive.
_HARD: dict[str, tuple[str, ...]] = {
    "m": ("ый", "ого", "ому", "=", "ым", "ом"),
    "f": ("ая", "ой", "ой", "ую", "ой", "ой"),
    "n": ("ое", "ого", "ому", "=", "ым", "ом"),
    "p": ("ые", "ых", "ым", "=", "ыми", "ых"),
}
_SOFT: dict[str, tuple[str, ...]] = {
    "m": ("ий", "его", "ему", "=", "им", "ем"),
    "f": ("яя", "ей", "ей", "юю", "ей", "ей"),
    "n": ("ее", "его", "ему", "=", "им", "ем"),
    "p": ("ие", "их", "им", "=", "ими", "их"),
}
_DETERMINERS: dict[str, dict[str, tuple[str, ...]]] = {
    "this": {
        "m": ("этот", "этого", "этому", "=", "этим", "этом"),
        "f": ("эта", "этой", "этой", "эту", "этой", "этой"),
        "n": ("это", "этого", "этому", "=", "этим", "этом"),
        "p": ("эти", "этих", "этим", "=", "этими", "этих"),
    },
    "my": {
        "m": ("мой", "моего", "моему", "=", "моим", "моём"),
        "f": ("моя", "моей", "моей", "мою", "моей", "моей"),
        "n": ("моё", "моего", "моему", "=", "моим", "моём"),
        "p": ("мои", "моих", "моим", "=", "моими", "моих"),
    },
    "our": {
        "m": ("наш", "нашего", "нашему", "=", "нашим", "нашем"),
        "f": ("наша", "нашей", "нашей", "нашу", "нашей", "нашей"),
        "n": ("наше", "нашего", "нашему", "=", "нашим", "нашем"),
        "p": ("наши", "наших", "нашим", "=", "нашими", "наших"),
    },
}
_GENDERS: dict[str, Agreement] = {"m": "m", "f": "f", "n": "n"}


def citation(concept: str) -> str:
    """Dictionary form; a verb's fixed preposition is part of it ("наблюдать за")."""
    return entry_of(concept)["base"]


def entry_of(concept: str) -> dict[str, str]:
    return table("ru")[concept]


def determiner_form(determiner: str, agreement: Agreement, case: Case, animate: bool) -> str:
    if determiner in ("", "the", "a"):
        return ""
    if determiner == "every":
        return adjective_form(determiner, agreement, case, animate)
    if determiner == "your":
        return "тв" + determiner_form("my", agreement, case, animate)[1:]
    return _pick(_DETERMINERS[determiner][agreement], case, animate)


def adjective_form(concept: str, agreement: Agreement, case: Case, animate: bool) -> str:
    if not concept:
        return ""
    base = citation(concept)
    stem = base[:-2]
    if agreement == "m" and (case == "nominative" or (case == "accusative" and not animate)):
        return base
    if base.endswith("ний"):
        return stem + _pick(_SOFT[agreement], case, animate)
    ending = _pick(_HARD[agreement], case, animate)
    if stem[-1] in _HUSHING + _VELAR:
        ending = ending.replace("ы", "и")
    if stem[-1] in _HUSHING and not base.endswith("ой") and ending.startswith("о"):
        ending = "е" + ending[1:]
    return stem + ending


def _pick(forms: tuple[str, ...], case: Case, animate: bool) -> str:
    """The form of a case; the accusative "=" is the genitive of animates, else the nominative."""
    form = forms[CASES.index("prepositional" if case == "locative" else case)]
    return form if form != "=" else forms[1] if animate else forms[0]


def is_animate(concept: str) -> bool:
    known = concepts()[concept]
    return known.kind == "name" or bool(known.classes & {"person", "animal"})


def gender_of(concept: str) -> Agreement:
    entry = entry_of(concept)
    last = entry["base"][-1]
    by_ending = "f" if last in "ая" else "n" if last in "оеи" else "m"
    return _GENDERS[entry.get("gender", by_ending)]


@cache
def noun_form(concept: str, case: Case, number: Literal["singular", "plural"]) -> str:
    entry = entry_of(concept)
    base = entry["base"]
    if "indeclinable" in entry:
        return base
    if case == "locative":
        if number == "singular" and "locative" in entry:
            return entry["locative"]
        case = "prepositional"
    if number == "plural":
        return _plural_form(concept, case)
    if case == "nominative":
        return base
    if case == "accusative" and base[-1] not in "ая":
        animate_masculine = is_animate(concept) and gender_of(concept) == "m"
        return noun_form(concept, "genitive", number) if animate_masculine else base
    return entry.get(case) or _singular_form(concept, case)


def _singular_form(concept: str, case: Case) -> str:
    entry = entry_of(concept)
    base, stem, stressed = entry["base"], _stem(entry), "stress" in entry
    last = base[-1]
    if last == "ь" and gender_of(concept) == "f":
        return stem + ("ью" if case == "instrumental" else "и")
    soft_e = "ё" if stressed else "е"
    hard_o = "е" if stem[-1] in _HUSHING + "ц" and not stressed else "о"
    if last in "ая":
        hard = last == "а"
        return (
            stem
            + {
                "genitive": _y(stem) if hard else "и",
                "dative": "и" if base.endswith("ия") else "е",
                "accusative": "у" if hard else "ю",
                "instrumental": f"{hard_o if hard else soft_e}й",
                "prepositional": "и" if base.endswith("ия") else "е",
            }[case]
        )
    soft = last in "ьйе"
    return (
        stem
        + {
            "genitive": "я" if soft else "а",
            "dative": "ю" if soft else "у",
            "instrumental": f"{soft_e if soft else hard_o}м",
            "prepositional": "и" if base.endswith("ие") else "е",
        }[case]
    )


def _plural_form(concept: str, case: Case) -> str:
    entry = entry_of(concept)
    nominative = entry.get("nominative_plural") or _nominative_plural(concept)
    if case == "accusative":
        case = "genitive" if is_animate(concept) else "nominative"
    if case == "nominative":
        return nominative
    if case == "genitive":
        return entry.get("genitive_plural") or _genitive_plural(concept)
    if case == "instrumental" and "instrumental_plural" in entry:
        return entry["instrumental_plural"]
    stem, ending = nominative[:-1], nominative[-1]
    # "и" belongs to a soft stem unless spelling forced it (after velars and hushing sounds).
    soft = ending == "я" or (ending == "и" and stem[-1] not in _VELAR + _HUSHING)
    endings = {"dative": "м", "instrumental": "ми", "prepositional": "х"}
    return stem + ("я" if soft else "а") + endings[case]


def _nominative_plural(concept: str) -> str:
    entry = entry_of(concept)
    base, stem = entry["base"], _stem(entry)
    if gender_of(concept) == "n":
        return stem + ("а" if base[-1] == "о" else "я")
    return stem + ("и" if base[-1] in "ьйя" else _y(stem))


def _genitive_plural(concept: str) -> str:
    entry = entry_of(concept)
    base, stem = entry["base"], _stem(entry)
    last = base[-1]
    if base.endswith(("ия", "ие")):
        return stem + "й"
    if last in "ьй":
        return stem + ("ей" if last == "ь" else "ев")
    if last in "ао":
        return _with_fleeting_vowel(stem)
    if last == "я":
        return stem + "ь"
    if last == "е" or stem[-1] in _HUSHING:
        return stem + "ей"
    return stem + ("ев" if stem[-1] == "ц" and "stress" not in entry else "ов")


def _with_fleeting_vowel(stem: str) -> str:
    """Break the cluster a lost ending leaves: чашк- чашек, вилк- вилок, письм- писем."""
    before, last = stem[-2], stem[-1]
    if before in "ьй":
        return f"{stem[:-2]}е{last}"
    if last == "к" and before not in VOWELS:
        return f"{stem[:-1]}{'е' if before in _HUSHING else 'о'}{last}"
    return stem


def _stem(entry: dict[str, str]) -> str:
    base = entry["base"]
    return entry.get("stem") or (base[:-1] if base[-1] in VOWELS + "ьй" else base)


def _y(stem: str) -> str:
    return "и" if stem[-1] in _VELAR + _HUSHING else "ы"


def verb_of(concept: str) -> tuple[str, str]:
    infinitive, _, preposition = citation(concept).partition(" ")
    return infinitive, preposition


def form_of_be(agreement: Agreement) -> str:
    return {"m": "был", "f": "была", "n": "было", "p": "были"}[agreement]


def past_form(concept: str, agreement: Agreement, repeated: bool) -> str:
    """The past of a verb: perfective where the table names one and the event is not repeated."""
    if concept == "be":
        return form_of_be(agreement)
    entry = entry_of(concept)
    infinitive = verb_of(concept)[0]
    if "perfective" in entry and not repeated:
        masculine, feminine = entry["perfective"], entry.get("perfective_feminine", "")
    else:
        regular = infinitive.removesuffix("ся")[:-2] + "л"
        masculine = entry.get("past", regular + _reflexive(infinitive, regular))
        feminine = entry.get("past_feminine", "")
    if agreement == "m":
        return masculine
    reflexive = masculine.endswith("ся")
    feminine = feminine or masculine.removesuffix("ся") + "а"
    form = feminine[:-1] + {"f": "а", "n": "о", "p": "и"}[agreement]
    return form + ("сь" if reflexive else "")


def present_form(concept: str, person: str) -> str:
    entry = entry_of(concept)
    infinitive = verb_of(concept)[0]
    first, second, they = _conjugated(infinitive.removesuffix("ся"))
    first, second = entry.get("first", first), entry.get("second", second)
    they = entry.get("they", they)
    form = {
        "i": first,
        "you": second,
        "it": entry.get("third", second[:-2] + "т"),
        "we": entry.get("we", second[:-2] + "м"),
        "they": they,
    }[person]
    return form + _reflexive(infinitive, form)


def _conjugated(infinitive: str) -> tuple[str, str, str]:
    """First and second person singular and third plural of the regular classes."""
    if infinitive.endswith("овать"):
        stem = infinitive[:-5] + "у"
        return stem + "ю", stem + "ешь", stem + "ют"
    if infinitive.endswith("ить"):
        stem = infinitive[:-3]
        return stem + "ю", stem + "ишь", stem + "ят"
    stem = infinitive[:-2]
    return stem + "ю", stem + "ешь", stem + "ют"


def _reflexive(infinitive: str, form: str) -> str:
    if not infinitive.endswith("ся"):
        return ""
    return "сь" if form[-1] in VOWELS else "ся"
