"""`headscope find retrieval`: heads that look at a hidden fact while it is copied out."""

from __future__ import annotations

from typing import Any

from headscope.cli.commands import Study
from headscope.cli.find.score_table import score_table
from headscope.recipes.find.retrieval import FindRetrieval, find_retrieval


def _table(result: dict[str, Any]) -> str:
    """The best heads, how much was found at each place, and where the rest is."""
    lines = [score_table(result, ("score", "low", "high", "chance", "elsewhere"))]
    lines += ["", "length  depth  prompts  answered"]
    for one in result["places"]:
        answered = "-" if one["answered"] is None else f"{one['answered']:.2f}"
        lines.append(
            f"{one['length']:>6}  {one['depth']:>5.2f}  {one['examples']:>7}  {answered:>8}"
        )
    return "\n".join([*lines, f"run: {result['run']}"])


command = Study(FindRetrieval, find_retrieval, _table)
