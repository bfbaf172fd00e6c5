"""Russian: six cases, three genders, animacy, no articles and no copula in the present.

Word order: subject, time, frequency and manner adverbs, verb, object, "alone" and adverbs of
place, place phrase. The subject stands after the verb in "what" questions, unless it is a
pronoun. The past takes the perfective of verbs whose table row names one, save with an adverb of
frequency (a repeated event is imperfective).
Forms of words are in `ru_forms.py`.
"""

from __future__ import annotations

from typing import Literal

from headscope.pocket.world.languages.ru_forms import (
    CASES,
    VOWELS,
    Agreement,
    Case,
    adjective_form,
    citation,
    determiner_form,
    entry_of,
    form_of_be,
    gender_of,
    is_animate,
    noun_form,
    past_form,
    present_form,
    verb_of,
)
from headscope.pocket.world.lexicon import concepts
from headscope.pocket.world.sentences import NUMERALS, PRONOUNS, Clause, NounPhrase, Piece, word

code = "ru"
comma_before = frozenset({"and", "but", "because", "that"})

#: The case each preposition of the world governs.
_GOVERNED: dict[str, Case] = {
    "in": "locative",
    "near": "genitive",
    "behind": "instrumental",
    "in_front_of": "instrumental",
    "under": "instrumental",
    "on": "locative",
    "with": "instrumental",
}

#: Genitive (also prepositional and animate accusative), dative and instrumental of numerals.
_NUMERAL_FORMS: dict[str, tuple[str, str, str]] = {
    "two": ("двух", "двум", "двумя"),
    "three": ("трёх", "трём", "тремя"),
    "four": ("четырёх", "четырём", "четырьмя"),
    "five": ("пяти", "пяти", "пятью"),
    "six": ("шести", "шести", "шестью"),
    "seven": ("семи", "семи", "семью"),
    "eight": ("восьми", "восьми", "восемью"),
    "nine": ("девяти", "девяти", "девятью"),
    "ten": ("десяти", "десяти", "десятью"),
}
_PAUCAL = ("two", "three", "four")
_WHAT: dict[Case, str] = {
    "accusative": "что",
    "dative": "чему",
    "instrumental": "чем",
    "prepositional": "чём",
}
_ALONE: dict[str, str] = {"m": "один", "f": "одна", "n": "одно", "p": "одни"}
#: Adverbs before which "не" stands because the negation covers them ("не всегда").
_NEGATED_FREQUENCIES = ("always", "often")


def connective(connective: str) -> str:
    return citation(connective)


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
        verb = word(form_of_be(agreement) if clause.tense == "past" else "", f"{node}.verb")
        return subject + middle + verb + word(predicate, f"{node}.predicate") + after + place

    _, preposition = verb_of(clause.verb)
    case = _object_case(clause.verb)
    verb = word(_finite(clause, agreement), f"{node}.verb")
    if clause.question == "what":
        asked = word(preposition, f"{node}.verb") + word(_WHAT[case], f"{node}.question")
        if clause.subject is not None and clause.subject.noun in PRONOUNS:
            return asked + subject + middle + verb + after + place
        return asked + middle + verb + subject + after + place
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
    if subject.noun in PRONOUNS or subject.number == "plural" or subject.determiner in NUMERALS:
        return "p"
    return gender_of(subject.noun)


def _adverbs(
    clause: Clause, agreement: Agreement, node: str
) -> tuple[list[Piece], list[Piece], bool]:
    """The adverb before the verb, the one after it, whether "не" precedes the former."""
    adverb = clause.adverb
    if not adverb:
        return [], [], False
    classes = concepts()[adverb].classes
    pieces = word(_ALONE[agreement] if adverb == "alone" else citation(adverb), f"{node}.adverb")
    if adverb == "alone":
        return [], pieces, False
    if "where" in classes:
        return (pieces, [], False) if clause.verb == "be" else ([], pieces, False)
    return pieces, [], adverb in _NEGATED_FREQUENCIES or "manner" in classes


def _place(clause: Clause, node: str) -> list[Piece]:
    if clause.place is None:
        return []
    preposition, phrase = clause.place
    pieces = _noun_phrase(phrase, _GOVERNED[preposition], f"{node}.place")
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
    genitive, dative, instrumental = _NUMERAL_FORMS[numeral]
    adjective_case: Case = "genitive"
    if case == "accusative" and animate and numeral in _PAUCAL:
        number_word, noun_word = genitive, noun_form(noun, "genitive", "plural")
    elif case in ("nominative", "accusative"):
        feminine_two = numeral == "two" and gender_of(noun) == "f"
        number_word = "две" if feminine_two else citation(numeral)
        number: Literal["singular", "plural"] = "singular" if numeral in _PAUCAL else "plural"
        noun_word = noun_form(noun, "genitive", number)
    else:
        adjective_case = case
        oblique = {"dative": dative, "instrumental": instrumental}
        number_word, noun_word = oblique.get(case, genitive), noun_form(noun, case, "plural")
    return (
        word(number_word, f"{node}.determiner")
        + word(adjective_form(phrase.adjective, "p", adjective_case, animate), f"{node}.adjective")
        + word(noun_word, f"{node}.noun")
    )


def _object_case(verb: str) -> Case:
    given = entry_of(verb).get("object", "accusative")
    return next(case for case in CASES if case == given)


def _finite(clause: Clause, agreement: Agreement) -> str:
    if clause.tense == "past":
        repeated = bool(clause.adverb) and "frequency" in concepts()[clause.adverb].classes
        return past_form(clause.verb, agreement, repeated)
    subject = clause.subject
    person = subject.noun if subject is not None and subject.noun in ("i", "you", "we") else ""
    return present_form(clause.verb, person or ("they" if agreement == "p" else "it"))
