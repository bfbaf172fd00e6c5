"""Drawing sentences of the world, and the deterministic split into train, dev and test.

A sentence belongs to test when any of its *combinations* (subject and verb, verb and object,
adjective and noun, verb and place) or its *frame* (its shape without content words) hashes into
the test bucket; otherwise to dev likewise; otherwise to train. So train never shows a
combination or a frame that test holds, whatever the seed.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Literal

from headscope.pocket.world.sentences import (
    NUMERALS,
    PRONOUNS,
    Clause,
    Concept,
    Connective,
    NounPhrase,
    Question,
    Sentence,
    Tense,
    concepts,
    of_kind,
)

Split = Literal["train", "dev", "test"]
SPLITS: tuple[Split, ...] = ("train", "dev", "test")

#: Share of all combinations and frames in the test bucket; dev has as many.
HELD_OUT = 0.01

_ADJECTIVES_OF = {
    "person": ("any", "animate", "person"),
    "animal": ("any", "animate"),
    "food": ("any", "food"),
    "drink": ("food",),
    "place": ("any", "place"),
}
_ADJECTIVES_OTHERWISE = ("any", "thing")
_CONNECTIVES: tuple[Connective, ...] = ("that", "that", "because", "and", "but")
_PAST_ONLY = ("yesterday",)
_PRESENT_ONLY = ("now", "tonight")
_PERSON_SHARES = {"name": 0.22, "pronoun": 0.13}


def sentences(split: Split, seed: int) -> Iterator[Sentence]:
    """An endless stream of sentences of one split, the same for the same seed."""
    rng = random.Random(f"{split}-{seed}")
    while True:
        sentence = draw_sentence(rng)
        if split_of(sentence) == split:
            yield sentence


def split_of(sentence: Sentence) -> Split:
    """The split a sentence belongs to; see the module's docstring."""
    buckets = {bucket(key) for key in combinations(sentence)}
    return "test" if "test" in buckets else "dev" if "dev" in buckets else "train"


@cache
def bucket(key: str) -> Split:
    """The split a combination belongs to, by its SHA-256."""
    share = int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big") / 2**64
    return "test" if share < HELD_OUT else "dev" if share < 2 * HELD_OUT else "train"


def combinations(sentence: Sentence) -> set[str]:
    """The word combinations and the frame of a sentence, as strings to hash."""
    pairs: set[str] = set()
    frame: list[str] = [sentence.connective]
    for clause in (sentence.first, sentence.second):
        if clause is None:
            continue
        pairs |= _clause_combinations(clause)
        frame.append(_frame(clause))
    pairs.add("frame " + " / ".join(frame))
    return pairs


def draw_sentence(rng: random.Random, topics: tuple[NounPhrase, ...] = ()) -> Sentence:
    """One sentence of any split. With `topics` the subject is one of them where the verb allows."""
    if rng.random() < 0.26:
        connective = rng.choice(_CONNECTIVES)
        first_kind = "clause" if connective == "that" else ""
        first = _draw_clause(rng, topics, kind=first_kind, plain=True)
        return Sentence(first, connective, _draw_clause(rng, topics, plain=True))
    return Sentence(_draw_clause(rng, topics))


def _draw_clause(
    rng: random.Random, topics: tuple[NounPhrase, ...], kind: str = "", plain: bool = False
) -> Clause:
    kind = kind or rng.choices(("object", "state", "copula"), (62, 20, 18))[0]
    tense: Tense = "past" if rng.random() < 0.45 else "present"
    negated = rng.random() < 0.15
    if kind == "clause":
        verb = rng.choice(_verbs("clause"))
        return Clause(_subject(rng, verb, topics), verb.id, tense=tense, negated=negated)
    question: Question = ""
    if not plain and rng.random() < 0.14:
        question = rng.choice(("polar", "polar", "who", "what" if kind == "object" else "polar"))
    adverb = ""
    if rng.random() < 0.3:
        excluded = _PRESENT_ONLY if tense == "past" else _PAST_ONLY
        adverb = rng.choice([known.id for known in of_kind("adverb") if known.id not in excluded])
    verb = concepts()["be"] if kind == "copula" else rng.choice(_verbs(kind))
    subject = _subject(rng, verb, topics)
    if question == "who":
        question = "who" if verb.subjects & {"person"} else "polar"
    clause = Clause(
        None if question == "who" else subject,
        verb.id,
        adverb=adverb,
        tense=tense,
        negated=negated,
        question=question,
    )
    if kind == "copula":
        return _copula(rng, clause)
    wanted = None if question == "what" or kind == "state" else _object(rng, verb, subject)
    place = _place(rng, subject) if verb.place and rng.random() < 0.4 else None
    if place and "where" in _classes(adverb):
        adverb = ""
    return replace(clause, object=wanted, place=place, adverb=adverb)


def _copula(rng: random.Random, clause: Clause) -> Clause:
    noun = clause.subject
    kind = _noun_class(noun.noun) if noun else "person"
    if rng.random() < 0.3 and kind != "place":
        place = _place(rng, noun, prepositions=_STATIC)
        adverb = "" if _classes(clause.adverb) & {"where", "manner"} else clause.adverb
        return replace(clause, place=place, adverb=adverb)
    animate_only = noun is None or concepts()[noun.noun].kind != "noun"
    predicate = rng.choice(_adjectives(kind, animate_only)).id
    adverb = clause.adverb if _classes(clause.adverb) & {"time", "frequency"} else ""
    return replace(clause, predicate=predicate, adverb=adverb)


_STATIC = ("in", "near", "behind", "in_front_of", "under", "on")


def _subject(rng: random.Random, verb: Concept, topics: tuple[NounPhrase, ...]) -> NounPhrase:
    fitting = [topic for topic in topics if _noun_class(topic.noun) in verb.subjects]
    if fitting and rng.random() < 0.7:
        return rng.choice(fitting)
    if "person" in verb.subjects:
        roll = rng.random()
        if roll < _PERSON_SHARES["name"]:
            return NounPhrase(rng.choice(of_kind("name")).id)
        if roll < sum(_PERSON_SHARES.values()):
            pronoun = rng.choice(PRONOUNS)
            return NounPhrase(pronoun, number="plural" if pronoun in ("we", "they") else "singular")
    noun = rng.choice(_nouns(verb.subjects))
    determiner = rng.choices(
        ("the", "this", "my", "your", "our", "every", "numeral"), (46, 12, 12, 6, 6, 6, 12)
    )[0]
    return _phrase(rng, noun, determiner)


def _object(rng: random.Random, verb: Concept, subject: NounPhrase) -> NounPhrase:
    while True:
        if "person" in verb.objects and rng.random() < 0.15:
            phrase = NounPhrase(rng.choice(of_kind("name")).id)
        else:
            noun = rng.choice(_nouns(verb.objects))
            weights = (0 if "drink" in noun.classes else 46, 18, 12, 6, 6, 12)
            determiner = rng.choices(("a", "this", "my", "your", "our", "numeral"), weights)[0]
            phrase = _phrase(rng, noun, determiner)
        if phrase.noun != subject.noun:
            return phrase


def _place(
    rng: random.Random,
    subject: NounPhrase | None,
    prepositions: tuple[str, ...] = (*_STATIC, "with"),
) -> tuple[str, NounPhrase]:
    preposition = concepts()[rng.choices(prepositions, [4, *[1] * (len(prepositions) - 1)])[0]]
    while True:
        if "person" in preposition.classes and rng.random() < 0.2:
            phrase = NounPhrase(rng.choice(of_kind("name")).id)
        else:
            noun = rng.choice(_nouns(preposition.classes))
            determiner = rng.choices(("the", "this", "my", "our"), (70, 10, 12, 8))[0]
            phrase = _phrase(rng, noun, determiner, plural=0.1)
        if subject is None or phrase.noun != subject.noun:
            return preposition.id, phrase


def _phrase(rng: random.Random, noun: Concept, determiner: str, plural: float = 0.3) -> NounPhrase:
    countable = "drink" not in noun.classes
    if determiner == "numeral":
        determiner = rng.choice(NUMERALS)
    if not countable and determiner in ("every", *NUMERALS):
        determiner = "this"
    many = determiner in NUMERALS or (countable and determiner != "every" and rng.random() < plural)
    adjective = ""
    if rng.random() < 0.35:
        (kind,) = noun.classes
        adjective = rng.choice(_adjectives(kind, False)).id
    return NounPhrase(noun.id, determiner, "plural" if many else "singular", adjective)


@cache
def _nouns(classes: frozenset[str]) -> list[Concept]:
    return [noun for noun in of_kind("noun") if noun.classes & classes or "any" in classes]


@cache
def _verbs(kind: str) -> list[Concept]:
    verbs = of_kind("verb")
    if kind == "clause":
        return [verb for verb in verbs if "clause" in verb.classes]
    own = [verb for verb in verbs if verb.classes & {"action", "state"}]
    return [verb for verb in own if bool(verb.objects) == (kind == "object")]


@cache
def _adjectives(kind: str, animate_only: bool) -> list[Concept]:
    allowed = set(_ADJECTIVES_OF.get(kind, _ADJECTIVES_OTHERWISE))
    if animate_only:
        allowed -= {"any"}
    return [adjective for adjective in of_kind("adjective") if adjective.classes & allowed]


def _noun_class(noun: str) -> str:
    concept = concepts()[noun]
    if concept.kind in ("name", "pronoun"):
        return "person"
    (only,) = concept.classes
    return only


def _classes(adverb: str) -> frozenset[str]:
    return concepts()[adverb].classes if adverb else frozenset()


def _clause_combinations(clause: Clause) -> set[str]:
    pairs = set()
    if clause.subject:
        pairs.add(f"subject {clause.subject.noun} {clause.verb}")
        if clause.predicate:
            pairs.add(f"adjective {clause.predicate} {clause.subject.noun}")
    if clause.object:
        pairs.add(f"object {clause.verb} {clause.object.noun}")
    if clause.place:
        pairs.add(f"place {clause.verb} {clause.place[0]} {clause.place[1].noun}")
    for phrase in (clause.subject, clause.object, clause.place[1] if clause.place else None):
        if phrase and phrase.adjective:
            pairs.add(f"adjective {phrase.adjective} {phrase.noun}")
    return pairs


def _frame(clause: Clause) -> str:
    verb = sorted(concepts()[clause.verb].classes)[0]
    parts = (
        verb,
        clause.tense,
        "not" if clause.negated else "",
        clause.question,
        _shape(clause.subject),
        _shape(clause.object),
        _shape(clause.place[1]) if clause.place else "",
        "predicate" if clause.predicate else "",
        *sorted(_classes(clause.adverb)),
    )
    return " ".join(parts)


def _shape(phrase: NounPhrase | None) -> str:
    if phrase is None:
        return "-"
    kind = phrase.noun if phrase.noun in PRONOUNS else concepts()[phrase.noun].kind
    determiner = "numeral" if phrase.determiner in NUMERALS else phrase.determiner
    return ",".join((kind, determiner, phrase.number, "adjective" if phrase.adjective else ""))
