"""`headscope compare formation`: how heads form over the checkpoints of a training."""

from __future__ import annotations

from headscope.cli.output import cell
from headscope.results.formation import FormationResult
from headscope.studies.compare.formation import Formation, formation
from headscope.studies.study import Study


def _table(result: FormationResult) -> str:
    """One line a checkpoint, what was skipped, and where the rest is."""
    rows = result.checkpoints
    width = max(10, *(len(one.name) for one in rows))
    lines = [
        f"{'checkpoint':<{width}}  aligning  >chance     low  inactive  mean TS  highest  "
        f"of last set  top {result.k}  chrF++"
    ]
    for one in rows:
        above = one.above_chance.token_alignment if one.above_chance else None
        lines.append(
            f"{one.name:<{width}}  {one.shares.token_alignment:>8.1%}  "
            f"{cell(above, '.1%'):>7}  "
            f"{one.shares.low_activity:>6.1%}  {one.shares.inactive:>8.1%}  "
            f"{one.mean_score:>7.3f}  {cell(one.highest.score, '.3f'):>7}  "
            f"{cell(one.overlap_with_last, '.1%'):>11}  "
            f"{cell(one.top_overlap_with_last, '.1%'):>6}  "
            f"{one.chrf.value:>5.1f} ({one.chrf.low:.1f} to {one.chrf.high:.1f})"
        )
    if rows[-1].counted_over > 1:
        lines.append(f"shares: mean of {rows[-1].counted_over} directions")
    lines += [f"skipped {one.name}: {one.reason}" for one in result.skipped]
    if not result.same_tokenizer:
        lines.append("note: the checkpoints do not all have the same tokenizer")
    return "\n".join([*lines, f"run: {result.run}"])


command = Study(Formation, formation, _table)
