"""Cells of files of records (see `formats`) and of datasets, by named columns.

Columns are named by the header or the field name, nested fields by a dot (``translation.en``), or
by number from 0; a text table whose columns are given by number has no header. Text is UTF-8; it
may be compressed (gzip, bzip2, xz, zstd), which is told from its first bytes. Datasets, of the Hub
or in a folder, are read through the ``datasets`` library.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headscope.data.files import (
    Unread,
    decoded_lines,
    drain,
    files_below,
    filled,
    open_bytes,
    parse_json,
    parse_object,
)
from headscope.data.formats import (
    Cells,
    Table,
    file_parts,
    is_file_name,
    named_formats,
    opened_table,
    record_format,
)
from headscope.errors import InputError, OptionalPart, first_line, need

# Stands for a cell of a column that the file does not have, which is not the same as an empty one.
ABSENT: Any = object()
_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)?(:[\w.+-]+)?")
# Columns that have a flag of their own, `--NAME-column`.
_FLAGS = ("source", "target", "links", "text", "language", "summary", "input", "output")
# Line or row from 1, and the cells of those wanted columns that the file has.
Numbered = Iterator[tuple[int, Mapping[str, Any]]]


def missing_column(
    path: str | Path, column: str, found: Sequence[str], hint: str = ""
) -> InputError:
    """The error for a column that is not there, naming those that are."""
    flag = f"--{column}-column" if column in _FLAGS else "its flag, or rename the column"
    return InputError(
        f"{path} has no column {column!r}; found: {named(found)}; name the right one with "
        f"{flag}{hint}"
    )


def named(columns: Sequence[str]) -> str:
    """The names of columns, those of the first where there are very many."""
    more = f" and {len(columns) - 20} more" if len(columns) > 20 else ""
    return ", ".join(map(_short, columns[:20])) + more or "none"


def by_number(required: Sequence[str], optional: Sequence[str] = ()) -> bool:
    """Whether columns are given by number, which means that a text table has no header."""
    if not any(is_number(name) for name in (*required, *optional)):
        return False
    named = [name for name in required if not is_number(name)]
    if named:
        raise InputError(
            f"columns are given by number and by name ({', '.join(named)}); a file without a "
            "header needs all of them by number, from 0"
        )
    return True


def descend(value: object, column: str) -> object:
    """The field of a record that a dotted name stands for; raises ``KeyError`` if not there."""
    if isinstance(value, Mapping):
        if column in value:
            return value[column]
        # A field name may itself hold a dot: the longest name that is there comes first.
        pieces = column.split(".")
        for cut in range(len(pieces) - 1, 0, -1):
            head = ".".join(pieces[:cut])
            if head in value:
                return descend(value[head], ".".join(pieces[cut:]))
    elif isinstance(value, list):
        first, _, rest = column.partition(".")
        if is_number(first) and int(first) < len(value):
            return descend(value[int(first)], rest) if rest else value[int(first)]
    raise KeyError(column)


def field_names(value: object, prefix: str = "") -> list[str]:
    """Dotted names of all fields of a record."""
    if isinstance(value, Mapping) and value:
        return [
            name
            for key, inner in value.items()
            for name in field_names(inner, f"{prefix}.{key}" if prefix else str(key))
        ]
    return [prefix] if prefix else []


def from_objects(
    numbered: Iterator[tuple[int, object]],
    path: str | Path,
    required: Sequence[str],
    optional: Sequence[str],
    unit: str = "line",
) -> Numbered:
    """Cells of mappings (or lists): which optional columns there are, the first one tells."""
    present: list[str] | None = None
    for number, value in numbered:
        place = f"{path}, {unit} {number}"
        cells = {name: cell_of(value, name) for name in (*required, *optional)}
        there = [name for name, cell in cells.items() if cell is not ABSENT]
        if present is None:
            for name in required:
                if name not in there:
                    raise missing_column(place, name, field_names(value))
            present = there
        for name in present:
            if name not in there:
                raise InputError(
                    f"{place} has no field {name!r}, which the first one has; give it in every "
                    "record"
                )
        for name in there:
            if name not in present:
                raise InputError(
                    f"{place} has a field {name!r}, which the first record lacks; give it in every "
                    "record or in none"
                )
        yield number, {name: cells[name] for name in present}


def cell_of(value: object, column: str) -> Any:
    """The field of a record that a dotted name stands for, or `ABSENT`."""
    try:
        return descend(value, column)
    except KeyError:
        return ABSENT


def top_column(column: str, names: Sequence[str]) -> str | None:
    """The top-level column that holds a dotted one."""
    pieces = column.split(".")
    heads = (".".join(pieces[:cut]) for cut in range(len(pieces), 0, -1))
    return next((head for head in heads if head in names), None)


def is_number(name: str) -> bool:
    return name.isascii() and name.isdigit()


@contextmanager
def open_table(
    path: Path,
    required: Sequence[str] | None,
    optional: Sequence[str] = (),
    hasher: hashlib._Hash | None = None,
) -> Iterator[tuple[Numbered, str]]:
    """The wanted columns of a file record by record, and what is numbered: its lines or rows.

    ``required`` None: all that each record has. Nothing is read beyond the last record that was
    asked for, unless there is a ``hasher``: it gets the whole (decompressed) file.

    Raises ``InputError`` naming file and line, when the record is reached: file missing, empty or
    of another format, column missing (with those found), row of another length, blank line between
    records, invalid UTF-8 or JSON, damaged compression.
    """
    form = record_format(path)
    with open_bytes(path) as handle:
        if form.table is None:
            lines = decoded_lines(handle, path, hasher)
            if form.cells is not None:
                cells = filled(form.cells(lines, path), path)
                rows = _whole(text_rows(cells, path, required, optional), path)
            else:
                assert form.objects is not None
                rows = _json(form.objects(lines, path), path, required, optional)
            yield rows, "line"
            if hasher is not None:
                drain(handle, hasher)
            return
        if not handle.read(1):
            raise InputError(f"{path} is empty; give a file with at least one record")
        handle.seek(0)
        if hasher is not None:
            drain(handle, hasher)
            handle.seek(0)
        with opened_table(form, handle, path) as table:
            yield _arrow(table, path, required, optional), "row"


def arrow_rows(table: Any, place: str) -> list[dict[str, Any]]:
    """The rows of an Arrow table or batch as Python has them.

    InputError, naming `place`, for a value that Python cannot hold, such as a time after the year
    9999 or text that is not UTF-8.
    """
    try:
        rows: list[dict[str, Any]] = table.to_pylist()
    except (
        ValueError,  # text that is not UTF-8, and ArrowInvalid
        OverflowError,  # a time that Python's datetime cannot hold
        KeyError,  # a time zone that nobody knows
        NotImplementedError,  # ArrowNotImplementedError, of a type without a value in Python
        TypeError,  # ArrowTypeError; ArrowException itself would take in ArrowMemoryError
    ) as error:
        raise InputError(
            f"{place} holds a value that cannot be read: {first_line(error)}; leave its column "
            "out, or write it as text"
        ) from None
    return rows


def _whole(rows: Iterator[tuple[int, dict[str, str] | Unread]], path: Path) -> Numbered:
    """Rows without those that are of another length than the first: InputError."""
    for number, row in rows:
        if isinstance(row, Unread):
            raise InputError(
                f"{path}, line {number} {row.why}; separate cells as there, and leave an empty "
                "cell for a missing value"
            )
        yield number, row


def text_rows(
    records: Cells,
    path: str | Path,
    required: Sequence[str] | None,
    optional: Sequence[str] = (),
    headless: bool | None = None,
) -> Iterator[tuple[int, dict[str, str] | Unread]]:
    """The wanted cells of a text table by their columns; a row of another length is not read.

    ``required`` None: all cells, which `headless` numbers.
    """
    if headless is None:
        headless = by_number(required or (), optional)
    places: dict[str, int] = {}
    width = 0
    for number, cells in records:
        if not width:
            width = len(cells)
            wanted = required
            if wanted is None:
                wanted = list(map(str, range(width))) if headless else cells
            places = _places(path, cells, wanted, optional, headless)
            if not headless:
                continue
        if len(cells) == width:
            yield number, {name: cells[place] for name, place in places.items()}
        else:
            reference = "line 1" if headless else "the header"
            shown = "\t".join(cells).encode("utf-8", "surrogateescape")
            yield number, Unread(shown, f"has {_cells(len(cells))} where {reference} has {width}")


def _places(
    path: str | Path,
    first: list[str],
    required: Sequence[str],
    optional: Sequence[str],
    headless: bool,
) -> dict[str, int]:
    """Which cell each wanted column is, from the first line of a text table."""
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
                first,
                "; if line 1 is no header, give columns by number from 0",
            )
    return places


def _json(
    numbered: Iterator[tuple[int, str]],
    path: Path,
    required: Sequence[str] | None,
    optional: Sequence[str],
) -> Numbered:
    if required is None:
        return ((number, parse_object(line, f"{path}, line {number}")) for number, line in numbered)

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


def _arrow(
    table: Table, path: Path, required: Sequence[str] | None, optional: Sequence[str]
) -> Numbered:
    names = table.schema.names
    if required is None:
        check_names(path, names)
        return _arrow_rows(table, path, None)
    columns = {}
    for name in (*required, *optional):
        numbered = is_number(name) and name not in names and int(name) < len(names)
        columns[name] = names[int(name)] if numbered else name
    tops = {name: top_column(column, names) for name, column in columns.items()}
    for name, top in tops.items():
        if top is None and name in required:
            raise missing_column(path, name, _leaves(table.schema))
        if top is not None:
            check_names(path, names, {top})
    present = [name for name in optional if tops[name] is not None]
    wanted = sorted({top for top in tops.values() if top is not None})
    rows = (
        (
            number,
            {
                **row,
                **{
                    name: row[column_name]
                    for name, column_name in columns.items()
                    if column_name in row
                },
            },
        )
        for number, row in _arrow_rows(table, path, wanted)
    )
    return from_objects(rows, path, required, present, "row")


def _arrow_rows(
    table: Table, path: Path, columns: Sequence[str] | None
) -> Iterator[tuple[int, dict[str, Any]]]:
    number = 0
    for batch in table.batches(columns):
        for row in arrow_rows(batch, f"{path}, rows from {number + 1}"):
            number += 1
            yield number, row


def check_names(
    path: str | Path, names: Sequence[str], wanted: Collection[str] | None = None
) -> None:
    """InputError for a table that has a wanted column (None: any) more than once."""
    for name in names if wanted is None else wanted:
        if names.count(name) > 1:
            raise InputError(f"{path} has several columns {name!r}; name each column once")


def _leaves(fields: Iterable[Any]) -> list[str]:
    """Dotted names of all columns of an Arrow schema."""
    names: list[str] = []
    for field in fields:
        structure = field.type.num_fields and str(field.type).startswith("struct")
        names += _leaves(field.flatten()) if structure else [field.name]
    return names


def _cells(count: int) -> str:
    return "1 cell" if count == 1 else f"{count} cells"


def _short(cell: str) -> str:
    return cell if len(cell) <= 30 else cell[:29] + "…"


def is_hub_name(name: str) -> bool:
    """Whether a name that is no path on this machine can be one of a Hub dataset."""
    return bool(_HUB_NAME.fullmatch(name)) and not is_file_name(Path(name))


#: Files of a folder that `datasets` wrote.
_WRITTEN = ("dataset_dict.json", "dataset_info.json")


def data_parts(data: str) -> Iterator[OptionalPart]:
    """What reading a file, a dataset of the Hub or one in a folder needs."""
    path = Path(data)
    written = any((path / name).exists() for name in _WRITTEN)
    if written or (not path.exists() and is_hub_name(data)):
        yield OptionalPart(f"reading the dataset {data}", "data", ("datasets", "pyarrow"))
    yield from file_parts(path)


def is_dataset(data: str, split: str | None, otherwise: str) -> bool:
    """Whether data are a dataset, of the Hub or in a folder, and no file.

    InputError for a folder without one, which goes on with ``otherwise``, and for a split of a
    file.
    """
    path = Path(data)
    if path.is_dir():
        if not any((path / name).exists() for name in _WRITTEN) and not any(
            map(named_formats, files_below(path))
        ):
            raise InputError(f"{path} holds no {otherwise}")
        return True
    if not path.exists() and is_hub_name(data):
        return True
    if split is not None and path.exists():
        raise InputError(f"{path} is a file, which has no split {split!r}; leave --split out")
    return False


def dataset_cells(
    name: str,
    split: str | None,
    required: Sequence[str],
    optional: Sequence[str],
    whole: bool = False,
) -> Numbered:
    """The wanted columns of a dataset (``name``, ``name:config`` or a folder), by row from 1.

    Code from the Hub is never run. Without ``split`` the dataset must have a single one. Datasets
    are streamed, so that only what is asked for is fetched; not so where the ``whole`` is wanted,
    or the Hub is switched off: then it is read from the cache. Raises ``InputError`` naming what is
    missing; that of a connection that breaks comes with the row.
    """
    datasets = need("datasets", f"reading the dataset {name}", "data")
    streaming = not whole and (Path(name).is_dir() or not datasets.config.HF_HUB_OFFLINE)
    data = load_table(name, split, streaming)
    names = data.column_names
    if names is not None:
        missing = [column for column in required if top_column(column, names) is None]
        if missing and whole:
            raise missing_column(name, missing[0], _leaves(data.features.arrow_schema))
        if not missing:
            tops = (top_column(column, names) for column in (*required, *optional))
            data = data.select_columns(sorted({top for top in tops if top is not None}))
    try:
        yield from from_objects(enumerate(data, 1), name, required, optional, "row")
    except InputError:
        raise
    except Exception as error:  # whatever the library and those beneath it raise
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError(
            f"{name} cannot be read further ({reason}); try again, or download it and give a file"
        ) from None


def load_table(name: str, split: str | None, streaming: bool = False) -> Any:
    """A dataset's one table, of the library's own types: from its folder, the cache or the Hub.

    Code from the Hub is never run. InputError if it cannot be loaded, or has several splits and
    none is named, or not the one that is.
    """
    datasets = need("datasets", f"reading the dataset {name}", "data")
    folder = Path(name)
    try:
        if (folder / "dataset_dict.json").exists() or (folder / "state.json").exists():
            data = datasets.load_from_disk(name)
        else:
            identifier, _, config = (name, "", "") if folder.is_dir() else name.partition(":")
            data = datasets.load_dataset(identifier, config or None, streaming=streaming)
    except Exception as error:  # whatever the library and those beneath it raise
        reason = " ".join(str(error.__cause__ or error).split()) or type(error).__name__
        if folder.is_dir():
            raise InputError(
                f"the folder {name} cannot be loaded as a dataset ({reason}); give one file in it"
            ) from None
        raise InputError(
            f"{name} is no file or folder here, and no dataset of that name can be loaded "
            f"({reason}); check the path, or the dataset's name, a configuration after a colon "
            "(name:config) and the connection"
        ) from None
    if not isinstance(data, dict):
        if split is not None and str(data.split) != split:
            raise InputError(f"{name} is one table and has no split {split!r}; leave --split out")
        return data
    if split is None and len(data) == 1:
        return next(iter(data.values()))
    if split not in data:
        wrong = "has several splits" if split is None else f"has no split {split!r}"
        raise InputError(f"the dataset {name} {wrong}; name one of {', '.join(data)} with --split")
    return data[split]
