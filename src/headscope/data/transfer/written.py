"""The project's own prompts: sentences of fifteen languages, put together into contradictions."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from itertools import permutations, product
from typing import Any

from headscope.data.languages import language_name, same_language
from headscope.data.transfer.prompts import Answer, TransferFile, TransferPrompt, digest_of
from headscope.errors import InputError

#: Languages that there are sentences in, each a file of `sentences/`.
LANGUAGES = (
    "en", "de", "es", "fr", "pt", "it", "ru", "zh", "ja", "hi", "ar", "tr", "vi", "id", "sw",
)  # fmt: skip
ENGLISH = "en"
PROMPT = "{first} {filler} {second}\nQuestion: {question}\nAnswer:"


def written(pair: str, n: int, seed: int = 0) -> TransferFile:
    """The first `n` prompts of an ordered pair such as `de-ru`, drawn with `seed`.

    No two hold the same facts. The same seed says the same things in every pair. Where there are
    fewer than `n` (some sixteen hundred), all are given. InputError for a pair of languages that
    there are no sentences in, of one language, or n below 1.
    """
    if n < 1:
        raise InputError(f"{n} prompts were asked for; ask for at least one")
    a, b = _languages(pair)
    english = sentences(ENGLISH)
    facts = [
        (relation, name, one, other)
        for relation, told in english["relations"].items()
        for name, (one, other) in product(english["names"], permutations(told["values"], 2))
    ]
    rng = random.Random(f"transfer {seed}")
    rng.shuffle(facts)
    prompts = tuple(
        _prompt(a, b, number, fact, rng.choice(english["fillers"]))
        for number, fact in enumerate(facts[:n], 1)
    )
    return TransferFile(prompts, f"headscope's own sentences ({a}, {b})", digest_of(prompts))


def language_of(code: str) -> str | None:
    """The language of `LANGUAGES` that a code means, or None."""
    return next((one for one in LANGUAGES if same_language(one, code)), None)


@cache
def sentences(code: str) -> Mapping[str, Any]:
    """What there is in one language: names, and statements and values by relation.

    English also holds the questions with the beginnings of their answers, the sentences that stand
    between two statements, and the gender of each name, on which statements and values may depend.
    """
    text = files("headscope.data.transfer").joinpath("sentences", f"{code}.json").read_text("utf-8")
    found: Mapping[str, Any] = json.loads(text)
    return found


def _languages(pair: str) -> tuple[str, str]:
    first, _, second = pair.partition("-")
    codes = []
    for one in (first, second):
        code = language_of(one) if one else None
        if code is None:
            name = f"{language_name(one)} ({one})" if one else "a second language"
            raise InputError(
                f"the pair {pair!r}: there are no sentences in {name}; known: "
                f"{', '.join(LANGUAGES)}; give prompts of your own with --data"
            )
        codes.append(code)
    if codes[0] == codes[1]:
        raise InputError(f"the pair {pair!r} names one language twice; a contradiction needs two")
    return codes[0], codes[1]


def _prompt(
    a: str, b: str, number: int, fact: tuple[str, str, str, str], filler: str
) -> TransferPrompt:
    relation, name, one, other = fact
    asked = sentences(ENGLISH)["questions"][relation]
    person = sentences(ENGLISH)["names"][name]
    text = PROMPT.format(
        first=_statement(a, relation, name, one),
        filler=filler,
        second=_statement(b, relation, name, other),
        question=asked["question"].format(name=person),
    )
    return TransferPrompt(
        id=f"{number} {relation}",
        a=a,
        b=b,
        prompt=text,
        stem=asked["stem"].format(name=person),
        answer_a=_answer(a, relation, name, one),
        answer_b=_answer(b, relation, name, other),
    )


def _statement(code: str, relation: str, name: str, value: str) -> str:
    told = sentences(code)["relations"][relation]
    statement: str = _of_gender(told["statement"], name)
    said = _forms(code, relation, name, value)[0]
    return statement.format(name=sentences(code)["names"][name], value=said)


def _answer(code: str, relation: str, name: str, value: str) -> Answer:
    english = _forms(ENGLISH, relation, name, value)[-1]
    said, *answers = _forms(code, relation, name, value)
    # What is said may begin with an article or a preposition, so it is an answer only where the
    # value has no other forms.
    return Answer(english, tuple(answers or [said]))


def _forms(code: str, relation: str, name: str, value: str) -> list[str]:
    """A value as the statement says it, and after that the forms that are answers by themselves."""
    found = _of_gender(sentences(code)["relations"][relation]["values"][value], name)
    return [found] if isinstance(found, str) else list(found)


def _of_gender(entry: Any, name: str) -> Any:
    return entry[sentences(ENGLISH)["genders"][name]] if isinstance(entry, dict) else entry
