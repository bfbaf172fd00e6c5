"""The table that commands print of plain head scores."""

from __future__ import annotations

from collections.abc import Sequence

from headscope.cli.output import cell
from headscope.results.common import ScoredHead

__all__ = ["score_table"]


def score_table(
    heads: Sequence[ScoredHead],
    columns: Sequence[str] = ("score", "low", "high", "chance"),
    rows: int = 20,
) -> str:
    """The first of these heads with these numbers of each."""
    widths = [max(9, len(name) + 2) for name in columns]
    titles = "".join(f"{name:>{width}}" for name, width in zip(columns, widths, strict=True))
    lines = [f"head  {titles}"]
    for head in heads[:rows]:
        numbers = "".join(
            f"{cell(head.number(name), '.4f'):>{width}}"
            for name, width in zip(columns, widths, strict=True)
        )
        lines.append(f"{head.place!s:<6}{numbers}")
    return "\n".join(lines)
