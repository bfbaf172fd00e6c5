"""`headscope survey`: every method on one model, and what they agree on."""

from __future__ import annotations

from typing import Any

from headscope.cli.commands import Study
from headscope.cli.compare.methods import agreement_table
from headscope.recipes.survey import Survey, survey


def _summary(result: dict[str, Any]) -> str:
    """Which methods ran, how they agree, and where to read on."""
    lines = []
    for one in result["runs"]:
        said = one["why"] or ""
        time = "left out" if one["run"] is None else f"{one['seconds']:.0f} s"
        lines.append(f"{one['method']:<18} {time:>9}  {said}".rstrip())
    table = agreement_table(result)
    return "\n".join([*lines, "", table, f"report: {result['report']}"])


command = Study(Survey, survey, _summary)
