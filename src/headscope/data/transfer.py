"""Prompts in which two languages contradict each other about a person.

A statement in language A, an English sentence about something else, a statement in language B that
says otherwise, and an English question with the beginning of its answer; which of the two the
answer follows is what is looked at (LAHIS, Liu et al. 2025, arXiv 2511.07498: attention transfer).

`written` makes prompts of this project's own sentences in fifteen languages, which lie in
`contradictions/`, one file a language; `read_prompts` reads prompts of the user's own.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from functools import cache
from importlib.resources import files
from itertools import permutations, product
from pathlib import Path
from typing import Any

from headscope.data.files import check_limit, json_digest
from headscope.data.languages import language_name, same_language
from headscope.data.rows import ID, Field, Row, clean_text, language_code, open_rows, text_cell
from headscope.data.words import plain_words
from headscope.errors import InputError

#: Languages that there are sentences in.
LANGUAGES = (
    "en", "de", "es", "fr", "pt", "it", "ru", "zh", "ja", "hi", "ar", "tr", "vi", "id", "sw",
)  # fmt: skip
ENGLISH = "en"
PROMPT = "{first} {filler} {second}\nQuestion: {question}\nAnswer:"


@dataclass(frozen=True)
class Answer:
    """What one of the statements says: in English, and as the statement's language says it.

    `native` may hold several forms, such as the nominative and the inflected form of the statement.
    """

    english: str
    native: tuple[str, ...]

    @property
    def forms(self) -> tuple[str, ...]:
        """All of them, each once."""
        return tuple(dict.fromkeys((self.english, *self.native)))


@dataclass(frozen=True)
class TransferPrompt:
    """A prompt, from the statements up to where the answer begins, and its two answers.

    `id` names it among those of its pair, `a` and `b` are the languages of the first statement and
    of the second, contradicting one; `stem` is the beginning of the answer, which is given too and
    may be empty; `answer_a` is what the first statement says, `answer_b` what the second does.
    """

    id: str
    a: str
    b: str
    prompt: str
    stem: str
    answer_a: Answer
    answer_b: Answer

    @property
    def pair(self) -> str:
        """The two languages as `a-b`."""
        return f"{self.a}-{self.b}"


@dataclass(frozen=True)
class TransferFile:
    """Prompts of one ordered pair of languages; `digest` is the SHA-256 of all they hold."""

    prompts: tuple[TransferPrompt, ...]
    path: str
    digest: str


def transfer_file(prompts: Sequence[TransferPrompt], path: str) -> TransferFile:
    """These prompts with the digest of what they hold."""
    return TransferFile(tuple(prompts), path, json_digest([astuple(prompt) for prompt in prompts]))


def follows(text: str, answer: Answer) -> bool:
    """Whether a text holds an answer in any of its forms, as whole words one after the other.

    Small and capital letters and punctuation do not count; where a script puts no spaces between
    words, single characters stand for words.
    """
    words = plain_words(text)
    for form in answer.forms:
        wanted = plain_words(form)
        starts = range(len(words) - len(wanted) + 1)
        if wanted and any(words[at : at + len(wanted)] == wanted for at in starts):
            return True
    return False


def read_prompts(path: str | Path, limit: int | None = None) -> dict[str, TransferFile]:
    """Prompts of a file by pair of languages, in order; the first `limit` of each pair.

    Each record has `a` and `b`, the codes of the languages of the two statements;
    `prompt`, the text up to where the answer begins; `answers_a` and `answers_b`, the answer of
    either statement as one text or a list, first in English, then in its own language; and, if
    wanted, in every record, `stem`, the beginning of the answer, and `id`. Every error is an
    `InputError` with file, line and fix.
    """
    check_limit(limit)
    by_pair: dict[str, list[TransferPrompt]] = {}
    with open_rows(path, (*FIELDS, ID)) as rows:
        for row in rows:
            prompt = _own_prompt(row)
            kept = by_pair.setdefault(prompt.pair, [])
            if limit is None or len(kept) < limit:
                kept.append(prompt)
    if not by_pair:
        raise InputError(f"{path} holds no prompts; give a file with at least one")
    return {pair: transfer_file(prompts, str(path)) for pair, prompts in by_pair.items()}


def _own_prompt(row: Row) -> TransferPrompt:
    prompt = TransferPrompt(row.id, *(row[field] for field in FIELDS))
    if set(prompt.answer_a.forms) & set(prompt.answer_b.forms):
        raise InputError(
            f"{row.place}: both answers are the same, so nothing tells which statement was "
            "followed; give statements that contradict each other"
        )
    return prompt


def _stem(cell: Any, place: str, column: str) -> str:
    if not isinstance(cell, str | None):
        raise InputError(f"{place}: column {column!r} holds no text; give one or leave it out")
    return clean_text(cell or "", f"{place}: column {column!r}", lines=True).strip()


def _answers(cell: Any, place: str, column: str) -> Answer:
    forms = [cell] if isinstance(cell, str) else cell
    good = isinstance(forms, list) and forms
    if not good or not all(isinstance(form, str) and form.strip() for form in forms):
        raise InputError(
            f"{place}: column {column!r} holds no answers; give a text or a list of texts, the "
            "English one first"
        )
    texts = [clean_text(form, f"{place}: column {column!r}", lines=True).strip() for form in forms]
    return Answer(texts[0], tuple(texts[1:] or texts))


FIELDS: tuple[Field[Any], ...] = (
    Field("a", language_code),
    Field("b", language_code),
    Field("prompt", text_cell("give the text up to the answer", lines=True)),
    Field("stem", _stem, ""),
    Field("answers_a", _answers),
    Field("answers_b", _answers),
)


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
        (relation, name, first, second)
        for relation, wording in english["relations"].items()
        for name, (first, second) in product(english["names"], permutations(wording["values"], 2))
    ]
    rng = random.Random(f"transfer {seed}")
    rng.shuffle(facts)
    prompts = [
        _written_prompt(a, b, number, fact, rng.choice(english["fillers"]))
        for number, fact in enumerate(facts[:n], 1)
    ]
    return transfer_file(prompts, f"headscope's own sentences ({a}, {b})")


def language_of(code: str) -> str | None:
    """The language of `LANGUAGES` that a code means, or None."""
    return next((known for known in LANGUAGES if same_language(known, code)), None)


@cache
def sentences(code: str) -> Mapping[str, Any]:
    """What there is in one language: names, and statements and values by relation.

    English also holds the questions with the beginnings of their answers, the sentences that stand
    between two statements, and the gender of each name, on which statements and values may depend.
    """
    text = files("headscope.data").joinpath("contradictions", f"{code}.json").read_text("utf-8")
    entries: Mapping[str, Any] = json.loads(text)
    return entries


def _languages(pair: str) -> tuple[str, str]:
    first, _, second = pair.partition("-")
    codes = []
    for code in (first, second):
        known = language_of(code) if code else None
        if known is None:
            name = f"{language_name(code)} ({code})" if code else "a second language"
            raise InputError(
                f"the pair {pair!r}: there are no sentences in {name}; known: "
                f"{', '.join(LANGUAGES)}; give prompts of your own with --data"
            )
        codes.append(known)
    if codes[0] == codes[1]:
        raise InputError(f"the pair {pair!r} names one language twice; a contradiction needs two")
    return codes[0], codes[1]


def _written_prompt(
    a: str, b: str, number: int, fact: tuple[str, str, str, str], filler: str
) -> TransferPrompt:
    relation, name, first, second = fact
    wording = sentences(ENGLISH)["questions"][relation]
    person = sentences(ENGLISH)["names"][name]
    text = PROMPT.format(
        first=_statement(a, relation, name, first),
        filler=filler,
        second=_statement(b, relation, name, second),
        question=wording["question"].format(name=person),
    )
    answer_in_a = _answer(a, relation, name, first)
    answer_in_b = _answer(b, relation, name, second)
    stem = wording["stem"].format(name=person)
    return TransferPrompt(f"{number} {relation}", a, b, text, stem, answer_in_a, answer_in_b)


def _statement(code: str, relation: str, name: str, value: str) -> str:
    statement: str = _of_gender(sentences(code)["relations"][relation]["statement"], name)
    form = _forms(code, relation, name, value)[0]
    return statement.format(name=sentences(code)["names"][name], value=form)


def _answer(code: str, relation: str, name: str, value: str) -> Answer:
    english = _forms(ENGLISH, relation, name, value)[-1]
    form, *answers = _forms(code, relation, name, value)
    # What is said may begin with an article or a preposition, so it is an answer only where the
    # value has no other forms.
    return Answer(english, tuple(answers or [form]))


def _forms(code: str, relation: str, name: str, value: str) -> list[str]:
    """A value as the statement says it, and after that the forms that are answers by themselves."""
    forms = _of_gender(sentences(code)["relations"][relation]["values"][value], name)
    return [forms] if isinstance(forms, str) else list(forms)


def _of_gender(entry: Any, name: str) -> Any:
    return entry[sentences(ENGLISH)["genders"][name]] if isinstance(entry, dict) else entry
