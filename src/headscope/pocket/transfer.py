"""Contradictions of the bundled model's world: one person, two values, told in two languages.

The model was trained on such contexts: in a quarter of its questions about a context both
statements are about the same person, in two languages, and the answer is either, whatever the
order. Trained questions are in one of the two languages; here they are in English always, as for
other models, so that where neither statement is English the question is of a new kind.
"""

from __future__ import annotations

import random

from headscope.data.transfer import Answer, TransferFile, TransferPrompt
from headscope.data.transfer.prompts import digest_of
from headscope.errors import InputError
from headscope.pocket.mixture import QUESTION, fact_stated, fact_value, person
from headscope.pocket.world.knowledge import CAPITALS, COLOURS, RELATIONS, item_split
from headscope.pocket.world.languages import CODES
from headscope.pocket.world.lexicon import of_kind
from headscope.pocket.world.sampling import Split

ENGLISH = "en"


def transfer_prompts(pair: str, split: Split, n: int, seed: int) -> TransferFile:
    """The first `n` contradictions of a pair such as `de-ru` drawn with `seed`.

    For the held-out splits neither fact was ever an answer in training (they are of dev or test).
    No two prompts hold the same facts, and the same seed says the same things in every pair.
    InputError for a pair that the world lacks.
    """
    a, _, b = pair.partition("-")
    if a not in CODES or b not in CODES or a == b:
        raise InputError(
            f"the pocket model has no contradictions in the pair {pair!r}; name two different "
            f"languages of {', '.join(CODES)}, such as de-ru"
        )
    facts = [
        (relation, name.id, one, other)
        for relation, values in (("origin", list(CAPITALS)), ("colour", list(COLOURS)))
        for name in of_kind("name")
        for one in values
        for other in values
        if one != other and _of_split(split, relation, name.id, one, other)
    ]
    rng = random.Random(f"pocket transfer {split} {seed}")
    chosen = rng.sample(facts, min(n, len(facts)))
    prompts = tuple(_prompt(a, b, number, *fact) for number, fact in enumerate(chosen, 1))
    return TransferFile(prompts, f"pocket:{split} ({a}, {b})", digest_of(prompts))


def _of_split(split: Split, relation: str, name: str, one: str, other: str) -> bool:
    """Whether both facts are of train, or neither is."""
    splits = {item_split(f"{relation} {name} {value}") for value in (one, other)}
    return splits == {"train"} if split == "train" else "train" not in splits


def _prompt(
    a: str, b: str, number: int, relation: str, name: str, one: str, other: str
) -> TransferPrompt:
    statements = [
        fact_stated(relation, code, person(name, code), fact_value(relation, value, code))
        for code, value in ((a, one), (b, other))
    ]
    asked = RELATIONS[relation][ENGLISH].question.format(a=person(name, ENGLISH))
    return TransferPrompt(
        id=f"{number} {relation}",
        a=a,
        b=b,
        prompt=" ".join(statements) + "\n" + QUESTION.format(question=asked),
        stem="",
        answer_a=Answer(fact_value(relation, one, ENGLISH), (fact_value(relation, one, a),)),
        answer_b=Answer(fact_value(relation, other, ENGLISH), (fact_value(relation, other, b),)),
    )
