"""`headscope compare methods`: what several methods say of the heads of one model."""

from __future__ import annotations

from headscope.cli.output import cell
from headscope.results.methods import MethodsResult, SurveyResult
from headscope.studies.compare.methods import CompareMethods, compare_methods
from headscope.studies.study import Study

__all__ = ["agreement_table", "command"]


def agreement_table(result: MethodsResult | SurveyResult, rows: int = 15) -> str:
    """Sizes of the methods, their closest pairs, and the heads that most methods select."""
    compared = result.comparison
    width = max(8, *(len(column.name) for column in compared.columns))
    specific = {method.name: set(method.specific) for method in compared.methods}
    lines = [f"{'what':<{width}}  heads  by this method alone"]
    for column in compared.columns:
        alone = len(specific[column.method] & set(column.heads))
        lines.append(f"{column.name:<{width}}  {column.size:>5}  {alone:>20}")
    pairs = sorted(compared.apart, key=lambda pair: (pair.p_value, -pair.jaccard))
    lines += ["", f"{'most alike':<{2 * width + 2}}  jaccard  expected        p     rank"]
    lines += [
        f"{pair.a:<{width}}  {pair.b:<{width}}  {pair.jaccard:>7.3f}  "
        f"{pair.expected_exact:>8.3f}  {pair.p_value:>7.2g}  "
        f"{cell(pair.rank_correlation, '.3f'):>7}"
        for pair in pairs[:rows]
    ]
    lines += ["", "selected by  heads  expected"]
    lines += [
        f"{row.methods:>11}  {row.heads:>5}  {row.expected:>8.1f}" for row in compared.agreement
    ]
    best = [head for head in compared.heads if len(head.selected_by) > 1][:10]
    lines += ["", "heads that most methods select:"]
    lines += [f"{head.place}  {', '.join(head.selected_by)}" for head in best]
    return "\n".join([*lines, f"run: {result.run}"])


command = Study(CompareMethods, compare_methods, agreement_table)
