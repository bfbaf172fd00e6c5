"""`headscope find retrieval`: heads that look at a hidden fact while it is copied out."""

from __future__ import annotations

from headscope.cli.find.score_table import score_table
from headscope.cli.output import cell
from headscope.results.head_scores import RetrievalResult
from headscope.studies.find.retrieval import FindRetrieval, find_retrieval
from headscope.studies.study import Study


def _table(result: RetrievalResult) -> str:
    """The best heads, how much was found at each place, and where the rest is."""
    lines = [score_table(result.heads, ("score", "low", "high", "chance", "elsewhere"))]
    lines += ["", "length  depth  prompts  answered"]
    for place in result.places:
        answered = cell(place.answered, ".2f")
        lines.append(f"{place.length:>6}  {place.depth:>5.2f}  {place.examples:>7}  {answered:>8}")
    return "\n".join([*lines, f"run: {result.run}"])


command = Study(FindRetrieval, find_retrieval, _table)
