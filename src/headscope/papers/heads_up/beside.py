"""Our figures of a run as cells, and the published ones beside them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from headscope.data.tasks import read_task
from headscope.errors import InputError
from headscope.papers.heads_up.asked import Asked, word_tasks
from headscope.papers.paper import Setting, decided
from headscope.papers.published import (
    examples_digest,
    paper_model,
    paper_tasks,
    published,
    reference,
    value,
)
from headscope.shown.blocks import NOT_RUN, Cell, Reference

NAME = "heads-up"
#: The paper's main model, whose values stand beside those of models that it does not have.
MAIN = "Llama-3.1-8B-Instruct"
#: The condition under the mask of another model.
ANOTHER = "mask of another model"
#: The paper gives shares where our measures are from 0 to 100.
SCALE = {"rouge_l": 0.01, "bleu_published": 0.01}


@dataclass(frozen=True)
class Beside:
    """The published figures that stand beside a table of ours.

    Attributes:
        table: the paper's table.
        reference: where its figures come from, and whether ours may be compared with them.
    """

    table: str
    reference: Reference

    def value(self, row: str, column: str, measure: str) -> float | None:
        """The published figure of this place, or None."""
        return value(
            NAME, self.table, model=self.reference.model, row=row, column=column, measure=measure
        )


def partner(place: Beside, other: str | None) -> str | None:
    """The row of the published mask of the other model: of an instructed model's base, or reverse.

    `other` is the model whose mask is ours; None if it is another one than the paper's. Without
    one, the published figures stand alone.
    """
    shown = place.reference.model
    base = shown.removesuffix("-Instruct")
    theirs = f"{shown}-Instruct" if base == shown else base
    if other is not None and paper_model(NAME, other) != theirs:
        return None
    return f"mask of {theirs}"


def published_of(
    place: Beside, name: str, column: str, measure: str, other: str | None
) -> float | None:
    """The published figure of a condition; of another model's mask if `other` is that one."""
    row = partner(place, other) if name == ANOTHER else name
    return None if row is None else place.value(row, column, measure)


def beside(
    setting: Setting,
    tables: str | Mapping[str, str],
    data: str | None = None,
    main: str = MAIN,
    *,
    other: str = "",
) -> Beside:
    """What stands beside a table: one of the paper's, or that of the model by its name.

    `data` names the sentences that the paper measured on, whose content is not known here, so that
    no sentences count as the same; without it those word tasks are compared that the table has, by
    their examples. `main` is the model whose values stand beside those of models that it does not
    have. `other` says why ours is another quantity, whatever the data.
    """
    model = setting.model.model
    own = paper_model(NAME, model)
    table = tables if isinstance(tables, str) else tables.get(own or MAIN, tables[MAIN])
    differs = [other] if other else []
    if data is not None:
        differs.append(f"sentences not known by content to be {data}'s")
        differs += ["our instructions"] if setting.pocket else []
    elif not other:
        names = {one.column for one in published(NAME) if one.table == table}
        shown = [one for one in word_tasks(setting) if setting.pocket or one.name in names]
        strange = [task.name for task in shown if not _of_paper(task)]
        differs += [f"other examples of {listed(strange)}"] if strange else []
    differs += decided(setting)
    return Beside(table, reference(NAME, table, model, default=main, differs=differs))


def _of_paper(task: Asked) -> bool:
    """Whether a task has the examples of the paper's task of this name."""
    theirs = paper_tasks().get(task.name)
    if theirs is None or not task.choice.task or not Path(task.choice.task[0]).is_file():
        return False
    try:
        examples = read_task(task.choice.task[0]).examples
    except InputError:  # the step that reads it says why
        return False
    return examples_digest((one.input, one.output) for one in examples) == theirs.digest


def not_run(published: float | str | None = None, why: str = NOT_RUN, digits: int = 3) -> Cell:
    """A cell without a figure of ours."""
    return Cell(None, published=published, why=why, digits=digits)


def task_of(result: Mapping[str, Any] | None, task: str) -> Mapping[str, Any]:
    """What a result says of one task; empty without a result."""
    return {} if result is None else result["tasks"].get(task, {})


def conditions(result: Mapping[str, Any] | None, task: str) -> Sequence[Mapping[str, Any]]:
    """The conditions of one task; none without a result."""
    found: Sequence[Mapping[str, Any]] = task_of(result, task).get("conditions", ())
    return found


def condition(result: Mapping[str, Any] | None, task: str, name: str) -> Mapping[str, Any] | None:
    """One condition of one task, by its name; None where it was not measured."""
    return next((row for row in conditions(result, task) if row["name"] == name), None)


def cell(
    row: Mapping[str, Any] | None,
    measure: str,
    published: float | str | None = None,
    why: str = NOT_RUN,
    digits: int = 3,
) -> Cell:
    """A measure of a condition with its interval, on the paper's scale."""
    if row is None or row.get(measure) is None:
        return not_run(published, why, digits)
    scale = SCALE.get(measure, 1.0)
    interval = row.get("intervals", {}).get(measure, {})
    low, high = interval.get("low"), interval.get("high")
    return Cell(
        row[measure] * scale,
        None if low is None else low * scale,
        None if high is None else high * scale,
        published,
        digits=digits,
    )


def mean_cell(
    rows: Iterable[Mapping[str, Any]],
    measure: str,
    published: float | None = None,
    digits: int = 3,
) -> Cell:
    """The plain mean of several draws, without an interval; not run where there is none."""
    values = [row[measure] for row in rows if row.get(measure) is not None]
    if not values:
        return not_run(published, digits=digits)
    return Cell(fmean(values) * SCALE.get(measure, 1.0), published=published, digits=digits)


def heads_cell(setting: Setting, step: str, published: float | None = None) -> Cell:
    """How many heads the mask of this step keeps."""
    result = setting.result(step)
    if result is None:
        return not_run(published, digits=0)
    return Cell(result["selected"], published=published, digits=0)


def changed(
    row: Mapping[str, Any] | None, measure: str, to: str = "change"
) -> Mapping[str, float] | None:
    """The paired difference of a condition to what it is compared with: value, low and high."""
    if row is None:
        return None
    found: Mapping[str, float] | None = (row.get(to) or {}).get(measure)
    return found


def listed(names: Iterable[str]) -> str:
    """Names as they stand in a sentence: `a, b and c`."""
    every = list(names)
    return " and ".join([", ".join(every[:-1]), every[-1]] if len(every) > 1 else every)
