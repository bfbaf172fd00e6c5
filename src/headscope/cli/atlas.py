"""`headscope atlas`: find, verify and compare in one go, and report."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from headscope.cli import old_options as options
from headscope.cli.find.translation_score import class_lines
from headscope.cli.groups import (
    baseline_rules,
    model_argument,
    pairs_choice,
    taking,
    translation_score_choice,
)
from headscope.cli.output import cell, emit, progress

if TYPE_CHECKING:
    from headscope.find.translation import TranslationScore
    from headscope.measure.baseline import Rules
    from headscope.recipes.inputs import ModelChoice, PairsChoice


@taking(
    model=model_argument,
    pairs=pairs_choice,
    score=translation_score_choice,
    baseline=baseline_rules,
)
def atlas(
    model: ModelChoice,
    pairs: PairsChoice,
    score: TranslationScore,
    baseline: Rules,
    threshold: options.Threshold = 0.1,
    inactive: options.Inactive = 0.0,
    k: Annotated[
        str | None,
        Option(
            "--k", metavar="K", help="Heads removed in the check: a number or a share such as 15%."
        ),
    ] = None,
    rank: options.Rank = "above-chance",
    draws: options.Draws = 3,
    ablate: options.Ablate = "zero",
    sentences: Annotated[
        int, Option("--check", min=1, help="Sentences of each direction in the check.")
    ] = 20,
    out: options.OutFolder = None,
    as_json: options.AsJson = False,
) -> None:
    """Make the atlas of a model: score its heads, remove the best ones, compare directions.

    Writes report.html into the run folder. Without --data the bundled model's own sentences.
    """
    from headscope.cli.models import hide_loading_bars
    from headscope.recipes.atlas import Atlas
    from headscope.recipes.atlas import atlas as make_atlas

    config = Atlas(
        model, pairs, score, threshold, k, draws, sentences, rank, inactive, baseline, ablate
    )
    hide_loading_bars()
    with progress() as update:
        result = make_atlas(config, out, update)
    emit(result, as_json, _summary(result))


def _summary(result: dict[str, Any]) -> str:
    """What was found, in a few lines; the last one is where to read on."""
    removal = result["removal"]
    selected = next(one for one in removal["conditions"] if one["kind"] == "top")
    first = sorted(result["heads"], key=lambda one: int(one["rank"]))[:10]
    top = ", ".join(f"{one['layer']}.{one['head']}" for one in first)
    without = "with the mean output of" if removal.get("ablate") == "mean" else "without"
    scores = {
        "as it is": removal["baseline"]["chrf"],
        f"{without} its top {removal['k']} heads": removal["top"]["chrf"],
        f"{without} {removal['k']} random heads": removal["random_mean"]["chrf"],
    }
    chrf = ", ".join(f"{value:.1f} {name}" for name, value in scores.items() if value is not None)
    return "\n".join(
        [
            f"{result['model']['name']}: {len(result['heads'])} heads, "
            f"{len(result['directions'])} directions",
            *class_lines(result),
            f"best: {top}",
            f"chrF++ of its translations: {chrf}",
            "selected against random: p "
            f"{cell(selected['p_sentences'], '.2g')} over {removal['sentences']} sentences, "
            f"{cell(selected['p_draws'], '.2g')} over {removal['draws']} draws",
            f"signature: {result['signature']}",
            f"report: {result['report']}",
        ]
    )


command = atlas
