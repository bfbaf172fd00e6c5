"""One record of a corpus: as it was read, whether it can be rated, and as it is written.

Nothing of a record may change on its way. A line of JSON Lines is kept as text and the new fields
are put at its end, so that large numbers, the order of fields and escapes stay as they are; a row
of a table stays a row.
"""

from __future__ import annotations

import base64
import gzip
import io
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any, Literal

from headscope import options
from headscope.data.files import Unread, unique_keys
from headscope.data.rows import unusable, without_line_end
from headscope.data.tables import ABSENT, cell_of
from headscope.errors import InputError, OptionalPart, need
from headscope.settings import Option, Settings
from headscope.use.corpus.files import CorpusFile

if TYPE_CHECKING:
    from headscope.use.rating import Rated


#: The fields that rating adds; a record that has one already is not overwritten but rejected.
ADDED = ("nll_full", "nll_removed", "score", "tokens")


Compression = Literal["none", "gzip", "zstd"]
JSONL_ENDINGS: dict[Compression, str] = {
    "none": ".jsonl",
    "gzip": ".jsonl.gz",
    "zstd": ".jsonl.zst",
}
_KINDS = {
    "bool": "true or false",
    "int": "a number",
    "float": "a number",
    "str": "a text",
    "list": "a list",
    "dict": "an object",
}
_EXACT = 1 << 53  # up to here every whole number is a double


@dataclass(frozen=True)
class Columns(Settings):
    """Which fields hold what; a dot names a field within a field (``meta.text``)."""

    text: options.TextColumn = "text"
    language: Annotated[
        str,
        Option(
            "Likewise; without it language, if there.",
            flag="--language-column",
            metavar="COLUMN",
            default=None,
            panel="Data",
        ),
    ] = "language"
    id: Annotated[
        str,
        Option("What names a record; without it id.", flag="--id-column", metavar="COLUMN"),
    ] = "id"


@dataclass(frozen=True)
class RawRecord:
    """A record of a corpus: line or row `line` of `file`, from 1, with `place` records before it.

    `value` has its fields; None if the line holds none. `raw` is its line, of JSON Lines, and `row`
    a table of this one row; None for the other. `problem`: why it cannot be rated, if that is known
    from reading alone.
    """

    file: CorpusFile
    line: int
    place: int
    value: Mapping[str, Any] | None
    raw: str | None = None
    row: Any = None
    problem: str | None = None

    def text(self, columns: Columns) -> str:
        """The text to be rated, without the line end of the file that it was taken from."""
        return without_line_end(str(self.field(columns.text)), lines=True)

    def field(self, column: str) -> Any:
        """A field, or None if it is not there."""
        cell = cell_of(self.value, column)
        return None if cell is ABSENT else cell

    def identity(self, columns: Columns) -> str | int | float:
        """What names the record: its id, else its file and line."""
        value = self.field(columns.id)
        if isinstance(value, str) and value:
            return valid_unicode(value)
        # JSON has no infinity, which 1e999 is read as, and tables hold NaN where there is no id.
        number = isinstance(value, int) or (isinstance(value, float) and math.isfinite(value))
        return value if number else f"{self.file.name}/{self.line}"

    def language(self, columns: Columns) -> str:
        """Its language, else that of its file, else the empty text."""
        cell = cell_of(self.value, columns.language)
        if cell is ABSENT:
            return self.file.language or ""
        return without_line_end(valid_unicode(cell)) if isinstance(cell, str) else ""

    def why_not(self, columns: Columns) -> str | None:
        """Why the record cannot be rated; None if it can be handed to the model."""
        if self.problem is not None:
            return self.problem
        if not isinstance(self.value, Mapping):
            return "it is no JSON object"
        for name in ADDED:
            if name in self.value:
                return f"it has a field {name!r} already; rename it"
        text = cell_of(self.value, columns.text)
        if text is ABSENT:
            return f"it has no field {columns.text!r}"
        if text is None:
            return f"its {columns.text!r} is null"
        if not isinstance(text, str):
            return f"its {columns.text!r} is {_kind(text)}, not a text"
        text = without_line_end(text, lines=True)
        if not text:
            return f"its {columns.text!r} is empty"
        reason = unusable(text, lines=True)
        return f"its {columns.text!r} holds {reason}" if reason else None

    def missing(self, columns: Columns) -> dict[str, Any]:
        """Fields that the output has beside the record's own: an id, the language of the file."""
        there = self.value or {}
        added = {} if "id" in there else {"id": self.identity(columns)}
        if self.file.language and cell_of(there, columns.language) is ABSENT:
            added[columns.language] = self.file.language
        return added

    def rated(self, rated: Rated, columns: Columns) -> str:
        """The record and its rating as a line of JSON."""
        added = {**self.missing(columns), **{name: getattr(rated, name) for name in ADDED}}
        inside = self._as_json().rstrip()[:-1].rstrip()
        comma = "" if inside.endswith("{") else ", "
        return inside + comma + json.dumps(added, ensure_ascii=False, allow_nan=False)[1:]

    def rejected(self, reason: str) -> str:
        """The record, or its line where that is no record, with the reason, as a line of JSON."""
        about = {"file": self.file.path, "line": self.line, "reason": reason}
        if self.value is None:
            return json.dumps({**about, "raw": self.raw}, ensure_ascii=True)
        return f'{json.dumps(about)[:-1]}, "record": {self._as_json()}}}'

    def _as_json(self) -> str:
        if self.raw is not None:
            # Line ends that other readers know may stand between fields, but nowhere else.
            return self.raw.replace("\r", " ")
        return json.dumps(_plain(self.value), ensure_ascii=False, allow_nan=False)


def parse_line(file: CorpusFile, line: int, place: int, data: bytes) -> RawRecord:
    """The record on a line of JSON Lines; one with a problem where it holds none."""
    value, problem = None, None
    raw = data.decode("utf-8", "backslashreplace")
    if isinstance(data, Unread):
        return RawRecord(file, line, place, None, raw, problem=f"it {data.why}")
    try:
        value = json.loads(
            data.decode("utf-8"), parse_constant=_no_constant, object_pairs_hook=unique_keys
        )
        if not isinstance(value, dict):
            value, problem = None, "it is no JSON object"
    except UnicodeDecodeError as error:
        problem = f"it is not valid UTF-8 at byte {error.start + 1}"
    except (ValueError, RecursionError) as error:
        # Beside ill-formed JSON: nested too deeply, or a number of too many digits.
        reason = getattr(error, "msg", str(error).partition(";")[0])
        at = f" at character {error.pos + 1}" if hasattr(error, "pos") else ""
        problem = f"it is not valid JSON: {reason}{at}"
    return RawRecord(file, line, place, value, raw, problem=problem)


def valid_unicode(text: str) -> str:
    """A text without halves of surrogate pairs, which JSON can hold and UTF-8 cannot."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")


def _kind(value: Any) -> str:
    other = "an object" if isinstance(value, Mapping) else "something else"
    return _KINDS.get(type(value).__name__, other)


def _plain(value: Any) -> Any:
    """A value of a table as JSON has it: times as ISO 8601, exact decimals as text, bytes as
    base64; NaN and infinity, which JSON lacks, as null."""
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, (bytes, bytearray)):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, (date, time)):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    return str(value) if isinstance(value, Decimal) else repr(value)


def compressed(data: bytes, compression: Compression) -> bytes:
    """The content of a file; the same bytes at any time."""
    if compression == "gzip":
        return gzip.compress(data, mtime=0)
    if compression == "zstd":
        return bytes(need("zstandard", "writing zstd", "corpus").compress(data))
    return data


@dataclass(frozen=True)
class Written(Settings):
    """How rated documents are written.

    JSON Lines keep every record as it is; the columns of Parquet have one type each. `compression`
    is of the file, or of the columns within it.
    """

    format: Annotated[
        Literal["jsonl", "parquet"], Option("What rated documents are written as.")
    ] = "jsonl"
    compression: Annotated[Compression, Option("Of the files written.", panel="Expert")] = "none"
    chunk: Annotated[
        int, Option("Records of an input file that make one output file.", min=1, panel="Expert")
    ] = 1000

    @property
    def ending(self) -> str:
        """How the names of the files end."""
        return ".parquet" if self.format == "parquet" else JSONL_ENDINGS[self.compression]

    def parts(self) -> Iterator[OptionalPart]:
        """What writing takes."""
        if self.format == "parquet":
            yield OptionalPart("writing Parquet", "corpus", ("pyarrow",))
        elif self.compression == "zstd":
            yield OptionalPart("writing zstd", "corpus", ("zstandard",))

    def encode(
        self, rated: Sequence[tuple[RawRecord, Rated]], example: RawRecord, columns: Columns
    ) -> bytes:
        """The file of a chunk; ``example`` is any record of it, since none of it may be rated.

        InputError if the records do not fit into a Parquet table.
        """
        if self.format == "jsonl":
            lines = "".join(f"{record.rated(losses, columns)}\n" for record, losses in rated)
            return compressed(lines.encode("utf-8"), self.compression)
        pa = need("pyarrow", "writing Parquet", "corpus")
        pq = need("pyarrow.parquet", "writing Parquet", "corpus")
        buffer = io.BytesIO()
        codec = None if self.compression == "none" else self.compression
        try:
            pq.write_table(_table(pa, rated, example, columns), buffer, compression=codec)
        except (pa.ArrowException, OverflowError) as error:
            raise InputError(
                f"{example.file.path}: its records do not fit into a Parquet file "
                f"({str(error).splitlines()[0]}); write JSON Lines (--format jsonl)"
            ) from None
        return buffer.getvalue()


def _table(
    pa: Any, rated: Sequence[tuple[RawRecord, Rated]], example: RawRecord, columns: Columns
) -> Any:
    records = [record for record, _ in rated]
    if example.row is not None:
        table = pa.concat_tables([example.row.slice(0, 0), *(record.row for record in records)])
    else:
        rows = [record.value for record in records]
        table = pa.Table.from_pylist(rows, schema=example.file.types)
    missing = [record.missing(columns) for record in records]
    for name in ("id", columns.language):
        if name not in table.column_names and (name == "id" or example.file.language):
            texts = [None if name not in fields else str(fields[name]) for fields in missing]
            table = table.append_column(name, pa.array(texts, pa.string()))
    for name in ADDED:
        kind = pa.int64() if name == "tokens" else pa.float64()
        values = [getattr(losses, name) for _, losses in rated]
        table = table.append_column(name, pa.array(values, kind))
    return table


@dataclass
class _Type:
    """What was seen at one place of the records: nothing but null as long as ``kind`` is None."""

    kind: str | None = None
    line: int = 0
    large: int = 0
    items: _Type | None = None
    fields: dict[str, _Type] = field(default_factory=dict)


@dataclass
class ColumnTypes:
    """The columns of a Parquet file that hold what records of JSON Lines hold.

    Collects the types of records; a field that is missing somewhere is null there.
    """

    path: str
    _top: _Type = field(default_factory=lambda: _Type("dict"))

    def add(self, value: Mapping[str, Any], line: int) -> None:
        """Take in a record; InputError if it does not fit together with those before it."""
        self._add(self._top, value, line, "")

    def schema(self) -> Any:
        """The columns as an Arrow schema."""
        pa = need("pyarrow", "writing Parquet", "corpus")
        fields = self._top.fields.items()
        return pa.schema([(name, self._arrow(pa, seen, name)) for name, seen in fields])

    def _add(self, seen: _Type, value: Any, line: int, name: str) -> None:
        if value is None:
            return
        kind = type(value).__name__
        if seen.kind is None:
            seen.kind, seen.line = kind, line
        elif seen.kind != kind:
            if {seen.kind, kind} != {"int", "float"}:
                raise self._unfit(
                    f"{name!r} is {_KINDS[kind]} in line {line} but {_KINDS[seen.kind]} in line "
                    f"{seen.line}"
                )
            seen.kind = "float"
        if kind == "int":
            if not -(1 << 63) <= value < 1 << 63:
                raise self._unfit(f"{name!r} is too large a number in line {line}")
            seen.large = max(seen.large, abs(value))
        if seen.kind == "float" and seen.large > _EXACT:
            raise self._unfit(
                f"{name!r} mixes fractions with whole numbers too large for them (line {line})"
            )
        if kind == "str" and not value.isascii():
            try:
                value.encode("utf-8")
            except UnicodeEncodeError:
                raise self._unfit(f"{name!r} is not valid Unicode in line {line}") from None
        if kind == "list":
            seen.items = seen.items or _Type()
            for item in value:
                self._add(seen.items, item, line, f"{name}[]")
        if kind == "dict":
            for key, item in value.items():
                inner = seen.fields.setdefault(key, _Type())
                self._add(inner, item, line, f"{name}.{key}" if name else key)

    def _arrow(self, pa: Any, seen: _Type, name: str) -> Any:
        if seen.kind == "list":
            return pa.list_(self._arrow(pa, seen.items or _Type(), f"{name}[]"))
        if seen.kind != "dict":
            names = {None: "null", "bool": "bool_", "int": "int64", "float": "float64"}
            return getattr(pa, names.get(seen.kind, "string"))()
        if not seen.fields:
            raise self._unfit(f"{name!r} is an object without fields in line {seen.line}")
        inside = seen.fields.items()
        return pa.struct([(key, self._arrow(pa, item, f"{name}.{key}")) for key, item in inside])

    def _unfit(self, what: str) -> InputError:
        return InputError(
            f"{self.path}: {what}, which one column of a Parquet file cannot hold; write JSON "
            "Lines (--format jsonl), which keep each record as it is"
        )
