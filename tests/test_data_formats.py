"""Every format of files under every reader, and what a text table of its own kind may hold."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import lzma
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from headscope.data.compared import read_compared
from headscope.data.documents import DocumentSource, read_documents, read_summaries
from headscope.data.formats import FORMATS, Format, begun, formats_read
from headscope.data.pairs import PairSource, read_pairs
from headscope.data.questions import read_needles, read_questions
from headscope.data.tables import arrow_rows
from headscope.data.tasks import read_task
from headscope.data.transfer import read_prompts as read_transfer
from headscope.data.words import read_concepts
from headscope.errors import InputError
from headscope.heads import Geometry
from headscope.studies.use.gates import read_gates
from headscope.studies.use.prompts import read_prompts
from headscope.use.corpus.files import find_files
from headscope.use.corpus.reading import read_records, survey
from headscope.use.corpus.records import Columns
from headscope.use.mixing import MixPlan
from headscope.use.mixing.reading import rated_paths
from headscope.use.mixing.reading import read_records as read_rated
from headscope.use.rating import Rated

Row = dict[str, Any]
SAID = 'Er sagte: "Ja, gut", und ging.'


def _lines(rows: Sequence[Row]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def _tabs(rows: Sequence[Row]) -> bytes:
    lines = [list(rows[0]), *(map(str, row.values()) for row in rows)]
    return "".join("\t".join(line) + "\n" for line in lines).encode()


def _commas(rows: Sequence[Row]) -> bytes:
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def _parquet(rows: Sequence[Row]) -> bytes:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    buffer = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(list(rows)), buffer, row_group_size=2)
    return buffer.getvalue()


def _arrow(rows: Sequence[Row], stream: bool = False) -> bytes:
    pa, ipc = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.ipc")
    table, buffer = pa.Table.from_pylist(list(rows)), io.BytesIO()
    with (ipc.new_stream if stream else ipc.new_file)(buffer, table.schema) as file:
        file.write_table(table, max_chunksize=2)
    return buffer.getvalue()


WRITERS: dict[str, Callable[[Sequence[Row]], bytes]] = {
    "JSON list": lambda rows: json.dumps(rows, indent=1).encode(),
    "JSON Lines": _lines,
    "Parquet": _parquet,
    "Arrow": _arrow,
    "TSV": _tabs,
    "CSV": _commas,
}


def _corpus(path: Path) -> list[Row]:
    """The fields of a corpus's records as they are written once they are rated."""
    (file,) = survey(find_files([str(path)]), Columns())
    rated = Rated(1.0, 2.0, 3)
    lines = [record.rated(rated, Columns()) for record in read_records(file, lambda place: True)]
    assert [json.loads(line)["tokens"] for line in lines] == [3] * len(lines)
    return [{name: json.loads(line)[name] for name in ("id", "text", "language")} for line in lines]


def _rated(path: Path) -> list[Row]:
    plan = MixPlan(by="tokens")
    (file,) = rated_paths([path.parent])
    records = [(record, json.loads(line)) for _, line, record in read_rated(file, plan)]
    for record, row in records:
        assert (record.text, record.score, record.tokens) == (
            row["text"], row["score"], row["tokens"],
        )  # fmt: skip
    return [row for _, row in records]


GEOMETRY = Geometry((4, 4))


def _gates(path: Path) -> list[Row]:
    gates, _ = read_gates(str(path), ["p", "q"], GEOMETRY)
    return [
        {
            "id": own,
            "heads": json.dumps({"0.1": float(gate.values[0, 1]), "1.3": float(gate.values[1, 3])}),
        }
        for own, gate in zip(("p", "q"), gates, strict=True)
    ]


#: Of each family of commands: the records of a file, and what its reader makes of them, as records.
READERS: dict[str, tuple[list[Row], Callable[[Path], list[Row]]]] = {
    "pairs": (
        [
            {"source": "a b", "target": SAID, "links": "0-0 1-2"},
            {"source": "c", "target": "d", "links": ""},
        ],
        lambda path: [
            {
                "source": pair.source,
                "target": pair.target,
                "links": " ".join(f"{i}-{j}" for i, j in sorted(pair.links or ())),
            }
            for pair in read_pairs(PairSource(str(path), "en-de")).pairs
        ],
    ),
    "documents": (
        [{"id": "x", "text": SAID, "language": "de"}, {"id": "y", "text": "one", "language": "en"}],
        lambda path: [
            {"id": one.id, "text": one.text, "language": one.language}
            for file in read_documents(DocumentSource(str(path)))
            for one in file.documents
        ],
    ),
    "summaries": (
        [{"text": SAID, "summary": "Ja."}, {"text": "Lang, und länger.", "summary": "Kurz."}],
        lambda path: [
            {"text": one.text, "summary": one.summary}
            for file in read_summaries(DocumentSource(str(path), language="de"))
            for one in file.items
        ],
    ),
    "questions": (
        [{"id": f"q{n}", "context": SAID, "question": f"{n}?", "answers": "Ja"} for n in range(3)],
        lambda path: [
            {"id": q.id, "context": q.context, "question": q.question, "answers": q.answers[0]}
            for q in read_questions(path).questions
        ],
    ),
    "needles": (
        [{"needle": SAID, "question": "Was?", "haystack": "Ein, zwei.", "answer": "Ja"}],
        lambda path: [
            {"needle": n.needle, "question": n.question, "haystack": n.haystack, "answer": n.answer}
            for n in read_needles(path).needles
        ],
    ),
    "tasks": (
        [{"input": SAID, "output": "ja"}, {"input": "b, c", "output": "nein"}],
        lambda path: [
            {"input": one.input, "output": one.output} for one in read_task(path).examples
        ],
    ),
    "words": (
        [{"en": "dog", "de": "Hund", "es": "perro"}, {"en": "yes", "de": SAID, "es": ""}],
        lambda path: [
            {code: concept.words.get(code, "") for code in ("en", "de", "es")}
            for concept in read_concepts(path).concepts
        ],
    ),
    "prompts": (
        [{"id": "p", "text": SAID, "reference": "und"}, {"id": "q", "text": "b", "reference": "c"}],
        lambda path: [
            {"id": one.id, "text": one.given, "reference": one.reference}
            for one in read_prompts(path)
        ],
    ),
    "gates": (
        [
            {"id": "p", "heads": '{"0.1": 0.0, "1.3": 1.0}'},
            {"id": "q", "heads": '{"0.1": 1.0, "1.3": -0.5}'},
        ],
        _gates,
    ),
    "transfer": (
        [{"a": "de", "b": "en", "prompt": SAID, "answers_a": "Ja", "answers_b": "No"}],
        lambda path: [
            {
                "a": one.a,
                "b": one.b,
                "prompt": one.prompt,
                "answers_a": one.answer_a.english,
                "answers_b": one.answer_b.english,
            }
            for file in read_transfer(path).values()
            for one in file.prompts
        ],
    ),
    "outputs": (
        [
            {"id": f"{n}", "source": "a", "reference": SAID, "before": "", "after": "x, y"}
            for n in range(2)
        ],
        lambda path: [
            {
                "id": one.id,
                "source": one.source,
                "reference": one.reference,
                "before": one.before,
                "after": one.after,
            }
            for one in read_compared(path)[0]
        ],
    ),
    "use rate": (
        [{"id": f"d{n}", "text": f"{n} {SAID}", "language": "de"} for n in range(5)],
        _corpus,
    ),
    "use mix": (
        [
            {"id": f"d{n}", "text": SAID, "language": "de", "score": n / 8, "tokens": n}
            for n in range(3)
        ],
        _rated,
    ),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
@pytest.mark.parametrize("reader", READERS)
def test_every_reader_takes_every_format(form: Format, reader: str, tmp_path: Path) -> None:
    rows, read = READERS[reader]
    for ending in form.endings:
        if reader == "use mix" and ending == ".json":  # of a run, and passed over in a folder
            continue
        path = tmp_path / ending[1:] / f"file{ending}"
        path.parent.mkdir()
        path.write_bytes(WRITERS[form.name](rows))
        assert read(path) == rows


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
def test_a_compressed_file_of_any_name_is_read_the_same(form: Format, tmp_path: Path) -> None:
    rows, read = READERS["prompts"]
    data = WRITERS[form.name](rows)
    (packed := tmp_path / f"a{form.endings[0]}.gz").write_bytes(gzip.compress(data))
    (bare := tmp_path / "bare").write_bytes(data)
    assert read(packed) == rows
    if begun(data) is form:
        assert read(bare) == rows
    else:
        assert form.name == "CSV"  # begins like any other text


@pytest.mark.parametrize("ending", [".gz", ".bz2", ".xz", ".zst"])
def test_plain_text_may_be_compressed_in_every_way(ending: str, tmp_path: Path) -> None:
    zstd = pytest.importorskip("zstandard")
    packers = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}
    path = tmp_path / f"a.txt{ending}"
    path.write_bytes(packers.get(ending, zstd.compress)(b'{"text": "x"}\ntwo\n'))
    expected = ['{"text": "x"}', "two"]
    assert [one.given for one in read_prompts(path)] == expected
    (found,) = read_documents(DocumentSource(str(path), language="en"))
    assert [one.text for one in found.documents] == expected


def test_values_that_python_cannot_hold_are_refused_and_want_of_memory_is_not() -> None:
    import pyarrow as arrow

    late, zone = arrow.timestamp("us"), arrow.timestamp("s", tz="Mars/One")
    values = {
        "late": arrow.array([2**62], late),
        "zone": arrow.array([1], zone),
        "text": arrow.array([b"\xff"], arrow.binary()).view(arrow.string()),
    }
    for value in values.values():
        with pytest.raises(InputError, match="the data holds a value"):
            arrow_rows(arrow.table({"a": value}), "the data")

    class Failing:
        def __init__(self, error: Exception) -> None:
            self.error = error

        def to_pylist(self) -> None:
            raise self.error

    # What Arrow raises of a type without a value in Python, and of a value of another type.
    for error in (arrow.ArrowNotImplementedError("x"), arrow.ArrowTypeError("x")):
        with pytest.raises(InputError, match="the data holds a value"):
            arrow_rows(Failing(error), "the data")
    with pytest.raises(MemoryError):
        arrow_rows(Failing(arrow.lib.ArrowMemoryError("x")), "the data")


def test_what_is_not_read_is_told_what_is(tmp_path: Path) -> None:
    assert all(form.name in formats_read() for form in FORMATS)
    for data in ("a.zip", "a.html", "a.xlsx"):
        (tmp_path / data).write_bytes(b"PK\x03\x04")
        for read in (read_questions, read_task, read_prompts, read_needles):
            with pytest.raises(InputError) as error:
                read(tmp_path / data)
            assert formats_read() in str(error.value)
    with pytest.raises(InputError) as error:
        find_files([str(tmp_path / "a.xlsx")])
    assert formats_read() in str(error.value)


@pytest.mark.parametrize("reader", READERS)
def test_arrow_streams_are_read_as_files_are(reader: str, tmp_path: Path) -> None:
    """As `datasets` keeps its tables, one table a file."""
    rows, read = READERS[reader]
    path = tmp_path / "data-00000-of-00001.arrow"
    path.write_bytes(_arrow(rows, stream=True))
    assert read(path) == rows
    path.write_bytes(path.read_bytes()[:-60])
    with pytest.raises(InputError, match=r"a-00000-of-00001\.arrow .*; fetch or write it again"):
        read(path)


def test_only_wanted_pieces_of_an_arrow_file_are_rated(tmp_path: Path) -> None:
    rows = [{"text": f"{n}"} for n in range(3000)]
    for stream in (False, True):
        path = tmp_path / "a.feather"
        path.write_bytes(_arrow(rows, stream))
        (file,) = survey(find_files([str(path)]), Columns(), limit=2999)
        records = list(read_records(file, lambda place: place in (1, 1500, 2999)))
        assert [(one.line, one.field("text")) for one in records] == [(2, "1"), (1501, "1500")]


def test_a_json_list_is_read_by_items(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers go on as they are written; what is no list of objects, or too large, is refused."""
    path = tmp_path / "a.json"
    path.write_text('\ufeff [\n{"text": "a", "n": 1.50},\n {"text":\n "b", "n": 1e3}\n]\n', "utf-8")
    (file,) = survey(find_files([str(path)]), Columns())
    records = list(read_records(file, lambda place: True))
    assert [(one.line, one.field("text")) for one in records] == [(2, "a"), (3, "b")]
    assert [one.raw for one in records] == ['{"text": "a", "n": 1.50}', '{"text":  "b", "n": 1e3}']
    monkeypatch.setattr("headscope.data.formats.LARGEST_TEXT", 9)
    with pytest.raises(InputError, match="is larger than 1 GiB"):
        read_prompts(path)
    monkeypatch.undo()
    path.write_text('[{"text": "a"},\n 3]', "utf-8")
    with pytest.raises(InputError, match="line 2 is no JSON object"):
        read_prompts(path)


CELLS = [["id", "text"], ["1", 'a "b", c'], ["2", "two\nlines"], ["3", "\r\n"], ["4", "x\ty"]]


def test_csv_is_read_as_it_is_written(tmp_path: Path) -> None:
    """Quotes, line ends and commas in cells; a record goes by the line that it begins on."""
    path = tmp_path / "a.csv"
    with path.open("w", newline="", encoding="utf-8-sig") as file:
        csv.writer(file).writerows([*CELLS[:3], CELLS[4]])
    (found,) = read_documents(DocumentSource(str(path), language="en"))
    assert [one.text for one in found.documents] == [row[1] for row in (*CELLS[1:3], CELLS[4])]
    assert [one.line for one in found.documents] == [2, 3, 5]
    (file,) = survey(find_files([str(path)]), Columns())
    records = list(read_records(file, lambda place: place != 0))
    assert [(one.line, one.field("text")) for one in records] == [(3, "two\nlines"), (5, "x\ty")]
    long = "long, " * 30_000
    path.write_text(f'text\n"{long}"\n')  # beyond the module's own limit
    assert read_prompts(path)[0].given == long


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('text\n"a\nb', "line 2 begins no record of CSV (unexpected end of data)"),
        ('text\na\n"b" c\n', "line 3 begins no record of CSV"),
        ("id,text\n1\n", "line 2 has 1 cell where the header has 2"),
        ("id,text\n1,a\n\n2,b\n", "line 3 is blank"),
        ("id;text\n1;a\n", "line 1 has no column 'text'; found: id;text"),
        ("text,text\na,b\n", "line 1 names the column 'text' 2 times"),
        ("", "is empty"),
    ],
)
def test_csv_that_cannot_be_read(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(text)
    with pytest.raises(InputError) as error:
        read_prompts(path)
    assert str(path) in str(error.value) and said in str(error.value)


@pytest.mark.parametrize(("ending", "sign"), [(".tsv", "\t"), (".csv", ",")])
def test_rows_of_a_corpus_that_cannot_be_rated(ending: str, sign: str, tmp_path: Path) -> None:
    """A row of another length and one that is not UTF-8 are rejects; a blank one is none."""
    path = tmp_path / f"a{ending}"
    rows = [b"id|text", b"1|one", b"", b"2|two|more", b"3|\xff", b"4|four"]
    path.write_bytes(b"\n".join(rows).replace(b"|", sign.encode()) + b"\n")
    (file,) = survey(find_files([str(path)]), Columns())
    records = list(read_records(file, lambda place: True))
    assert [one.line for one in records] == [2, 4, 5, 6]
    why = [one.why_not(Columns()) for one in records]
    assert why[0] is None and why[3] is None
    assert why[1] == "it has 3 cells where the header has 2"
    assert why[2] is not None and why[2].startswith("it is not valid UTF-8")
    assert json.loads(records[1].rejected("x"))["raw"] == "2\ttwo\tmore"
    assert r"\xff" in json.loads(records[2].rejected("x"))["raw"]


@pytest.mark.parametrize(("row", "text"), [("\xff\tb", "text"), ("x", "text"), ("a\tb", "2")])
def test_a_corpus_without_a_column_of_texts(row: str, text: str, tmp_path: Path) -> None:
    """It is told from the header, whatever the rows are like."""
    path = tmp_path / "a.tsv"
    path.write_bytes(f"id\tbody\n{row}\n".encode("latin-1"))
    found = "id, body" if text == "text" else "0, 1"
    with pytest.raises(InputError, match=f"has no field '{text}'; found: {found}; name the right"):
        survey(find_files([str(path)]), Columns(text))


@pytest.mark.parametrize(("ending", "sign"), [(".tsv", "\t"), (".csv", ",")])
def test_columns_by_number_of_a_corpus(ending: str, sign: str, tmp_path: Path) -> None:
    path = tmp_path / f"a{ending}"
    path.write_text(f"de{sign}eins{sign}1\nen{sign}one{sign}2\n")
    columns = Columns(text="1", language="0", id="2")
    (file,) = survey(find_files([str(path)]), columns)
    records = list(read_records(file, lambda place: True))
    assert [(one.language(columns), one.text(columns)) for one in records] == [
        ("de", "eins"),
        ("en", "one"),
    ]
    assert [one.identity(columns) for one in records] == ["1", "2"]
    with pytest.raises(InputError, match="by number and by name"):
        survey(find_files([str(path)]), Columns(language="0"))
