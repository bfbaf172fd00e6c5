"""What tests of masks show alike: conditions as tables and bars, and outputs of examples."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import nan
from pathlib import Path
from typing import Literal

from headscope.estimates import Against, Draws, Estimate
from headscope.results.common import Leakage
from headscope.results.mask_tests import AgainstDraws, Measure, Outcome, TaskOutcomes, mean_of
from headscope.runs.reading import damaged_line, read_rows
from headscope.shown.blocks import Bars, Cell, Row, Table, grid
from headscope.shown.words import count
from headscope.studies.comparison import Bar, Compared, Level, Scale, bars_of
from headscope.studies.shows import few_parts

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
#: Examples whose outputs are shown, and the letters of a text.
SHOWN, LETTERS = 20, 160
#: Conditions in words, single ones or random draws.
Conditions = Mapping[str, Sequence[Outcome]]


UNITS: Mapping[Measure, Scale] = {
    "nll": Scale("loss, nats a token", "the loss in nats a token", "", 3, to_100=False),
    "nll_tokens": Scale("loss over all tokens", unit="", digits=3, to_100=False),
    "perplexity": Scale("perplexity", unit="", digits=2, to_100=False),
    "rouge_l": Scale("ROUGE-L", unit=""),
    "chrf": Scale("chrF++", unit=""),
    "bleu": Scale("BLEU", unit=""),
    "bleu_published": Scale("BLEU as published", unit=""),
    "accuracy": Scale("right"),
    "accuracy_words": Scale("right as whole words"),
}


def conditions_of(task: TaskOutcomes) -> Conditions:
    """The conditions of a task in words, random draws of a kind under one name."""
    outcomes: dict[str, tuple[Outcome, ...]] = {}
    for each in task.undrawn:
        several = len(task.of_kind(each.kind)) > 1
        outcomes[f"{WORDS[each.kind]} ({each.name})" if several else WORDS[each.kind]] = (each,)
    return outcomes | {WORDS[kind]: draws for kind, draws in task.drawn.items()}


def compared_by(
    task: TaskOutcomes,
    outcome: Outcome,
    measure: Measure = "nll",
    kind: Literal["shuffled", "random"] = "shuffled",
    **minus: Mapping[str, Estimate] | None,
) -> Compared:
    """A condition against the original and its random draws; `minus` are further differences."""
    scale = UNITS[measure]
    kinds = kind, f"{kind}-layer-matched"
    values = [
        [each.value(measure) for each in task.of_kind(name) if each.of in (None, outcome.name)]
        for name in kinds
    ]
    drawn = [[nan if value is None else value for value in each] for each in values]
    free, matched = (_against(outcome, name, measure, len(each))
                     for name, each in zip(kinds, drawn, strict=True))  # fmt: skip
    return Compared(
        scale,
        outcome.changed(measure),
        task.base.level(measure),
        outcome.level(measure),
        (Draws.of(drawn[0]), Draws.of(drawn[1])),
        (free, matched),
        more={
            f"minus {name.replace('_', ' ')}": scale.gap((gaps or {}).get(measure))
            for name, gaps in minus.items()
        },
    )


def _against(outcome: Outcome, kind: str, measure: Measure, draws: int) -> Against | None:
    """A condition against its random draws of a kind; None where there are none."""
    control: AgainstDraws | None = getattr(outcome, f"{kind.replace('-', '_')}_draws")
    if control is None or measure not in control.against:
        return None
    distinct = draws if control.distinct_draws is None else control.distinct_draws
    p_examples, p_draws = control.p_examples.get(measure), control.p_draws[measure]
    return Against(control.against[measure], p_examples, p_draws, distinct, control.least_p)


def bars(title: str, groups: Mapping[str, Conditions], measure: Measure, note: str = "") -> Bars:
    """Bars of one measure, a group a task or a set of heads, random draws as rings."""

    def bar(outcomes: Sequence[Outcome]) -> Bar:
        values = [each.value(measure) for each in outcomes if each.draw is not None]
        return _level(outcomes, measure), [value for value in values if value is not None]

    shown = {
        name: {words: bar(outcomes) for words, outcomes in group.items() if outcomes}
        for name, group in groups.items()
    }
    return bars_of(title, shown, UNITS[measure], note=note)


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


def _level(outcomes: Sequence[Outcome], measure: Measure) -> Level:
    """The value of a measure, of several draws their mean without an interval."""
    if len(outcomes) == 1:
        return outcomes[0].level(measure)
    return mean_of(outcomes, measure)


def _cell(outcomes: Sequence[Outcome], measure: Measure) -> Cell:
    return UNITS[measure].cell(_level(outcomes, measure))


def few_examples(tasks: Mapping[str, TaskOutcomes]) -> list[str]:
    """A caution where tasks have few examples."""
    return few_parts({name: task.examples for name, task in tasks.items()}, "held-out examples")


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


def outputs_table(path: Path, name: str, task: TaskOutcomes) -> list[Table]:
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
