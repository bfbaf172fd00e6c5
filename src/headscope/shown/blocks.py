"""Tables, figures and claims as plain values; their fields are the names in JSON.

A study writes them into its result, and a report draws what it reads back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = [
    "NOT_RUN",
    "Bars",
    "Cell",
    "Claim",
    "Figure",
    "Findings",
    "Heatmap",
    "Lines",
    "Reference",
    "Row",
    "Series",
    "Table",
    "Values",
    "grid",
    "p_cell",
]

#: What stands in a cell whose run has not been made.
NOT_RUN = "not run"

#: Numbers, rows by columns; None where there is none.
Values = tuple[tuple[float | None, ...], ...]


@dataclass(frozen=True)
class Cell:
    """One figure of a table: ours with its 95 % interval, beside the published one.

    `value` is a number, a word or a text, or None where there is nothing to tell; `why` then says
    why (`not run`). `published` is the paper's figure for the table's reference model, and
    `difference` ours minus it where the two may be compared.
    """

    value: float | str | None = None
    low: float | None = None
    high: float | None = None
    published: float | str | None = None
    why: str | None = None
    digits: int = 3
    difference: float | None = None

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
    values: Values
    scale: str
    row_axis: str = ""
    column_axis: str = ""
    low: float | None = None
    high: float | None = None
    diverging: bool = False
    digits: int = 2
    note: str = ""
    kind: str = field(default="heatmap", init=False)

    def __post_init__(self) -> None:
        _check_shape(self.title, self.values, self.rows, self.columns)


@dataclass(frozen=True)
class Series:
    """A line: (x, y) points, and an interval of each where there is one."""

    name: str
    points: tuple[tuple[float, float], ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()

    @property
    def band(self) -> tuple[tuple[float, float, float], ...]:
        """x with both ends of its interval; empty where there are none."""
        rows = zip(self.points, self.low, self.high, strict=False)
        return tuple((x, low, high) for (x, _), low, high in rows)

    def __post_init__(self) -> None:
        for ends in (self.low, self.high):
            if (self.low or self.high) and len(ends) != len(self.points):
                raise ValueError(f"{self.name}: {len(ends)} ends for {len(self.points)} points")


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
    values: Values
    y: str
    low: Values = ()
    high: Values = ()
    digits: int = 1
    note: str = ""
    kind: str = field(default="bars", init=False)

    def __post_init__(self) -> None:
        for values in (self.values, self.low or self.values, self.high or self.values):
            _check_shape(self.title, values, self.groups, self.series)


Figure = Heatmap | Lines | Bars


def _check_shape(title: str, values: Values, rows: Sequence[str], columns: Sequence[str]) -> None:
    """ValueError unless there is a value for each row and each column."""
    if [len(row) for row in values] != [len(columns)] * len(rows):
        raise ValueError(f"{title}: the values are not {len(rows)} rows of {len(columns)}")


@dataclass(frozen=True)
class Claim:
    """A claim of the paper on this model.

    Attributes:
        name: the claim, as the end of "the claim that ...".
        holds: whether it holds here; None where the measurement leaves it open.
        by: the figures that say so.
        sure: what the figures were tested by; empty where by nothing, so that they only describe.
        p: p over examples of a claim about removal, before Holm; None for other claims.
        decides: what would decide a claim that is left open.
    """

    name: str
    holds: bool | None
    by: str
    sure: str = ""
    p: float | None = None
    decides: str = ""


@dataclass(frozen=True)
class Findings:
    """What an experiment shows on this model.

    `found` says it in one to three sentences with its figures, `sure` how sure that is: intervals,
    controls, what was not controlled. Both are empty where nothing was run.
    """

    tables: Sequence[Table] = ()
    figures: Sequence[Figure] = ()
    found: str = ""
    sure: str = ""
    more: dict[str, Any] = field(default_factory=dict)
