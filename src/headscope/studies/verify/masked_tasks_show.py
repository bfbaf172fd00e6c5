"""What the tests of masks show alike beside their tables: outputs, heads, what weakens them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from headscope.evidence.rows import ORIGINAL, Condition, Evidence
from headscope.results.attention import AttendedTask
from headscope.results.common import Leakage
from headscope.results.masked_tasks import TestedTask
from headscope.runs.reading import damaged_line, read_rows
from headscope.shown.blocks import Cell, Row, Section, Table
from headscope.shown.words import arrow, count
from headscope.studies.shows import few_parts

#: Examples whose outputs are shown, and the letters of a text.
SHOWN, LETTERS = 20, 160


def mask_heads(
    main: Condition, tasks: Mapping[str, TestedTask] | Mapping[str, AttendedTask]
) -> dict[str, Sequence[str]]:
    """The heads that each task's mask removes."""
    return {arrow(name): task.heads.get(main.id, main.heads) for name, task in tasks.items()}


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
    shown_outputs = []
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
            shown_outputs.append(Table(title, ("reference", *shown.values()), rows))
    return [Section("Outputs", shown_outputs)] if shown_outputs else []


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
