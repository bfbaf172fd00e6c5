"""Questions on a text, with their answers: SQuAD and XQuAD files, and records.

Two forms are read. *SQuAD* (Rajpurkar et al. 2016, 2018), which XQuAD shares: one JSON object with
``data`` → ``paragraphs`` → ``context`` and ``qas``, each with ``question``, ``answers`` and, in
version 2, ``is_impossible``. *Records*, in a file of any format or one JSON list, have ``context``,
``question`` and ``answers`` (a text, a list of texts, a list of ``{"text": …}``, or the Hub's
``{"text": […]}``), and optionally ``id`` and ``language``. Files may be compressed. A needle is a
fact with a question for it, and a long text to hide it in.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from headscope.data.files import (
    check_limit,
    decoded,
    drain,
    json_digest,
    load_json,
    not_json,
    open_bytes,
    packaged_rows,
    parse_json,
    text_lines,
    whole_text,
)
from headscope.data.formats import format_of
from headscope.data.languages import language_name
from headscope.data.prompts import template_parts, unescaped
from headscope.data.rows import ID, Field, clean_text, read_fields
from headscope.data.tables import open_table
from headscope.errors import InputError, naming

_FORM = "give a SQuAD file, or one JSON object a line"


#: What stands before a question and before its answer, by language.
WORDINGS = {
    code: (question, answer)
    for code, question, answer in packaged_rows("headscope.data", "questions.tsv")
}
_PLACEHOLDERS = ("context", "question")
HAYSTACK = Field("haystack", lambda cell, place, column: cell, None)
ANSWER = Field(
    "answer", lambda cell, place, column: None if cell is None else str(cell).strip(), None
)


@dataclass(frozen=True)
class Question:
    """A question on a context (which may be empty) with the answers that count as right.

    `id` is the file's own, or else its place; of the `answers`, at least one and none twice, the
    first is the one that is learned. `line` counts from 1; in one JSON text it is the number of the
    question. `place` says for messages where it stands, `language` is a code, where the file says
    it. Questions of one `group` belong on one side of every split: those on one context.
    """

    id: str
    context: str
    question: str
    answers: tuple[str, ...]
    line: int
    place: str = ""
    language: str | None = None
    group: str = ""


@dataclass(frozen=True)
class QuestionFile:
    """The questions of a file in order; `unanswerable` more were left out.

    `digest` is the SHA-256 of the whole (decompressed) file.
    """

    questions: tuple[Question, ...]
    unanswerable: int
    path: str
    digest: str


def read_questions(path: str | Path, limit: int | None = None) -> QuestionFile:
    """Read the first `limit` questions that have an answer; the others before them are counted.

    Raises `InputError` naming the file and the place: a file that is missing, empty, damaged, not
    UTF-8 or not JSON, a missing or misshapen entry, an empty question or answer, and a file of
    which no question can be answered.
    """
    path = Path(path)
    check_limit(limit)
    hasher = hashlib.sha256()
    with open_bytes(path) as handle:
        drain(handle, hasher)
    questions: list[Question] = []
    unanswerable = 0
    for question in _questions(path):
        if question is None:
            unanswerable += 1
            continue
        questions.append(question)
        if len(questions) == limit:
            break
    if not questions:
        raise InputError(
            f"{path} holds no question with an answer; give a SQuAD file, or records with context, "
            "question and answers"
        )
    return QuestionFile(tuple(questions), unanswerable, str(path), hasher.hexdigest())


def _questions(path: Path) -> Iterator[Question | None]:
    """Every question of a file, None for one without an answer."""
    form = format_of(path)
    if form is not None and form.objects is None:
        with open_table(path, None) as (rows, unit):
            for number, row in rows:
                yield _record(path, f"{unit} {number}", row, number)
        return
    with open_bytes(path) as handle:
        data = whole_text(handle, path)
    if not data.strip():
        raise InputError(f"{path} is empty; give a file with at least one question")
    whole = _whole(path, data)
    if isinstance(whole, dict) and "data" in whole:
        yield from _squad(path, whole)
    elif isinstance(whole, list):
        for number, record in enumerate(whole, 1):
            yield _record(path, f"record {number}", record, number)
    else:
        for number, line in text_lines(io.BytesIO(data), path):
            record = parse_json(line, f"{path}, line {number}", _FORM)
            yield _record(path, f"line {number}", record, number)


def _whole(path: Path, data: bytes) -> Any:
    """The file as one JSON text, or None where each of its lines is one."""
    text = decoded(data, path)
    try:
        return load_json(text)
    except (ValueError, RecursionError) as error:
        first, _, rest = text.strip().partition("\n")
        # Where the first line is whole by itself, so should the others be: those are looked at
        # one by one. A file written over several lines is damaged where it says it is.
        if rest.strip() and _is_json(first):
            return None
        place = f", line {error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        raise not_json(f"{path}{place}", error, _FORM) from None


def _is_json(line: str) -> bool:
    try:
        load_json(line)
    except (ValueError, RecursionError):
        return False
    return True


def _squad(path: Path, whole: Any) -> Iterator[Question | None]:
    number = 0
    for place, article in _members(path, "", whole, "data"):
        for inside, paragraph in _members(path, place, article, "paragraphs"):
            context = _entry(path, inside, paragraph, "context")
            for here, question in _members(path, inside, paragraph, "qas"):
                number += 1
                _entry(path, here, question, "question")
                yield _record(path, here, {**question, "context": context}, number)


def _members(path: Path, place: str, record: Any, name: str) -> Iterator[tuple[str, Any]]:
    """The members of a list in a record, each with its place."""
    inside = f"{place}.{name}" if place else name
    listed = _entry(path, place, record, name)
    if not isinstance(listed, list):
        raise InputError(f"{path}, {inside}: is {_short(listed)}, where a list is expected")
    for at, member in enumerate(listed):
        yield f"{inside}[{at}]", member


def _record(path: Path, place: str, record: Any, number: int) -> Question | None:
    """One question, or None where it says that it has no answer."""
    context = _text(path, place, record, "context")
    question = _text(path, place, record, "question")
    if not question.strip():
        raise InputError(f"{path}, {place}: the question is empty; write one, or remove it")
    impossible = record.get("is_impossible", False)
    if not isinstance(impossible, bool):
        raise InputError(f"{path}, {place}: is_impossible is {impossible!r}; write true or false")
    name = "answers" if "answers" in record or "answer" not in record else "answer"
    answers = _answers(path, place, name, _entry(path, place, record, name))
    if impossible or not answers:
        return None
    language = record.get("language") or None
    if language is not None:
        with naming(f"{path}, {place}"):
            if not isinstance(language, str):
                raise InputError(f"the language is {language!r}; write a code such as de")
            language_name(language)
    identity = record.get("id")
    return Question(
        place if identity in (None, "") else str(identity),
        context,
        question,
        answers,
        number,
        place,
        language,
        hashlib.sha256(context.encode()).hexdigest(),
    )


def _answers(path: Path, place: str, name: str, value: Any) -> tuple[str, ...]:
    if isinstance(value, dict):
        value = _entry(path, f"{place}, {name}", value, "text")
    listed = value if isinstance(value, list) else [value]
    texts = []
    for entry in listed:
        text = entry.get("text") if isinstance(entry, dict) else entry
        if not isinstance(text, str) or not text.strip():
            raise InputError(
                f"{path}, {place}: {name} holds {_short(entry)} where a text is expected; write "
                'texts such as ["in 1903"], and an empty list where there is no answer'
            )
        texts.append(clean_text(text, f"{path}, {place}: {name}", lines=True).strip())
    return tuple(dict.fromkeys(texts))


def _text(path: Path, place: str, record: Any, name: str) -> str:
    value = _entry(path, place, record, name)
    if not isinstance(value, str):
        raise InputError(f"{path}, {place}: {name} is {_short(value)}; it must be a text")
    return clean_text(value, f"{path}, {place}: {name}", lines=True, fix="write the file anew")


def _entry(path: Path, place: str, record: Any, name: str) -> Any:
    if not isinstance(record, dict):
        raise InputError(
            f"{path}, {place}: is {_short(record)}, where an object with {name!r} is expected"
        )
    if name not in record:
        there = ", ".join(islice(map(str, record), 8)) or "nothing"
        raise InputError(f"{path}, {place}: has no {name!r}; there is {there}")
    return record[name]


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=True)
    return text if len(text) <= 40 else f"{text[:39]}…"


@dataclass(frozen=True)
class QuestionTemplate:
    """The prompt up to where the answer begins, with `{context}` and `{question}`.

    `text` None stands for the wording of the question's language, since a prompt in another one
    would ask for two things at once, or of English where there is none: the context, then a line
    each with the question and the beginning of the answer. Literal braces are doubled. InputError
    for another placeholder, an open brace, or no `{question}`.
    """

    text: str | None = None

    def __post_init__(self) -> None:
        if self.text is not None:
            self._parts(self.text)

    @classmethod
    def from_option(cls, text: str | None) -> QuestionTemplate:
        """A template given on a command line, with escapes."""
        return cls(None if text is None else unescaped(text))

    def render(self, question: Question, context: str | None = None) -> str:
        """The prompt for a question; `context` replaces its own, such as a part of it.

        A question without a context leaves out the line it would stand on.
        """
        words = " ".join(question.question.split())
        passage = question.context if context is None else context
        text = self.text
        if text is None:
            code = (question.language or "en").split("-")[0].split("_")[0]
            before, answer = WORDINGS.get(code, WORDINGS["en"])
            text = f"{{context}}\n{before} {{question}}\n{answer}"
            if not passage:
                text = text.removeprefix("{context}\n")
        values = {"context": passage, "question": words}
        return "".join(
            literal + ("" if name is None else values[name]) for literal, name in self._parts(text)
        )

    @staticmethod
    def _parts(text: str) -> list[tuple[str, str | None]]:
        parts = template_parts(text, _PLACEHOLDERS)
        if all(name != "question" for _, name in parts):
            raise InputError(f"the template {text!r} lacks {{question}}; say where it stands")
        return parts


@dataclass(frozen=True)
class Needle:
    """One hidden fact: the sentence `needle` in the text `haystack`, and what is asked afterwards.

    `answer` is the right one, where it is known; no score needs it. `line` is that of its file.
    """

    id: str
    needle: str
    question: str
    haystack: str
    answer: str | None
    line: int


@dataclass(frozen=True)
class NeedleFile:
    """Needles in order; `digest` is of their content."""

    needles: tuple[Needle, ...]
    path: str
    digest: str


def needle_file(needles: Sequence[Needle], path: str) -> NeedleFile:
    """These needles with the digest of what they say."""
    rows = [[*astuple(needle)[:-1]] for needle in needles]
    return NeedleFile(tuple(needles), path, json_digest(rows))


def read_needles(
    path: str | Path, haystacks: Sequence[str] = (), limit: int | None = None
) -> NeedleFile:
    """Read records with `needle`, `question` and, unless given, `haystack`.

    `haystacks` are texts for the needles that bring none: needle i begins with text i and goes on
    with the ones after it. `id` and `answer` are optional.

    Raises:
        InputError: naming file and line of an empty needle, question or haystack.
    """
    rows, _ = read_fields(path, (NEEDLE, QUESTION, HAYSTACK, ANSWER, ID), limit)
    needles = []
    for at, row in enumerate(rows):
        needle, question, haystack = row[NEEDLE], row[QUESTION], row[HAYSTACK]
        if haystacks and not str(haystack or "").strip():
            haystack = "\n".join(
                [*haystacks[at % len(haystacks) :], *haystacks[: at % len(haystacks)]]
            )
        haystack = _filled(haystack, row.place, "haystack", ", or give texts with --haystack")
        needles.append(Needle(row.id, needle, question, haystack, row[ANSWER], row.line))
    return needle_file(needles, str(path))


def _filled(cell: Any, place: str, column: str, more: str = "") -> str:
    if not isinstance(cell, str) or not cell.strip():
        raise InputError(f"{place} has no {column}; write one as text{more}")
    return clean_text(cell, f"{place}: column {column!r}", lines=True).strip()


NEEDLE, QUESTION = Field("needle", _filled), Field("question", _filled)
