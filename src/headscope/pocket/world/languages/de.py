"""German: three genders, three cases, verb second, verb final in subordinate clauses, Perfekt.

Word order: subject, finite verb, adverb of time or place, adverb of frequency or manner, object,
"nicht", place phrase, predicate, and at the end the separable prefix or the participle. The past
is the Perfekt ("hat gesehen"), except "war".
"""

from __future__ import annotations

import re

from headscope.pocket.world.sentences import (
    NUMERALS,
    Clause,
    NounPhrase,
    Piece,
    concepts,
    forms,
    table,
    word,
)

code = "de"
comma_before = frozenset({"but", "because", "that"})

# Declension: case -> endings for masculine, feminine, neuter, plural.
Endings = dict[str, list[str]]
_GENDERS = "mfnp"
_ARTICLE = forms(
    nominative="der die das die", accusative="den die das die", dative="dem der dem den"
)
#: "dieser", "jeder"; the same endings are the strong ones of adjectives.
_STRONG = forms(nominative="er e es e", accusative="en e es e", dative="em er em en")
#: "ein", "kein", "mein", "dein", "unser".
_POSSESSIVE = forms(nominative="- e - e", accusative="en e - e", dative="em er em en")
#: Adjectives after "der", "dieser", "jeder".
_WEAK = forms(nominative="e e e en", accusative="en e e en", dative="en en en en")
#: Adjectives after "ein", "kein", "mein", "dein", "unser".
_MIXED = forms(nominative="er e es en", accusative="en e es en", dative="en en en en")

# Conjugation: forms for ich, du, er, and the plural.
_HABEN = {"ich": "habe", "du": "hast", "third": "hat", "plural": "haben"}
_SEIN = {"ich": "bin", "du": "bist", "third": "ist", "plural": "sind"}
_WAR = {"ich": "war", "du": "warst", "third": "war", "plural": "waren"}


def citation(concept: str) -> str:
    """Dictionary form; the preposition of a verb is part of it ("warten auf")."""
    if concepts()[concept].kind == "name":
        return concept.capitalize()
    entry = table(code)[concept]
    return f"{entry['base']} {entry.get('preposition', '')}".strip()


def plural(concept: str) -> str:
    return table(code)[concept]["plural"]


def past(concept: str) -> str:
    """Third person singular of the Perfekt ("hat gesehen"), or "war"."""
    if concept == "be":
        return _WAR["third"]
    entry = table(code)[concept]
    perfect = f"{_auxiliary(entry)['third']} {_participle(entry)}"
    return f"{perfect} {entry.get('preposition', '')}".strip()


def clause(clause: Clause, index: int, connective: str = "") -> list[Piece]:
    node = str(index)
    finite, closing = _verb(clause)
    if connective in ("because", "that"):
        # The finite verb goes behind the participle or takes its separable prefix back.
        joined = f"{closing} {finite}" if clause.tense == "past" else closing + finite
        end = word(joined if closing else finite, f"{node}.verb")
        return _subject(clause, node) + _middle(clause, node) + end
    subject, verb = _subject(clause, node), word(finite, f"{node}.verb")
    if clause.question == "polar":
        opening = verb + subject
    elif clause.question == "what":
        opening = _what(clause, node) + verb + subject
    else:
        opening = subject + verb
    return opening + _middle(clause, node) + word(closing, f"{node}.verb")


def _middle(clause: Clause, node: str) -> list[Piece]:
    """What stands between the finite verb and the end of the clause."""
    entry = _verb_entry(clause)
    classes = concepts()[clause.adverb].classes if clause.adverb else frozenset()
    adverb = word(citation(clause.adverb) if clause.adverb else "", f"{node}.adverb")
    negated, phrase = clause.negated, clause.object
    # "nicht oft", "nicht allein": the negation of such an adverb stands before it.
    before_adverb = negated and bool(classes & {"frequency", "manner"})
    if clause.verb == "be" and not clause.predicate and clause.place is None:
        before_adverb = negated and bool(clause.adverb)
    no = negated and not before_adverb and phrase is not None and phrase.determiner == "a"
    # "nicht zwei Hunde", "nicht auf meinen Bruder"; but "meinen Hund nicht".
    before_object = phrase is not None and (phrase.determiner in NUMERALS or "preposition" in entry)
    negation = word("nicht" if negated and not before_adverb and not no else "", f"{node}.negation")
    case = entry.get("case", "accusative")
    objects = word(entry.get("preposition", "") if phrase else "", f"{node}.verb")
    objects += _noun_phrase(
        phrase, f"{node}.object", case, negation=f"{node}.negation" if no else ""
    )
    predicate = word(citation(clause.predicate) if clause.predicate else "", f"{node}.predicate")
    return (
        word("nicht" if before_adverb else "", f"{node}.negation")
        + adverb
        + (negation + objects if before_object else objects + negation)
        + _place(clause, node)
        + predicate
    )


def _subject(clause: Clause, node: str) -> list[Piece]:
    if clause.question == "who":
        return word(citation("who"), f"{node}.question")
    return _noun_phrase(clause.subject, f"{node}.subject", "nominative")


def _what(clause: Clause, node: str) -> list[Piece]:
    entry = _verb_entry(clause)
    if entry.get("preposition"):
        # "worauf": the question word has the verb's preposition in it.
        linked = "wor" if entry["preposition"][0] in "aeiouäöü" else "wo"
        return word(linked + entry["preposition"], f"{node}.question", f"{node}.verb")
    asks = "wem" if entry.get("case") == "dative" else citation("what")
    return word(asks, f"{node}.question")


def _noun_phrase(
    phrase: NounPhrase | None, node: str, case: str, negation: str = ""
) -> list[Piece]:
    """Decline a phrase; with the node `negation` its article "a" becomes "kein"."""
    if phrase is None:
        return []
    if concepts()[phrase.noun].kind != "noun":
        return word(citation(phrase.noun), f"{node}.noun")
    noun = table(code)[phrase.noun]
    column = _GENDERS.index("p" if phrase.several else noun["gender"])
    determiner, endings = _determiner(phrase.determiner, case, column, bool(negation))
    nodes = [f"{node}.determiner"] + ([negation] if negation else [])
    adjective = _stem(phrase.adjective) + endings[case][column] if phrase.adjective else ""
    return (
        word(determiner, *nodes)
        + word(adjective, f"{node}.adjective")
        + word(_noun(noun, case, phrase.several), f"{node}.noun")
    )


def _determiner(determiner: str, case: str, column: int, negated: bool) -> tuple[str, Endings]:
    """The declined determiner, and the adjective endings that follow it."""
    if determiner == "the":
        return _ARTICLE[case][column], _WEAK
    if determiner in ("this", "every"):
        return citation(determiner).removesuffix("er") + _STRONG[case][column], _WEAK
    if determiner in NUMERALS:
        return citation(determiner), _STRONG
    if determiner == "a" and _GENDERS[column] == "p" and not negated:
        return "", _STRONG
    base = ("kein" if negated else "ein") if determiner == "a" else citation(determiner)
    return base + _POSSESSIVE[case][column], _MIXED


def _noun(noun: dict[str, str], case: str, several: bool) -> str:
    if not several:
        # "den Studenten": the weak declension has one form outside the nominative.
        return noun["base"] if case == "nominative" else noun.get("weak", noun["base"])
    form = noun["plural"]
    return form if case != "dative" or form.endswith(("n", "s")) else form + "n"


def _stem(adjective: str) -> str:
    """The adjective before its ending ("teuer", "teurer"; "müde", "müder")."""
    entry = table(code)[adjective]
    return entry.get("stem") or entry["base"].removesuffix("e")


def _place(clause: Clause, node: str) -> list[Piece]:
    if clause.place is None:
        return []
    preposition, phrase = clause.place
    form = citation(preposition)
    if preposition == "in":
        # "auf dem Markt": some places are not entered.
        form = table(code).get(phrase.noun, {}).get("in", form)
    pieces = _noun_phrase(phrase, f"{node}.place", "dative")
    head = f"{node}.place.preposition"
    if form == "in" and pieces[0].text == "dem":
        return word("im", head, f"{node}.place.determiner") + pieces[1:]
    return word(form, head) + pieces


def _verb(clause: Clause) -> tuple[str, str]:
    """The finite verb, and what closes a main clause (participle or separable prefix)."""
    person = _person(clause)
    if clause.verb == "be":
        return (_WAR if clause.tense == "past" else _SEIN)[person], ""
    entry = _verb_entry(clause)
    if clause.tense == "past":
        return _auxiliary(entry)[person], _participle(entry)
    return _present(entry, person), entry.get("prefix", "")


def _verb_entry(clause: Clause) -> dict[str, str]:
    """The verb's row; columns "animal.…" hold another verb for animals ("fressen")."""
    entry = table(code)[clause.verb]
    subject = clause.subject
    if subject is None or "animal" not in concepts()[subject.noun].classes:
        return entry
    return entry | {
        column.removeprefix("animal."): form
        for column, form in entry.items()
        if column.startswith("animal.")
    }


def _person(clause: Clause) -> str:
    subject = clause.subject
    if subject is None:
        return "third"
    if subject.noun in ("i", "you"):
        return "ich" if subject.noun == "i" else "du"
    return "plural" if subject.several else "third"


def _present(entry: dict[str, str], person: str) -> str:
    if person in entry:
        return entry[person]
    infinitive = entry["base"].removeprefix(entry.get("prefix", ""))
    if person == "plural":
        return infinitive
    stem = _verb_stem(infinitive)
    if person == "ich":
        return stem + "e"
    if person == "third":
        return stem + _link(stem) + "t"
    return stem + ("t" if stem.endswith(("s", "ß", "z")) else _link(stem) + "st")


def _participle(entry: dict[str, str]) -> str:
    if "participle" in entry:
        return entry["participle"]
    infinitive = entry["base"]
    stem = _verb_stem(infinitive)
    unstressed = infinitive.startswith(("be", "ver", "zer")) or infinitive.endswith("ieren")
    return ("" if unstressed else "ge") + stem + _link(stem) + "t"


def _auxiliary(entry: dict[str, str]) -> dict[str, str]:
    return _SEIN if entry.get("auxiliary") == "sein" else _HABEN


def _verb_stem(infinitive: str) -> str:
    return infinitive.removesuffix("n").removesuffix("e")


def _link(stem: str) -> str:
    """The "e" that makes an ending speakable ("wartet", "öffnet")."""
    return "e" if re.search(r"[td]$|(ch|[bdfgkpst])[mn]$", stem) else ""
