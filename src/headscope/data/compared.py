"""Outputs before and after something was done to a model, from a file of records."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headscope.data.pairs import ALIGNER, UNITS, Links, Units, check_links, parse_links
from headscope.data.rows import Field, Row, clean_text
from headscope.data.tables import open_table
from headscope.errors import InputError, check_unicode, naming


@dataclass(frozen=True)
class Compared:
    """A sentence with what was made of it before and after; outputs may be empty.

    `links` are those of source and reference, between white-space pieces or `units`; `aligner`
    names what made them, None: they are given (see `SentencePair`).
    """

    id: str
    source: str
    reference: str
    before: str
    after: str
    direction: str | None = None
    links: Links | None = None
    units: Units | None = None
    aligner: str | None = None


def read_compared(path: str | Path) -> tuple[list[Compared], str]:
    """Reads records with `id`, `source`, `reference`, `before` and `after`.

    `direction` (such as `en-de`) and `links` (such as `0-0 1-2`), with `units` and `aligner`, may
    be given too. Ids differ within a direction. Returns the rows in order and the SHA-256 of the
    content. Raises `InputError` naming file and line of what is wrong.
    """
    path = Path(path)
    hasher = hashlib.sha256()
    rows: list[Compared] = []
    lines: dict[tuple[str | None, str], int] = {}
    with open_table(path, None, hasher=hasher) as (records, unit):
        for number, cells in records:
            place = f"{path}, {unit} {number}"
            row = _compared(Row(number, place, cells))
            first = lines.setdefault((row.direction, row.id), number)
            if first != number:
                raise InputError(
                    f"{place}: the id {row.id!r} stands on {unit} {first} already; "
                    "give every sentence an id of its own"
                )
            rows.append(row)
    return rows, hasher.hexdigest()


def _compared(row: Row) -> Compared:
    missing = [field.column for field in FIELDS[:5] if field.column not in row.cells]
    if missing:
        found = ", ".join(map(str, row.cells)) or "none"
        raise InputError(
            f"{row.place} has no {' and no '.join(map(repr, missing))}; found: {found}; give id, "
            "source, reference, before and after in every line"
        )
    known = FIELDS if row.cells.get("links") is not None else FIELDS[:-2]
    compared = Compared(*(row[field] for field in known))
    with naming(row.place):
        links = compared.links or frozenset()
        check_links(links, compared.source, compared.reference, compared.units)
    return compared


def _id(cell: Any, place: str, column: str) -> str:
    if isinstance(cell, bool) or not isinstance(cell, str | int):
        raise InputError(f"{place}: the id is no text and no whole number; give one of them")
    return str(cell)


def _text(cell: Any, place: str, column: str) -> str:
    if not isinstance(cell, str):
        raise InputError(f"{place}: {column!r} is no text; give a sentence")
    if column in ("before", "after"):  # a model may have written anything
        check_unicode(cell, f"{place}: {column!r}")
        return cell
    if not cell.strip():
        raise InputError(f"{place}: {column!r} is empty; give a sentence or remove the line")
    return clean_text(cell, f"{place}: {column!r}", lines=True)


def _direction(cell: Any, place: str, column: str) -> str | None:
    if not isinstance(cell, str | None):
        raise InputError(f"{place}: the direction is no text; write it like en-de")
    return cell or None


def _links(cell: Any, place: str, column: str) -> Links | None:
    if not isinstance(cell, str | None):
        raise InputError(f"{place}: the links are no text; write them like 0-0 1-2")
    with naming(place):
        return None if cell is None else parse_links(cell)


FIELDS: tuple[Field[Any], ...] = (
    Field("id", _id),
    *(Field(name, _text) for name in ("source", "reference", "before", "after")),
    Field("direction", _direction, None),
    Field("links", _links, None),
    UNITS,
    ALIGNER,
)
