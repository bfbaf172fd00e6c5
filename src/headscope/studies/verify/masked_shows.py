"""What the tests of masks show alike: their verdict, outputs, tables by task, what weakens them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from headscope.evidence.blocks import (
    bars,
    draws_table,
    levels_table,
    parts_table,
    table_of_tests,
    verdict,
)
from headscope.evidence.rows import ORIGINAL, WHOLE, Condition, Evidence
from headscope.results.common import ComparedResult, Leakage
from headscope.results.mask_tests import TestedTask
from headscope.runs.reading import damaged_line, read_rows
from headscope.shown.blocks import Block, Cell, Row, Section, Table
from headscope.shown.words import arrow, count
from headscope.studies.shows import few_parts
from headscope.verify.masks.evidence import STATISTICS

Compared = TypeVar("Compared", bound=ComparedResult)
#: Examples whose outputs are shown, the letters of a text, and tasks that get a table each.
SHOWN, LETTERS, TABLES = 20, 160, 3


def concluded(
    result: Compared, main: Condition, cautions: Callable[[Compared], Iterator[str]]
) -> Compared:
    """The result with its verdict, of the loss, and what weakens it."""
    words = tuple(cautions(result))
    return replace(result, verdict=verdict(result.evidence, "nll", main), cautions=words)


def taken(evidence: Evidence, name: str, task: TestedTask) -> str | None:
    """The measure of outputs that stands for a task, if one was taken."""
    known = (each for each in task.main_measure if evidence.level(each, None, name) is not None)
    return next(known, None)


def effect(
    evidence: Evidence, main: Condition, tasks: Mapping[str, TestedTask], notes: Mapping[str, str]
) -> list[Block]:
    """The loss and the measures of outputs by task, as bars and as tables with the tests."""
    used = dict.fromkeys(filter(None, (taken(evidence, *each) for each in tasks.items())))
    blocks: list[Block] = []
    for name in ("nll", *used):
        own = evidence.statistics[name]
        title = f"{own.words[:1].upper()}{own.words[1:]} by task"
        note = notes.get(name, "")
        blocks += [
            bars(evidence, name, main, title, note),
            parts_table(evidence, name, main, f"{title}: values and tests", "examples", note),
        ]
    return blocks


def by_task(evidence: Evidence, names: Mapping[str, str]) -> Section:
    """Every measure under every condition: of few tasks each, of many their mean; `names` are what
    tables call tasks."""
    parts = evidence.single if len(evidence.single) <= TABLES else (WHOLE,)
    title = "Conditions"
    measured = [*STATISTICS]
    tables = [levels_table(evidence, measured, names.get(part, title), part=part) for part in parts]
    return Section(title, tables, brief=True)


def tests_sections(
    evidence: Evidence, main: Condition, tasks: Mapping[str, TestedTask]
) -> Iterator[Section]:
    """The tests of the loss and of outputs over all tasks, and every random draw."""
    used = filter(None, (taken(evidence, *each) for each in tasks.items()))
    names = dict.fromkeys(("nll", *used))
    if evidence.tests:
        yield Section("Tests", [table_of_tests(evidence, [*names])], brief=True)
    if evidence.controls:
        yield Section("Random masks", [draws_table(evidence, [*names], main)])


def few_examples(tasks: Mapping[str, TestedTask]) -> list[str]:
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


def outputs_section(run: Path, evidence: Evidence) -> list[Section]:
    """The first examples of each task under all conditions that were not drawn; none without."""
    wanted = [each for each in evidence.conditions if each.draw is None or each.kind == "foreign"]
    named = {each.id: _word(each) for each in wanted}
    tables = []
    for task in evidence.single:
        samples = _samples(run / "samples" / f"{task}.jsonl")
        shown = {key: word for key, word in named.items()
                 if any(key in outputs for _, _, outputs in samples)}  # fmt: skip
        rows = tuple(
            Row(
                _short(given),
                (
                    Cell(reference),
                    *(Cell(_short(outputs.get(key, "")) or "(nothing)") for key in shown),
                ),
            )
            for given, reference, outputs in samples
            if outputs
        )
        title = f"{arrow(task)}: outputs for the first {count(len(rows), 'example')}"
        if rows:
            tables.append(Table(title, ("reference", *shown.values()), rows))
    return [Section("Outputs", tables)] if tables else []


def _word(condition: Condition) -> str:
    if condition.kind == ORIGINAL or not condition.heads:
        return condition.kind
    return condition.id if condition.kind == "foreign" else condition.of or condition.kind


def _samples(file: Path) -> list[tuple[str, str, dict[str, str]]]:
    """The first examples of a task: input, reference, and outputs by the condition's id."""
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
