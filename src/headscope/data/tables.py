"""Cells of TSV, JSON Lines and Parquet files, by named columns.

Columns are named by the header or the field name, nested fields by a dot (``translation.en``),
or by number from 0; a TSV file whose columns are given by number has no header. TSV is UTF-8,
one record a line, cells split at tabs, without quoting or escaping. Text files may be compressed
(gzip, bzip2, xz), which is told from their first bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headscope.data.columns import (
    Numbered,
    by_number,
    from_objects,
    is_number,
    missing_column,
    top_column,
)
from headscope.data.files import Hash, drain, file_kind, open_bytes, parse_json, text_lines
from headscope.errors import InputError, need


@contextmanager
def open_table(
    path: Path, required: Sequence[str], optional: Sequence[str], hasher: Hash | None = None
) -> Iterator[tuple[Numbered, str]]:
    """The wanted columns of a file record by record, and what is numbered: its lines or rows.

    Nothing is read beyond the last record that was asked for, unless there is a ``hasher``: it
    gets the whole (decompressed) file.

    Raises ``InputError`` naming file and line, when the record is reached: file missing, empty or
    of another format, column missing (with those found), row of another length, blank line between
    records, invalid UTF-8 or JSON, damaged compression.
    """
    kind = file_kind(path)
    with open_bytes(path) as handle:
        if kind != "parquet":
            reader = _tsv if kind == "tsv" else _jsonl
            yield reader(text_lines(handle, path, hasher), path, required, optional), "line"
            if hasher is not None:
                drain(handle, hasher)
            return
        if hasher is not None:
            if not handle.read(1):
                raise InputError(f"{path} is empty; give a file with at least one record")
            handle.seek(0)
            drain(handle, hasher)
            handle.seek(0)
        with readable_parquet(path):
            pq = need("pyarrow.parquet", f"reading {path}", "data")
            yield _parquet(pq.ParquetFile(handle), path, required, optional), "row"


@contextmanager
def readable_parquet(path: Path) -> Iterator[None]:
    """Says what is wrong with a Parquet file that is damaged, or is none."""
    pa = need("pyarrow", f"reading {path}", "data")
    try:
        yield
    except pa.ArrowException as error:
        reason = str(error).splitlines()[0]
        raise InputError(
            f"{path} is not a readable Parquet file ({reason}); fetch or write it again"
        ) from None


def _tsv(
    numbered: Iterator[tuple[int, str]],
    path: Path,
    required: Sequence[str],
    optional: Sequence[str],
) -> Numbered:
    headless = by_number(required, optional)
    places: dict[str, int] = {}
    width = 0
    for number, line in numbered:
        cells = line.split("\t")
        if not width:
            width = len(cells)
            places = _places(path, cells, required, optional, headless)
            if not headless:
                continue
        if len(cells) != width:
            reference = "line 1" if headless else "the header"
            raise InputError(
                f"{path}, line {number} has {_cells(len(cells))} where {reference} has {width}; "
                "separate cells by one tab each and leave an empty cell for a missing value"
            )
        yield number, {name: cells[place] for name, place in places.items()}


def _places(
    path: Path,
    first: list[str],
    required: Sequence[str],
    optional: Sequence[str],
    headless: bool,
) -> dict[str, int]:
    """Which cell each wanted column is, from the first line of a TSV file."""
    places: dict[str, int] = {}
    for name in (*required, *optional):
        if headless:
            if not is_number(name):
                continue
            if int(name) < len(first):
                places[name] = int(name)
            elif name in required:
                raise InputError(
                    f"{path}, line 1 has {_cells(len(first))}, so there is no column {name}; "
                    "columns are numbered from 0"
                )
        elif first.count(name) > 1:
            raise InputError(
                f"{path}, line 1 names the column {name!r} {first.count(name)} times; name each "
                "column once"
            )
        elif name in first:
            places[name] = first.index(name)
        elif name in required:
            raise missing_column(
                f"{path}, line 1",
                name,
                [_short(cell) for cell in first],
                "; if line 1 is no header, give columns by number from 0",
            )
    return places


def _jsonl(
    numbered: Iterator[tuple[int, str]],
    path: Path,
    required: Sequence[str],
    optional: Sequence[str],
) -> Numbered:
    def objects() -> Iterator[tuple[int, object]]:
        for number, line in numbered:
            value = parse_json(line, f"{path}, line {number}", position=True)
            if not isinstance(value, dict | list):
                raise InputError(
                    f"{path}, line {number} is no JSON object; write one JSON object a line"
                )
            if isinstance(value, list) and not all(map(is_number, required)):
                raise InputError(
                    f"{path}, line {number} is a JSON array; write one JSON object a line, or "
                    "name the columns by number from 0"
                )
            yield number, value

    return from_objects(objects(), path, required, optional)


def _parquet(table: Any, path: Path, required: Sequence[str], optional: Sequence[str]) -> Numbered:
    schema = table.schema_arrow
    columns = {}
    for name in (*required, *optional):
        numbered = is_number(name) and name not in schema.names and int(name) < len(schema.names)
        columns[name] = schema.names[int(name)] if numbered else name
    tops = {name: top_column(column, schema.names) for name, column in columns.items()}
    for name in required:
        if tops[name] is None:
            raise missing_column(path, name, _leaves(schema))
    present = [name for name in optional if tops[name] is not None]
    wanted = sorted({top for top in tops.values() if top is not None})

    def rows() -> Iterator[tuple[int, object]]:
        number = 0
        for batch in table.iter_batches(batch_size=1024, columns=wanted):
            for row in batch.to_pylist():
                number += 1
                aliases = {name: row[column] for name, column in columns.items() if column in row}
                yield number, {**row, **aliases}

    return from_objects(rows(), path, required, present, "row")


def _leaves(schema: Any) -> list[str]:
    """Dotted names of all columns of an Arrow schema."""
    found: list[str] = []

    def visit(field: Any, prefix: str) -> None:
        name = f"{prefix}{field.name}"
        if field.type.num_fields and str(field.type).startswith("struct"):
            for index in range(field.type.num_fields):
                visit(field.type.field(index), f"{name}.")
        else:
            found.append(name)

    for field in schema:
        visit(field, "")
    return found


def _cells(count: int) -> str:
    return "1 cell" if count == 1 else f"{count} cells"


def _short(cell: str) -> str:
    return cell if len(cell) <= 30 else cell[:29] + "…"
