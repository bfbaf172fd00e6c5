"""`headscope find mask`: train which heads to keep, so that a task needs no instruction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from typer import Option

from headscope.cli import old_options as options
from headscope.cli.groups import baseline_rules, model_choice, taking, task_choice
from headscope.cli.output import emit, note, progress

if TYPE_CHECKING:
    from headscope.measure.baseline import Rules
    from headscope.recipes.inputs import ModelChoice
    from headscope.recipes.tasks import TaskChoice

PresetName = Literal["paper", "small"]
Preset = Annotated[
    PresetName | None,
    Option(
        "--preset",
        help="paper: 6,200 steps; small: 600 steps at higher rates; without it small for models "
        "of fewer than 256 heads.",
    ),
]
StartName = Literal["positive", "negative"]
Start = Annotated[
    StartName, Option("--start", help="Begin with nearly all heads kept, or with nearly none.")
]
Steps = Annotated[
    int | None, Option("--steps", min=1, help="Steps, instead of those of the preset.")
]
Minutes = Annotated[
    float | None,
    Option(
        "--minutes",
        help="Take as many of the preset's steps as fit into so many minutes, by what a step takes "
        "here.",
    ),
]
LearningRate = Annotated[float | None, Option("--learning-rate", help="How far a step goes.")]
Batch = Annotated[int, Option("--batch", min=1, help="Samples of a step.")]
Penalty = Annotated[
    float, Option("--penalty", help="What each kept head adds to the loss, in nats.")
]
FeedForward = Annotated[
    bool, Option("--feed-forward", help="Train a gate of each feed-forward layer, too.")
]
PlaceName = Literal["output", "query"]
Place = Annotated[
    PlaceName,
    Option("--on", help="Gate what a head writes, or its queries (it then attends evenly)."),
]


@taking(model=model_choice, tasks=task_choice, baseline=baseline_rules)
def mask(
    model: ModelChoice,
    tasks: TaskChoice,
    baseline: Rules,
    preset: Preset = None,
    start: Start = "positive",
    steps: Steps = None,
    minutes: Minutes = None,
    learning_rate: LearningRate = None,
    batch: Batch = 16,
    penalty: Penalty = 0.0,
    feed_forward: FeedForward = False,
    on: Place = "output",
    checkpointing: options.Checkpointing = False,
    batch_tokens: options.BatchTokensByDevice = None,
    seed: options.Seed = 0,
    out: options.OutFolder = None,
    as_json: options.AsJson = False,
) -> None:
    """Train a mask: the heads that a model keeps to do a task which nobody tells it.

    The model is frozen; every head has a weight, trained on inputs and outputs of the task without
    its instruction. Several tasks with --shots make one mask for all of them. Steps and the highest
    learning rate are those of the preset, unless they are given. What the steps will take is told
    before they are taken.
    """
    from headscope.cli.models import hide_loading_bars
    from headscope.recipes.find.mask import FindMask, find_mask

    hide_loading_bars()
    changes = {
        "start": start,
        "steps": steps,
        "learning_rate": learning_rate,
        "batch": batch,
        "penalty": penalty,
        "feed_forward": feed_forward,
        "on": on,
        "checkpointing": checkpointing,
        "batch_tokens": batch_tokens,
    }
    with progress() as update:
        config = FindMask(model, tasks, preset, changes, seed, minutes, baseline)
        result = find_mask(config, out, update, note)
    emit(result, as_json, _table(result))


def _table(result: dict[str, Any]) -> str:
    """How many heads were kept in each layer, what became of them, and how the loss moved."""
    lines = ["layer  kept  dropped"]
    layers: dict[int, list[dict[str, Any]]] = {}
    for one in result["heads"]:
        layers.setdefault(one["layer"], []).append(one)
    for layer in sorted(layers):
        kept = sorted(one["head"] for one in layers[layer] if one["selected"])
        gone = sorted(one["head"] for one in layers[layer] if not one["selected"])
        dropped = " ".join(str(head) for head in gone) or "-"
        lines.append(f"{layer:<6}{len(kept):>5}  {dropped}")
    fates = ", ".join(f"{count} {name}" for name, count in sorted(result["fates"].items()))
    lines.append(
        f"{result['selected']} of {len(result['heads'])} heads kept ({result['kept_share']:.1%}): "
        f"{fates}"
    )
    if result["feed_forward"] is not None:
        gone = [one["layer"] for one in result["feed_forward"] if not one["selected"]]
        lines.append(f"feed-forward layers dropped: {', '.join(map(str, gone)) or 'none'}")
    losses = result["loss"]
    part = max(1, len(losses) // 20)
    first, last = (sum(some) / len(some) for some in (losses[:part], losses[-part:]))
    lines.append(
        f"loss without instruction, nats a token: {first:.4f} in the first {part} steps, "
        f"{last:.4f} in the last {part}"
    )
    lines += [f"note: {note}" for note in result["notes"]]
    lines.append(f"run: {result['run']}")
    return "\n".join(lines)


command = mask
