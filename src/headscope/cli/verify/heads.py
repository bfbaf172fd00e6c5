"""`headscope verify heads`: what every head by itself costs the reference translation."""

from __future__ import annotations

from headscope.cli.find.score_table import score_table
from headscope.cli.output import cell
from headscope.results.head_scores import RemovedHeads
from headscope.studies.study import Study
from headscope.studies.verify.heads import VerifyHeads, verify_heads

__all__ = ["command"]


def _table(result: RemovedHeads) -> str:
    """The heads that cost most, the correlations, and what to keep in mind."""
    lines = [
        "change of the NLL of the reference without each head, nats a token",
        score_table(result.heads, ("score", "low", "high", "mean_ablation", *result.beside)),
    ]
    if result.correlations:
        lines.append("Spearman with      over all heads            within layers             p")
    for each in result.correlations:
        spans = [
            f"{cell(part.value, '+.2f')} ({cell(part.low, '+.2f')} to {cell(part.high, '+.2f')})"
            for part in (each.all, each.within_layers)
        ]
        p = cell(each.p_within_layers, ".4g")
        lines.append(f"{each.other}, {each.ablate}: {spans[0]}  {spans[1]}  {p}")
    lines.append("Backup heads may stand in for a removed one: the changes are lower bounds.")
    return "\n".join([*lines, f"run: {result.run}"])


command = Study(VerifyHeads, verify_heads, _table)
