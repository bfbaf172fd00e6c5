"""`headscope find induction`: heads that look at what followed the same token before."""

from __future__ import annotations

from typing import Any

from headscope.cli.commands import Study
from headscope.cli.find.score_table import score_table
from headscope.recipes.find.induction import FindInduction, find_induction


def _table(result: dict[str, Any]) -> str:
    """The best heads, and where the rest is."""
    columns = ("score", "low", "high", "chance", "duplicate", "previous_token")
    table = score_table(result, (*columns, "previous_token_text"))
    return f"{table}\nrun: {result['run']}"


command = Study(FindInduction, find_induction, _table)
