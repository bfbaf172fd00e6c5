"""Questions from SQuAD files and from records, what is refused, and the prompts made of them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headscope.data.prompts import Template
from headscope.data.questions import Question, QuestionTemplate, read_questions
from headscope.errors import InputError

CONTEXT = "The lamp stands in the hall. The hall is blue."


def squad(*questions: dict[str, Any]) -> dict[str, Any]:
    return {
        "version": "x",
        "data": [{"title": "t", "paragraphs": [{"context": CONTEXT, "qas": list(questions)}]}],
    }


def asked(question: str = "Where is the lamp?", *answers: str, **more: Any) -> dict[str, Any]:
    texts = [{"text": one, "answer_start": 3} for one in answers]
    return {"id": "q1", "question": question, "answers": texts, **more}


def written(path: Path, value: Any, lines: bool = False) -> Path:
    text = (
        "".join(json.dumps(one) + "\n" for one in value) if lines else json.dumps(value, indent=1)
    )
    path.write_text(text, "utf-8")
    return path


def test_a_squad_file_gives_its_questions_and_counts_those_without_an_answer(
    tmp_path: Path,
) -> None:
    value = squad(
        asked("Where is the lamp?", "in the hall", "the hall", "in the hall"),
        asked("Who lit it?", is_impossible=True),
        asked("Which colour?", "blue"),
        asked("When?"),
    )
    found = read_questions(written(tmp_path / "q.json", value))
    assert [one.answers for one in found.questions] == [("in the hall", "the hall"), ("blue",)]
    assert found.unanswerable == 2
    first, second = found.questions
    assert (first.id, first.context, first.question) == ("q1", CONTEXT, "Where is the lamp?")
    assert first.place == "data[0].paragraphs[0].qas[0]"
    assert (first.line, second.line) == (1, 3)
    assert first.group == second.group
    limited = read_questions(tmp_path / "q.json", 1)
    assert limited.questions == (first,) and limited.digest == found.digest


@pytest.mark.parametrize(
    "answers",
    [
        {"answers": ["one", "two"]},
        {"answers": {"text": ["one", "two"], "answer_start": [1, 2]}},
        {"answers": [{"text": "one"}, {"text": "two"}]},
    ],
)
def test_records_are_read_in_every_form(tmp_path: Path, answers: dict[str, Any]) -> None:
    record = {"context": CONTEXT, "question": "Which?", "language": "de", **answers}
    expected = Question("line 1", CONTEXT, "Which?", ("one", "two"), 1, "line 1", "de")
    for name, value, lines in (("a.jsonl", [record], True), ("b.json", [record], False)):
        (one,) = read_questions(written(tmp_path / name, value, lines)).questions
        assert (one.context, one.question, one.answers, one.language) == (
            expected.context,
            expected.question,
            expected.answers,
            "de",
        )
    packed = tmp_path / "c.jsonl.gz"
    packed.write_bytes(gzip.compress((tmp_path / "a.jsonl").read_bytes()))
    found = read_questions(packed)
    assert found.questions == read_questions(tmp_path / "a.jsonl").questions
    assert found.digest == read_questions(tmp_path / "a.jsonl").digest


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        ("  \n ", "is empty"),
        ('{"data": [', "line 1 is not valid JSON"),
        ('{\n"data": [\n]', "line 3 is not valid JSON"),
        ('{"data": 3}', "data: is 3, where a list is expected"),
        ('{"data": []}', "holds no question with an answer"),
        ('{"data": [{"title": "t"}]}', "data[0]: has no 'paragraphs'; there is title"),
        ('{"data": [{"paragraphs": [{"qas": []}]}]}', "paragraphs[0]: has no 'context'"),
        ('{"data": [{"paragraphs": [{"context": "c", "qas": [3]}]}]}', "qas[0]: is 3, where an"),
        ('{"context": "c", "question": "q"}', "line 1: has no 'answers'; there is context"),
        ('{"context": "c", "question": " ", "answers": ["a"]}', "line 1: the question is empty"),
        ('{"context": 3, "question": "q", "answers": ["a"]}', "context is 3; it must be a text"),
        ('{"context": "c", "question": "q", "answers": [""]}', "line 1: answers holds"),
        ('{"context": "c", "question": "q", "answers": [4]}', "answers holds 4"),
        ('{"context": "c", "question": "q", "answers": []}', "holds no question with an answer"),
        (
            '{"context": "c", "question": "q", "answers": ["a"], "language": "xx9"}',
            "line 1: unknown language code 'xx9'",
        ),
        (
            '{"context": "c", "question": "q", "answers": ["a"], "is_impossible": 1}',
            "is_impossible is 1",
        ),
        ('{"context": "c", "question": "q", "answers": ["a"]}\n{"co', "line 2 is not valid JSON"),
        ('{"context": "\\ud800", "question": "q", "answers": ["a"]}', "half of a surrogate pair"),
    ],
)
def test_a_damaged_file_is_refused_with_its_place(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "q.json"
    path.write_text(text, "utf-8")
    with pytest.raises(InputError) as error:
        read_questions(path)
    assert said in str(error.value) and str(path) in str(error.value)


def test_bytes_that_are_no_text_and_files_that_are_not_there(tmp_path: Path) -> None:
    path = tmp_path / "q.jsonl"
    path.write_bytes(b'{"context": "c"}\n\xff\n')
    with pytest.raises(InputError, match="line 2: is not valid UTF-8"):
        read_questions(path)
    with pytest.raises(InputError, match="does not exist"):
        read_questions(tmp_path / "none.json")
    with pytest.raises(InputError, match="limit is 0"):
        read_questions(path, 0)


@given(st.text(min_size=1), st.text(min_size=1))
def test_a_template_puts_texts_in_as_they_are(context: str, question: str) -> None:
    one = Question("1", context, question, ("a",), 1)
    said = QuestionTemplate("{{<{context}|{question}>").render(one)
    assert said == "{<" + context + "|" + " ".join(question.split()) + ">"


@pytest.mark.parametrize("make", [Template.from_option, QuestionTemplate.from_option])
def test_a_template_of_a_file_keeps_no_carriage_return(make: Any) -> None:
    name = "{source}" if make == Template.from_option else "{question}"
    assert make(f"{name}\r\nA:").text == f"{name}\nA:"
    for sign in ("\0", "\x1b"):
        with pytest.raises(InputError, match=f"U\\+{ord(sign):04X}"):
            make(f"{name}{sign}")


def test_a_template_of_the_command_line_has_escapes() -> None:
    assert QuestionTemplate.from_option(r"{question}\n\\").text == "{question}\n\\"
    assert QuestionTemplate.from_option(None) == QuestionTemplate()
