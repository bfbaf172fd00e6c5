"""Turkish: verb-final, agglutinating, with vowel harmony and consonant alternation by rule.

Word order: subject, adverb of time, frequency or where, place, adverb of manner, object, verb,
question particle. The present is the one in -iyor, the past the one in -di.

Suffixes are written as templates: `A` is e/a, `I` is i/ı/ü/u, `D` is d/t; a first letter in
parentheses is a buffer: a consonant is kept after a vowel, a vowel after a consonant.
"""

from __future__ import annotations

from headscope.pocket.world.sentences import (
    NUMERALS,
    Clause,
    NounPhrase,
    Piece,
    concepts,
    table,
    word,
)

code = "tr"
comma_before = frozenset({"but", "because"})

_VOWELS = "aâeıioöuü"
_FRONT = "eiöü"
_VOICELESS = "çfhkpsştx"
_HIGH = {"a": "ı", "â": "ı", "ı": "ı", "e": "i", "i": "i", "o": "u", "u": "u", "ö": "ü", "ü": "ü"}
_VOICED = {"p": "b", "ç": "c", "k": "ğ"}

_CASES = {
    "": "",
    "accusative": "(y)I",
    "dative": "(y)A",
    "locative": "DA",
    "ablative": "DAn",
    "genitive": "(n)In",
    "ile": "",  # the separate word "ile" follows the nominative
}
_POSSESSIVES = {"my": "(I)m", "your": "(I)n", "our": "(I)mIz"}
# Personal endings after -iyor and -di, and of the copula, by person.
_PRESENT = {"i": "um", "you": "sun", "we": "uz", "they": "lar", "": ""}
_PAST = {"i": "m", "you": "n", "we": "k", "they": "lAr", "": ""}
_COPULA = {"i": "(y)Im", "you": "sIn", "we": "(y)Iz", "they": "lAr", "": ""}
_WHAT = {"accusative": "ne", "dative": "neye", "ablative": "neyden", "ile": "ne ile"}


def citation(concept: str) -> str:
    """Dictionary form; names keep their capital, verbs are in the infinitive. No concept is ""."""
    return table(code).get(concept, {}).get("base") or concept.capitalize()


def plural(concept: str) -> str:
    return _noun(concept, number="plural")


def past(concept: str) -> str:
    irregular = table(code)[concept].get("past")
    return irregular or _verb_form(concept, "past", negated=False, person="")


def clause(clause: Clause, index: int, connective: str = "") -> list[Piece]:
    node = str(index)
    manner = bool(clause.adverb) and "manner" in concepts()[clause.adverb].classes
    adverb = word(_adverb(clause), f"{node}.adverb")
    place = _place(clause, node)
    subject = (
        word(citation("who"), f"{node}.question")
        if clause.question == "who"
        else _noun_phrase(clause, clause.subject, f"{node}.subject", "")
    )
    if clause.verb == "be":
        predicate = word(citation(clause.predicate), f"{node}.predicate")
        return subject + adverb + _copula(clause, node, place + predicate)
    before, after = ([], adverb) if manner else (adverb, [])
    pieces = subject + before + place + after + _object(clause, node)
    person = _person(clause)
    form = _verb_form(clause.verb, clause.tense, clause.negated, person)
    particle = ""
    if clause.question == "polar":
        ending = ""
        if clause.tense == "present" and person != "they":
            # The personal ending moves to the particle: "görüyor musun".
            form = _verb_form(clause.verb, clause.tense, clause.negated, "")
            ending = _COPULA[person]
        particle = _join(_particle(form), ending)
    last = (f"{node}.negation",) if clause.negated else ()
    verb = _phrase_word(form, (f"{node}.verb",), last)
    return pieces + verb + word(particle, f"{node}.question")


def _phrase_word(text: str, nodes: tuple[str, ...], last: tuple[str, ...]) -> list[Piece]:
    """Pieces that all express `nodes`; only the last one, which is inflected, also `last`."""
    head, _, tail = text.rpartition(" ")
    return word(head, *nodes) + word(tail, *nodes, *last)


def _object(clause: Clause, node: str) -> list[Piece]:
    case = table(code)[clause.verb].get("case", "accusative")
    if clause.question == "what":
        return word(_WHAT[case], f"{node}.question")
    phrase = clause.object
    if phrase is None:
        return []
    # An object that is not definite stands in the bare form, but only instead of an accusative.
    definite = phrase.determiner in ("", "the", "this", "every", *_POSSESSIVES)
    form = "" if case == "accusative" and not definite else case
    ile = word(citation("with") if case == "ile" else "", f"{node}.object.noun")
    return _noun_phrase(clause, phrase, f"{node}.object", form) + ile


def _place(clause: Clause, node: str) -> list[Piece]:
    if clause.place is None:
        return []
    preposition, phrase = clause.place
    marker = f"{node}.place.preposition"
    place = f"{node}.place"
    if preposition == "in":
        return _noun_phrase(clause, phrase, place, "locative", marker)
    postposition = citation(preposition)
    if preposition == "with":
        # "ile" takes no copula well: "kadın ile birlikteyim".
        postposition += " birlikte" if clause.verb == "be" else ""
        return _noun_phrase(clause, phrase, place, "ile") + word(postposition, marker)
    return _noun_phrase(clause, phrase, place, "genitive") + word(postposition, marker)


def _noun_phrase(
    clause: Clause, phrase: NounPhrase | None, node: str, case: str, *marker: str
) -> list[Piece]:
    """A noun phrase in a case; the inflected word also expresses the nodes `marker`."""
    if phrase is None:
        return []
    kind = concepts()[phrase.noun].kind
    if kind == "pronoun":
        return word(citation(phrase.noun), f"{node}.noun")
    if kind == "name":
        return word(_name(phrase.noun, case), f"{node}.noun", *marker)
    determiner = phrase.determiner
    possessor = determiner if determiner in _POSSESSIVES else ""
    # A numeral leaves the noun in the singular: "iki adam".
    number = "singular" if determiner in NUMERALS else phrase.number
    noun = _noun(phrase.noun, number, possessor, case)
    adjective = word(citation(phrase.adjective), f"{node}.adjective")
    inflected = (f"{node}.determiner", *marker) if possessor else marker
    pieces = adjective + _phrase_word(noun, (f"{node}.noun",), inflected)
    if determiner == "a" and phrase.number == "singular":
        # The article stands between adjective and noun: "güzel bir ev".
        return adjective + word("bir", f"{node}.determiner") + pieces[len(adjective) :]
    return word(_determiner(clause, determiner, node), f"{node}.determiner") + pieces


def _determiner(clause: Clause, determiner: str, node: str) -> str:
    if determiner in ("", "the", "a"):
        return ""
    if determiner not in _POSSESSIVES:
        return citation(determiner)
    # The suffix says whose it is; but "kitabını" is read as "his book" unless the subject is
    # "sen" or the noun itself is the subject, so there "senin" is said.
    owner_is_subject = clause.subject is not None and clause.subject.noun == "you"
    possessive = determiner == "your" and not node.endswith("subject") and not owner_is_subject
    return citation("your") if possessive else ""


def _copula(clause: Clause, node: str, pieces: list[Piece]) -> list[Piece]:
    """Put the copula's suffix on the predicate, on "değil" or on the question particle."""
    person = _person(clause)
    past = clause.tense == "past"
    ending = "(y)DI" + _PAST[person] if past else _COPULA[person]
    verb = f"{node}.verb"
    if clause.negated:
        pieces = [*pieces, *word("değil", f"{node}.negation", verb)]
    host = pieces[-1]
    stem = "" if clause.negated else table(code).get(clause.predicate, {}).get("stem", "")
    suffixed = Piece(
        _join(host.text, ending, stem), host.nodes | ({verb} if ending else frozenset())
    )
    if clause.question != "polar":
        return [*pieces[:-1], suffixed]
    if person == "they" and not past:
        return [*pieces[:-1], suffixed, *word(_particle(suffixed.text), f"{node}.question")]
    particle = _join(_particle(host.text), ending)
    return pieces + word(particle, f"{node}.question", *([verb] if ending else []))


def _person(clause: Clause) -> str:
    """The pronoun the verb agrees with; plural nouns keep the verb in the singular."""
    subject = clause.subject
    if subject is None or concepts()[subject.noun].kind != "pronoun":
        return ""
    return subject.noun


def _adverb(clause: Clause) -> str:
    """The adverb; "tek başına" agrees: "ben tek başıma", "çocuklar tek başlarına"."""
    if not clause.adverb:
        return ""
    subject = clause.subject
    person = _person(clause)
    if subject and not person and subject.number == "plural" and subject.determiner not in NUMERALS:
        person = "they"
    return table(code)[clause.adverb].get(person) or citation(clause.adverb)


def _particle(before: str) -> str:
    return "m" + _suffix(before, "I")


def _verb_form(concept: str, tense: str, negated: bool, person: str) -> str:
    entry = table(code)[concept]
    base = entry["base"][:-3]  # without -mek, -mak
    if tense == "past":
        stem = _join(base, "mA") if negated else base
        return _join(stem, "DI" + _PAST[person])
    if negated:
        stem = _join(base, "mI")
    elif base[-1] in _VOWELS:
        # The stem's last vowel gives way to a high one: "ara-" "arıyor", "söyle-" "söylüyor".
        head = base[:-1]
        harmony = head if any(letter in _VOWELS for letter in head.split(" ")[-1]) else base
        stem = head + _suffix(harmony, "I")
    else:
        # A verb's last consonant does not soften by rule: "satıyor", "açıyor", but "ediyor".
        stem = entry.get("stem", base) + _suffix(base, "I")
    return stem + "yor" + _PRESENT[person]


def _name(concept: str, case: str) -> str:
    name = citation(concept)
    front = table(code).get(concept, {}).get("harmony") == "front"
    suffix = _suffix(name, _CASES[case], front)
    return f"{name}'{suffix}" if suffix else name


def _noun(concept: str, number: str = "singular", possessor: str = "", case: str = "") -> str:
    entry = table(code)[concept]
    stem = entry.get("stem", "")
    front = entry.get("harmony") == "front"
    form = entry.get("head", entry["base"])
    suffixes = ["lAr"] if number == "plural" else []
    if possessor:
        suffixes.append(_POSSESSIVES[possessor])
    ending = _CASES[case]
    if "head" in entry and not possessor:
        # A compound ends in a possessive of the third person, with n before a case.
        suffixes.append("I")
        ending = "n" + ending.replace("(y)", "").replace("(n)", "") if ending else ""
    for suffix in [*suffixes, ending] if ending else suffixes:
        form = _join(form, suffix, stem, front, soften=not stem and form == entry["base"])
        stem, front = "", False
    return form


def _join(
    text: str, template: str, stem: str = "", front: bool = False, soften: bool = True
) -> str:
    """`text` with a suffix; before a vowel `stem` stands for it, else its consonant softens."""
    if stem and _resolve(stem, template)[:1] in ("A", "I"):
        return stem + _suffix(stem, template, front)
    suffix = _suffix(text, template, front)
    if soften and suffix and suffix[0] in _VOWELS:
        text = _soften(text)
    return text + suffix


def _soften(text: str) -> str:
    """Final p, ç, k of a word of two or more syllables before a vowel: kitap, kitab-ı."""
    last_word = text.rpartition(" ")[2]
    if sum(letter in _VOWELS for letter in last_word) < 2 or last_word[-1] not in _VOICED:
        return text
    return text[:-1] + _VOICED[text[-1]]


def _resolve(text: str, template: str) -> str:
    """The template with its buffer letter decided."""
    if not template.startswith("("):
        return template
    buffer, rest = template[1], template[3:]
    after_vowel = text[-1] in _VOWELS
    keep = after_vowel != (buffer in "AI")
    return buffer + rest if keep else rest


def _suffix(text: str, template: str, front: bool = False) -> str:
    """The suffix in the shape it has after `text`."""
    vowel = next(letter for letter in reversed(text.lower()) if letter in _VOWELS)
    if front:
        vowel = {"a": "e", "ı": "i", "o": "ö", "u": "ü"}.get(vowel, vowel)
    last = text[-1]
    made = ""
    for letter in _resolve(text, template):
        if letter == "A":
            letter = "e" if vowel in _FRONT else "a"
        elif letter == "I":
            letter = _HIGH[vowel]
        elif letter == "D":
            letter = "t" if last in _VOICELESS else "d"
        if letter in _VOWELS:
            vowel = letter
        made += letter
        last = letter
    return made
