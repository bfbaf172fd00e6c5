"""`headscope survey`: every method on one model, and what they agree on."""

from __future__ import annotations

from headscope.cli.compare.methods import agreement_table
from headscope.results.methods import SurveyResult
from headscope.studies.study import Study
from headscope.studies.survey import Survey, survey


def _summary(result: SurveyResult) -> str:
    """Which methods ran, how they agree, and where to read on."""
    lines = []
    for row in result.runs:
        time = "left out" if row.run is None else f"{row.seconds:.0f} s"
        lines.append(f"{row.method:<18} {time:>9}  {row.why or ''}".rstrip())
    return "\n".join([*lines, "", agreement_table(result), f"report: {result.report}"])


command = Study(Survey, survey, _summary)
