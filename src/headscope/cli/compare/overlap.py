"""`headscope compare overlap`: how far sets of heads agree, beside chance."""

from __future__ import annotations

from headscope.cli.output import cell
from headscope.results.overlap import OverlapResult
from headscope.studies.compare.overlap import CompareOverlap, compare_overlap
from headscope.studies.study import Study


def _table(result: OverlapResult, rows: int = 30) -> str:
    """Every pair, or with many the means of their groups first."""
    pairs = result.pairs
    width = max(len(name) for pair in pairs for name in (pair.a, pair.b))
    head = (
        f"{'A':<{width}}  {'B':<{width}}  jaccard  expected  (exact)        p  shared   recall"
        "     rank"
    )
    lines = [head]
    for pair in pairs[:rows]:
        shared = f"{pair.intersection}/{pair.size_b}"
        lines.append(
            f"{pair.a:<{width}}  {pair.b:<{width}}  {pair.jaccard:>7.3f}  "
            f"{pair.expected:>8.3f}  {pair.expected_exact:>7.3f}  {pair.p_value:>7.2g}  "
            f"{shared:>6}  {cell(pair.recall, '.3f'):>7}  "
            f"{cell(pair.rank_correlation, '.3f'):>7}"
        )
    if len(pairs) > rows:
        lines.append(f"… and {len(pairs) - rows} more pairs, in {result.run}/result.json")
    if result.groups:
        lines += ["", "pairs of directions   count  jaccard  expected  (exact)"]
        lines += [
            f"{group.name:<20}  {group.count:>5}  {group.jaccard:>7.3f}  "
            f"{group.expected:>8.3f}  {group.expected_exact:>7.3f}"
            for group in result.groups
        ]
    return "\n".join([*lines, f"run: {result.run}"])


command = Study(CompareOverlap, compare_overlap, _table)
