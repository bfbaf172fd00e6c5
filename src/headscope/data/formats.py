"""The formats that files of records have, one entry each: every command reads all of them.

Text has one object of JSON a line, or is a table whose first line names the columns; other tables
are opened by pyarrow. Readers ask `format_of` for a file's entry and never for a format by name.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from headscope.data.files import (
    COMPRESSED,
    LONGEST_LINE,
    open_bytes,
    plain_name,
    without_end,
)
from headscope.errors import InputError, first_line, need

#: Rows of a table that are read together.
ROWS = 1024
_ARROW = b"ARROW1"
_STREAMS = (_ARROW, b"\xff\xff\xff\xff")
# Lines with their numbers from 1 and their ends; the cells of records, by the line each begins on.
Lines = Iterator[tuple[int, str]]
Cells = Iterator[tuple[int, list[str]]]
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
    """How a file holds records: as `cells`, as a `table`, else as one object of JSON a line.

    Attributes:
        name: what messages call it.
        endings: of file names, in small letters and without those of compression, the usual first.
        begins: whether a file of another name has this format, by its first bytes.
        cells: the cells of a text table; a blank line has none. InputError, naming the path.
        table: opens a table; InputError, naming the path, if a package is missing.
    """

    name: str
    endings: tuple[str, ...]
    begins: Callable[[bytes], bool] = lambda start: False
    cells: Callable[[Lines, str | Path], Cells] | None = None
    table: Callable[[Any, str | Path], Table] | None = None

    @property
    def is_json(self) -> bool:
        """Whether each line is an object of JSON."""
        return self.cells is None and self.table is None


def _objects(start: bytes) -> bool:
    return start.removeprefix(b"\xef\xbb\xbf").lstrip().startswith((b"{", b"["))


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
    whole = handle.read(len(_ARROW)) == _ARROW
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


def _tabbed(lines: Lines, path: str | Path) -> Cells:
    """Cells between tabs, without quoting or escaping."""
    for number, line in lines:
        text = without_end(line)
        yield number, text.split("\t") if text.strip(" \r") else []


def _quoted(lines: Lines, path: str | Path) -> Cells:
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


#: A file whose name does not say its format has the first one that it begins like.
FORMATS = (
    Format("JSON Lines", (".jsonl", ".ndjson", ".json"), _objects),
    Format("Parquet", (".parquet", ".pq"), lambda start: start.startswith(b"PAR1"), table=_parquet),
    Format("Arrow", (".arrow", ".feather"), lambda start: start.startswith(_STREAMS), table=_arrow),
    Format("TSV", (".tsv", ".tab"), lambda start: b"\t" in start.partition(b"\n")[0], _tabbed),
    Format("CSV", (".csv",), cells=_quoted),
)


def formats_read() -> str:
    """The formats in words."""
    *first, last = (f"{form.name} ({form.endings[0]})" for form in FORMATS)
    return f"{', '.join(first)} and {last}"


def named_format(path: str | Path) -> Format | None:
    """The format that a file's name says; None where it says none."""
    ending = plain_name(Path(path)).suffix.lower()
    return next((form for form in FORMATS if ending in form.endings), None)


def format_of(path: Path) -> Format | None:
    """A file's format, by its name, else by its first bytes; None where it looks like none.

    `InputError` for an empty file, and for one whose name says that it holds something else.
    """
    form = named_format(path)
    if form is not None:
        return form
    ending = plain_name(path).suffix.lower()
    if ending in _NO_RECORDS:
        raise InputError(
            f"{path}: records are read from {formats_read()} files, and documents from plain text "
            f"too, one a line (.txt), but not from {ending} files"
        )
    with open_bytes(path) as handle:
        start = handle.read(65536)
    if not start:
        raise InputError(f"{path} is empty; give a file with at least one record")
    return next((form for form in FORMATS if form.begins(start)), None)


def record_format(path: Path) -> Format:
    """As `format_of`; `InputError` where a file looks like none."""
    form = format_of(path)
    if form is None:
        raise InputError(
            f"{path}, line 1 has no tab and is no JSON object; records are read from "
            f"{formats_read()} files"
        )
    return form


def is_file_name(path: Path) -> bool:
    """Whether a name ends like that of a data file, read here or not."""
    return named_format(path) is not None or path.suffix.lower() in _OTHER


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
