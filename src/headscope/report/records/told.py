"""What reports read of tables and figures that a recipe told as plain JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from headscope.report.records.reading import finite

__all__ = [
    "Bars",
    "Figure",
    "Heatmap",
    "Lines",
    "Series",
    "Shown",
    "Table",
    "Value",
    "optional",
    "read_figure",
    "read_list",
    "read_table",
    "text",
    "words",
]

Value: TypeAlias = "float | int | str | None"
Rows: TypeAlias = "tuple[tuple[float | None, ...], ...]"


@dataclass(frozen=True)
class Shown:
    """A cell of a table: ours with its 95 % interval, the published value, and ours minus it.

    `why` says why there is no value of ours.
    """

    value: Value
    low: float | None
    high: float | None
    published: Value
    difference: float | None
    why: str
    digits: int


@dataclass(frozen=True)
class Table:
    """A table. `source` and `model` are of the published values, empty where there are none.

    `against` says why ours are not compared with them; None where they are.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Shown, ...]], ...]
    source: str
    model: str
    against: str | None
    note: str


@dataclass(frozen=True)
class Heatmap:
    """Numbers, rows by columns; None where nothing was run."""

    title: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    values: Rows
    scale: str
    row_axis: str
    column_axis: str
    low: float | None
    high: float | None
    diverging: bool
    digits: int
    note: str


@dataclass(frozen=True)
class Series:
    """A line of (x, y) points with an interval of each, where there is one."""

    name: str
    points: tuple[tuple[float, float], ...]
    band: tuple[tuple[float, float, float], ...]


@dataclass(frozen=True)
class Lines:
    """Lines over one axis."""

    title: str
    series: tuple[Series, ...]
    x: str
    y: str
    logarithmic: bool
    note: str


@dataclass(frozen=True)
class Bars:
    """Bars by group, then series, with intervals where they are known."""

    title: str
    groups: tuple[str, ...]
    series: tuple[str, ...]
    values: Rows
    y: str
    low: Rows
    high: Rows
    digits: int
    note: str


Figure: TypeAlias = "Heatmap | Lines | Bars"


def read_table(table: Mapping[str, Any]) -> Table:
    """A table as a result holds it; ValueError if its rows do not fit its columns."""
    columns, reference = words(table["columns"]), table.get("reference") or {}
    rows = tuple(
        (str(row["name"]), tuple(_cell(cell) for cell in read_list(row["cells"])))
        for row in read_list(table["rows"])
    )
    for name, cells in rows:
        _same(len(cells), len(columns), f"{table['title']}: cells of {name!r}")
    against = None
    if reference and not reference["comparable"]:
        against = str(reference.get("why") or "not comparable")
    return Table(
        title=str(table["title"]),
        columns=columns,
        rows=rows,
        source=text(reference.get("source")),
        model=text(reference.get("model")),
        against=against,
        note=text(table.get("note")),
    )


def _cell(cell: Mapping[str, Any]) -> Shown:
    return Shown(
        value=_value(cell["value"]),
        low=optional(cell.get("low")),
        high=optional(cell.get("high")),
        published=_value(cell.get("published")),
        difference=optional(cell.get("difference")),
        why=text(cell.get("why")),
        digits=_digits(cell.get("digits", 3)),
    )


def read_figure(figure: Mapping[str, Any]) -> Figure:
    """A figure as a result holds it; ValueError if its values do not fit its rows."""
    title, note, kind = str(figure["title"]), text(figure.get("note")), figure["kind"]
    if kind == "lines":
        return Lines(
            title=title,
            series=tuple(_series(one, title) for one in read_list(figure["series"])),
            x=str(figure["x"]),
            y=str(figure["y"]),
            logarithmic=bool(figure.get("logarithmic")),
            note=note,
        )
    if kind == "bars":
        groups, series = words(figure["groups"]), words(figure["series"])
        shape = (len(groups), len(series))
        return Bars(
            title=title,
            groups=groups,
            series=series,
            values=_field(figure["values"], shape, title),
            y=str(figure["y"]),
            low=_field(figure["low"], shape, title) if figure.get("low") else (),
            high=_field(figure["high"], shape, title) if figure.get("high") else (),
            digits=_digits(figure.get("digits", 1)),
            note=note,
        )
    if kind != "heatmap":
        raise ValueError(f"{title}: there is no kind of figure {kind!r}")
    rows, columns = words(figure["rows"]), words(figure["columns"])
    return Heatmap(
        title=title,
        rows=rows,
        columns=columns,
        values=_field(figure["values"], (len(rows), len(columns)), title),
        scale=str(figure["scale"]),
        row_axis=text(figure.get("row_axis")),
        column_axis=text(figure.get("column_axis")),
        low=optional(figure.get("low")),
        high=optional(figure.get("high")),
        diverging=bool(figure.get("diverging")),
        digits=_digits(figure.get("digits", 2)),
        note=note,
    )


def _series(one: Mapping[str, Any], title: str) -> Series:
    points = tuple((finite(x), finite(y)) for x, y in read_list(one["points"]))
    low, high = (tuple(finite(end) for end in one.get(side) or ()) for side in ("low", "high"))
    for ends in (low, high):
        if low or high:
            _same(len(ends), len(points), f"{title}: the ends of intervals of {one['name']!r}")
    band = tuple((x, a, b) for (x, _), a, b in zip(points, low, high, strict=False))
    return Series(str(one["name"]), points, band)


def _field(values: Any, shape: tuple[int, int], title: str) -> Rows:
    rows = tuple(tuple(optional(value) for value in read_list(row)) for row in read_list(values))
    _same(len(rows), shape[0], f"{title}: rows")
    for row in rows:
        _same(len(row), shape[1], f"{title}: values of a row")
    return rows


def read_list(value: Any) -> list[Any]:
    """A list that must be one; TypeError for anything else."""
    if not isinstance(value, list):
        raise TypeError(f"{str(value)[:40]!r} is no list")
    return value


def words(value: Any) -> tuple[str, ...]:
    """A list of words."""
    return tuple(str(one) for one in read_list(value))


def text(value: Any) -> str:
    """Words, empty for None."""
    return "" if value is None else str(value)


def optional(value: Any) -> float | None:
    """A number or None; ValueError for infinities and what is no number."""
    return None if value is None else finite(value)


def _digits(value: Any) -> int:
    return min(8, max(0, int(value)))


def _value(value: Any) -> Value:
    """A number, a word, or nothing; whole numbers stay whole."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None or isinstance(value, (int, str)):
        return value
    return finite(value)


def _same(number: int, expected: int, what: str) -> None:
    if number != expected:
        raise ValueError(f"{what}: {number} instead of {expected}")
