"""`headscope find first-order`: how steeply the loss changes with every head's gate."""

from __future__ import annotations

from typing import Any

from headscope.cli.commands import Study
from headscope.cli.find.score_table import score_table
from headscope.recipes.find.first_order import FindFirstOrder, find_first_order


def _table(result: dict[str, Any]) -> str:
    """The best heads, and where the rest is."""
    table = score_table(result, ("score", "low", "high", "raising"))
    return f"{table}\nrun: {result['run']}"


command = Study(FindFirstOrder, find_first_order, _table)
