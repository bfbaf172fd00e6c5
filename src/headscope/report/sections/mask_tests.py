"""What the pages of tests of a mask have in common: bars, tables and outputs of conditions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import isnan
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from headscope.estimates import Estimate, known
from headscope.report.charts import BarRow, bar_rows
from headscope.report.html import Child, Html, join, tag
from headscope.report.parts import figure, scroll, table
from headscope.results.mask_tests import AskedTask, Measure, Outcome
from headscope.runs.reading import damaged_line, read_rows
from headscope.shown.words import between, count, fixed

__all__ = [
    "UNITS",
    "WORDS",
    "bars",
    "conditions_table",
    "gap_words",
    "outputs_table",
    "value_words",
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
#: Examples whose outputs a page shows.
SHOWN = 20


class Unit(NamedTuple):
    """A measure in words, with its decimals and what its values are multiplied by."""

    words: str
    digits: int
    factor: float = 1.0


UNITS: Mapping[Measure, Unit] = {
    "nll": Unit("loss, nats a token", 3),
    "nll_tokens": Unit("loss over all tokens", 3),
    "perplexity": Unit("perplexity", 2),
    "rouge_l": Unit("ROUGE-L", 1),
    "chrf": Unit("chrF++", 1),
    "bleu": Unit("BLEU", 1),
    "bleu_published": Unit("BLEU as published", 1),
    "accuracy": Unit("right, %", 1, 100.0),
    "accuracy_words": Unit("right as whole words, %", 1, 100.0),
}


def words_of(outcome: Outcome, task: AskedTask) -> str:
    """A condition in words, numbered where there are several of its kind."""
    words = WORDS.get(outcome.kind, outcome.kind)
    return f"{words} ({outcome.name})" if len(task.of_kind(outcome.kind)) > 1 else words


def value_words(outcome: Outcome, measure: Measure) -> str:
    """The value of a measure in its unit."""
    return fixed(known(_level(outcome, measure).value), UNITS[measure].digits)


def gap_words(gap: Estimate, measure: Measure = "nll") -> str:
    """A difference in a measure with its interval, with a sign."""
    own, digits = _in_unit(gap, measure), UNITS[measure].digits
    sign = "+" if own.value > 0 else ""
    ends = between(known(own.low), known(own.high), digits)
    return f"{sign}{fixed(known(own.value), digits)} (95\u00a0% interval {ends})"


def _in_unit(estimate: Estimate, measure: Measure) -> Estimate:
    factor = UNITS[measure].factor
    return Estimate(factor * estimate.value, factor * estimate.low, factor * estimate.high)


def _level(outcome: Outcome, measure: Measure) -> Estimate:
    return _in_unit(outcome.level(measure), measure)


def bars(identifier: str, task: AskedTask, measure: Measure, caption: Child) -> Html:
    """Bars of one measure over all conditions, random draws as rings around their mean."""
    rows, ends = [], [0.0]
    for outcome in task.undrawn:
        level = _level(outcome, measure)
        interval = None if isnan(level.low) else (level.low, level.high)
        mark = MARKS.get(outcome.kind, "key-top")
        rows.append(BarRow(words_of(outcome, task), known(level.value), mark, (), interval))
        ends += [end for end in (level.value, level.high) if not isnan(end)]
    for kind, draws in task.drawn.items():
        points = [_level(draw, measure).value for draw in draws]
        words = f"{WORDS[kind]}, mean of {len(draws)}"
        rows.append(BarRow(words, fmean(points), DRAWN[kind], points))
        ends += points
    return figure(identifier, caption, bar_rows(rows, max(ends) or 1.0, UNITS[measure].digits))


def conditions_table(task: AskedTask, measures: Sequence[Measure]) -> Html:
    """Every condition with every measure and its interval; draws one by one."""
    taken = [measure for measure in measures if task.first_taken(measure)]

    def shown(outcome: Outcome, measure: Measure) -> Html:
        level = _level(outcome, measure)
        ends = "" if isnan(level.low) else between(level.low, level.high, UNITS[measure].digits)
        return join(value_words(outcome, measure), " ", tag("small", ends))

    rows: list[list[Child]] = [
        [
            words_of(outcome, task) if outcome.draw is None else outcome.name,
            *(shown(outcome, measure) for measure in taken),
        ]
        for outcome in task.conditions
    ]
    grid = table(
        "All conditions; small numbers are 95\u00a0% intervals over examples",
        ["condition", *(UNITS[measure].words for measure in taken)],
        rows,
        class_="numbers",
    )
    return scroll("All conditions", grid)


def outputs_table(path: Path, name: str, task: AskedTask) -> Html | None:
    """The first examples with what the model wrote under each condition that was not drawn."""
    rows = [
        [
            tag("bdi", _short(sample.input)),
            tag("bdi", sample.reference),
            *(tag("bdi", _short(sample.outputs.get(row.name, ""))) for row in task.undrawn),
        ]
        for sample in _samples(path / "samples" / f"{name}.jsonl")
        if sample.outputs
    ]
    if not rows:
        return None
    grid = table(
        f"The first {count(len(rows), 'example')}",
        ["input", "right", *(words_of(outcome, task) for outcome in task.undrawn)],
        rows,
    )
    return scroll("Outputs of the first examples", grid)


class _Sample(NamedTuple):
    """An example with what was written under each condition, by the condition's name."""

    input: str
    reference: str
    outputs: dict[str, str]


def _samples(file: Path) -> Iterable[_Sample]:
    """The first examples of a task."""
    samples: dict[str, _Sample] = {}
    for number, row in read_rows(file):
        try:
            identifier = row["id"]
            if identifier not in samples and len(samples) == SHOWN:
                continue
            sample = samples.setdefault(identifier, _Sample(row["input"], row["reference"], {}))
            if row["output"] is not None:
                sample.outputs[row["condition"]] = row["output"]
        except (KeyError, TypeError) as error:
            raise damaged_line(file, number) from error
    return samples.values()


def _short(text: str) -> str:
    flat = " \u21b5 ".join(line for line in text.split("\n") if line.strip())
    return flat if len(flat) <= 160 else flat[:159] + "\u2026"
