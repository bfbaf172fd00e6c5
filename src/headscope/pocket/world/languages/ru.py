"""Russian: six cases, three genders, animacy, no articles and no copula in the present.

Word order: subject, time, frequency and manner adverbs, verb, object, "alone" and adverbs of
place, place phrase. The subject stands after the verb in "what" questions, unless it is a
pronoun. The past takes the perfective of verbs whose table row names one, save with an adverb of
frequency (a repeated event is imperfective).

Columns of `ru.tsv` for nouns: `base`; `gender` (m, f, n) where the ending does not tell it; `stem`
where the nominative differs from the other cases; `stress=end` where a stressed ending keeps its о
or ё; `instrumental`, `nominative_plural`, `genitive_plural`, `instrumental_plural` where irregular;
`locative` (as in "в лесу"); `in` (the preposition of "in", where it is not "в"); `indeclinable`.
For verbs: `first`, `second`, `they` (present), `past`, `past_feminine`, `perfective` (its past),
`perfective_feminine`, `object` (case of the object, if not the accusative). For prepositions:
`governs`. For determiners `m`, `f`, `n` and `p`, the forms in the order of `CASES`. For numerals
their cases, of which `genitive` is also the prepositional and the animate accusative.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from headscope.pocket.world.sentences import (
    NUMERALS,
    PRONOUNS,
    Clause,
    NounPhrase,
    Number,
    Piece,
    concepts,
    forms,
    table,
    word,
)

code = "ru"
comma_before = frozenset({"and", "but", "because", "that"})

_WAS = {"m": "был", "f": "была", "n": "было", "p": "были"}
_PAUCAL = ("two", "three", "four")
#: Adverbs before which "не" stands because the negation covers them ("не всегда").
_NEGATED_FREQUENCIES = ("always", "often")


#: One of `CASES`, or the locative of some nouns after "в" and "на".
Case = str
#: How a noun phrase agrees: a gender (m, f, n) in the singular, "p" in the plural.
Agreement = str
CASES = ("nominative", "genitive", "dative", "accusative", "instrumental", "prepositional")
VOWELS = "аеёиоуыэюя"
_HUSHING = "жчшщ"
_VELAR = "гкх"
#: Endings of adjectives by agreement in the order of `CASES`; "=" marks an accusative that is
#: the nominative or (animate) the genitive.
_HARD = forms(
    m="ый ого ому = ым ом", f="ая ой ой ую ой ой", n="ое ого ому = ым ом", p="ые ых ым = ыми ых"
)
_SOFT = forms(
    m="ий его ему = им ем", f="яя ей ей юю ей ей", n="ее его ему = им ем", p="ие их им = ими их"
)


def plural(concept: str) -> str:
    return noun_form(concept, "nominative", "plural")


def past(concept: str) -> str:
    return " ".join(filter(None, (past_form(concept, "m", repeated=False), verb_of(concept)[1])))


def clause(clause: Clause, index: int, connective: str = "") -> list[Piece]:
    node = str(index)
    subject = _subject(clause, f"{node}.subject")
    agreement = _subject_agreement(clause)
    before, after, negated_adverb = _adverbs(clause, agreement, node)
    negation = word("не" if clause.negated else "", f"{node}.negation")
    middle = negation + before if negated_adverb else before + negation
    place = _place(clause, node)

    if clause.verb == "be":
        predicate = adjective_form(clause.predicate, agreement, "nominative", animate=False)
        verb = word(_WAS[agreement] if clause.tense == "past" else "", f"{node}.verb")
        return subject + middle + verb + word(predicate, f"{node}.predicate") + after + place

    _, preposition = verb_of(clause.verb)
    case = entry_of(clause.verb).get("object", "accusative")
    verb = word(_finite(clause, agreement), f"{node}.verb")
    if clause.question == "what":
        question_word = word(preposition, f"{node}.verb") + word(
            entry_of("what")[case], f"{node}.question"
        )
        if clause.subject is not None and clause.subject.noun in PRONOUNS:
            return question_word + subject + middle + verb + after + place
        return question_word + middle + verb + subject + after + place
    obj: list[Piece] = []
    if clause.object is not None:
        obj = _noun_phrase(clause.object, case, f"{node}.object")
        obj = word(_euphonic(preposition, obj), f"{node}.verb") + obj
    return subject + middle + verb + obj + after + place


def _subject(clause: Clause, node: str) -> list[Piece]:
    if clause.question == "who":
        return word(citation("who"), f"{node[0]}.question")
    return [] if clause.subject is None else _noun_phrase(clause.subject, "nominative", node)


def _subject_agreement(clause: Clause) -> Agreement:
    subject = clause.subject
    if clause.question == "who" or subject is None or subject.noun in ("i", "you"):
        return "m"
    return "p" if subject.several else gender_of(subject.noun)


def _adverbs(
    clause: Clause, agreement: Agreement, node: str
) -> tuple[list[Piece], list[Piece], bool]:
    """The adverb before the verb, the one after it, whether "не" precedes the former."""
    adverb = clause.adverb
    if not adverb:
        return [], [], False
    classes = concepts()[adverb].classes
    pieces = word(entry_of(adverb).get(agreement, citation(adverb)), f"{node}.adverb")
    if adverb == "alone":
        return [], pieces, False
    if "where" in classes:
        return (pieces, [], False) if clause.verb == "be" else ([], pieces, False)
    return pieces, [], adverb in _NEGATED_FREQUENCIES or "manner" in classes


def _place(clause: Clause, node: str) -> list[Piece]:
    if clause.place is None:
        return []
    preposition, phrase = clause.place
    pieces = _noun_phrase(phrase, entry_of(preposition)["governs"], f"{node}.place")
    form = citation(preposition)
    if preposition == "in":
        form = entry_of(phrase.noun).get("in", form)
    return word(_euphonic(form, pieces), f"{node}.place.preposition") + pieces


def _euphonic(preposition: str, following: list[Piece]) -> str:
    """ "с" is "со" before a sibilant and another consonant, and before "льв-"."""
    text = following[0].text.lower()
    cluster = text[0] in "сзжш" and len(text) > 1 and text[1] not in VOWELS
    return "со" if preposition == "с" and (cluster or text.startswith("льв")) else preposition


def _noun_phrase(phrase: NounPhrase, case: Case, node: str) -> list[Piece]:
    kind = concepts()[phrase.noun].kind
    if kind == "pronoun":
        return word(citation(phrase.noun), f"{node}.noun")
    if kind == "name":
        return word(noun_form(phrase.noun, case, "singular"), f"{node}.noun")
    animate = is_animate(phrase.noun)
    if phrase.determiner in NUMERALS:
        return _counted(phrase, case, animate, node)
    agreement = "p" if phrase.number == "plural" else gender_of(phrase.noun)
    return (
        word(determiner_form(phrase.determiner, agreement, case, animate), f"{node}.determiner")
        + word(adjective_form(phrase.adjective, agreement, case, animate), f"{node}.adjective")
        + word(noun_form(phrase.noun, case, phrase.number), f"{node}.noun")
    )


def _counted(phrase: NounPhrase, case: Case, animate: bool, node: str) -> list[Piece]:
    """A numeral with its noun: it governs the genitive in the direct cases, agrees in others."""
    numeral, noun = phrase.determiner, phrase.noun
    entry, adjective_case = entry_of(numeral), "genitive"
    if case == "accusative" and animate and numeral in _PAUCAL:
        number_word, noun_word = entry["genitive"], noun_form(noun, "genitive", "plural")
    elif case in ("nominative", "accusative"):
        feminine_two = numeral == "two" and gender_of(noun) == "f"
        number_word = "две" if feminine_two else citation(numeral)
        noun_word = noun_form(noun, "genitive", "singular" if numeral in _PAUCAL else "plural")
    else:
        adjective_case = case
        number_word = entry.get(case, entry["genitive"])
        noun_word = noun_form(noun, case, "plural")
    return (
        word(number_word, f"{node}.determiner")
        + word(adjective_form(phrase.adjective, "p", adjective_case, animate), f"{node}.adjective")
        + word(noun_word, f"{node}.noun")
    )


def _finite(clause: Clause, agreement: Agreement) -> str:
    if clause.tense == "past":
        repeated = bool(clause.adverb) and "frequency" in concepts()[clause.adverb].classes
        return past_form(clause.verb, agreement, repeated)
    subject = clause.subject
    person = subject.noun if subject is not None and subject.noun in ("i", "you", "we") else ""
    return present_form(clause.verb, person or ("they" if agreement == "p" else "it"))


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
    return _pick(entry_of(determiner)[agreement].split(), case, animate)


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


def _pick(forms: Sequence[str], case: Case, animate: bool) -> str:
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
    return entry.get("gender", by_ending)


@cache
def noun_form(concept: str, case: Case, number: Number) -> str:
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


def past_form(concept: str, agreement: Agreement, repeated: bool) -> str:
    """The past of a verb: perfective where the table names one and the event is not repeated."""
    if concept == "be":
        return _WAS[agreement]
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
