"""`headscope find translation-score`: how often each head looks at the right source word."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headscope.cli.commands import Study
from headscope.cli.output import cell
from headscope.recipes.find.translation import FindTranslation, find_translation


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


command = Study(FindTranslation, find_translation, _table)
