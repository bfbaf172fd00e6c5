"""What the pages of tests of a mask have in common: bars, tables and outputs of conditions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from headscope.report.charts import BarRow, bar_rows
from headscope.report.html import Child, Html, join, tag
from headscope.report.parts import figure, scroll, table
from headscope.report.records.mask_tests import Difference, Row, TaskTests, read_samples
from headscope.report.words import between, count, fixed, p_value

__all__ = [
    "DRAWN",
    "UNITS",
    "WORDS",
    "bars",
    "conditions_table",
    "gap_words",
    "main_measure",
    "outputs_table",
]

#: Conditions in words, by kind.
WORDS = {
    "as-is": "No instruction",
    "instructed": "Instructed",
    "masked": "Masked",
    "scaled": "Scaled mask",
    "hybrid": "Mask of several tasks",
    "foreign": "Mask of another task or model",
    "shuffled": "Shuffled masks",
    "shuffled-layer-matched": "Shuffled within each layer",
    "removed": "Shared heads removed",
    "random": "Random heads removed",
    "random-layer-matched": "Random heads of the same layers removed",
}
MARKS = {
    "as-is": "key-base",
    "instructed": "key-ta",
    "masked": "key-top",
    "scaled": "key-top",
    "removed": "key-top",
    "hybrid": "key-low",
    "foreign": "key-off",
}
DRAWN = {
    "shuffled": "key-random",
    "shuffled-layer-matched": "key-matched",
    "random": "key-random",
    "random-layer-matched": "key-matched",
}
#: Name, decimals and factor of each measure.
UNITS = {
    "nll": ("loss, nats a token", 3, 1.0),
    "nll_tokens": ("loss over all tokens", 3, 1.0),
    "perplexity": ("perplexity", 2, 1.0),
    "rouge_l": ("ROUGE-L", 1, 1.0),
    "chrf": ("chrF++", 1, 1.0),
    "bleu": ("BLEU", 1, 1.0),
    "bleu_published": ("BLEU as published", 1, 1.0),
    "accuracy": ("right, %", 1, 100.0),
    "accuracy_words": ("right as whole words, %", 1, 100.0),
}


def main_measure(task: TaskTests) -> str | None:
    """The measure of outputs that stands for a task, if one was taken."""
    names = ("chrf", "rouge_l") if task.translation else ("accuracy",)
    return next((name for name in names if task.rows[0].values[name] is not None), None)


def words_of(row: Row, rows: Sequence[Row]) -> str:
    """A condition in words, numbered where there are several of its kind."""
    alike = [one for one in rows if one.kind == row.kind and one.draw is None]
    said = WORDS.get(row.kind, row.kind)
    return f"{said} ({row.name})" if len(alike) > 1 else said


def bars(identifier: str, task: TaskTests, measure: str, caption: Child) -> Html:
    """Bars of one measure over all conditions, random draws as rings around their mean."""
    _, digits, factor = UNITS[measure]
    listed: list[BarRow] = []
    drawn: set[str] = set()
    for row in task.rows:
        value = row.values[measure]
        if row.draw is None:
            ends = row.intervals.get(measure)
            interval = None if ends is None else (factor * ends[0], factor * ends[1])
            shown = None if value is None else factor * value
            mark = MARKS.get(row.kind, "key-top")
            listed.append(BarRow(words_of(row, task.rows), shown, mark, (), interval))
        elif row.kind not in drawn:
            drawn.add(row.kind)
            values = [one.values[measure] for one in task.of_kind(row.kind)]
            known = [factor * one for one in values if one is not None]
            mean = sum(known) / len(known) if known else None
            words = f"{WORDS[row.kind]}, mean of {len(values)}"
            listed.append(BarRow(words, mean, DRAWN[row.kind], known))
    ends_at = [one.value for one in listed if one.value is not None]
    ends_at += [one.interval[1] for one in listed if one.interval is not None]
    ends_at += [point for one in listed for point in one.points]
    return figure(identifier, caption, bar_rows(listed, max(ends_at, default=1.0) or 1.0, digits))


def conditions_table(task: TaskTests, measures: Sequence[str]) -> Html:
    """Every condition with every measure and its interval; draws one by one."""
    taken = [name for name in measures if task.rows[0].values[name] is not None]
    rows = []
    for row in task.rows:
        name = words_of(row, task.rows) if row.draw is None else row.name
        cells: list[Child] = [name]
        for measure in taken:
            _, digits, factor = UNITS[measure]
            value, ends = row.values[measure], row.intervals.get(measure)
            shown = None if value is None else factor * value
            said = "" if ends is None else between(factor * ends[0], factor * ends[1], digits)
            cells.append(join(fixed(shown, digits), " ", tag("small", said)))
        rows.append(cells)
    grid = table(
        "All conditions; small numbers are 95\u00a0% intervals over examples",
        ["condition", *(UNITS[name][0] for name in taken)],
        rows,
        class_="numbers",
    )
    return scroll("All conditions", grid)


def gap_words(gap: Difference, digits: int, factor: float = 1.0) -> str:
    """A difference with its interval, with a sign."""
    sign = "+" if gap.value > 0 else ""
    ends = between(factor * gap.low, factor * gap.high, digits)
    return f"{sign}{fixed(factor * gap.value, digits)} (95\u00a0% interval {ends})"


def draws_words(row: Row, kind: str, measure: str) -> str:
    """The p-value over draws of a condition against one kind of random masks."""
    p = row.p_draws.get(kind, {}).get(measure)
    return "" if p is None else f"p over draws {p_value(p)}"


def outputs_table(path: Path, task: TaskTests) -> Html | None:
    """The first examples with what the model wrote under each condition that was not drawn."""
    samples = [one for one in read_samples(path, task.name) if one.outputs]
    if not samples:
        return None
    shown = [row for row in task.rows if row.draw is None]
    rows = [
        [
            tag("bdi", _short(sample.input)),
            tag("bdi", sample.reference),
            *(tag("bdi", _short(sample.outputs.get(row.name, ""))) for row in shown),
        ]
        for sample in samples
    ]
    grid = table(
        f"The first {count(len(rows), 'example')}",
        ["input", "right", *(words_of(row, task.rows) for row in shown)],
        rows,
    )
    return scroll("Outputs of the first examples", grid)


def _short(text: str) -> str:
    flat = " \u21b5 ".join(line for line in text.split("\n") if line.strip())
    return flat if len(flat) <= 160 else flat[:159] + "\u2026"
