"""Held-out facts of the bundled model's world: questions, facts hidden in texts, contradictions.

The context of a question states a fact in another language than the question's (`translated`), so
that the model has to say its value in the question's language; or it states two facts of one kind,
each of another person, and the model has to take the value of the right person, which it does no
better than chance.

In a contradiction, one person has two values, stated in two languages. The model was trained on
such in a quarter of its questions about a context, and the answer is either, whatever the order.
Trained questions are in one of the two languages; here they are in English always, as for other
models, so that where neither statement is English the question is of a new kind.
"""

from __future__ import annotations

import hashlib
import json
import random
from itertools import permutations
from typing import Literal

from headscope.data.questions import Needle, NeedleFile, Question, QuestionFile, needle_file
from headscope.data.transfer import Answer, TransferFile, TransferPrompt, transfer_file
from headscope.errors import InputError
from headscope.pocket.mixture import (
    QUESTION,
    draw_of_split,
    fact_question,
    fact_statement,
    fact_value,
    say,
    values_of,
)
from headscope.pocket.sample import check_known
from headscope.pocket.world.knowledge import item_split
from headscope.pocket.world.languages import CODES
from headscope.pocket.world.sampling import Split
from headscope.pocket.world.sentences import of_kind

QuestionKind = Literal["translated", "one-language", "two-languages", "any"]
KINDS: tuple[QuestionKind, ...] = ("translated", "one-language", "two-languages", "any")
#: The prompt that the bundled model was trained with.
TEMPLATE = "{context}\nQuestion: {question}\nAnswer:"
#: As in training: the share of contexts with a sentence between the two facts.
BETWEEN = 0.4
#: Sentences of a haystack; about ten tokens each.
HAYSTACK = 8
#: The language of questions about contradictions.
ENGLISH = "en"


def sample_questions(
    split: Split,
    n: int,
    seed: int,
    kind: QuestionKind = "translated",
    languages: tuple[str, ...] = CODES,
) -> QuestionFile:
    """The first `n` questions drawn with `seed`; the facts that answer them are of `split`.

    No two have the same context and question; a question's group is the fact that answers it. In
    `translated` that fact alone is stated, in another language than the question's. In
    `one-language` two facts are stated in the question's language; in `two-languages` the one that
    answers is in another; `any` takes each of these two for half of the questions. InputError for
    another kind, a language the world lacks, or n below 1.
    """
    if n < 1:
        raise InputError(f"n is {n}; ask for at least one question")
    if kind not in KINDS:
        raise InputError(f"{kind!r} is no kind of question; use one of {', '.join(KINDS)}")
    for code in languages:
        check_known("language", code, CODES)
    rng = random.Random(f"pocket questions {split} {seed} {kind} {' '.join(languages)}")
    drawn: dict[tuple[str, str], Question] = {}
    while len(drawn) < n:
        question = _draw(rng, split, kind, languages, len(drawn) + 1)
        drawn.setdefault((question.context, question.question), question)
    questions = tuple(drawn.values())
    rows = [(question.context, question.question, question.answers) for question in questions]
    digest = hashlib.sha256(json.dumps(rows).encode()).hexdigest()
    return QuestionFile(questions, 0, f"pocket:{split}", digest)


def possible_answers(question: Question) -> tuple[str, ...]:
    """Every value that what `question` asks for can have in the world, in its language."""
    relation = question.group.split()[0]
    code = question.language or ""
    return tuple(fact_value(relation, value, code) for value in values_of(relation))


def _draw(
    rng: random.Random, split: Split, kind: QuestionKind, languages: tuple[str, ...], number: int
) -> Question:
    relation, name, value = rng.choice(_facts(split))
    code = rng.choice(languages)
    abroad = kind in ("two-languages", "translated") or (kind == "any" and rng.random() < 0.5)
    other_code = (
        rng.choice([candidate for candidate in CODES if candidate != code]) if abroad else code
    )
    other_name = rng.choice([candidate.id for candidate in of_kind("name") if candidate.id != name])
    other_value = rng.choice([candidate for candidate in values_of(relation) if candidate != value])
    statements = [
        fact_statement(relation, other_code, name, value),
        fact_statement(relation, code, other_name, other_value),
    ]
    if kind == "translated":
        del statements[1]
    elif rng.random() < 0.5:
        statements.reverse()
    if rng.random() < BETWEEN:
        statements.insert(1, say(draw_of_split(rng, split), rng.choice((code, other_code))))
    return Question(
        id=str(number),
        context=" ".join(statements),
        question=fact_question(relation, code, name),
        answers=(fact_value(relation, value, code),),
        line=number,
        place=f"question {number}",
        language=code,
        group=f"{relation} {name} {value}",
    )


def _facts(split: Split) -> list[tuple[str, str, str]]:
    return [
        (relation, name.id, value)
        for relation in ("origin", "colour")
        for name in of_kind("name")
        for value in values_of(relation)
        if item_split(f"{relation} {name.id} {value}") == split
    ]


def sample_needles(split: Split, n: int, seed: int) -> NeedleFile:
    """The first `n` facts drawn with `seed`: who comes from where, or likes which colour.

    Languages take turns. A haystack is held-out sentences of one language and one fact of the same
    kind about somebody else, so that the right one has to be found. A person and a value that go
    together in `split` do so nowhere else.
    """
    rng = random.Random(f"needles {split} {seed}")
    people = [name.id for name in of_kind("name")]
    needles = []
    for number in range(n):
        code = CODES[number % len(CODES)]
        relation = rng.choice(("origin", "colour"))
        while True:
            name, other = rng.sample(people, 2)
            value, another = rng.sample(values_of(relation), 2)
            if item_split(f"{relation} {name} {value}") == split:
                break
        answer = fact_value(relation, value, code)
        needle = fact_statement(relation, code, name, value)
        question = fact_question(relation, code, name)
        sentences = [say(draw_of_split(rng, split), code) for _ in range(HAYSTACK)]
        sentences.insert(rng.randint(0, 2), fact_statement(relation, code, other, another))
        needles.append(
            Needle(f"{code}-{number}", needle, question, " ".join(sentences), answer, number + 1)
        )
    return needle_file(needles, f"pocket:{split}")


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
    wanted = {"train"} if split == "train" else {"dev", "test"}
    facts = [
        (relation, name.id, *values)
        for relation in ("origin", "colour")
        for name in of_kind("name")
        for values in permutations(values_of(relation), 2)
        if all(item_split(f"{relation} {name.id} {value}") in wanted for value in values)
    ]
    rng = random.Random(f"pocket transfer {split} {seed}")
    chosen = rng.sample(facts, min(n, len(facts)))
    prompts = [_prompt(a, b, number, *fact) for number, fact in enumerate(chosen, 1)]
    return transfer_file(prompts, f"pocket:{split} ({a}, {b})")


def _prompt(
    a: str, b: str, number: int, relation: str, name: str, value: str, other: str
) -> TransferPrompt:
    facts = ((a, value), (b, other))
    statements = [fact_statement(relation, code, name, its_value) for code, its_value in facts]
    question = fact_question(relation, ENGLISH, name)
    return TransferPrompt(
        id=f"{number} {relation}",
        a=a,
        b=b,
        prompt=" ".join(statements) + "\n" + QUESTION.format(question=question),
        stem="",
        answer_a=Answer(fact_value(relation, value, ENGLISH), (fact_value(relation, value, a),)),
        answer_b=Answer(fact_value(relation, other, ENGLISH), (fact_value(relation, other, b),)),
    )
