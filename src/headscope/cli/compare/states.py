"""`headscope compare states`: do a mask and an instruction lead through the same hidden states?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from headscope.cli import old_options as options
from headscope.cli.groups import baseline_rules, model_choice, taking, task_choice
from headscope.cli.output import emit, progress

if TYPE_CHECKING:
    from headscope.measure.baseline import Rules
    from headscope.recipes.inputs import ModelChoice
    from headscope.recipes.tasks import TaskChoice


@taking(model=model_choice, tasks=task_choice, baseline=baseline_rules)
def states(
    heads: options.Heads,
    model: ModelChoice,
    tasks: TaskChoice,
    baseline: Rules,
    example: options.Example = None,
    top: Annotated[int, Option("--top", min=1, help="Tokens that the logit lens shows.")] = 5,
    draws: options.Draws = 5,
    seed: options.Seed = 0,
    batch_tokens: options.BatchTokens = 8192,
    allow_overlap: options.AllowOverlap = False,
    out: options.OutFolder = None,
    as_json: options.AsJson = False,
) -> None:
    """Compare hidden states as is, instructed, masked (only --heads kept) and both, layer by layer.

    Without --task and --pair a mask run of the bundled model is looked at with its own task.
    """
    from headscope.cli.models import hide_loading_bars
    from headscope.recipes.compare.states import CompareStates, compare_states

    config = CompareStates(
        heads, model, tasks, example, draws, seed, top, batch_tokens, allow_overlap, baseline
    )
    hide_loading_bars()
    with progress() as update:
        result = compare_states(config, out, update)
    emit(result, as_json, _table(result))


def _table(result: dict[str, Any]) -> str:
    """Cosines with the instructed model, and what the lens shows, layer by layer."""
    pairs = {(pair["a"], pair["b"]): pair["after_layer"] for pair in result["pairs"]}
    columns = [
        ("as is", pairs["as is", "instructed"]),
        ("masked", pairs["instructed", "masked"]),
        *(
            (control["kind"].replace("_", " "), control["after_layer"])
            for control in result["controls"]
        ),
    ]
    shown = result["lens"]["conditions"]
    lines = [
        f"cosine with the instructed model after each layer, {result['samples']} samples",
        "layer  "
        + "  ".join(f"{name:>18}" for name, _ in columns)
        + "   as is / instructed / masked",
    ]
    for layer in range(result["layers"]):
        numbers = "  ".join(f"{rows[layer]['mean']:>18.3f}" for _, rows in columns)
        says = " / ".join(
            repr(shown[name][layer + 1]["tokens"][0]) for name in ("as is", "instructed", "masked")
        )
        lines.append(f"{layer:>5}  {numbers}   {says}")
    nearer = result["nearer"]["as is"]["later_half"]
    lines.append(
        f"later half of the layers: cosine to instructed, masked minus as is: "
        f"{nearer['mean']:+.3f} ({nearer['low']:+.3f} to {nearer['high']:+.3f})"
    )
    return "\n".join([*lines, f"run: {result['run']}"])


command = states
