"""The formats that files of records have, one entry each: every command reads all of them.

Text holds objects of JSON, or a table whose first record names the columns; other tables are opened
by pyarrow. Readers ask for a file's entry and what that gives: objects, cells or a table.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from headscope.data.files import (
    COMPRESSED,
    LARGEST_TEXT,
    LONGEST_LINE,
    filled_lines,
    not_json,
    open_bytes,
    plain_name,
    without_end,
)
from headscope.errors import InputError, OptionalPart, first_line, need
from headscope.installed import Parts

#: Rows of a table that are read together.
ROWS = 1024
# Texts by the line, from 1, that each begins on: of lines with their ends, and of JSON.
Texts = Iterator[tuple[int, str]]
# Cells of records, likewise.
Cells = Iterator[tuple[int, list[str]]]
_BOM = b"\xef\xbb\xbf"
_NEVER = rb"(?!)"
# Endings of files that hold no records, and of others that are no part of a dataset's name either.
_NO_RECORDS = (".html", ".xlsx", ".xml", ".zip")
_OTHER = (".txt", ".dev", ".devtest", *_NO_RECORDS, *COMPRESSED)


@dataclass(frozen=True)
class Table:
    """A table of Arrow columns, in pieces that can be read by themselves.

    Attributes:
        schema: the Arrow schema.
        pieces: how many there are.
        size: the number of rows of a piece, from 0.
        read: the batches of a piece, of some columns or (None) of all.
    """

    schema: Any
    pieces: int
    size: Callable[[int], int]
    read: Callable[[int, Sequence[str] | None], Iterator[Any]]

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return sum(map(self.size, range(self.pieces)))

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[Any]:
        """All rows in order, batch by batch."""
        for piece in range(self.pieces):
            yield from self.read(piece, columns)


@dataclass(frozen=True)
class Format:
    """How a file holds records: as `objects` or `cells`, from its lines, or as a `table`.

    Attributes:
        name: what messages call it.
        endings: of file names, in small letters and without those of compression, the usual first.
        begins: a pattern of the first bytes, for a file whose name does not say its format.
        objects: the JSON of each record. InputError, naming the path.
        cells: the cells of a text table; a blank line has none. InputError, naming the path.
        table: opens a table; InputError, naming the path, if a package is missing.
    """

    name: str
    endings: tuple[str, ...]
    begins: bytes = _NEVER
    objects: Callable[[Texts, str | Path], Texts] | None = None
    cells: Callable[[Texts, str | Path], Cells] | None = None
    table: Callable[[Any, str | Path], Table] | None = None


def _items(lines: Texts, path: str | Path) -> Texts:
    """The items of a list, which is held in memory."""
    pieces, size = [], 0
    for _, line_text in lines:
        pieces.append(line_text)
        size += len(line_text)
        if size > LARGEST_TEXT:
            raise InputError(f"{path} is larger than 1 GiB; give a part of it, or JSON Lines")
    text = "".join(pieces)
    decoder = json.JSONDecoder()

    def skip(position: int) -> int:
        return next((i for i in range(position, len(text)) if text[i] not in " \t\r\n"), len(text))

    at, line, counted = skip(text.index("[") + 1), 1, 0
    while at < len(text) and text[at] != "]":
        line += text.count("\n", counted, at)
        counted = at
        try:
            _, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError) as error:
            if isinstance(error, json.JSONDecodeError):
                line += text.count("\n", counted, error.pos)
            raise not_json(f"{path}, line {line}", error, "correct it there") from None
        yield line, text[at:end]
        at = skip(end)
        if text[at : at + 1] == ",":
            at = skip(at + 1)
        elif text[at : at + 1] != "]":
            break
    if text[at : at + 1] != "]" or text[at + 1 :].strip():
        line = text.count("\n", 0, at) + 1
        raise InputError(
            f"{path}, line {line}: the JSON list is not closed properly; separate items by commas "
            "and end the file with one ]"
        )


def _parquet(handle: Any, path: str | Path) -> Table:
    file = need("pyarrow.parquet", f"reading {path}", "data").ParquetFile(handle)
    about = file.metadata
    return Table(
        file.schema_arrow,
        about.num_row_groups,
        lambda piece: int(about.row_group(piece).num_rows),
        lambda piece, columns: file.iter_batches(ROWS, [piece], columns),
    )


def _arrow(handle: Any, path: str | Path) -> Table:
    """Arrow's own files (Feather), and streams, as `datasets` keeps them."""
    ipc = need("pyarrow.ipc", f"reading {path}", "data")
    whole = handle.read(6) == b"ARROW1"
    handle.seek(0)
    file = ipc.open_file(handle) if whole else ipc.open_stream(handle)

    def batches(piece: int) -> Iterator[Any]:
        if whole:
            return iter([file.get_batch(piece)])
        handle.seek(0)
        return iter(ipc.open_stream(handle))

    def read(piece: int, columns: Sequence[str] | None) -> Iterator[Any]:
        for batch in batches(piece):
            some = batch if columns is None else batch.select(columns)
            yield from (some.slice(start, ROWS) for start in range(0, some.num_rows, ROWS))

    size = cache(lambda piece: sum(batch.num_rows for batch in batches(piece)))
    return Table(file.schema, file.num_record_batches if whole else 1, size, read)


def _tabbed(lines: Texts, path: str | Path) -> Cells:
    """Cells between tabs, without quoting or escaping."""
    for number, line in lines:
        text = without_end(line)
        yield number, text.split("\t") if text.strip(" \r") else []


def _quoted(lines: Texts, path: str | Path) -> Cells:
    """Cells between commas; quoted ones may hold commas, line ends and doubled quotes."""
    csv.field_size_limit(LONGEST_LINE)
    records = csv.reader((line for _, line in lines), strict=True)
    while True:
        begin = records.line_num + 1
        try:
            cells = next(records, None)
        except csv.Error as error:
            raise InputError(
                f"{path}, line {begin} begins no record of CSV ({error}); put cells with commas, "
                "quotes or line ends in double quotes, and double the quotes in them"
            ) from None
        if cells is None:
            return
        yield begin, cells


JSON_LINES = Format("JSON Lines", (".jsonl", ".ndjson", ".json"), rb"\s*[{[]", filled_lines)
#: A file whose name does not say its format, or says two, has the first one that it begins like.
FORMATS = (
    Format("JSON list", (".json",), rb"\s*\[\s*[{\]]", _items),
    JSON_LINES,
    Format("Parquet", (".parquet", ".pq"), rb"PAR1", table=_parquet),
    Format("Arrow", (".arrow", ".feather"), rb"ARROW1|\xff{4}", table=_arrow),
    Format("TSV", (".tsv", ".tab"), rb"[^\n]*\t", cells=_tabbed),
    Format("CSV", (".csv",), cells=_quoted),
)


_INSTALLED: Parts[Format] = Parts({}, "readers", Format)


def formats() -> tuple[Format, ...]:
    """All formats, those of installed packages last."""
    return (*FORMATS, *_INSTALLED.values())


def formats_read() -> str:
    """The formats in words."""
    *first, last = (f"{form.name} ({form.endings[0]})" for form in formats())
    return f"{', '.join(first)} and {last}"


def named_formats(path: str | Path) -> list[Format]:
    """The formats that a file's name allows; none where it says none."""
    ending = plain_name(Path(path)).suffix.lower()
    return [form for form in formats() if ending in form.endings]


def file_parts(path: str | Path) -> Iterator[OptionalPart]:
    """What reading a file with this name needs."""
    if any(form.table is not None for form in named_formats(path)):
        yield OptionalPart(f"reading {path}", "data", ("pyarrow",))
    if Path(path).suffix.lower() == ".zst":
        yield OptionalPart("reading zstd", "corpus", ("zstandard",))


def format_of(path: Path) -> Format | None:
    """A file's format, by its name, else by its first bytes; None where it looks like none.

    `InputError` for an empty file, and for one whose name says that it holds something else.
    """
    forms = named_formats(path)
    ending = plain_name(path).suffix.lower()
    if ending in _NO_RECORDS:
        raise InputError(
            f"{path}: records are read from {formats_read()} files, and documents from plain text "
            f"too, one a line (.txt), but not from {ending} files"
        )
    if len(forms) == 1:
        return forms[0]
    with open_bytes(path) as handle:
        start = handle.read(65536)
    if not start:
        raise InputError(f"{path} is empty; give a file with at least one record")
    return begun(start, forms) or (forms[-1] if forms else None)


def begun(start: bytes, forms: Sequence[Format] = ()) -> Format | None:
    """Of some formats (of all) the first that a file has which begins with these bytes."""
    start = start.removeprefix(_BOM)
    return next((form for form in forms or formats() if re.match(form.begins, start)), None)


def record_format(path: Path) -> Format:
    """As `format_of`; `InputError` where a file looks like none."""
    form = format_of(path)
    if form is None:
        raise InputError(
            f"{path}, line 1 has no tab and is no JSON object; records are read from "
            f"{formats_read()} files (two texts of one sentence a line become one by: (printf "
            "'source\\ttarget\\n'; paste SOURCE TARGET) > pairs.tsv)"
        )
    return form


def is_file_name(path: Path) -> bool:
    """Whether a name ends like that of a data file, read here or not."""
    return bool(named_formats(path)) or path.suffix.lower() in _OTHER


@contextmanager
def opened_table(form: Format, handle: Any, path: str | Path) -> Iterator[Table]:
    """The table in a file; `InputError` where it is damaged, or none of this format."""
    pa = need("pyarrow", f"reading {path}", "data")
    assert form.table is not None
    try:
        yield form.table(handle, path)
    except pa.ArrowException as error:
        if isinstance(error, MemoryError):
            raise
        raise InputError(
            f"{path} is not a readable {form.name} file ({first_line(error)}); fetch or write it "
            "again"
        ) from None
