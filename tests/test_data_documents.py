"""Documents from every kind of file, by language, and what is wrong with bad ones."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headscope.data.compared import read_compared
from headscope.data.documents import (
    DocumentFile,
    DocumentSource,
    digest_of,
    read_documents,
    read_summaries,
)
from headscope.data.questions import read_needles, read_questions
from headscope.data.rows import ID, Field, language_code, open_rows, read_fields, text_cell
from headscope.data.tasks import read_task
from headscope.data.transfer import read_prompts
from headscope.data.words import read_concepts
from headscope.errors import InputError
from headscope.studies.documents import DocumentsChoice, read_languages
from headscope.studies.use.prompts import read_prompts as read_given

RECORDS: list[dict[str, Any]] = [
    {"id": "a", "text": "eins zwei", "language": "de"},
    {"id": "b", "text": "one two", "language": "en"},
    {"id": "c", "text": 'drei\t"vier"\nfünf', "language": "deu"},
    {"id": "d", "text": "three four", "language": "en"},
    {"id": "e", "text": "sechs", "language": "de_Latn"},
]


def jsonl(path: Path, records: Sequence[Any] = RECORDS) -> Path:
    text = "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in records)
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text, "utf-8")
    return path


def parquet(path: Path, records: Sequence[Any] = RECORDS) -> Path:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.Table.from_pylist(list(records)), path)
    return path


def texts(file: DocumentFile) -> list[str]:
    return [one.text for one in file.documents]


def test_a_text_of_several_lines_keeps_them(tmp_path: Path) -> None:
    kept = ["a\r\nb\tc", "a\n", "a\n\n", " \x0ca\x0b\x85 "]
    ends = {"a b\r": "a b", "a\r\nb\r\n": "a\r\nb", "a\n\r": "a\n"}
    for write in (jsonl, parquet):
        file = write(tmp_path / f"a.{write.__name__}", [{"text": one} for one in [*kept, *ends]])
        (read,) = read_documents(DocumentSource(str(file), "de"))
        assert texts(read) == [*kept, *ends.values()]
        assert digest_of(kept) == digest_of(texts(read)[: len(kept)])
        for sign in ("\0", "\x1b", "\x7f", "\x92", "\x1c"):
            file = write(file, [{"text": "a"}, {"text": f"b{sign}"}])
            with pytest.raises(InputError, match=rf" 2: .*U\+{ord(sign):04X} at character 2"):
                read_documents(DocumentSource(str(file), "de"))
    (tmp_path / "a.txt").write_bytes(b"a b\r\nc\r\r\n")
    (read,) = read_documents(DocumentSource(str(tmp_path / "a.txt"), "de"))
    assert texts(read) == ["a b", "c"]
    (tmp_path / "a.txt").write_bytes("a b\nc\n".encode("utf-16-le"))
    with pytest.raises(InputError, match=r"U\+0000"):
        read_documents(DocumentSource(str(tmp_path / "a.txt"), "de"))


def test_every_reader_takes_line_ends_off_and_refuses_control_characters(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"

    def read(read: Any, record: dict[str, Any]) -> Any:
        file.write_text(json.dumps(record) + "\n", "utf-8")
        return read(file)

    compared = {"id": "1", "source": "a", "reference": "b", "before": "c\0\r", "after": "d\n"}
    concepts = {"en": "a", "de": "b", "es": "c"}
    transfer = {"a": "de", "b": "fr", "prompt": "x\ny", "answers_a": "e", "answers_b": "f"}
    question = {"context": "a b", "question": "c", "answers": ["b"]}
    needle = {"needle": "a", "question": "b", "haystack": "c d"}
    task = {"input": "a", "output": "b", "candidates": ["b", "c"]}
    prompt = {"prompt": "a", "reference": "b"}
    chat = {"prompt": [{"role": "user", "content": "a"}], "reference": "b"}
    summary = {"text": "a", "summary": "b", "language": "de"}
    readers: list[tuple[Any, dict[str, Any], tuple[str, ...]]] = [
        (read_compared, compared, ("source", "reference")),
        (read_concepts, concepts, ("en", "de")),
        (read_prompts, transfer, ("prompt", "answers_a")),
        (read_questions, question, ("context", "question", "answers")),
        (read_needles, needle, ("needle", "question", "haystack")),
        (read_task, task, ("input", "output", "candidates")),
        (partial(read_given, column="prompt"), prompt, ("prompt", "reference")),
        (partial(read_given, column="prompt"), chat, ("prompt",)),
        (lambda path: read_summaries(DocumentSource(str(path))), summary, ("text", "summary")),
    ]
    for reader, record, fields in readers:
        clean = str(read(reader, record))
        for field in fields:

            def with_end(value: Any, end: str) -> Any:
                if isinstance(value, list):
                    return [with_end(value[0], end), *value[1:]]
                if isinstance(value, dict):
                    return {**value, "content": value["content"] + end}
                return value + end

            ended = str(read(reader, {**record, field: with_end(record[field], "\r")}))
            assert _but_digests(ended) == _but_digests(clean), field
            with pytest.raises(InputError, match=r"a\.jsonl.*U\+0007") as caught:
                read(reader, {**record, field: with_end(record[field], "\x07z")})
            assert "\n" not in str(caught.value)


def _but_digests(text: str) -> str:
    return re.sub("[0-9a-f]{64}", "", text)


@pytest.mark.parametrize("name", ["all.jsonl", "all.jsonl.gz", "all.parquet", "folder"])
def test_one_file_holds_several_languages(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    if name == "folder":
        path.mkdir()
        jsonl(path / "train.jsonl")
    else:
        (parquet if name.endswith("parquet") else jsonl)(path)
    german, english = read_documents(DocumentSource(str(path)))
    assert (german.language, english.language) == ("de", "en")
    assert texts(german) == ["eins zwei", 'drei\t"vier"\nfünf', "sechs"]
    assert [(one.id, one.line, one.language) for one in german.documents] == [
        ("a", 1, "de"),
        ("c", 3, "de"),
        ("e", 5, "de"),
    ]
    assert german.digest == digest_of(texts(german)) != english.digest
    (only,) = read_documents(DocumentSource(str(path), languages=("eng",), limit=1))
    assert only.language == "eng" and texts(only) == ["one two"]


def test_plain_text_is_one_document_a_line(tmp_path: Path) -> None:
    path = tmp_path / "docs.txt"
    path.write_bytes("\ufeffeins  zwei \r\ndrei\tvier\n\n".encode())
    (file,) = read_documents(DocumentSource(str(path), language="de"))
    assert texts(file) == ["eins  zwei ", "drei\tvier"]  # only line ends are stripped
    assert [one.id for one in file.documents] == ["1", "2"]
    packed = tmp_path / "docs.txt.gz"
    packed.write_bytes(gzip.compress(b"one\ntwo\n"))
    (file,) = read_documents(DocumentSource(str(packed), limit=1))
    assert texts(file) == ["one"] and file.language is None


def test_a_file_of_no_known_ending_is_read_as_what_it_holds(tmp_path: Path) -> None:
    """Plain lines as plain text, tables as tables; what holds texts otherwise is refused."""

    def read(name: str, text: str, **more: Any) -> list[str]:
        (tmp_path / name).write_text(text, "utf-8")
        (file,) = read_documents(DocumentSource(str(tmp_path / name), language="en", **more))
        return texts(file)

    for name in ("articles", "articles.en", "x.dev"):
        assert read(name, "one two\nthree\tfour\n") == ["one two", "three\tfour"]
    assert read("table", "id\ttext\n1\tone\n") == ["one"]
    assert read("records", '{"text": "one"}\n') == ["one"]
    with pytest.raises(InputError, match=r"Parquet .* documents from plain text .* from \.html"):
        read("table.html", "text\none\n")
    (tmp_path / "bare").write_text("")
    with pytest.raises(InputError, match="is empty"):
        read_documents(DocumentSource(str(tmp_path / "bare"), language="en"))


def test_columns_by_dotted_name_and_by_number(tmp_path: Path) -> None:
    nested = jsonl(tmp_path / "n.jsonl", [{"page": {"body": "x y", "lang": "fr"}}])
    (file,) = read_documents(
        DocumentSource(str(nested), text_column="page.body", language_column="page.lang")
    )
    assert (file.language, texts(file)) == ("fr", ["x y"])
    table = tmp_path / "t.tsv"
    table.write_text("de\teins\nen\tone\n", "utf-8")
    found = read_documents(DocumentSource(str(table), text_column="1", language_column="0"))
    assert [(one.language, texts(one)) for one in found] == [("de", ["eins"]), ("en", ["one"])]


@pytest.mark.parametrize("limit", [1, 2])
def test_nothing_is_read_beyond_what_is_wanted(limit: int, tmp_path: Path) -> None:
    path = jsonl(tmp_path / "d.jsonl", [{"text": "x"}] * limit)
    with path.open("a") as file:
        file.write("{ damaged\n" * 3)
    (found,) = read_documents(DocumentSource(str(path), language="de", limit=limit))
    assert len(found.documents) == limit
    with pytest.raises(InputError, match=f"line {limit + 1} is not valid JSON"):
        read_documents(DocumentSource(str(path), language="de", limit=limit + 1))
    with open_rows(path, [Field("text", text_cell("give a text"))]) as rows:
        row = next(rows)
        assert row.place == f"{path}, line 1" and row.cells == {"text": "x"}


def test_wanted_languages_end_the_reading_when_all_are_there(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "d.jsonl")
    with path.open("a") as file:
        file.write("{ damaged\n")
    german, english = read_documents(DocumentSource(str(path), languages=("de", "en"), limit=2))
    assert len(german.documents) == len(english.documents) == 2
    with pytest.raises(InputError, match="line 6 is not valid JSON"):
        read_documents(DocumentSource(str(path), limit=2))  # any language might follow


@given(st.lists(st.text(min_size=1).filter(str.strip), min_size=1, max_size=4))
def test_the_digest_tells_texts_and_their_order_apart(some: list[str]) -> None:
    plain = [one.encode("utf-8", "replace").decode() for one in some]
    assert digest_of(plain) == digest_of(list(plain))
    assert digest_of([*plain, "x"]) != digest_of(plain)
    assert digest_of(["".join(plain)]) != digest_of(plain) or len(plain) == 1


BAD = [
    ([{"text": "x"}, {"text": " "}], "line 2: column 'text' is empty"),
    ([{"text": "x"}, {"text": None}], "line 2: column 'text' holds nothing"),
    ([{"text": ["x"]}], "line 1: column 'text' holds a list"),
    (
        [{"body": "x"}],
        "line 1 has no column 'text'; found: body; name the right one with --text-column",
    ),
    ([{"text": "x", "language": "xx"}], "line 1: unknown language code 'xx'"),
    ([{"text": "x", "language": ""}], "line 1: column 'language' is empty"),
    ([{"text": "x"}, {"body": "x"}], "line 2 has no field 'text'"),
    ([{"text": "\ud800"}], "line 1: column 'text' holds half of a surrogate"),
    ([], "is empty"),
]


@pytest.mark.parametrize(("records", "message"), BAD)
def test_bad_records_are_named_with_file_and_line(
    records: list[Any], message: str, tmp_path: Path
) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in records), "utf-8")
    with pytest.raises(InputError) as caught:
        read_documents(DocumentSource(str(path)))
    assert message in str(caught.value) and "bad.jsonl" in str(caught.value)
    assert "\n" not in str(caught.value)


def choice(*data: object, **options: Any) -> DocumentsChoice:
    return DocumentsChoice(tuple(map(str, data)), **options)


def test_languages_are_read_by_name(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "all.jsonl")
    plain = tmp_path / "x.txt"
    plain.write_text("bir\niki\n", "utf-8")
    found = read_languages(choice(path, f"tr={plain}"), "any", "dev")
    assert {code: len(file.documents) for code, file in found.items()} == {
        "tr": 2,
        "de": 3,
        "en": 2,
    }
    assert list(read_languages(choice(plain, languages=("tr",)), "any", "dev")) == ["tr"]
    few = read_languages(choice(path, f"tr={plain}", languages=("tr", "de")), "any", "dev")
    assert list(few) == ["tr", "de"]
    short = read_languages(choice(path, limit=2), "any", "dev")
    assert [len(file.documents) for file in short.values()] == [2, 2]
    assert len(read_languages(choice(path), "any", "dev", default_limit=1)["de"].documents) == 1


def test_what_cannot_be_read_by_language_says_how(tmp_path: Path) -> None:
    path, plain = jsonl(tmp_path / "all.jsonl"), tmp_path / "x.txt"
    plain.write_text("bir\niki\n", "utf-8")
    nested = tmp_path / "sub"
    nested.mkdir()
    for given_data, message in (
        (choice(plain), "does not say in which language"),
        (choice(f"tr={plain}", limit=3), "holds 2 documents in tr, but --limit asks for 3"),
        (choice(f"tr={plain}", f"tur={plain}"), "--data names tur twice"),
        (choice(path, f"de={plain}"), "both hold documents in de"),
        (choice(f"tr={plain}", languages=("de",)), "(there are documents in none of the languages"),
        (choice(path, languages=("fr",)), "holds no documents in fr; it has de"),
        (choice(path, languages=("de", "fr")), "--language fr has no data"),
        (choice(f"fr={path}"), "line 1: column 'language' says de"),
        (choice(f"xx={plain}"), "unknown language code 'xx'"),
        (choice(f"tr={plain}", split="train"), "is a file, which has no split"),
        (choice(f"tr={plain}", language_column="lang"), "plain text, which has no column"),
        (choice(f"tr={nested}"), "holds no dataset"),
        (choice(f"tr={tmp_path / 'no.jsonl'}"), "does not exist"),
        (choice(), "no data given for the model any"),
    ):
        with pytest.raises(InputError) as caught:
            read_languages(given_data, "any", "dev")
        assert message in str(caught.value)


def test_a_path_with_an_equals_sign_is_a_path(tmp_path: Path) -> None:
    path = tmp_path / "en=1.txt"
    path.write_text("one\n", "utf-8")
    assert list(read_languages(choice(path, languages=("en",)), "any", "dev")) == ["en"]


def test_the_pocket_model_has_documents_of_its_own() -> None:
    found = read_languages(DocumentsChoice(languages=("tr", "en"), limit=3), "pocket", "dev", 5)
    assert [(code, len(file.documents)) for code, file in found.items()] == [("tr", 3), ("en", 3)]
    other = read_languages(DocumentsChoice(languages=("en",), limit=3), "pocket", "test", 5)
    assert not set(texts(found["en"])) & set(texts(other["en"]))
    with pytest.raises(InputError, match=r"does not speak French \(fr\)"):
        read_languages(DocumentsChoice(languages=("fr",)), "pocket", "dev")


TEXT = Field("text", text_cell("give a text"))
LANGUAGE = Field("language", language_code, "en")
ROWS = [{"text": "one", "language": "de"}, {"text": "two", "language": " fr "}]


def in_every_format(folder: Path, rows: list[dict[str, str]]) -> list[Path]:
    datasets = pytest.importorskip("datasets")
    data = datasets.Dataset.from_list(rows)
    data.to_parquet(folder / "a.parquet")
    data.save_to_disk(str(folder / "dataset"))
    (folder / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    lines = ["\t".join(rows[0]), *("\t".join(row.values()) for row in rows)]
    (folder / "a.tsv").write_text("\n".join(lines), "utf-8")
    return [folder / name for name in ("a.parquet", "dataset", "a.jsonl", "a.tsv")]


def test_fields_mean_the_same_in_every_format(tmp_path: Path) -> None:
    for path in in_every_format(tmp_path, ROWS):
        fields, dataset = (TEXT, LANGUAGE, ID), path.is_dir()
        rows, _ = read_fields(path, fields, dataset=dataset)
        assert [(row[TEXT], row[LANGUAGE]) for row in rows] == [("one", "de"), ("two", "fr")]
        assert [row.id for row in rows] == (["2", "3"] if path.suffix == ".tsv" else ["1", "2"])
        with open_rows(path, fields, dataset=dataset) as lazily:
            assert list(lazily) == rows
        assert read_fields(path, fields, 1, dataset=dataset)[0] == rows[:1]


def test_a_missing_column_is_refused_unless_there_is_a_default(tmp_path: Path) -> None:
    for path in in_every_format(tmp_path, [{"text": "one"}]):
        rows, _ = read_fields(path, (TEXT, LANGUAGE), dataset=path.is_dir())
        assert rows[0][LANGUAGE] == "en"
        required = Field("language", language_code)
        with pytest.raises(InputError, match=r"no column 'language'; found: text"):
            read_fields(path, (TEXT, required), dataset=path.is_dir())
