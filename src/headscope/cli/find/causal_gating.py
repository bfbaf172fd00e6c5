"""`headscope find causal-gating`: which heads help a task, hinder it, or do nothing for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from headscope.cli import old_options as options
from headscope.cli.find.score_table import score_table
from headscope.cli.groups import baseline_rules, model_choice, taking, task_choice
from headscope.cli.output import emit, progress

if TYPE_CHECKING:
    from headscope.measure.baseline import Rules
    from headscope.recipes.inputs import ModelChoice
    from headscope.recipes.tasks import TaskChoice

Steps = Annotated[
    int | None,
    Option(
        "--steps",
        min=1,
        help="Steps of each of the three fits.",
    ),
]
Seeds = Annotated[
    int | None,
    Option("--seeds", min=1, help="How often to train, each time with another seed."),
]
Batch = Annotated[int | None, Option("--batch", min=1, help="Samples of a step.")]
Weight = Annotated[float, Option("--weight", help="Weight of the push towards 1 or 0.")]
Uninstructed = Annotated[
    bool, Option("--uninstructed", help="Fit on the task without its instruction.")
]


@taking(model=model_choice, tasks=task_choice, baseline=baseline_rules)
def causal_gating(
    model: ModelChoice,
    tasks: TaskChoice,
    baseline: Rules,
    steps: Steps = None,
    seeds: Seeds = None,
    batch: Batch = None,
    weight: Weight = 0.1,
    uninstructed: Uninstructed = False,
    checkpointing: options.Checkpointing = False,
    batch_tokens: options.BatchTokens = 8192,
    seed: options.Seed = 0,
    out: options.OutFolder = None,
    as_json: options.AsJson = False,
) -> None:
    """Fit soft gates of all heads to a task, pushed towards keeping and towards removing them.

    A head that stays open either way helps the task, one that stays closed hinders it, one that
    follows the push does nothing for it. What that predicts is put to the test by removal. Without
    --steps, --seeds and --batch 500, 10 and 64; in a model of fewer than 256 heads 150, 3 and 16.
    """
    from headscope.cli.models import hide_loading_bars
    from headscope.recipes.find.causal_gating import FindCausalGating, find_causal_gating

    hide_loading_bars()
    wanted = {"steps": steps, "pushed_steps": steps, "seeds": seeds, "batch_size": batch}
    changes: dict[str, Any] = {name: one for name, one in wanted.items() if one is not None}
    changes |= {"weight": weight, "seed": seed, "checkpointing": checkpointing}
    config = FindCausalGating(
        model,
        tasks,
        changes=changes,
        instructed=not uninstructed,
        batch_tokens=batch_tokens,
        baseline=baseline,
    )
    with progress() as update:
        result = find_causal_gating(config, out, update)
    emit(result, as_json, _table(result))


def _table(result: Mapping[str, Any]) -> str:
    """The most facilitating heads, how many heads have each role, and the test by removal."""
    columns = ("facilitating", "interfering", "irrelevant", "low", "high")
    lines = [score_table(result, columns, rows=12)]
    heads = len(result["heads"])
    for role, count in result["roles"].items():
        lines.append(
            f"{role}: {count['mean']} of {heads} heads on average over seeds, "
            f"{count['always']} in every seed, {count['any']} in at least one"
        )
    check = result["check"]
    lines.append(f"loss on {check['examples']} held-out examples, in nats a token:")
    for name, one in check["conditions"].items():
        change = one["change"]
        bounds = f"{change['value']:+.3f} ({change['low']:+.3f} to {change['high']:+.3f})"
        role = name.rpartition(" ")[2]
        words = name.replace("without", f"without {len(check['removed'].get(role, ()))}")
        lines.append(f"  {words:<32}{one['nll']:>8.3f}  {'' if name == 'untouched' else bounds}")
    return "\n".join([*(line.rstrip() for line in lines), f"run: {result['run']}"])


command = causal_gating
