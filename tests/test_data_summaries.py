"""Texts with summaries from files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headscope.data.documents import DocumentSource, read_summaries
from headscope.errors import InputError

ROWS = [
    {"language": "de", "text": "Ein langer Text.", "summary": "Kurz.", "id": "a"},
    {"language": "ru", "text": "Длинный текст.", "summary": "Коротко.", "id": ""},
    {"language": "deu", "text": "Noch einer.", "summary": "Einer.", "id": 7},
]


def jsonl(folder: Path, rows: list[dict[str, object]] = ROWS) -> str:
    path = folder / "data.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def test_languages_of_a_column(tmp_path: Path) -> None:
    german, russian = read_summaries(DocumentSource(jsonl(tmp_path)))
    assert (german.language, russian.language) == ("de", "ru")
    assert [(one.id, one.text, one.summary) for one in german.items] == [
        ("a", "Ein langer Text.", "Kurz."),
        ("7", "Noch einer.", "Einer."),
    ]
    assert german.digest != russian.digest
    (only,) = read_summaries(DocumentSource(jsonl(tmp_path), languages=("rus",)))
    assert (only.language, only.items[0].line) == ("rus", 2)
    (limited, _) = read_summaries(DocumentSource(jsonl(tmp_path), limit=1))
    assert len(limited.items) == 1


def test_an_id_is_its_own_or_the_line(tmp_path: Path) -> None:
    rows = [{name: value for name, value in row.items() if name != "id"} for row in ROWS]
    german, russian = read_summaries(DocumentSource(jsonl(tmp_path, rows)))
    assert [one.id for one in (*german.items, *russian.items)] == ["1", "3", "2"]


def test_the_only_language_asked_for_is_that_of_a_file_that_does_not_say_it(tmp_path: Path) -> None:
    path = tmp_path / "plain.jsonl"
    path.write_text('{"text": "One.", "summary": "1"}\n', "utf-8")
    (only,) = read_summaries(DocumentSource(str(path), languages=("en",)))
    assert (only.language, len(only.items)) == ("en", 1)
    with pytest.raises(InputError, match="no column 'language'"):
        read_summaries(DocumentSource(str(path), languages=("en", "de")))
    # A file that says its languages is believed.
    with pytest.raises(InputError, match="line 2: column 'language' says ru"):
        read_summaries(DocumentSource(jsonl(tmp_path), language="de"))


def test_missing_columns_and_languages(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no column 'abstract'"):
        read_summaries(DocumentSource(jsonl(tmp_path)), "abstract")
    with pytest.raises(InputError, match="holds no texts in fr; it has de"):
        read_summaries(DocumentSource(jsonl(tmp_path), languages=("fr",)))
