"""English: fixed word order, agreement of the third person singular, "do" in negation, questions.

Word order: subject, frequency adverb, verb, object, place, other adverbs.
"""

from __future__ import annotations

from headscope.pocket.world.sentences import (
    PRONOUNS,
    Clause,
    NounPhrase,
    Piece,
    concepts,
    table,
    word,
)

code = "en"
comma_before = frozenset({"but"})

_VOWELS = "aeiou"


def citation(concept: str) -> str:
    """Dictionary form; particles of verbs are part of it ("look for"). No concept is ""."""
    entry = table(code).get(concept, {})
    return entry.get("base", concept.replace("_", " "))


def plural(concept: str) -> str:
    singular = citation(concept)
    return table(code).get(concept, {}).get("plural") or _with_s(singular)


def past(concept: str) -> str:
    base, particle = _verb(concept)
    return f"{_past(concept, base)} {particle}".strip()


def clause(clause: Clause, index: int, connective: str = "") -> list[Piece]:
    node = str(index)
    subject = _subject(clause, f"{node}.subject")
    verb = f"{node}.verb"
    adverb = word(citation(clause.adverb), f"{node}.adverb")
    often = clause.adverb and "frequency" in concepts()[clause.adverb].classes
    frequency, other = (adverb, []) if often else ([], adverb)
    third = clause.subject is None or not (
        clause.subject.several or clause.subject.noun in PRONOUNS
    )
    rest = _noun_phrase(clause.object, f"{node}.object")
    rest += word(citation(clause.predicate), f"{node}.predicate")
    rest += _place(clause, node)
    negation = word("not" if clause.negated else "", f"{node}.negation")

    if clause.verb == "be":
        be = word(_be(clause, third), verb)
        if clause.question == "polar":
            return be + subject + negation + frequency + rest + other
        return subject + be + negation + frequency + rest + other

    base, particle = _verb(clause.verb)
    particles = word(particle, verb)
    inverted = clause.question in ("polar", "what")
    if clause.negated or inverted:
        do = "did" if clause.tense == "past" else "does" if third else "do"
        main = word(base, verb) + particles
        if inverted:
            # "do" carries the question where it stands before the subject, else the negation.
            do_piece = word(do, f"{node}.question" if clause.question == "polar" else verb)
            question_word = word("what" if clause.question == "what" else "", f"{node}.question")
            return question_word + do_piece + subject + negation + frequency + main + rest + other
        return subject + word(do, f"{node}.negation") + negation + frequency + main + rest + other
    form = _past(clause.verb, base) if clause.tense == "past" else _with_s(base) if third else base
    return subject + frequency + word(form, verb) + particles + rest + other


def _subject(clause: Clause, node: str) -> list[Piece]:
    if clause.question == "who":
        return word("who", f"{node[0]}.question")
    return _noun_phrase(clause.subject, node)


def _noun_phrase(phrase: NounPhrase | None, node: str) -> list[Piece]:
    if phrase is None:
        return []
    kind = concepts()[phrase.noun].kind
    if kind == "name":
        return word(phrase.noun.capitalize(), f"{node}.noun")
    if kind == "pronoun":
        return word("I" if phrase.noun == "i" else phrase.noun, f"{node}.noun")
    noun = plural(phrase.noun) if phrase.number == "plural" else citation(phrase.noun)
    adjective = citation(phrase.adjective)
    determiner = _determiner(phrase, following=adjective or noun)
    return (
        word(determiner, f"{node}.determiner")
        + word(adjective, f"{node}.adjective")
        + word(noun, f"{node}.noun")
    )


def _determiner(phrase: NounPhrase, following: str) -> str:
    if phrase.determiner == "a":
        if phrase.number == "plural":
            return ""
        return "an" if following[0] in _VOWELS else "a"
    if phrase.determiner == "this":
        return "these" if phrase.number == "plural" else "this"
    return phrase.determiner


def _place(clause: Clause, node: str) -> list[Piece]:
    if clause.place is None:
        return []
    preposition, phrase = clause.place
    return word(citation(preposition), f"{node}.place.preposition") + _noun_phrase(
        phrase, f"{node}.place"
    )


def _be(clause: Clause, third: bool) -> str:
    first = clause.subject is not None and clause.subject.noun == "i"
    if clause.tense == "past":
        return "was" if third or first else "were"
    return "is" if third else "am" if first else "are"


def _verb(concept: str) -> tuple[str, str]:
    base, _, particle = citation(concept).partition(" ")
    return base, particle


def _past(concept: str, base: str) -> str:
    irregular = table(code).get(concept, {}).get("past")
    if irregular:
        return irregular
    if base.endswith("e"):
        return base + "d"
    if base.endswith("y") and base[-2] not in _VOWELS:
        return base[:-1] + "ied"
    return base + "ed"


def _with_s(base: str) -> str:
    if base.endswith(("s", "x", "ch", "sh")):
        return base + "es"
    if base.endswith("y") and base[-2] not in _VOWELS:
        return base[:-1] + "ies"
    return base + "s"
