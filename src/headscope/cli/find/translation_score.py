"""`headscope find translation-score`: how often each head looks at the right source word."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headscope.cli import options
from headscope.cli.groups import (
    baseline_rules,
    model_choice,
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
    model=model_choice, pairs=pairs_choice, score=translation_score_choice, baseline=baseline_rules
)
def translation_score(
    model: ModelChoice,
    pairs: PairsChoice,
    score: TranslationScore,
    baseline: Rules,
    threshold: options.Threshold = 0.1,
    out: options.OutFolder = None,
    as_json: options.AsJson = False,
) -> None:
    """Score every head by how often its peak falls on the aligned source word.

    Without --data the bundled model is scored on its own development sentences.
    """
    from headscope.cli.models import hide_loading_bars
    from headscope.recipes.find.translation import FindTranslation, find_translation

    hide_loading_bars()
    with progress() as update:
        result = find_translation(
            FindTranslation(model, pairs, score, threshold, baseline), out, update
        )
    emit(result, as_json, _table(result))


def _table(result: dict[str, Any], rows: int = 20) -> str:
    """The best heads, the three classes, and where the rest is."""
    lines = ["head      score      low     high   chance"]
    for one in result["heads"][:rows]:
        name = f"{one['layer']}.{one['head']}"
        numbers = "".join(
            f"{cell(one.get(key), '.4f'):>9}" for key in ("score", "low", "high", "chance")
        )
        lines.append(f"{name:<6}{numbers}")
    counts = ", ".join(f"{count} {name}" for name, count in result["counts"].items())
    lines += [counts.replace("_", " "), f"run: {result['run']}"]
    return "\n".join(lines)
