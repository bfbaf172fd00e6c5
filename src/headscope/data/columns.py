"""Columns by name, by number and by dotted path, and the cells that records have in them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from headscope.errors import InputError

# Stands for a cell of a column that the file does not have, which is not the same as an empty one.
ABSENT: Any = object()
# Columns that have a flag of their own, `--NAME-column`.
_FLAGS = ("source", "target", "links", "text", "language", "summary", "input", "output")
# Line or row from 1, and the cells of those wanted columns that the file has.
Numbered = Iterator[tuple[int, Mapping[str, Any]]]


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
) -> Numbered:
    """Cells of mappings (or lists): which optional columns there are, the first one tells."""
    present: list[str] | None = None
    for number, value in numbered:
        place = f"{path}, {unit} {number}"
        cells = {name: _cell(value, name) for name in (*required, *optional)}
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


def _cell(value: object, column: str) -> object:
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
