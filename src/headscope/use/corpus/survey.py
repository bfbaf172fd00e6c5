"""A corpus read once before it is rated: its digest, its size, and whether it is whole.

A file that was cut off, that rating cannot add its fields to, or that has no text at all, shows
here and not after days of work; counting also tells how much there is to do.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from headscope.data.hub import load_table
from headscope.errors import InputError
from headscope.use.corpus.column_types import ColumnTypes
from headscope.use.corpus.files import CorpusFile
from headscope.use.corpus.opening import numbered_lines, open_parquet, open_plain, open_raw
from headscope.use.corpus.records import Columns, check_columns, parse_line

#: So many records at the beginning of a file tell which fields it has.
_FIRST = 100
_BLOCK = 1 << 20


def survey(
    files: Sequence[CorpusFile],
    columns: Columns,
    limit: int | None = None,
    parquet: bool = False,
    progress: Callable[[int, int], None] | None = None,
    known: Mapping[str, Mapping[str, Any]] | None = None,
) -> tuple[CorpusFile, ...]:
    """Each file with its digest and its number of records, of which at most ``limit`` are wanted.

    With ``parquet`` JSON Lines also get the columns that they will be written to. ``known`` is what
    `remember` made of an earlier survey: a local file that has the same size and time of change
    as then is not read again.

    Raises:
        InputError: naming the file (and line): it cannot be read to its end, holds no record, has
            no text column or one of the fields that rating adds, or its records do not fit into
            the columns of one table.
    """
    kinds = {"jsonl": _lines, "parquet": _parquet, "dataset": _dataset}
    surveyed = []
    for number, file in enumerate(files):
        if progress:
            progress(number, len(files))
        stamp = None if parquet and file.kind == "jsonl" else _stamp(file, columns, limit)
        earlier = (known or {}).get(file.path, {})
        if stamp is not None and earlier.get("stamp") == list(stamp):
            seen = replace(file, digest=earlier["digest"], records=earlier["records"])
        else:
            seen = kinds[file.kind](file, columns, limit, parquet)
        if not seen.records:
            raise InputError(f"{file.path} holds no records; leave it out")
        seen = replace(seen, records=min(seen.records, limit or seen.records), stamp=stamp)
        surveyed.append(seen)
    if progress:
        progress(len(files), len(files))
    return tuple(surveyed)


def remember(files: Sequence[CorpusFile]) -> dict[str, dict[str, Any]]:
    """What a later `survey` of the same files can be told, as JSON."""
    return {
        file.path: {"stamp": list(file.stamp), "digest": file.digest, "records": file.records}
        for file in files
        if file.stamp is not None
    }


def _stamp(file: CorpusFile, columns: Columns, limit: int | None) -> tuple[str, ...] | None:
    """Size and time of change of a local file, and what is asked of it."""
    path = Path(file.path)
    if file.kind == "dataset" or not path.is_file():
        return None
    about = path.stat()
    return (str(about.st_size), str(about.st_mtime_ns), repr(columns), str(limit))


def _lines(file: CorpusFile, columns: Columns, limit: int | None, parquet: bool) -> CorpusFile:
    digest = hashlib.sha256()
    records = 0
    fields: list[Mapping[str, Any]] = []
    types = ColumnTypes(file.path)
    with open_plain(file.path) as handle:
        for number, line in numbered_lines(handle):
            digest.update(b"%d %b\n" % (number, line))
            if not records and line.startswith(b"["):
                raise InputError(
                    f"{file.path}, line {number} begins a JSON array; write one JSON object a line"
                )
            if records < _FIRST or parquet:
                record = parse_line(file, number, records, line)
                if records < _FIRST and record.value is not None:
                    fields.append(record.value)
                if parquet and record.why_not(columns) is None and record.value is not None:
                    types.add(record.value, number)
            records += 1
            if records == limit:
                break  # what stands behind is not rated, so it does not count
    if fields:
        every = set(fields[0]).intersection(*fields)
        check_columns(file, list(dict.fromkeys(chain(*fields))), every, columns)
    schema = types.schema() if parquet else None
    return replace(file, digest=digest.hexdigest(), records=records, types=schema)


def _parquet(file: CorpusFile, columns: Columns, limit: int | None, parquet: bool) -> CorpusFile:
    digest = hashlib.sha256()
    with open_raw(file.path) as handle:
        while block := handle.read(_BLOCK):
            digest.update(block)
    with open_parquet(file.path) as table:
        names = table.schema_arrow.names
        check_columns(file, names, names, columns)
        return replace(file, digest=digest.hexdigest(), records=table.metadata.num_rows)


def _dataset(file: CorpusFile, columns: Columns, limit: int | None, parquet: bool) -> CorpusFile:
    table = load_table(file.path, file.split)
    names = list(table.column_names)
    check_columns(file, names, names, columns)
    return replace(file, digest=table_digest(table), records=len(table))


def table_digest(table: Any) -> str:
    """SHA-256 over the schema and the cells of a dataset, batch by batch."""
    digest = hashlib.sha256(str(table.features.arrow_schema.remove_metadata()).encode())
    for batch in table.with_format("arrow").iter(batch_size=1000):
        for row in batch.to_pylist():
            digest.update(repr(row).encode("utf-8", "backslashreplace"))
    return digest.hexdigest()
