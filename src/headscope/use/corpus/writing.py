"""The bytes of a chunk's file: rated records as JSON Lines or as a Parquet table."""

from __future__ import annotations

import gzip
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal

from headscope.errors import InputError, need
from headscope.settings import Option, Settings
from headscope.use.corpus.records import ADDED, Columns, Record

if TYPE_CHECKING:
    from headscope.use.rating import Rated

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

    Attributes:
        format: JSON Lines, which keep every record as it is, or Parquet, whose columns have one
            type each.
        compression: of the file, or of the columns within it.
    """

    format: Annotated[
        Literal["jsonl", "parquet"], Option("What rated documents are written as.")
    ] = "jsonl"
    compression: Annotated[Compression, Option("Of the files written.")] = "none"
    chunk: Annotated[int, Option("Records of an input file that make one output file.", min=1)] = (
        1000
    )

    @property
    def ending(self) -> str:
        """How the names of the files end."""
        return ".parquet" if self.format == "parquet" else JSONL_ENDINGS[self.compression]

    def encode(
        self, rated: Sequence[tuple[Record, Rated]], example: Record, columns: Columns
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
    pa: Any, rated: Sequence[tuple[Record, Rated]], example: Record, columns: Columns
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
