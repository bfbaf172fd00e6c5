"""`headscope verify families`: the heads that the masks of several tasks share, removed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from headscope.cli import old_options as options
from headscope.cli.groups import baseline_rules, model_choice, taking, task_choice
from headscope.cli.output import emit, progress

if TYPE_CHECKING:
    from headscope.measure.baseline import Rules
    from headscope.recipes.inputs import ModelChoice
    from headscope.recipes.tasks import TaskChoice

__all__ = ["families"]

OwnFamily = Annotated[
    list[str] | None,
    Option(
        "--family",
        metavar="NAME=TASK,TASK",
        help="A family of one's own beside all tasks and those with one language; repeatable.",
    ),
]
Write = Annotated[
    bool, Option("--write", help="Let the model write outputs too, and measure them.")
]


@taking(model=model_choice, tasks=task_choice, baseline=baseline_rules)
def families(
    heads: options.Masks,
    model: ModelChoice,
    tasks: TaskChoice,
    baseline: Rules,
    family: OwnFamily = None,
    write: Write = False,
    draws: options.Draws = 5,
    max_new_tokens: options.MaxNewTokens = None,
    allow_overlap: options.AllowOverlap = False,
    seed: options.Seed = 0,
    batch_tokens: options.BatchTokens = 8192,
    out: options.OutFolder = None,
    as_json: options.AsJson = False,
) -> None:
    """Remove the heads that several masks share, and those in none, and ask instructed tasks.

    Heads inside every mask, inside every mask of tasks with one language, and inside none; beside
    each as many random heads.
    """
    from headscope.cli.models import hide_loading_bars
    from headscope.recipes.verify.families import VerifyFamilies, verify_families
    from headscope.verify.masks.asking import Asking

    hide_loading_bars()
    config = VerifyFamilies(
        tuple(heads),
        tuple(family or ()),
        tasks,
        model,
        draws,
        write,
        seed,
        Asking(max_new_tokens, batch_tokens=batch_tokens),
        allow_overlap,
        baseline,
    )
    with progress() as update:
        result = verify_families(config, out, update)
    emit(result, as_json, _table(result))


def _table(result: Mapping[str, Any]) -> str:
    names = list(result["tasks"])
    widths = [max(8, len(name)) + 2 for name in names]
    head = "".join(f"{name:>{width}}" for name, width in zip(names, widths, strict=True))
    lines = [f"{'NLL, instructed':<34}{'removed':>8}{head}"]

    def line(words: str, removed: int | str, kinds: tuple[str, str]) -> str:
        cells = ""
        for name, width in zip(names, widths, strict=True):
            kind, of = kinds
            rows = [
                row["nll"]
                for row in result["tasks"][name]["conditions"]
                if row["kind"] == kind and of in (row["name"], row["of"])
            ]
            cells += f"{sum(rows) / len(rows):>{width}.3f}" if rows else f"{'-':>{width}}"
        return f"{words:<34}{removed:>8}{cells}"

    lines.append(line("model as it is", 0, ("instructed", "instructed")))
    for one in result["families"]:
        where = "no mask" if one["name"] == "unused" else f"all masks: {one['name']}"
        lines.append(line(f"without heads of {where}", one["removed"], ("removed", one["name"])))
        lines.append(line("  random heads", "", ("random", one["name"])))
        lines.append(line("  random heads, same layers", "", ("random-layer-matched", one["name"])))
    return "\n".join([*lines, f"run: {result['run']}"])


command = families
