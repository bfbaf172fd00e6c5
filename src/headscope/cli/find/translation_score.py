"""`headscope find translation-score`: how often each head looks at the right source word."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from headscope.cli import old_options as options
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
    inactive: options.Inactive = 0.0,
    rank: options.Rank = "above-chance",
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
        config = FindTranslation(model, pairs, score, threshold, rank, inactive, baseline)
        result = find_translation(config, out, update)
    emit(result, as_json, _table(result))


def _table(result: dict[str, Any], rows: int = 20) -> str:
    """The three classes, the best heads, and where the rest is."""
    lines = [*class_lines(result), "head      score      low     high   chance   above"]
    for one in sorted(result["heads"], key=lambda one: int(one["rank"]))[:rows]:
        name = f"{one['layer']}.{one['head']}"
        names = ("score", "low", "high", "chance", "above_chance")
        numbers = "".join(f"{cell(one.get(key), '.4f'):>9}" for key in names)
        lines.append(f"{name:<6}{numbers}")
    return "\n".join([*lines, f"run: {result['run']}"])


def class_lines(result: Mapping[str, Any]) -> list[str]:
    """How many heads are in each class: by score minus chance, then by score as in the paper."""
    from headscope.heads import count_words

    many = result["counted_over"]
    mean = f" (mean of {many} directions)" if many > 1 else ""
    lines = []
    for by, counts in (
        ("score minus chance", result["counts_above_chance"]),
        ("score, as in the paper", result["counts"]),
    ):
        if counts is not None:
            aligned, low, idle = (count_words(number) for number in counts.values())
            lines.append(
                f"{aligned} token alignment heads by {by}, {low} of low activity, "
                f"{idle} inactive{mean}"
            )
    return lines


command = translation_score
