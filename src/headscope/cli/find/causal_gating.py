"""`headscope find causal-gating`: which heads help a task, hinder it, or do nothing for it."""

from __future__ import annotations

from headscope.cli.find.score_table import score_table
from headscope.results.causal_gating import CausalGatingResult
from headscope.studies.find.causal_gating import FindCausalGating, find_causal_gating
from headscope.studies.study import Study


def _table(result: CausalGatingResult) -> str:
    """The most facilitating heads, how many heads have each role, and the test by removal."""
    columns = ("facilitating", "interfering", "irrelevant", "low", "high")
    lines = [score_table(result.heads, columns, rows=12)]
    for role, count in result.roles.items():
        lines.append(
            f"{role}: {count.mean} of {len(result.heads)} heads on average over seeds, "
            f"{count.always} in every seed, {count.any} in at least one"
        )
    check = result.check
    lines.append(f"loss on {check.examples} held-out examples, in nats a token:")
    for name, loss in check.conditions.items():
        change = loss.change
        bounds = f"{change.value:+.3f} ({change.low:+.3f} to {change.high:+.3f})"
        role = name.rpartition(" ")[2]
        words = name.replace("without", f"without {len(check.removed.get(role, ()))}")
        lines.append(
            f"  {words:<32}{loss.nll.value:>8.3f}  {'' if name == 'untouched' else bounds}"
        )
    return "\n".join([*(line.rstrip() for line in lines), f"run: {result.run}"])


command = Study(FindCausalGating, find_causal_gating, _table)
