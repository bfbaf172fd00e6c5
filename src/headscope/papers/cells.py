"""Cells with published figures, and figures in words."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from headscope.papers.published import value
from headscope.shown.blocks import NOT_RUN, Cell, Reference, Row, Table, grid, one_column


@dataclass(frozen=True)
class Place:
    """A table of a paper, and whether its figures may be compared with ours."""

    paper: str
    table: str
    reference: Reference

    def value(self, row: str, column: str, measure: str) -> float | None:
        """The published figure of this place, or None."""
        model = self.reference.model
        return value(self.paper, self.table, model=model, row=row, column=column, measure=measure)

    def grid(
        self,
        title: str,
        rows: Iterable[str],
        columns: Iterable[str],
        ours: Callable[[str, str], Cell],
        measure: str = "",
        note: str = "",
    ) -> Table:
        """Our cells by row and column, beside the published figures of these places."""

        def cell(row: str, column: str) -> Cell:
            own, theirs = ours(row, column), self.value(row, column, measure)
            return own if theirs is None else replace(own, published=theirs)

        return grid(title, rows, columns, cell, self.reference, note)


def with_published(
    title: str, what: str, rows: Mapping[str, Cell], reference: Reference, note: str = ""
) -> Table:
    """A table of one column: our figures with the published ones, a row each."""
    return replace(one_column(title, what, rows.items(), note), reference=reference)


def table(
    title: str, columns: Sequence[str], rows: Mapping[str, Sequence[Any]], note: str = ""
) -> Table:
    """A table of rows with a cell, a number or a text in each column."""

    def cell(value: Any) -> Cell:
        digits = 0 if isinstance(value, int) else 3
        return value if isinstance(value, Cell) else Cell(value, why="none", digits=digits)

    made = (Row(name, tuple(map(cell, values))) for name, values in rows.items())
    return Table(title, tuple(columns), tuple(made), note=note)


def hundred(
    share: float | None,
    low: float | None = None,
    high: float | None = None,
    *,
    published: float | None = None,
    why: str = NOT_RUN,
) -> Cell:
    """A share, its interval and the published share as per cent, with one decimal."""
    ours, low, high, theirs = (
        None if number is None else 100 * number for number in (share, low, high, published)
    )
    return Cell(ours, low, high, theirs, why, 1)
