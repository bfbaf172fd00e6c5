"""The table that commands print of plain head scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["score_table"]


def score_table(
    result: Mapping[str, Any],
    columns: Sequence[str] = ("score", "low", "high", "chance"),
    rows: int = 20,
) -> str:
    """The best heads with these numbers of each, and where the rest is."""
    widths = [max(9, len(name) + 2) for name in columns]
    titles = "".join(f"{name:>{width}}" for name, width in zip(columns, widths, strict=True))
    lines = [f"head  {titles}"]
    for one in result["heads"][:rows]:
        name = f"{one['layer']}.{one['head']}"
        numbers = "".join(
            f"{'-' if one.get(key) is None else format(one[key], '.4f'):>{width}}"
            for key, width in zip(columns, widths, strict=True)
        )
        lines.append(f"{name:<6}{numbers}")
    return "\n".join(lines)
