"""What an experiment tells: tables with intervals beside published values, figures, sentences.

Everything here becomes plain JSON in the run's result, and a report is drawn from that alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = [
    "Bars",
    "Cell",
    "Figure",
    "Heatmap",
    "Lines",
    "Reference",
    "Row",
    "Series",
    "Table",
    "Told",
    "grid",
    "p_cell",
]

#: What stands in a cell whose run has not been made.
NOT_RUN = "not run"


@dataclass(frozen=True)
class Cell:
    """One figure of a table: ours with its 95 % interval, beside the published one.

    `value` is a number, a word or a text, or None where there is nothing to tell; `why` then says
    why (`not run`). `published` is the paper's figure for the table's reference model.
    """

    value: float | str | None = None
    low: float | None = None
    high: float | None = None
    published: float | str | None = None
    why: str | None = None
    digits: int = 3

    def __post_init__(self) -> None:
        if self.value is not None:  # what is there needs no reason for its absence
            object.__setattr__(self, "why", None)


def p_cell(p: float) -> Cell:
    """A p-value; a bound where three decimals would show nothing."""
    return Cell("< 0.001") if p < 0.001 else Cell(p)


@dataclass(frozen=True)
class Row:
    """A row: its name and its cells, one a column."""

    name: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Reference:
    """Where the published values of a table come from, and whether ours may be compared.

    `comparable` is whether model, data, prompt, decoding, measure and its tokenisation are the
    paper's; `why` says what differs otherwise, such as `not comparable: other model; our prompt`.
    """

    source: str
    model: str
    comparable: bool
    why: str = ""


@dataclass(frozen=True)
class Table:
    """A table: columns without that of the names, rows, and where published values come from."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    reference: Reference | None = None
    note: str = ""

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row.cells) != len(self.columns):
                raise ValueError(
                    f"{self.title}: the row {row.name!r} has {len(row.cells)} cells, "
                    f"and there are {len(self.columns)} columns"
                )


def grid(
    title: str,
    rows: Iterable[str],
    columns: Iterable[str],
    cell: Callable[[str, str], Cell],
    reference: Reference | None = None,
    note: str = "",
) -> Table:
    """A table whose cells follow from the names of their row and their column."""
    names = tuple(columns)
    made = tuple(Row(row, tuple(cell(row, column) for column in names)) for row in rows)
    return Table(title, names, made, reference, note)


@dataclass(frozen=True)
class Heatmap:
    """A field of numbers, rows by columns; None is left empty. `scale` names the number."""

    title: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    values: tuple[tuple[float | None, ...], ...]
    scale: str
    row_axis: str = ""
    column_axis: str = ""
    low: float | None = None
    high: float | None = None
    diverging: bool = False
    digits: int = 2
    note: str = ""
    kind: str = field(default="heatmap", init=False)


@dataclass(frozen=True)
class Series:
    """A line: (x, y) points, and an interval of each where there is one."""

    name: str
    points: tuple[tuple[float, float], ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()


@dataclass(frozen=True)
class Lines:
    """Lines over one axis; x may be logarithmic."""

    title: str
    series: tuple[Series, ...]
    x: str
    y: str
    logarithmic: bool = False
    note: str = ""
    kind: str = field(default="lines", init=False)


@dataclass(frozen=True)
class Bars:
    """Bars by group: `values[i][j]` is of group i and series j, with intervals where known."""

    title: str
    groups: tuple[str, ...]
    series: tuple[str, ...]
    values: tuple[tuple[float | None, ...], ...]
    y: str
    low: tuple[tuple[float | None, ...], ...] = ()
    high: tuple[tuple[float | None, ...], ...] = ()
    digits: int = 1
    note: str = ""
    kind: str = field(default="bars", init=False)


Figure = Heatmap | Lines | Bars


@dataclass(frozen=True)
class Told:
    """What an experiment shows on this model.

    `found` says it in one to three sentences with its figures, `sure` how sure that is: intervals,
    controls, what was not controlled. Both are empty where nothing was run.
    """

    tables: Sequence[Table] = ()
    figures: Sequence[Figure] = ()
    found: str = ""
    sure: str = ""
    more: dict[str, Any] = field(default_factory=dict)
