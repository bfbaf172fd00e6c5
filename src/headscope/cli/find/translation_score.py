"""`headscope find translation-score`: how often each head looks at the right source word."""

from __future__ import annotations

from headscope.cli.output import cell
from headscope.heads import count_words
from headscope.results.translation import TranslationResult, TranslationScores
from headscope.studies.find.translation import FindTranslation, find_translation
from headscope.studies.study import Study


def _table(result: TranslationResult) -> str:
    """The three classes, the best heads, and where the rest is."""
    lines = [*class_lines(result), "head      score      low     high   chance   above"]
    for head in sorted(result.heads, key=lambda head: head.rank or 0)[:20]:
        names = ("score", "low", "high", "chance", "above_chance")
        numbers = "".join(f"{cell(head.number(name), '.4f'):>9}" for name in names)
        lines.append(f"{head.place!s:<6}{numbers}")
    return "\n".join([*lines, f"run: {result.run}"])


def class_lines(scores: TranslationScores) -> list[str]:
    """How many heads are in each class: by score minus chance, then by score as in the paper."""
    many = scores.counted_over
    mean = f" (mean of {many} directions)" if many > 1 else ""
    lines = []
    for by, counts in (
        ("score minus chance", scores.counts_above_chance),
        ("score, as in the paper", scores.counts),
    ):
        if counts is not None:
            aligned, low, idle = map(count_words, counts.each)
            lines.append(
                f"{aligned} token alignment heads by {by}, {low} of low activity, "
                f"{idle} inactive{mean}"
            )
    return lines


command = Study(FindTranslation, find_translation, _table)
