"""Columns by name, by number and by dotted path, and the records made of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from headscope.errors import InputError

# Stands for a cell of a column that the file does not have, which is not the same as an empty one.
ABSENT = object()
# Columns that have a flag of their own, `--NAME-column`.
_FLAGS = ("source", "target", "links", "text", "language", "summary", "input", "output")


@dataclass(frozen=True)
class Record:
    """One record: its line (row in a Parquet file, from 1) and the cells of wanted columns.

    A column that the file does not have is not in ``cells``.
    """

    line: int
    cells: Mapping[str, object]


def missing_column(
    path: str | Path, column: str, found: Sequence[str], hint: str = ""
) -> InputError:
    """The error for a column that is not there, naming those that are."""
    names = ", ".join(found) if found else "none"
    flag = f"--{column}-column" if column in _FLAGS else "its flag, or rename the column"
    return InputError(
        f"{path} has no column {column!r}; found: {names}; name the right one with {flag}{hint}"
    )


def by_number(required: Sequence[str], optional: Sequence[str] = ()) -> bool:
    """Whether columns are given by number, which means that a TSV file has no header."""
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
) -> Iterator[Record]:
    """Records from mappings (or lists): which optional columns there are, the first one tells."""
    present: list[str] | None = None
    for number, value in numbered:
        cells: dict[str, object] = {}
        for name in (*required, *(optional if present is None else present)):
            try:
                cells[name] = descend(value, name)
            except KeyError:
                if present is None and name in required:
                    raise missing_column(
                        f"{path}, {unit} {number}", name, field_names(value)
                    ) from None
                if present is not None:
                    raise InputError(
                        f"{path}, {unit} {number} has no field {name!r}, which the first one has; "
                        "give it in every record"
                    ) from None
        if present is None:
            present = [name for name in optional if name in cells]
        else:
            for name in optional:
                if name not in cells and _has(value, name):
                    raise InputError(
                        f"{path}, {unit} {number} has a field {name!r}, which the first record "
                        "lacks; give it in every record or in none"
                    )
        yield Record(number, cells)


def _has(value: object, name: str) -> bool:
    try:
        descend(value, name)
    except KeyError:
        return False
    return True


def is_number(name: str) -> bool:
    return name.isascii() and name.isdigit()


def cell_text(record: Record, column: str, place: str, wanted: str) -> str:
    """The text of a cell, with something other than white space in it; a number is spelt out.

    Raises ``InputError`` beginning with `place` (file and line) and asking for `wanted`.
    """
    value = record.cells[column]
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str):
        raise InputError(f"{place}: column {column!r} holds {kind_of(value)}, not text; {wanted}")
    if not value.strip():
        raise InputError(f"{place}: column {column!r} is empty; {wanted} or remove the record")
    check_unicode(value, f"{place}: column {column!r}")
    return value


def check_unicode(text: str, what: str) -> None:
    """InputError, naming `what` holds it, for a text with half of a surrogate pair, which JSON can
    hold and no file or tokenizer takes."""
    if not text.isascii() and any("\ud800" <= sign <= "\udfff" for sign in text):
        raise InputError(
            f"{what} holds half of a surrogate pair, which is no character; correct the text"
        )


def kind_of(value: object) -> str:
    """What a cell holds, in words."""
    names = {type(None): "nothing (null)", bool: "true or false", list: "a list", dict: "an object"}
    return names.get(type(value), f"a value of type {type(value).__name__}")
