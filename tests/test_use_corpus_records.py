"""Records keep every field as it was, in JSON Lines and in Parquet."""

from __future__ import annotations

import datetime
import io
import json
import math
from decimal import Decimal
from pathlib import Path
from typing import Any
from unicodedata import category

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headscope.errors import InputError
from headscope.use.corpus.files import CorpusFile
from headscope.use.corpus.records import ADDED, Columns, ColumnTypes, RawRecord, Written, parse_line
from headscope.use.rating import Rated

FILE = CorpusFile("c", "c.jsonl", "jsonl")
RATED = Rated(2.5, 2.75, 7)
FIGURES = {"nll_full": 2.5, "nll_removed": 2.75, "score": 0.25, "tokens": 7}

names = st.text(st.characters(codec="utf-8"), max_size=8).filter(
    lambda name: name not in (*ADDED, "text")
)
leaves = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8"))
)
values = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("aé ", max_size=5), inner),
    max_leaves=10,
)


@settings(max_examples=60)
@given(
    st.dictionaries(names, values), st.text(st.characters(codec="utf-8"), min_size=1), st.booleans()
)
def test_a_line_keeps_everything(more: dict[str, Any], text: str, escaped: bool) -> None:
    fields = {**more, "text": text}
    line = json.dumps(fields, ensure_ascii=escaped)
    record = parse_line(FILE, 3, 2, line.encode())
    control = {sign for sign in text if category(sign) == "Cc"} - set("\t\n\v\f\r\x85")
    rated = not control and text not in ("\r", "\r\n")
    assert (record.why_not(Columns()) is None) == rated
    written = record.rated(RATED, Columns())
    assert "\n" not in written and written.startswith(line[:-1])
    found = json.loads(written)
    assert found.pop("id") == more.get("id", "c/3")
    assert found == {**{k: v for k, v in fields.items() if k != "id"}, **FIGURES}
    rejected = json.loads(record.rejected("why"))
    assert rejected == {"file": "c.jsonl", "line": 3, "reason": "why", "record": fields}


@pytest.mark.parametrize(
    "line",
    [
        '{"text": "a", "x": 1e400}',
        '{"text": "a", "x": 1.10000000000000000001, "x": 2}',
        '{ "text" : "a\\ud800" }',
        '{"text": "\\u2028 a\u2028"}',
    ],
)
def test_what_python_would_change_stays_as_it_was_written(line: str) -> None:
    written = parse_line(FILE, 1, 0, line.encode()).rated(RATED, Columns())
    assert written.startswith(line[:-1].rstrip())
    assert json.loads(written)["score"] == 0.25


def test_a_carriage_return_between_fields_ends_no_line() -> None:
    record = parse_line(FILE, 1, 0, b'{"text":\r"a b"}')
    assert json.loads(record.rated(RATED, Columns()))["text"] == "a b"
    assert "\r" not in record.rated(RATED, Columns())


columns = {
    "int": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(allow_nan=False, allow_infinity=False),
    "text": st.text(st.characters(exclude_categories=("Cs",)), min_size=1),
    "flag": st.booleans(),
    "list": st.lists(st.none() | st.integers(-9, 9), max_size=3),
    "deep": st.fixed_dictionaries({"a": st.none() | st.text("ab"), "b": st.lists(st.booleans())}),
}
rows = st.fixed_dictionaries(
    {"text": columns["text"]},
    optional={name: st.none() | one for name, one in columns.items() if name != "text"},
)


@settings(max_examples=40)
@given(st.lists(rows, min_size=1, max_size=6))
def test_lines_of_one_kind_become_columns(records: list[dict[str, Any]]) -> None:
    types = ColumnTypes("c.jsonl")
    for number, one in enumerate(records, 1):
        types.add(one, number)
    file = CorpusFile("c", "c.jsonl", "jsonl", types=types.schema())
    some = [(RawRecord(file, n, n - 1, one), RATED) for n, one in enumerate(records, 1)]
    data = Written("parquet").encode(some, some[0][0], Columns())
    found = pq.read_table(io.BytesIO(data)).to_pylist()
    fields = [name for name in columns if any(name in one for one in records)]
    for number, (one, record) in enumerate(zip(found, records, strict=True), 1):
        assert {name: one[name] for name in fields} == {name: record.get(name) for name in fields}
        assert one["id"] == f"c/{number}" and one["score"] == 0.25 and one["tokens"] == 7


@pytest.mark.parametrize(
    ("records", "message"),
    [
        ([{"a": 1}, {"a": "x"}], "'a' is a text in line 2 but a number in line 1"),
        ([{"a": {"b": [True]}}, {}, {"a": {"b": [0]}}], r"'a\.b\[\]' is a number in line 3"),
        ([{"a": [1]}, {"a": {"b": 1}}], "'a' is an object in line 2 but a list in line 1"),
        ([{"a": "\ud800"}], "'a' is not valid Unicode in line 1"),
        ([{"a": 2**63}], "'a' is too large a number in line 1"),
        ([{"a": 2**60}, {"a": 0.5}], "'a' mixes fractions"),
    ],
)
def test_what_one_column_cannot_hold(records: list[dict[str, Any]], message: str) -> None:
    types = ColumnTypes("c.jsonl")
    with pytest.raises(InputError, match=message) as caught:
        for number, one in enumerate(records, 1):
            types.add(one, number)
    assert "--format jsonl" in str(caught.value)


def test_whole_numbers_and_fractions_share_a_column() -> None:
    types = ColumnTypes("c.jsonl")
    for number, value in enumerate((1, 0.5, None, 2**53), 1):
        types.add({"a": value}, number)
    assert types.schema() == pa.schema([("a", pa.float64())])


def table() -> pa.Table:
    """A table with types that JSON does not have."""
    day = datetime.datetime(2020, 2, 3, 4, 5, 6)
    return pa.table(
        {
            "text": pa.array(["a b", "c d", "e f"], pa.large_string()),
            "when": pa.array([day, None, day], pa.timestamp("us", tz="UTC")),
            "price": pa.array([Decimal("1.10"), None, Decimal("2.00")], pa.decimal128(9, 2)),
            "bytes": pa.array([b"\x00\xff", b"", None]),
            "kind": pa.array(["x", "y", "x"]).dictionary_encode(),
            "share": pa.array([0.5, math.nan, math.inf], pa.float32()),
            "large": pa.array([2**64 - 1, 0, None], pa.uint64()),
            "map": pa.array([[("k", 1)], [], None], pa.map_(pa.string(), pa.int8())),
        }
    )


def read(source: pa.Table, path: Path) -> list[tuple[RawRecord, Rated]]:
    from headscope.use.corpus.reading import read_records, survey

    pq.write_table(source, path)
    (file,) = survey([CorpusFile("t", str(path), "parquet")], Columns())
    return [(one, RATED) for one in read_records(file, lambda place: True)]


def test_a_parquet_file_keeps_its_columns(tmp_path: Path) -> None:
    some = read(table(), tmp_path / "t.parquet")
    there = pq.read_table(tmp_path / "t.parquet")
    for rated in (some, some[:1], []):
        data = Written("parquet", "zstd").encode(rated, some[0][0], Columns())
        found = pq.read_table(io.BytesIO(data))
        assert found.column_names == [*there.column_names, "id", *ADDED]
        kept = found.select(there.column_names)
        assert kept.schema.equals(there.schema)
        assert repr(kept.to_pylist()) == repr(there.slice(0, len(rated)).to_pylist())
        assert found.schema.field("score").type == pa.float64()


def test_a_row_as_json(tmp_path: Path) -> None:
    some = read(table(), tmp_path / "t.parquet")
    lines = Written().encode(some, some[0][0], Columns()).decode().splitlines()
    first, second, third = map(json.loads, lines)
    assert first["when"] == "2020-02-03T04:05:06+00:00" and first["price"] == "1.10"
    assert first["bytes"] == "AP8=" and second["bytes"] == "" and first["kind"] == "x"
    assert first["large"] == 2**64 - 1 and first["map"] == [["k", 1]]
    assert (first["share"], second["share"], third["share"]) == (0.5, None, None)
    assert first["id"] == "t/1" and first["score"] == 0.25
