"""`headscope find induction`: heads that look at what followed the same token before."""

from __future__ import annotations

from headscope.cli.find.score_table import score_table
from headscope.results.head_scores import ScoresResult
from headscope.studies.find.induction import FindInduction, find_induction
from headscope.studies.study import Study


def _table(result: ScoresResult) -> str:
    """The best heads, and where the rest is."""
    columns = ("score", "low", "high", "chance", "duplicate", "previous_token")
    table = score_table(result.heads, (*columns, "previous_token_text"))
    return f"{table}\nrun: {result.run}"


command = Study(FindInduction, find_induction, _table)
