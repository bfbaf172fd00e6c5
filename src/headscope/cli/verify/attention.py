"""`headscope verify attention`: does a mask pick the heads that look at the answer?"""

from __future__ import annotations

from typing import Any

from headscope.cli.commands import Study
from headscope.recipes.verify.attention import VerifyAttention, verify_attention


def _table(result: dict[str, Any]) -> str:
    """The rows of the paper's table: condition and heads by task."""
    tasks = result["tasks"]
    width = max(12, *(len(name) for name in tasks))
    lines = [f"{'condition':<20}{'heads':<6}" + "".join(f"{name:>{width + 2}}" for name in tasks)]
    for row in result["conditions"]:
        for group in row["heads"]:
            cells = [_cell(task, row["condition"], group) for task in tasks.values()]
            told = "".join(f"{cell:>{width + 2}}" for cell in cells)
            lines.append(f"{row['condition']:<20}{group:<6}{told}")
    even = [task["conditions"][0]["uniform"]["mean"] for task in tasks.values()]
    lines.append(f"{'even attention':<26}" + "".join(f"{one:>{width + 2}.3f}" for one in even))
    lines.append("share of the attention on the candidates that goes to the right one")
    return "\n".join([*lines, f"run: {result['run']}"])


def _cell(task: dict[str, Any], condition: str, group: str) -> str:
    own = next(one for one in task["conditions"] if one["condition"] == condition)
    mean = own["heads"][group]["mean"]
    return "-" if mean is None else f"{mean:.3f}"


command = Study(VerifyAttention, verify_attention, _table)
