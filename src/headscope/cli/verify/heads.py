"""`headscope verify heads`: what every head by itself costs the reference translation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from headscope.cli import old_options as options
from headscope.cli.find.score_table import score_table
from headscope.cli.groups import baseline_rules, model_choice, pairs_choice, taking, template_choice
from headscope.cli.output import cell, emit, progress

if TYPE_CHECKING:
    from headscope.data.prompts import Template
    from headscope.measure.baseline import Rules
    from headscope.recipes.inputs import ModelChoice, PairsChoice

__all__ = ["heads"]


@taking(model=model_choice, pairs=pairs_choice, template=template_choice, baseline=baseline_rules)
def heads(
    model: ModelChoice,
    pairs: PairsChoice,
    template: Template,
    baseline: Rules,
    beside: Annotated[
        list[str] | None,
        Option(
            "--beside",
            metavar="RUN",
            help="Run with scores of the same model (translation-score, induction, …) to correlate "
            "with; repeatable.",
        ),
    ] = None,
    chat: options.ChatTemplate = None,
    seed: options.Seed = 0,
    batch_tokens: options.BatchTokens = 8192,
    out: options.OutFolder = None,
    as_json: options.AsJson = False,
) -> None:
    """Remove every head by itself: the change of the loss of reference translations.

    By zero and by mean ablation, in nats a token. Backup heads may stand in for a removed one, so
    the change is a lower bound of what a head does.
    """
    from headscope.cli.models import hide_loading_bars
    from headscope.recipes.verify.heads import VerifyHeads, verify_heads
    from headscope.verify.removal import Removal

    settings = Removal(seed=seed, template=template, chat=chat, batch_tokens=batch_tokens)
    config = VerifyHeads(model, pairs, settings, tuple(beside or ()))
    hide_loading_bars()
    with progress() as update:
        result = verify_heads(config, baseline, out, update)
    emit(result, as_json, _table(result))


def _table(result: Mapping[str, Any]) -> str:
    """The heads that cost most, the correlations, and what to keep in mind."""
    lines = [
        "change of the NLL of the reference without each head, nats a token",
        score_table(result, ("score", "low", "high", "mean_ablation", *result["beside"])),
    ]
    if result["correlations"]:
        lines.append("Spearman with      over all heads            within layers             p")
    for one in result["correlations"]:
        spans = [
            f"{cell(part['value'], '+.2f')} ({cell(part['low'], '+.2f')} to "
            f"{cell(part['high'], '+.2f')})"
            for part in (one["all"], one["within_layers"])
        ]
        p = cell(one["p_within_layers"], ".4g")
        lines.append(f"{one['with']}, {one['ablate']}: {spans[0]}  {spans[1]}  {p}")
    lines.append("Backup heads may stand in for a removed one: the changes are lower bounds.")
    return "\n".join([*lines, f"run: {result['run']}"])


command = heads
