"""Sentences that say almost the same: one content word is another."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

from headscope.pocket.mixture import say
from headscope.pocket.world.lexicon import Concept, concepts, of_kind
from headscope.pocket.world.sampling import Split, split_of
from headscope.pocket.world.sentences import Clause, NounPhrase, Sentence


def near_misses(
    sentence: Sentence, split: Split, rng: random.Random, codes: tuple[str, ...], wanted: int
) -> list[Sentence] | None:
    """`wanted` sentences of the same split that differ from this one in one content word.

    None where there are too few. Their texts differ in each of the languages `codes`.

    Of the same split, since a choice whose words never went together in training would stand out
    among others whose words did.
    """
    found: list[Sentence] = []
    texts = [{say(sentence, code)} for code in codes]
    candidates = list(_variants(sentence))
    rng.shuffle(candidates)
    for one in candidates:
        if split_of(one) != split:
            continue
        said = [say(one, code) for code in codes]
        if any(text in known for text, known in zip(said, texts, strict=True)):
            continue
        for text, known in zip(said, texts, strict=True):
            known.add(text)
        found.append(one)
        if len(found) == wanted:
            return found
    return None


def _variants(sentence: Sentence) -> Iterator[Sentence]:
    for first in _clause_variants(sentence.first):
        yield replace(sentence, first=first)
    if sentence.second is not None:
        for second in _clause_variants(sentence.second):
            yield replace(sentence, second=second)


def _clause_variants(clause: Clause) -> Iterator[Clause]:
    """The clause with one noun, verb or adjective replaced by another of its class."""
    for verb in _like(clause.verb):
        yield replace(clause, verb=verb)
    for predicate in _like(clause.predicate):
        yield replace(clause, predicate=predicate)
    for subject in _phrase_variants(clause.subject):
        yield replace(clause, subject=subject)
    for thing in _phrase_variants(clause.object):
        yield replace(clause, object=thing)
    if clause.place is not None:
        for place in _phrase_variants(clause.place[1]):
            yield replace(clause, place=(clause.place[0], place))


def _phrase_variants(phrase: NounPhrase | None) -> Iterator[NounPhrase]:
    if phrase is None:
        return
    for noun in _like(phrase.noun):
        yield replace(phrase, noun=noun)
    for adjective in _like(phrase.adjective):
        yield replace(phrase, adjective=adjective)


def _like(concept: str) -> list[str]:
    """Other concepts that may stand wherever this one does."""
    if not concept or concept == "be" or concepts()[concept].kind == "pronoun":
        return []
    one = concepts()[concept]
    return [other.id for other in of_kind(one.kind) if other.id != concept and _frame(other, one)]


def _frame(a: Concept, b: Concept) -> bool:
    """Whether two concepts stand in the same places: class, and what a verb goes with."""
    return all(
        getattr(a, name) == getattr(b, name) for name in ("classes", "subjects", "objects", "place")
    )
