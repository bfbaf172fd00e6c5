"""Spanish: gender and number agreement, ser and estar, personal "a", verb first in questions.

Word order: subject, "no", verb, frequency adverb, manner adverb, object, place, other adverbs.
In questions the subject follows the (finite) verb. The past is the indefinido; a few verbs of
state (saber, conocer, yacer, ser, estar) stand in the imperfect.
"""

from __future__ import annotations

from typing import Literal

from headscope.pocket.world.sentences import (
    PRONOUNS,
    Clause,
    NounPhrase,
    Piece,
    concepts,
    forms,
    table,
    word,
)

code = "es"
comma_before = frozenset({"but"})

Gender = Literal["masculine", "feminine"]

# Persons of the verb, in the order in which the lexicon lists forms.
_YO, _TU, _EL, _NOSOTROS, _ELLOS = range(5)
_PERSONS = {"i": _YO, "you": _TU, "we": _NOSOTROS, "they": _ELLOS}

_PRESENT = forms(ar="o as a amos an", er="o es e emos en", ir="o es e imos en")
_PRETERITE = forms(ar="é aste ó amos aron", er="í iste ió imos ieron", ir="í iste ió imos ieron")
_IMPERFECT = forms(
    ar="aba abas aba ábamos aban", er="ía ías ía íamos ían", ir="ía ías ía íamos ían"
)
_REFLEXIVE = ("me", "te", "se", "nos", "se")

# Masculine and feminine singular, masculine and feminine plural.
_DETERMINERS = forms(
    the="el la los las",
    a="un una - -",
    this="este esta estos estas",
    my="mi mi mis mis",
    your="tu tu tus tus",
    our="nuestro nuestra nuestros nuestras",
)
_PLAIN = str.maketrans("áéíóú", "aeiou")


def citation(concept: str) -> str:
    """Dictionary form; a verb's fixed words are part of it ("estar sentado")."""
    known = concepts().get(concept)
    if known is not None and known.kind == "name":
        return concept.capitalize()
    base = table(code)[concept]["base"]
    if known is None or known.kind != "verb":
        return base
    if _has(concept, "reflexive"):
        base += "se"
    return _with_fixed_words(concept, base)


def plural(concept: str) -> str:
    entry = table(code)[concept]
    return entry.get("plural") or _plural_of(entry["base"])


def past(concept: str) -> str:
    form = _finite(concept, _EL, "past")
    if _has(concept, "reflexive"):
        form = f"{_REFLEXIVE[_EL]} {form}"
    return _with_fixed_words(concept, form)


def clause(clause: Clause, index: int, connective: str = "") -> list[Piece]:
    node = str(index)
    verb, person = f"{node}.verb", _person(clause.subject)
    lexeme = "sit" if _takes_estar(clause) else clause.verb  # "sit" holds the forms of estar
    entry = table(code)[lexeme]
    rest = "" if clause.verb == "be" else entry.get("rest", "")
    if rest and "agrees" in entry:
        rest = _agreeing_with_subject(rest, clause)

    subject = _noun_phrase(clause.subject, f"{node}.subject")
    if clause.question in ("who", "what"):
        question_word = word(citation(clause.question), f"{node}.question")
    else:
        question_word = []
    if clause.question == "what":
        # The verb's own preposition opens the question: "¿A qué ayuda ...?"
        question_word = word(entry.get("object", ""), f"{node}.question") + question_word
    negation = word("no" if clause.negated else "", f"{node}.negation")
    clitic = word(_REFLEXIVE[person] if _has(lexeme, "reflexive") else "", verb)
    finite = negation + clitic + word(_finite(lexeme, person, clause.tense), verb)

    after = _adverb(clause, node, "frequency") + word(rest, verb)
    after += _adverb(clause, node, "manner") + _object(clause, node)
    if clause.predicate:
        after += word(_agreeing_with_subject(clause.predicate, clause), f"{node}.predicate")
    after += _place(clause, node)
    after += _adverb(clause, node, "time", "where")
    if clause.verb != "be":
        after += word(entry.get("that", ""), verb)
    if clause.question:
        return question_word + finite + subject + after
    return subject + finite + after


def _object(clause: Clause, node: str) -> list[Piece]:
    """The object with its preposition: the verb's own one or the personal "a"."""
    phrase = clause.object
    if phrase is None:
        return []
    pieces = _noun_phrase(phrase, f"{node}.object")
    own = table(code)[clause.verb].get("object", "")
    if own and own != "a":
        return word(own, f"{node}.verb") + pieces
    concept = concepts()[phrase.noun]
    if own or concept.kind == "name" or "person" in concept.classes:
        return word("a", f"{node}.object.noun") + pieces
    return pieces


def _place(clause: Clause, node: str) -> list[Piece]:
    if clause.place is None:
        return []
    preposition, phrase = clause.place
    first = word(citation(preposition), f"{node}.place.preposition")
    pieces = _noun_phrase(phrase, f"{node}.place")
    if first[-1].text == "de" and pieces[0].text == "el":
        fused = Piece("del", first[-1].nodes | pieces[0].nodes)
        return [*first[:-1], fused, *pieces[1:]]
    return first + pieces


def _adverb(clause: Clause, node: str, *classes: str) -> list[Piece]:
    if not clause.adverb or not concepts()[clause.adverb].classes & set(classes):
        return []
    return word(citation(clause.adverb), f"{node}.adverb")


def _noun_phrase(phrase: NounPhrase | None, node: str) -> list[Piece]:
    if phrase is None:
        return []
    if not phrase.determiner and concepts()[phrase.noun].kind in ("name", "pronoun"):
        return word(citation(phrase.noun), f"{node}.noun")
    gender, several = _gender(phrase.noun), phrase.several
    noun = plural(phrase.noun) if several else citation(phrase.noun)
    adjective = _adjective(phrase.adjective, gender, several) if phrase.adjective else ""
    return (
        word(_determiner(phrase), f"{node}.determiner")
        + word(noun, f"{node}.noun")
        + word(adjective, f"{node}.adjective")
    )


def _determiner(phrase: NounPhrase) -> str:
    if phrase.determiner not in _DETERMINERS:
        return citation(phrase.determiner) if phrase.determiner else ""
    gender = _gender(phrase.noun)
    if phrase.determiner in ("the", "a") and not phrase.several and _has(phrase.noun, "article"):
        gender = "masculine"  # "el agua", but "esta agua"
    return _DETERMINERS[phrase.determiner][(gender == "feminine") + 2 * phrase.several]


def _person(subject: NounPhrase | None) -> int:
    if subject is None:
        return _EL
    if subject.noun in PRONOUNS:
        return _PERSONS[subject.noun]
    return _ELLOS if subject.several else _EL


def _gender(concept: str) -> Gender:
    known = concepts()[concept]
    if known.kind == "pronoun":
        return "masculine"
    if known.kind == "name":
        return "feminine" if "feminine" in known.classes else "masculine"
    entry = table(code)[concept]
    given = entry.get("gender")
    if given:
        return "feminine" if given == "feminine" else "masculine"
    return "feminine" if entry["base"].endswith(("a", "ción", "dad")) else "masculine"


def _agreeing_with_subject(adjective: str, clause: Clause) -> str:
    """Inflect an adjective (a concept, or a participle as it stands) for the clause's subject."""
    if clause.subject is None:
        return _adjective(adjective, "masculine", several=False)
    return _adjective(adjective, _gender(clause.subject.noun), clause.subject.several)


def _adjective(adjective: str, gender: Gender, several: bool) -> str:
    entry = table(code).get(adjective, {})
    form = entry.get("base", adjective)
    if gender == "feminine":
        if form.endswith("o"):
            form = form[:-1] + "a"
        elif form.endswith("dor"):
            form += "a"
    if not several:
        return form
    return entry.get("plural") or _plural_of(form)


def _plural_of(singular: str) -> str:
    if singular[-1] in "aeiouáéó":
        return singular + "s"
    if singular[-1] == "z":
        return singular[:-1] + "ces"
    if singular[-1] in "ns":
        # The stress is no longer on the last syllable: "ladrón", "ladrones".
        return singular[:-2] + singular[-2].translate(_PLAIN) + singular[-1] + "es"
    return singular + "es"


def _takes_estar(clause: Clause) -> bool:
    if clause.verb != "be":
        return False
    if not clause.predicate:
        return True
    return table(code)[clause.predicate].get("copula") == "estar"


def _finite(concept: str, person: int, tense: str) -> str:
    entry = table(code)[concept]
    if tense == "past":
        tense = entry.get("past", "preterite")
    listed = entry.get(tense)
    if listed:
        return listed.split()[person]
    stem, ending = entry["base"][:-2], entry["base"][-2:]
    if tense == "present":
        return stem + _PRESENT[ending][person]
    if tense == "imperfect":
        return stem + _IMPERFECT[ending][person]
    if person == _YO and ending == "ar":
        stem = _before_e(stem)
    return stem + _PRETERITE[ending][person]


def _before_e(stem: str) -> str:
    """Keep the sound of the stem's last consonant before e: busqué, jugué."""
    for letter, spelling in (("c", "qu"), ("g", "gu"), ("z", "c")):
        if stem.endswith(letter):
            return stem[:-1] + spelling
    return stem


def _with_fixed_words(concept: str, form: str) -> str:
    entry = table(code)[concept]
    # The preposition of a reflexive verb tells it from the plain one: "encontrarse con".
    preposition = entry.get("object", "") if _has(concept, "reflexive") else ""
    return " ".join(part for part in (form, entry.get("rest", ""), preposition) if part)


def _has(concept: str, column: str) -> bool:
    return column in table(code).get(concept, {})
