"""The records of a corpus's files: surveyed once before anything is rated, then read.

A file that was cut off, that rating cannot add its fields to, or that has no text at all, shows in
the survey and not after days of work; counting also tells how much there is to do.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from headscope.data.tables import arrow_rows, by_number, check_names, load_table
from headscope.errors import InputError, need
from headscope.use.corpus.files import (
    DATASET,
    CorpusFile,
    header,
    open_corpus_table,
    open_plain,
    open_raw,
    record_lines,
    settled,
)
from headscope.use.corpus.records import ADDED, Columns, ColumnTypes, RawRecord, parse_line

#: Whether a record is wanted, by how many stand before it in its file.
Wanted = Callable[[int], bool]
#: So many records at the beginning of a file tell which fields it has.
_FIRST = 100
_BLOCK = 1 << 20
#: Rows of a table looked at together.
_ROWS = 1000


def survey(
    files: Sequence[CorpusFile],
    columns: Columns,
    limit: int | None = None,
    parquet: bool = False,
    progress: Callable[[int, int], None] | None = None,
    known: Mapping[str, Mapping[str, Any]] | None = None,
) -> tuple[CorpusFile, ...]:
    """Each file with its digest and its number of records, of which at most ``limit`` are wanted.

    With ``parquet`` text also gets the columns that it will be written to. ``known`` is what
    `remember` made of an earlier survey: a local file that has the same size, times and number as
    then is not read again, any other is, so that a copy elsewhere is the same corpus if it holds
    the same. Files without records stay, with none. InputError naming the file (and line) if it
    cannot be read to its end, has no text column or one of the fields that rating adds, if its
    records do not fit into the columns of one table, or if no file holds a record.
    """
    surveyed = []
    for number, file in enumerate(files):
        if progress:
            progress(number, len(files))
        file = settled(file)
        form = file.format
        lines = form is not None and form.table is None
        if form is not None and form.cells is not None:
            file = replace(file, headless=by_number([columns.text], [columns.language, columns.id]))
        stamp = None if parquet and lines else _stamp(file, columns, limit)
        earlier = (known or {}).get(file.path, {})
        if stamp is not None and earlier.get("stamp") == list(stamp):
            seen = replace(
                file,
                digest=earlier["digest"],
                records=earlier["records"],
                blocks=tuple(earlier["blocks"]),
            )
        else:
            look = _survey_dataset if form is None else _survey_table
            seen = _survey_lines(file, columns, limit, parquet) if lines else look(file, columns)
        records = min(seen.records, limit or seen.records)
        surveyed.append(replace(seen, records=records, stamp=stamp))
    if progress:
        progress(len(files), len(files))
    if not any(file.records for file in surveyed):
        raise InputError(f"{files[0].path} holds no records; give a corpus with at least one")
    return tuple(surveyed)


def remember(files: Sequence[CorpusFile]) -> dict[str, dict[str, Any]]:
    """What a later `survey` of the same files can use, as JSON."""
    return {
        file.path: {
            "stamp": list(file.stamp),
            "digest": file.digest,
            "records": file.records,
            "blocks": list(file.blocks),
        }
        for file in files
        if file.stamp is not None
    }


def remembered(path: Path) -> dict[str, Any]:
    """What `remember` made, from a JSON file; nothing where it is missing or damaged."""
    try:
        known = json.loads(path.read_bytes())
        return {
            name: {
                "stamp": list(entry["stamp"]),
                "digest": str(entry["digest"]),
                "records": int(entry["records"]),
                "blocks": list(map(str, entry["blocks"])),
            }
            for name, entry in known.items()
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}


def _stamp(file: CorpusFile, columns: Columns, limit: int | None) -> tuple[str, ...] | None:
    """Size, times and number of a local file, and what is wanted of it."""
    path = Path(file.path)
    if file.kind == DATASET or not path.is_file():
        return None
    about = path.stat()
    state = (about.st_size, about.st_mtime_ns, about.st_ctime_ns, about.st_ino)
    return (*map(str, state), repr(columns), str(limit))


def _survey_lines(
    file: CorpusFile, columns: Columns, limit: int | None, parquet: bool
) -> CorpusFile:
    digest = hashlib.sha256()
    records = 0
    fields: list[Mapping[str, Any]] = []
    types = ColumnTypes(file.path)
    with open_plain(file.path) as (handle, raw):
        for number, line in record_lines(file, handle):
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
    if (names := header(file)) and records:
        _check_columns(file, names, names, columns)
    elif fields:
        every = set(fields[0]).intersection(*fields)
        _check_columns(file, list(dict.fromkeys(chain(*fields))), every, columns)
    schema = types.schema() if parquet else None
    blocks = tuple(raw.blocks)
    return replace(file, digest=digest.hexdigest(), records=records, blocks=blocks, types=schema)


def _survey_table(file: CorpusFile, columns: Columns) -> CorpusFile:
    digest = hashlib.sha256()
    with open_raw(file.path) as raw:
        while block := raw.read(_BLOCK):
            digest.update(block)
    read = replace(file, digest=digest.hexdigest(), blocks=tuple(raw.blocks))
    if not raw.blocks:  # a file of no bytes, as an empty shard of JSON Lines is one
        return read
    with open_corpus_table(file, read.blocks) as table:
        names = table.schema.names
        check_names(file.path, names)
        if table.rows:
            _check_columns(file, names, names, columns)
        return replace(read, records=table.rows)


def _survey_dataset(file: CorpusFile, columns: Columns) -> CorpusFile:
    table = load_table(file.path, file.split)
    names = list(table.column_names)
    if len(table):
        _check_columns(file, names, names, columns)
    digest = hashlib.sha256(str(table.features.arrow_schema.remove_metadata()).encode())
    for batch in table.with_format("arrow").iter(batch_size=_ROWS):
        for row in arrow_rows(batch, file.path):
            digest.update(repr(row).encode("utf-8", "backslashreplace"))
    return replace(file, digest=digest.hexdigest(), records=len(table))


def _check_columns(
    file: CorpusFile, fields: Collection[str], every: Collection[str], columns: Columns
) -> None:
    """InputError if a file cannot be rated as a whole.

    That is if none of the ``fields`` in any of its records holds the text, or if all its
    records have fields (``every``) that rating would add.
    """
    for name in ADDED:
        if name in every:
            raise InputError(
                f"{file.path} has a field {name!r} already, which rating would add; rename it, or "
                "give the corpus as it was before it was rated"
            )
    text = columns.text
    if text not in fields and text.partition(".")[0] not in fields:
        raise InputError(
            f"{file.path} has no field {text!r}; found: {', '.join(fields) or 'none'}; name the "
            "right one with --text-column"
        )


def read_records(file: CorpusFile, wanted: Wanted) -> Iterator[RawRecord]:
    """The wanted ones of a surveyed file's records, in order; others are passed over fast.

    InputError if the file does not hold what it held when it was surveyed, or is damaged.
    """
    if file.format is None:
        return _read_dataset(file, wanted)
    return (_read_lines if file.format.table is None else _read_table)(file, wanted)


def _read_lines(file: CorpusFile, wanted: Wanted) -> Iterator[RawRecord]:
    place = -1
    with open_plain(file.path, file.blocks) as (handle, _):
        for place, (number, line) in enumerate(record_lines(file, handle)):
            if place == file.records:
                return
            if wanted(place):
                yield parse_line(file, number, place, line)
    _check_size(file, place + 1)


def _read_table(file: CorpusFile, wanted: Wanted) -> Iterator[RawRecord]:
    pa = need("pyarrow", f"reading {file.path}", "corpus")
    with open_corpus_table(file, file.blocks) as table:
        _check_size(file, table.rows)
        begin = 0
        for piece in range(table.pieces):
            end = begin + table.size(piece)
            if any(map(wanted, range(begin, min(end, file.records)))):
                for batch in table.read(piece, None):
                    yield from _rows(file, pa.Table.from_batches([batch]), begin, wanted)
                    begin += batch.num_rows
            begin = end


def _read_dataset(file: CorpusFile, wanted: Wanted) -> Iterator[RawRecord]:
    table = load_table(file.path, file.split)
    _check_size(file, len(table))
    arrow = table.with_format("arrow")
    for begin in range(0, file.records, _ROWS):
        end = min(begin + _ROWS, file.records)
        if any(map(wanted, range(begin, end))):
            yield from _rows(file, arrow[begin:end], begin, wanted)


def _rows(file: CorpusFile, table: Any, begin: int, wanted: Wanted) -> Iterator[RawRecord]:
    """The wanted rows of a piece of a table that begins with row ``begin`` of its file."""
    places = range(min(table.num_rows, file.records - begin))
    some = [at for at in places if wanted(begin + at)]
    if not some:  # Arrow takes no empty selection
        return
    values: Iterable[Mapping[str, Any] | str]
    try:
        values = arrow_rows(table.take(some), "it")
    except InputError:
        values = (_row(table.slice(at, 1)) for at in some)
    for at, value in zip(some, values, strict=True):
        place = begin + at
        if isinstance(value, str):
            yield RawRecord(file, place + 1, place, None, problem=value)
        else:
            yield RawRecord(file, place + 1, place, value, row=table.slice(at, 1))


def _row(table: Any) -> Mapping[str, Any] | str:
    """The one row of a table, or why it cannot be read."""
    try:
        return arrow_rows(table, "it")[0]
    except InputError as error:
        return str(error).partition(";")[0]


def _check_size(file: CorpusFile, records: int) -> None:
    if records < file.records:
        raise InputError(
            f"{file.path} changed while it was rated: it held {file.records} records and now holds "
            f"{records}; give another --out and start again"
        )
