"""`headscope verify attention`: does a mask pick the heads that look at the answer?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headscope.cli import old_options as options
from headscope.cli.groups import baseline_rules, model_choice, taking, task_choice
from headscope.cli.output import emit, progress

if TYPE_CHECKING:
    from headscope.measure.baseline import Rules
    from headscope.recipes.inputs import ModelChoice
    from headscope.recipes.tasks import TaskChoice


@taking(model=model_choice, tasks=task_choice, baseline=baseline_rules)
def attention(
    heads: options.Masks,
    model: ModelChoice,
    tasks: TaskChoice,
    baseline: Rules,
    draws: options.Draws = 5,
    seed: options.Seed = 0,
    batch_tokens: options.BatchTokens = 8192,
    allow_overlap: options.AllowOverlap = False,
    out: options.OutFolder = None,
    as_json: options.AsJson = False,
) -> None:
    """Measure the last token's attention on the right one of several words, in and out of a mask.

    For tasks whose inputs are words such as "a, b, c" and whose output is one of them.
    """
    from headscope.cli.models import hide_loading_bars
    from headscope.recipes.verify.attention import VerifyAttention, verify_attention

    config = VerifyAttention(
        tuple(heads), model, tasks, draws, seed, batch_tokens, allow_overlap, baseline
    )
    hide_loading_bars()
    with progress() as update:
        result = verify_attention(config, out, update)
    emit(result, as_json, _table(result))


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


command = attention
