"""`headscope verify scaling`: heads outside a mask at part of their strength."""

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

__all__ = ["scaling"]

Alpha = Annotated[
    list[float] | None,
    Option(
        "--alpha",
        metavar="A",
        help="Strength of the heads outside the mask that is tried, from 0 to 1; repeatable; "
        "without it 0, 0.1, … 1.",
    ),
]
CheckData = Annotated[
    str | None,
    Option(
        "--check-data",
        metavar="DATA",
        help="Sentence pairs to measure translations on; without it half of the held-out examples.",
    ),
]
CheckLimit = Annotated[
    int | None, Option("--check-limit", min=1, help="The first so many pairs of --check-data.")
]
Draws = Annotated[int, Option("--draws", min=0, help="Draws of random heads.")]


@taking(model=model_choice, tasks=task_choice, baseline=baseline_rules)
def scaling(
    heads: options.Masks,
    model: ModelChoice,
    tasks: TaskChoice,
    baseline: Rules,
    alpha: Alpha = None,
    check_data: CheckData = None,
    check_limit: CheckLimit = None,
    draws: Draws = 3,
    max_new_tokens: options.MaxNewTokens = None,
    allow_overlap: options.AllowOverlap = False,
    seed: options.Seed = 0,
    batch_tokens: options.BatchTokens = 8192,
    out: options.OutFolder = None,
    as_json: options.AsJson = False,
) -> None:
    """Scale the heads outside a mask and ask the instructed task.

    The best strength is chosen by the loss on some held-out examples; outputs are measured on
    others, beside the model as it is, the mask itself, and shuffled masks.
    """
    from headscope.cli.models import hide_loading_bars
    from headscope.recipes.verify.scaling import VerifyScaling, verify_scaling
    from headscope.verify.masks.asking import Asking
    from headscope.verify.masks.scaling import GRID

    hide_loading_bars()
    config = VerifyScaling(
        tuple(heads),
        tasks,
        model,
        check_data,
        check_limit,
        tuple(alpha) if alpha else GRID,
        draws,
        seed,
        Asking(max_new_tokens, paragraphs=True, batch_tokens=batch_tokens),
        allow_overlap,
        baseline,
    )
    with progress() as update:
        result = verify_scaling(config, out, update)
    emit(result, as_json, _table(result))


def _table(result: Mapping[str, Any]) -> str:
    lines = []
    for name, one in result["tasks"].items():
        lines.append(
            f"{name}: instructed, {one['mask']['removed']} heads scaled; chosen on "
            f"{one['chosen_on']} examples, measured on {one['examples']} others"
        )
        lines.append(f"{'α':<6}{'NLL':>8}{'95 % interval':>18}{'shuffled':>10}{'chosen':>9}")
        shares = {row["alpha"]: row["share"] for row in one["chosen_again"]}
        for row in one["alphas"]:
            bounds = row["intervals"]["nll"]
            span = f"{bounds['low']:.3f} to {bounds['high']:.3f}"
            others = row["shuffled"]
            beside = f"{sum(others) / len(others):.3f}" if others else "-"
            star = " best" if row["alpha"] == one["best"] else ""
            lines.append(
                f"{row['alpha']:<6g}{row['nll']:>8.3f}{span:>18}{beside:>10}"
                f"{shares[row['alpha']]:>9.0%}{star}"
            )
        lines += _measured(one)
    return "\n".join([*lines, f"run: {result['run']}"])


def _measured(one: Mapping[str, Any]) -> list[str]:
    names = ("bleu", "chrf", "bleu_published") if one["translation"] else ("accuracy",)
    words = {"bleu": "BLEU", "chrf": "chrF++", "bleu_published": "published", "accuracy": "right"}
    lines = [f"{'':<24}{'NLL':>8}" + "".join(f"{words[name]:>11}" for name in names)]
    for row in one["conditions"]:
        values = [row[name] for name in names]
        cells = "".join(f"{'-' if value is None else f'{value:.3f}':>11}" for value in values)
        lines.append(f"{row['name']:<24}{row['nll']:>8.3f}{cells}")
    return lines


command = scaling
