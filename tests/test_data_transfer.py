"""Prompts in which two languages contradict each other: those written, and a file of one's own."""

from __future__ import annotations

import json
import unicodedata
from pathlib import Path
from string import Formatter
from typing import Any

import pytest

from headscope.data.transfer import LANGUAGES, Answer, follows, read_prompts, sentences, written
from headscope.errors import InputError

SCRIPTS = {"ru": "CYRILLIC", "zh": "CJK", "hi": "DEVANAGARI", "ar": "ARABIC"}


def forms(entry: Any) -> list[Any]:
    """A statement or value for either gender."""
    return [entry["f"], entry["m"]] if isinstance(entry, dict) else [entry]


@pytest.mark.parametrize("code", LANGUAGES)
def test_every_language_says_everything(code: str) -> None:
    english, own = sentences("en"), sentences(code)
    assert own["language"] == code
    assert own["names"].keys() == english["names"].keys() == english["genders"].keys()
    assert own["relations"].keys() == english["relations"].keys() == english["questions"].keys()
    for relation, told in own["relations"].items():
        assert told["values"].keys() == english["relations"][relation]["values"].keys()
        for statement in forms(told["statement"]):
            names = [name for _, name, _, _ in Formatter().parse(statement) if name is not None]
            assert sorted(names) == ["name", "value"]
            assert statement[-1] in ".。।"
        for gender in (0, 1):
            said = [forms(value)[gender % len(forms(value))] for value in told["values"].values()]
            answers = [one if isinstance(one, str) else one[1] for one in said]
            assert len(set(answers)) == len(answers)  # no two values look alike


@pytest.mark.parametrize(("code", "script"), SCRIPTS.items())
def test_statements_are_in_their_script(code: str, script: str) -> None:
    for prompt in written(f"{code}-en", 20).prompts:
        statement = prompt.prompt.partition(sentences("en")["fillers"][0][:3])[0]
        first = next(sign for sign in statement if sign.isalpha())
        assert unicodedata.name(first).startswith(script)


@pytest.mark.parametrize("code", [one for one in LANGUAGES if one != "en"])
def test_each_statement_says_its_own_answer_and_not_the_other(code: str) -> None:
    for pair in (f"{code}-en", f"en-{code}"):
        for prompt in written(pair, 200, seed=3).prompts:
            first, second = prompt.prompt.partition("\n")[0], prompt.prompt.partition("\n")[2]
            own = prompt.answer_a if prompt.a == code else prompt.answer_b
            # A suffix may follow in Turkish, a case ending or an article before it elsewhere.
            assert any(form.casefold() in first.casefold() for form in own.native)
            other = prompt.answer_b if prompt.a == code else prompt.answer_a
            assert follows(first, other)
            assert not set(prompt.answer_a.forms) & set(prompt.answer_b.forms)
            assert not follows(second, prompt.answer_a) and not follows(second, prompt.answer_b)


def test_prompts_are_the_same_facts_in_every_pair() -> None:
    one, other = written("de-ru", 30, 5), written("ar-ja", 30, 5)
    assert [p.answer_a.english for p in one.prompts] == [p.answer_a.english for p in other.prompts]
    assert [p.stem for p in one.prompts] == [p.stem for p in other.prompts]
    assert written("de-ru", 30, 5) == one
    assert written("de-ru", 10, 5).prompts == one.prompts[:10]
    assert written("de-ru", 30, 6).digest != one.digest


def test_a_prompt_in_full() -> None:
    prompts = {one.id: one for one in written("de-fr", 10**6).prompts}
    assert len(prompts) == 8 * (2 * 8 * 7 + 3 * 6 * 5)
    texts = [one.prompt.split("\n")[0] for one in prompts.values()]
    assert any(
        text.startswith("Eva kommt aus Japan. ") and text.endswith(" Eva vient du Mexique.")
        for text in texts
    )
    one = next(one for one in prompts.values() if one.stem == "Eva works as a")
    assert one.prompt.endswith("\nQuestion: What does Eva do for a living?\nAnswer:")


@pytest.mark.parametrize(
    ("pair", "message"),
    [
        ("de-fi", "no sentences in Finnish"),
        ("de", "no sentences in a second language"),
        ("de-de", "one language twice"),
        ("de-xx9", "unknown language code"),
    ],
)
def test_pairs_that_there_are_not(pair: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        written(pair, 5)


@pytest.mark.parametrize(
    ("text", "answer", "found"),
    [
        (" France.", Answer("France", ("Frankreich",)), True),
        ("aus FRANKREICH", Answer("France", ("Frankreich",)), True),
        ("Frankreichs", Answer("France", ("Frankreich",)), False),
        ("kırmızı at", Answer("horse", ("at",)), True),
        ("that cat", Answer("horse", ("at",)), False),
        ("她养了一只狗", Answer("dog", ("狗",)), True),
        ("वह फ़्रांस से है", Answer("France", ("फ़्रांस",)), True),
        ("từ Ấn Độ đến", Answer("India", ("Ấn Độ",)), True),
        ("", Answer("dog", ("狗",)), False),
        ("…", Answer("?", ("!",)), False),
    ],
)
def test_when_a_text_follows_an_answer(text: str, answer: Answer, found: bool) -> None:
    assert follows(text, answer) is found


def own(folder: Path, *rows: dict[str, Any]) -> Path:
    path = folder / "own.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


ROW = {"a": "de", "b": "ru", "prompt": "X?", "answers_a": ["red", "rot"], "answers_b": "blue"}


def test_prompts_of_ones_own(tmp_path: Path) -> None:
    rows = [
        {**ROW, "id": "", "stem": None},
        {**ROW, "id": "x", "stem": "It is", "b": "fr"},
        {**ROW, "id": 3, "stem": "", "prompt": "Y?"},
    ]
    found = read_prompts(own(tmp_path, *rows))
    assert list(found) == ["de-ru", "de-fr"]
    told = [(one.id, one.prompt, one.stem) for one in found["de-ru"].prompts]
    assert told == [("1", "X?", ""), ("3", "Y?", "")]
    (one,) = found["de-fr"].prompts
    assert (one.id, one.stem) == ("x", "It is")
    assert one.answer_a == Answer("red", ("rot",))
    assert one.answer_b == Answer("blue", ("blue",))
    assert len(read_prompts(own(tmp_path, *rows), 1)["de-ru"].prompts) == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"prompt": " "}, "line 2: column 'prompt' is empty"),
        ({"a": "qqq9"}, "line 2: .*unknown language"),
        ({"answers_a": []}, "line 2: column 'answers_a' holds no answers"),
        ({"answers_b": [3]}, "line 2: column 'answers_b' holds no answers"),
        ({"answers_b": ["blue", "rot"]}, "line 2: both answers are the same"),
        ({"stem": 3}, "line 2: column 'stem' holds no text"),
    ],
)
def test_a_bad_row_is_named(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_prompts(own(tmp_path, {**ROW, "stem": ""}, {**ROW, "stem": "", **change}))
