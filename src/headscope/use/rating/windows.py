"""Long texts as rows that a model can read: cut, or in windows that overlap."""

from __future__ import annotations

import dataclasses

from headscope.errors import InputError


@dataclasses.dataclass(frozen=True)
class Row:
    """The tokens ``begin`` to ``end`` - 1 of a text, of which those from ``first`` on count.

    ``first`` is above ``begin``, since nothing predicts the first token of a row.
    """

    begin: int
    end: int
    first: int


def rows_of(tokens: int, longest: int, overlap: int | None = None) -> list[Row]:
    """The rows in which each predicted token of a text counts exactly once.

    Args:
        tokens: of the text. A text of fewer than two has no predicted token and gives no row.
        longest: tokens of a row, at least 2.
        overlap: None cuts the text at ``longest``. A number, 1 to ``longest`` - 1, takes all of it
            in windows: each begins with as many tokens of the one before, read again as context.

    Raises:
        InputError: if ``longest`` is below 2, or the overlap is not between 1 and it.
    """
    if longest < 2:
        raise InputError(
            f"A row of {longest} tokens predicts nothing; let it hold at least 2 tokens."
        )
    if overlap is not None and not 1 <= overlap < longest:
        raise InputError(
            f"Windows of {longest} tokens cannot overlap by {overlap}; choose 1 to {longest - 1}."
        )
    if tokens < 2:
        return []
    rows = [Row(0, min(tokens, longest), 1)]
    while overlap is not None and rows[-1].end < tokens:
        known = rows[-1].end
        begin = known - overlap
        rows.append(Row(begin, min(tokens, begin + longest), known))
    return rows
