"""What tests of masks show alike: conditions as tables and bars, and outputs of examples."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import nan
from pathlib import Path
from typing import Literal, NamedTuple

from headscope.estimates import Against, Estimate
from headscope.results.common import Leakage
from headscope.results.mask_tests import AskedTask, BesideDraws, Measure, Outcome, mean_of
from headscope.runs.reading import damaged_line, read_rows
from headscope.shown.blocks import Bars, Cell, Row, Table, grid
from headscope.shown.words import between, count, fixed, signed
from headscope.studies.shows import against_cells

#: Conditions in words, by kind.
WORDS = {
    "as-is": "original, not instructed",
    "instructed": "original, instructed",
    "masked": "masked",
    "scaled": "scaled mask",
    "hybrid": "mask of several tasks",
    "foreign": "mask of another task or model",
    "shuffled": "random masks",
    "shuffled-layer-matched": "random masks, same layers",
    "removed": "selected heads removed",
    "random": "random heads removed",
    "random-layer-matched": "random heads removed, same layers",
}
#: Examples whose outputs are shown, the letters of a text, and how few examples are few.
SHOWN, LETTERS, FEW = 20, 160, 30
#: Conditions in words, single ones or random draws.
Conditions = Mapping[str, Sequence[Outcome]]


class Unit(NamedTuple):
    """A measure in words, with its decimals, its unit, and what its values are multiplied by."""

    words: str
    digits: int
    unit: str = ""
    factor: float = 1.0


UNITS: Mapping[Measure, Unit] = {
    "nll": Unit("loss, nats a token", 3),
    "nll_tokens": Unit("loss over all tokens", 3),
    "perplexity": Unit("perplexity", 2),
    "rouge_l": Unit("ROUGE-L", 1),
    "chrf": Unit("chrF++", 1),
    "bleu": Unit("BLEU", 1),
    "bleu_published": Unit("BLEU as published", 1),
    "accuracy": Unit("right", 1, "%", 100.0),
    "accuracy_words": Unit("right as whole words", 1, "%", 100.0),
}


def conditions_of(task: AskedTask) -> Conditions:
    """The conditions of a task in words, random draws of a kind under one name."""
    found: dict[str, tuple[Outcome, ...]] = {}
    for each in task.undrawn:
        several = len(task.of_kind(each.kind)) > 1
        found[f"{WORDS[each.kind]} ({each.name})" if several else WORDS[each.kind]] = (each,)
    return found | {WORDS[kind]: draws for kind, draws in task.drawn.items()}


def level(outcome: Outcome, measure: Measure) -> str:
    """The value of a measure in its unit."""
    unit = UNITS[measure]
    value = outcome.value(measure)
    words = fixed(None if value is None else unit.factor * value, unit.digits)
    return f"{words}\u00a0{unit.unit}" if unit.unit else words


def changed(gap: Estimate, measure: Measure = "nll") -> str:
    """A difference in a measure with its sign and interval."""
    unit = UNITS[measure]
    if not gap.known:
        return "not measured"
    value, low, high = (unit.factor * number for number in (gap.value, gap.low, gap.high))
    points = "\u00a0pp" if unit.unit == "%" else ""
    return f"{signed(value, unit.digits)}{points} (95\u00a0% CI {between(low, high, unit.digits)})"


def against_of(
    task: AskedTask, outcome: Outcome, kind: str = "shuffled", measure: Measure = "nll"
) -> Against | None:
    """A condition against its random draws of a kind in one measure; None where there are none."""
    draws: BesideDraws | None = getattr(outcome, f"{kind.replace('-', '_')}_draws")
    if draws is None or measure not in draws.against:
        return None
    distinct = draws.distinct_draws
    if distinct is None:
        distinct = sum(each.of in (None, outcome.name) for each in task.of_kind(kind))
    p_examples = draws.p_examples.get(measure)
    return Against(
        draws.against[measure], p_examples, draws.p_draws[measure], distinct, draws.least_p
    )


def against_kinds(
    task: AskedTask, outcome: Outcome, kind: Literal["shuffled", "random"]
) -> tuple[Cell, ...]:
    """The loss of a condition against free draws and draws of the same layers."""
    return tuple(
        cell
        for each in (kind, f"{kind}-layer-matched")
        for cell in against_cells(against_of(task, outcome, each))
    )


def against_columns(random: str) -> tuple[str, ...]:
    """What stands above these cells."""
    tests = ("p over examples", "p over draws")
    return (f"minus {random}", *tests, "minus random, same layers", *tests)


def least_words(draws: int, what: str, least: float) -> tuple[str, str]:
    """How low p over draws can be, and the option for more draws where that is above 0.05."""
    drawn = f" with {count(draws, what)} of a kind" if what else ""
    words = f"p over draws is at least {fixed(least, 3)}{drawn}."
    return words, "--draws 19" if least > 0.05 else ""


def bars(title: str, groups: Mapping[str, Conditions], measure: Measure, note: str = "") -> Bars:
    """Bars of one measure, a group a task or a set of heads, random draws as rings."""
    unit, share = UNITS[measure], measure not in ("nll", "nll_tokens", "perplexity")
    names = tuple(dict.fromkeys(name for each in groups.values() for name in each))
    cells = [[_cell(each.get(name, ()), measure) for name in names] for each in groups.values()]

    def single(outcomes: Sequence[Outcome]) -> tuple[float, ...]:
        values = [each.value(measure) for each in outcomes if each.draw is not None]
        return tuple(unit.factor * value for value in values if value is not None)

    return Bars(
        title,
        tuple(groups),
        names,
        tuple(tuple(_number(cell.value) for cell in row) for row in cells),
        f"{unit.words}, {unit.unit}" if unit.unit else unit.words,
        tuple(tuple(cell.low for cell in row) for row in cells),
        tuple(tuple(cell.high for cell in row) for row in cells),
        digits=unit.digits,
        note=note,
        draws=tuple(
            tuple(single(each.get(name, ())) for name in names) for each in groups.values()
        ),
        start=0.0 if share else None,
        end=100.0 if share else None,
    )


def conditions_table(
    title: str,
    conditions: Conditions,
    measures: Iterable[Measure],
    note: str = "",
    single: bool = False,
) -> Table:
    """Conditions with the measures that were taken, random draws as their mean or one by one."""
    (base,) = next(iter(conditions.values()))
    taken = [measure for measure in measures if base.value(measure) is not None]
    rows: dict[str, Sequence[Outcome]] = {}
    for name, outcomes in conditions.items():
        if outcomes[0].draw is None:
            rows[name] = outcomes
        elif single:
            rows |= {f"{name}, draw {each.draw}": (each,) for each in outcomes}
        else:
            rows[f"{name}, mean of {len(outcomes)}"] = outcomes
    made = tuple(
        Row(name, tuple(_cell(outcomes, measure) for measure in taken))
        for name, outcomes in rows.items()
    )
    return Table(title, tuple(UNITS[measure].words for measure in taken), made, note=note)


def overview(
    title: str, groups: Mapping[str, Conditions], measures: Mapping[str, Measure], note: str = ""
) -> Table:
    """Conditions by tasks, one measure each, random draws as their mean."""
    names = dict.fromkeys(name for task in measures for name in groups[task])
    alike = len(set(measures.values())) == 1
    columns = {
        task if alike else f"{task}, {UNITS[measure].words}": (task, measure)
        for task, measure in measures.items()
    }

    def cell(name: str, column: str) -> Cell:
        task, measure = columns[column]
        return replace(_cell(groups[task].get(name, ()), measure), low=None, high=None)

    return grid(title, names, columns, cell, note=note)


def _cell(outcomes: Sequence[Outcome], measure: Measure) -> Cell:
    """The value of a measure, of several draws their mean without an interval."""
    unit, mean = UNITS[measure], mean_of(outcomes, measure)
    level = Estimate(nan if mean is None else mean)
    if len(outcomes) == 1:
        level = outcomes[0].level(measure)
    return Cell.of(level, unit.digits, unit.unit, unit.factor)


def _number(value: float | str | None) -> float | None:
    return None if isinstance(value, str) else value


def few_examples(tasks: Mapping[str, AskedTask]) -> list[str]:
    """A caution where tasks have few examples."""
    few = [f"{name} {task.examples}" for name, task in tasks.items() if task.examples < FEW]
    return [f"Few held-out examples: {', '.join(few)}."] if few else []


def trained_on_caution(leakage: Leakage, whose: str) -> list[str]:
    """What it means that a mask was trained on test examples, or that this is not known."""
    if not leakage.known:
        return [f"Whether {whose} was trained on these examples is not known."]
    if leakage.overlap:
        return [
            f"{whose[:1].upper()}{whose[1:]} was trained on {leakage.overlap} of "
            f"{count(leakage.of, 'test example')}, so its effect is overestimated."
        ]
    return []


def outputs_table(path: Path, name: str, task: AskedTask) -> list[Table]:
    """The first examples with the outputs of all conditions that were not drawn; none without."""
    named = {outcome.name: words for words, (outcome, *_) in conditions_of(task).items()}
    shown = {row.name: named[row.name] for row in task.undrawn}
    rows = tuple(
        Row(
            _short(given),
            (
                Cell(reference),
                *(Cell(_short(outputs.get(key, "")) or "(nothing)") for key in shown),
            ),
        )
        for given, reference, outputs in _samples(path / "samples" / f"{name}.jsonl")
        if outputs
    )
    columns = ("reference", *shown.values())
    title = f"{name}: outputs for the first {count(len(rows), 'example')}"
    return [Table(title, columns, rows)] if rows else []


def _samples(file: Path) -> list[tuple[str, str, dict[str, str]]]:
    """The first examples of a task: input, reference, and outputs by the condition's name."""
    samples: dict[str, tuple[str, str, dict[str, str]]] = {}
    for number, row in read_rows(file):
        try:
            identifier = row["id"]
            if identifier not in samples and len(samples) == SHOWN:
                continue
            sample = samples.setdefault(identifier, (row["input"], row["reference"], {}))
            if row["output"] is not None:
                sample[2][row["condition"]] = row["output"]
        except (KeyError, TypeError) as error:
            raise damaged_line(file, number) from error
    return list(samples.values())


def _short(text: str) -> str:
    flat = " \u21b5 ".join(line for line in text.split("\n") if line.strip())
    return flat if len(flat) <= LETTERS else flat[: LETTERS - 1] + "\u2026"
