"""What translation scores show: how many heads align tokens, their classes, and every head."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import ceil

from headscope.heads import count_words
from headscope.results.classes import Classes
from headscope.results.common import ScoredHead
from headscope.results.translation import TranslationScores
from headscope.shown.blocks import Cell, Column, HeadTable, Row, Table
from headscope.shown.words import MEAN, between, direction_label, fixed, percent, ranges
from headscope.studies.shows import head_table

__all__ = [
    "alignment",
    "classes_by_direction",
    "classes_table",
    "ranked_heads",
    "scores_table",
    "strongest",
]

CLASSES = ("token alignment", "low activity", "inactive")
SCORE = Column("score", "TS", "Translation Score")
FORMS = (
    Column("identical", "Same form", "TS where source and target word have the same form"),
    Column("different", "Other form", "TS where source and target word differ"),
)


def alignment(result: TranslationScores) -> str:
    """How many heads are token alignment heads, corrected for chance and by score alone."""
    total, plain, above = len(result.heads), result.counts, result.counts_above_chance
    corrected = result.rank == "above-chance" and above is not None
    counts = above if above is not None and corrected else plain
    many = result.counted_over
    mean = f", mean of {many} directions" if many > 1 else ""
    words = (
        f"{count_words(counts.token_alignment)} of {total} heads "
        f"({percent(counts.token_alignment / total)}{mean}) are token alignment heads: their "
        f"attention peak is on the aligned source word for more than {percent(result.threshold)} "
        f"of target tokens{', corrected for chance' if corrected else ''}"
    )
    if corrected:
        words += f"; by score alone, as published, {count_words(plain.token_alignment)}"
    elif above is not None:
        words += f"; corrected for chance, {count_words(above.token_alignment)}"
    key = "above_chance" if corrected else "score"
    layers = [h.layer for h in result.heads if (h.number(key) or 0.0) > result.threshold]
    return f"{words}.{f' They are in layers {ranges(layers)}.' if layers else ''}"


def strongest(result: TranslationScores) -> str:
    """The highest head with its score, interval and chance."""
    head = ranked_heads(result)[0]
    words = f"The highest is head {head.place}: TS {fixed(head.score, 2)}"
    if head.low is not None:
        words += f" (95\u00a0% CI {between(head.low, head.high, 2)})"
    chance = head.number("chance")
    return f"{words}{'' if chance is None else f', {fixed(chance, 2)} by chance'}."


def ranked_heads(result: TranslationScores) -> list[ScoredHead]:
    """All heads, highest first by what they are ranked by."""
    key = "above_chance" if result.rank == "above-chance" else "score"
    return sorted(result.heads, key=lambda head: (head.rank or 0, -(head.number(key) or 0.0)))


def _parts(
    result: TranslationScores, directions: Mapping[str, TranslationScores]
) -> dict[str, TranslationScores]:
    """The mean first where there are several directions."""
    return {MEAN: result, **directions} if len(directions) > 1 else dict(directions)


def classes_table(result: TranslationScores) -> Table:
    """Heads of each class, corrected for chance and by score alone."""
    ways = {"TS \u2212 chance": result.counts_above_chance, "TS, as published": result.counts}
    rows = tuple(Row(way, _counts(counts)) for way, counts in ways.items() if counts is not None)
    threshold, inactive = fixed(result.threshold, 2), fixed(result.inactive, 2)
    return Table(
        "Classes of heads",
        CLASSES,
        rows,
        note=f"Token alignment: above {threshold}; inactive: at most {inactive}; low activity: "
        "between. The cuts divide a continuous scale: heads near them may change class with other "
        "sentences",
    )


def classes_by_direction(
    result: TranslationScores, directions: Mapping[str, TranslationScores]
) -> Table:
    """The classes of the mean of counts and of every direction."""
    parts = _parts(result, directions)
    chance = any(part.counts_above_chance for part in parts.values())
    rows = tuple(
        Row(
            direction_label(name, len(directions)),
            (
                *(_counts(part.counts_above_chance) if chance else ()),
                *_counts(part.counts),
            ),
        )
        for name, part in parts.items()
    )
    ways = ("TS \u2212 chance", "TS") if chance else ("TS",)
    columns = tuple(f"{name}, {way}" for way in ways for name in CLASSES)
    return Table("Classes of heads by direction", columns, rows)


def _counts(counts: Classes | None) -> tuple[Cell, ...]:
    """Numbers of heads, which of a mean need not be whole."""
    each = (None,) * 3 if counts is None else counts.each
    return tuple(Cell(int(n) if n is not None and n == int(n) else n, digits=1) for n in each)


def scores_table(
    result: TranslationScores, directions: Mapping[str, TranslationScores]
) -> HeadTable:
    """Every head of the mean and of each direction: TS, chance, interval, words of each form."""
    parts = {name: part.heads for name, part in _parts(result, directions).items()}
    highest = max((h.score or 0.0 for part in parts.values() for h in part), default=0.0)
    corrected = result.rank == "above-chance"
    block = head_table(
        "Every head by TS \u2212 chance" if corrected else "Every head by TS",
        parts,
        FORMS,
        SCORE,
        ranked_by="above_chance" if corrected else "score",
        threshold=result.threshold,
        classes=(
            ("token alignment", result.threshold),
            ("low activity", result.inactive),
            ("inactive", None),
        ),
        high=max(ceil(10 * highest - 1e-9) / 10, 2 * result.threshold, 0.1),
        note="TS: share of target tokens for which the key with the most weight, at the step that "
        "predicts the token, is on the aligned source word. Chance: the same peaks scored with "
        "links of other sentences of similar length. Same and other form: TS on words spelled like "
        "their source word, which copying alone can hit, and on others. Intervals are over "
        "sentences",
    )
    named = (
        replace(column, title="TS \u2212 chance") if column.key == "above_chance" else column
        for column in block.columns
    )
    return replace(block, columns=tuple(named))
