"""Held-out questions of the bundled model's world: invented facts told in a context.

A context tells a fact in another language than the question's (`translated`), so that the model has
to say its value in the question's language; or it tells two facts of one kind, each of somebody
else, and the model has to take the value of the right person, which it does no better than chance.
"""

from __future__ import annotations

import hashlib
import json
import random
from typing import Literal

from headscope.data.questions import Question, QuestionFile
from headscope.errors import InputError
from headscope.pocket.mixture import draw_of_split, fact_stated, fact_value, person, say
from headscope.pocket.world.knowledge import CAPITALS, COLOURS, RELATIONS, item_split
from headscope.pocket.world.languages import CODES
from headscope.pocket.world.lexicon import of_kind
from headscope.pocket.world.sampling import Split

Kind = Literal["translated", "one-language", "two-languages", "any"]
KINDS: tuple[Kind, ...] = ("translated", "one-language", "two-languages", "any")
#: The prompt that the bundled model was trained with.
TEMPLATE = "{context}\nQuestion: {question}\nAnswer:"
#: As in training: the share of contexts with a sentence between the two facts.
BETWEEN = 0.4


def sample_questions(
    split: Split, n: int, seed: int, kind: Kind = "translated", languages: tuple[str, ...] = CODES
) -> QuestionFile:
    """The first `n` questions drawn with `seed`; the facts that answer them are of `split`.

    No two have the same context and question, and the group of a question is the fact asked for.
    In `translated` the fact asked for is told in another language than the question's, and no
    other fact beside it. In `one-language` two facts are told in the question's language; in
    `two-languages` the one asked for is told in another one; `any` takes each of these two for
    half of the questions. InputError for another kind, a language the world lacks, or n below 1.
    """
    if n < 1:
        raise InputError(f"n is {n}; ask for at least one question")
    if kind not in KINDS:
        raise InputError(f"{kind!r} is no kind of question; use one of {', '.join(KINDS)}")
    for code in languages:
        if code not in CODES:
            raise InputError(
                f"the world of the model pocket has no language {code!r}; known: {', '.join(CODES)}"
            )
    rng = random.Random(f"pocket questions {split} {seed} {kind} {' '.join(languages)}")
    found: dict[tuple[str, str], Question] = {}
    while len(found) < n:
        one = _draw(rng, split, kind, languages, len(found) + 1)
        found.setdefault((one.context, one.question), one)
    questions = tuple(found.values())
    rows = [(one.context, one.question, one.answers) for one in questions]
    digest = hashlib.sha256(json.dumps(rows).encode()).hexdigest()
    return QuestionFile(questions, 0, f"pocket:{split}", digest)


def possible_answers(question: Question) -> tuple[str, ...]:
    """Every value that what `question` asks for can have in the world, in its language."""
    relation = question.group.split()[0]
    code = question.language or ""
    return tuple(fact_value(relation, one, code) for one in _values(relation))


def _draw(
    rng: random.Random, split: Split, kind: Kind, languages: tuple[str, ...], number: int
) -> Question:
    relation, name, value = rng.choice(_facts(split))
    code = rng.choice(languages)
    abroad = kind in ("two-languages", "translated") or (kind == "any" and rng.random() < 0.5)
    told = rng.choice([one for one in CODES if one != code]) if abroad else code
    other_name = rng.choice([one.id for one in of_kind("name") if one.id != name])
    other_value = rng.choice([one for one in _values(relation) if one != value])
    statements = [
        fact_stated(relation, lang, person(who, lang), fact_value(relation, what, lang))
        for lang, who, what in ((told, name, value), (code, other_name, other_value))
    ]
    if kind == "translated":
        del statements[1]
    elif rng.random() < 0.5:
        statements.reverse()
    if rng.random() < BETWEEN:
        statements.insert(1, say(draw_of_split(rng, split), rng.choice((code, told))))
    return Question(
        id=str(number),
        context=" ".join(statements),
        question=RELATIONS[relation][code].question.format(a=person(name, code)),
        answers=(fact_value(relation, value, code),),
        line=number,
        place=f"question {number}",
        language=code,
        group=f"{relation} {name} {value}",
    )


def _facts(split: Split) -> list[tuple[str, str, str]]:
    """Every fact of a split: relation, name and value."""
    return [
        (relation, name.id, value)
        for relation in ("origin", "colour")
        for name in of_kind("name")
        for value in _values(relation)
        if item_split(f"{relation} {name.id} {value}") == split
    ]


def _values(relation: str) -> list[str]:
    return list(CAPITALS) if relation == "origin" else list(COLOURS)
