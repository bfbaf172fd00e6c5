"""`headscope find first-order`: how steeply the loss changes with every head's gate."""

from __future__ import annotations

from headscope.cli.find.score_table import score_table
from headscope.results.lahis import DocumentScores
from headscope.studies.find.first_order import FindFirstOrder, find_first_order
from headscope.studies.study import Study


def _table(result: DocumentScores) -> str:
    """The best heads, and where the rest is."""
    table = score_table(result.heads, ("score", "low", "high", "raising"))
    return f"{table}\nrun: {result.run}"


command = Study(FindFirstOrder, find_first_order, _table)
