"""`headscope verify attention`: does a mask pick the heads that look at the answer?"""

from __future__ import annotations

from headscope.cli.output import cell
from headscope.results.attention import AttentionResult
from headscope.studies.study import Study
from headscope.studies.verify.attention import VerifyAttention, verify_attention


def _table(result: AttentionResult) -> str:
    """The rows of the paper's table: condition and heads by task."""
    tasks = result.tasks
    width = max(12, *(len(name) for name in tasks))
    lines = [f"{'condition':<20}{'heads':<6}" + "".join(f"{name:>{width + 2}}" for name in tasks)]
    for row in result.conditions:
        own = [task.by_name[row.condition].heads for task in tasks.values()]
        for group in row.heads:
            told = "".join(f"{cell(heads[group].mean, '.3f'):>{width + 2}}" for heads in own)
            lines.append(f"{row.condition:<20}{group:<6}{told}")
    even = [task.conditions[0].uniform.mean for task in tasks.values()]
    lines.append(f"{'even attention':<26}" + "".join(f"{one:>{width + 2}.3f}" for one in even))
    lines.append("share of the attention on the candidates that goes to the right one")
    return "\n".join([*lines, f"run: {result.run}"])


command = Study(VerifyAttention, verify_attention, _table)
