"""Rows of files and datasets of any format: declared fields, read from their cells.

A field names its column and says how a cell becomes a value, and what there is where the file has
no such column. Files have the formats of `formats`, or are plain text with one row a line.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Generic, TypeVar

from headscope.data.files import check_limit, open_bytes, text_lines
from headscope.data.languages import language_name
from headscope.data.tables import ABSENT, Numbered, dataset_cells, open_table
from headscope.errors import InputError, naming

T = TypeVar("T")


@dataclass(frozen=True)
class Field(Generic[T]):
    """A column and what its cells mean.

    `read` gets a cell, the place of its row and the column, and raises `InputError` for a cell
    that it cannot use. Files without the column are refused, unless there is a `default`.
    """

    column: str
    read: Callable[[Any, str, str], T]
    default: T = ABSENT


@dataclass(frozen=True)
class Row:
    """One row: its line (in a table its number) from 1, its place in words, and its cells.

    A column that the file does not have is not in `cells`.
    """

    line: int
    place: str
    cells: Mapping[str, Any]

    def __getitem__(self, field: Field[T]) -> T:
        if field.column not in self.cells:
            return field.default
        return field.read(self.cells[field.column], self.place, field.column)

    @property
    def id(self) -> str:
        """The row's own id, where `ID` was read and holds one, else its line."""
        return self[ID] or str(self.line)


def read_fields(
    data: str | Path,
    fields: Sequence[Field[Any]],
    limit: int | None = None,
    *,
    dataset: bool = False,
    split: str | None = None,
) -> tuple[list[Row], str]:
    """The first `limit` rows, and a SHA-256: of the whole file, or of the cells of a dataset.

    Every error is an `InputError` with file, line and fix; a file without rows is one.
    """
    check_limit(limit)
    hasher = hashlib.sha256()
    with open_rows(data, fields, dataset=dataset, split=split, hasher=hasher) as every:
        rows = list(islice(every, limit))
    if not rows:
        place = "a dataset or split" if dataset else "a file"
        raise InputError(f"{data} holds no records; give {place} with at least one")
    for row in rows if dataset else ():
        cells = json.dumps(row.cells, ensure_ascii=False, sort_keys=True)
        hasher.update(cells.encode() + b"\n")
    return rows, hasher.hexdigest()


@contextmanager
def open_rows(
    data: str | Path,
    fields: Sequence[Field[Any]],
    *,
    dataset: bool = False,
    split: str | None = None,
    plain: bool = False,
    hasher: hashlib._Hash | None = None,
) -> Iterator[Iterator[Row]]:
    """The rows one after the other; nothing is read beyond the last one that is asked for.

    A `hasher` gets the whole file, and a dataset is then read whole. With `plain` each line of the
    file is the cell of the first field. Errors are those of `read_fields`, raised when the row is
    reached; a file without rows gives none.
    """
    columns = _columns(fields)
    path = Path(data)
    if dataset:
        whole = hasher is not None
        yield _rows(dataset_cells(str(data), split, *columns, whole=whole), data, "row")
    elif plain:
        with open_bytes(path) as handle:
            lines = text_lines(handle, path)
            yield _rows(((n, {fields[0].column: line}) for n, line in lines), data, "line")
    else:
        with open_table(path, *columns, hasher) as (numbered, unit):
            yield _rows(numbered, data, unit)


def _columns(fields: Iterable[Field[Any]]) -> tuple[list[str], list[str]]:
    """The columns that a file must have, and those that it may have."""
    required = [field.column for field in fields if field.default is ABSENT]
    return required, [field.column for field in fields if field.column not in required]


def _rows(numbered: Numbered, data: str | Path, unit: str) -> Iterator[Row]:
    return (Row(number, f"{data}, {unit} {number}", cells) for number, cells in numbered)


def text_cell(
    wanted: str, of: str = "column ", lines: bool = False
) -> Callable[[Any, str, str], str]:
    """Reads a text with something other than white space in it; a number is spelt out.

    `wanted` is what to do where there is none, `of` stands before the column's name; `lines` as
    in `clean_text`.
    """

    def read(cell: Any, place: str, column: str) -> str:
        whole = isinstance(cell, int) and not isinstance(cell, bool)
        if whole or (isinstance(cell, float) and math.isfinite(cell)):
            cell = str(cell)
        if not isinstance(cell, str):
            raise InputError(f"{place}: {of}{column!r} holds {kind_of(cell)}, not text; {wanted}")
        if not cell.strip():
            raise InputError(f"{place}: {of}{column!r} is empty; {wanted} or remove the record")
        return clean_text(cell, f"{place}: {of}{column!r}", lines)

    return read


def language_code(cell: Any, place: str, column: str) -> str:
    """Reads the code of a language."""
    code = text_cell("give a language code such as en")(cell, place, column).strip()
    with naming(place):
        language_name(code)
    return code


#: What a row calls itself, where it does.
ID: Field[str | None] = Field(
    "id",
    lambda cell, *_: str(cell) if isinstance(cell, str | int) and str(cell).strip() else None,
    None,
)


# What is no part of a sentence, and of a text of several lines: there line feed, tab, carriage
# return, vertical tab and form feed are white space, as next line (U+0085) is in both. None holds
# halves of surrogate pairs, which JSON can hold and no file or tokenizer takes.
_NO_SENTENCE = re.compile("[\0-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff]")
_NO_TEXT = re.compile("[\0-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff]")


def clean_text(text: str, what: str, lines: bool = False, fix: str = "correct the text") -> str:
    """A text without its line end, otherwise as it is: a sentence, or with `lines` one of several.

    InputError, naming `what` holds it, for a control character.
    """
    text = without_line_end(text, lines)
    if reason := unusable(text, lines):
        raise InputError(f"{what} holds {reason}; {fix}")
    return text


def without_line_end(text: str, lines: bool = False) -> str:
    """A text without the end of the line that it stood on.

    With `lines` it may hold several: then a line feed at its end is its own, and a carriage return
    alone, or before a line feed, that of the file.
    """
    if text.endswith("\r\n"):
        return text[:-2]
    return text[:-1] if text.endswith("\r") or (text.endswith("\n") and not lines) else text


def unusable(text: str, lines: bool = False) -> str | None:
    """The first sign that no sentence holds, or with `lines` no text, in words; None without."""
    match = (_NO_TEXT if lines else _NO_SENTENCE).search(text)
    if match is None:
        return None
    if match[0] in "\n\r":
        return "a line break, and a sentence is one line"
    if match[0] >= "\ud800":
        return "half of a surrogate pair, which is no character"
    return f"a control character: U+{ord(match[0]):04X} at character {match.start() + 1}"


def kind_of(value: object) -> str:
    """What a cell holds, in words."""
    if isinstance(value, float) and not math.isfinite(value):
        return f"no number ({value})"
    names = {type(None): "nothing (null)", bool: "true or false", list: "a list", dict: "an object"}
    return names.get(type(value), f"a value of type {type(value).__name__}")
