"""Tables 2 and 32 to 35: masks of word tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headscope.recipes.papers.heads_up.asked import NO_TASKS, Asked, chosen, too_few, word_tasks
from headscope.recipes.papers.heads_up.asked import TABLE_2 as DEFAULT
from headscope.recipes.papers.heads_up.beside import ANOTHER, beside, cell, not_run, published_of
from headscope.recipes.papers.heads_up.steps import (
    mask_name,
    mask_step,
    proof_name,
    proof_step,
    slug,
    swap_name,
    swap_step,
)
from headscope.recipes.papers.heads_up.translation import (
    GIVE_OTHER,
    NO_OTHER,
    of_tasks,
    others_of,
    proof_rows,
)
from headscope.recipes.papers.heads_up.verdict import (
    Verdict,
    bars,
    published_reached,
    reached,
    share,
    summary,
    sureness,
    values,
    verdict,
    way,
)
from headscope.recipes.papers.paper import Experiment, Missing, Needed, Setting, Step
from headscope.recipes.papers.told import Cell, Row, Table, Told

__all__ = ["TABLE_2", "instructions", "same_task"]

_MODELS = ("Llama-3.1-8B-Instruct", "Llama-3.1-8B", "Qwen2.5-7B-Instruct", "Qwen2.5-7B")
ACCURACY = {model: f"Table {32 + at}" for at, model in enumerate(_MODELS)}
#: The rows of Table 2, by the paper's names.
ROWS = ("original", "instructed", "random mask", "mask")
#: The bundled model's tasks that are the paper's under another name.
SAME = {
    "plural-en": "singular-plural",
    "translate-en-de": "english-german",
    "past-en": "present-past",
    "capital": "country-capital",
}


def _steps(setting: Setting) -> tuple[Step, ...] | Missing:
    every = word_tasks(setting)
    if not every:
        return Missing(*NO_TASKS)
    found = []
    for task in every:
        found += [mask_step(setting, task), proof_step(setting, task)]
    for other in _others(setting):
        for task in every:
            found += [mask_step(setting, task, other=other), swap_step(setting, task, other)]
    return tuple(found)


def _needs(setting: Setting, element: str, steps: Sequence[Step]) -> Needed:
    few, first = (too_few(setting, names, words=True) for names in ((), DEFAULT))
    return of_tasks(setting, element, steps, (ACCURACY,), few, first)


def same_task(setting: Setting, task: Asked) -> str:
    """What the paper calls a task; other names are the bundled model's own tasks alone."""
    return task.name if setting.data.tasks else SAME.get(task.name, task.name)


def instructions(setting: Setting) -> str:
    """Whose words the instructions of word tasks are."""
    if setting.pocket and not setting.data.tasks:
        return "The instructions of word tasks are the bundled model's."
    return (
        "The instructions of word tasks of the paper are its own (Table 10), those of others ours."
    )


def _others(setting: Setting) -> tuple[str, ...]:
    return others_of(setting) if setting.data.tasks else ()


def _rows(setting: Setting, task: Asked) -> dict[str, Any]:
    other = next(iter(_others(setting)), None)
    foreign = None if other is None else swap_name(task, other)
    return proof_rows(setting, task, proof_name(task), foreign)


def _tell(setting: Setting) -> Told:
    every = word_tasks(setting)
    rows = {task.name: _rows(setting, task) for task in every}
    own = {task.name: rows[task.name] for task in chosen(every)}
    right = verdict(own, "accuracy", higher=True)
    chart = bars("Accuracy in each word task", own, "accuracy", "share of right answers")
    return Told(
        (_main(setting, chosen(every), rows), _full(setting, every, rows)),
        () if chart is None else (chart,),
        found=_found(setting, right),
        sure=sureness(right, "task", "accuracy", "higher"),
        more={
            "not_run": [name for name, one in rows.items() if one["mask"] is None],
            "answer": summary(right, "word tasks", "task", "accuracy"),
        },
    )


def _main(setting: Setting, shown: Sequence[Asked], rows: Mapping[str, Any]) -> Table:
    """Table 2: heads and accuracy of the chosen tasks; of the paper's six what it published."""
    names = [task.name for task in shown]
    place = beside(setting, "Table 2")
    heads = []
    other = next(iter(_others(setting)), None)
    for task in shown:
        result = setting.result(mask_name(task))
        theirs = place.value("mask", task.name, "heads")
        heads.append(
            not_run(theirs, digits=0)
            if result is None
            else Cell(result["selected"], published=theirs, digits=0)
        )
    return Table(
        "Masks of word tasks",
        tuple(names),
        (
            Row("heads in the mask", tuple(heads)),
            *(
                Row(
                    f"accuracy, {name}",
                    tuple(
                        _cell(rows[task], name, published_of(place, name, task, "accuracy", other))
                        for task in names
                    ),
                )
                for name in (*ROWS, ANOTHER)
            ),
            Row(
                "accuracy without echoes, mask",
                tuple(cell(rows[task]["mask"], "accuracy_words") for task in names),
            ),
        ),
        place.reference,
        "An answer counts as right where it stands among ten tokens that are written, as in the "
        "paper (of some tasks only at the start); without echoes, where it is a word of its own. "
        + instructions(setting)
        + (f" The other model is {slug(other)}." if other else f" {GIVE_OTHER}"),
    )


def _cell(rows: Mapping[str, Any], name: str, published: float | None) -> Cell:
    if name == "random mask":
        values_ = [row["accuracy"] for row in rows[name] if row.get("accuracy") is not None]
        if not values_:
            return not_run(published)
        return Cell(sum(values_) / len(values_), published=published)
    if name == ANOTHER and name not in rows:
        return not_run(published, NO_OTHER)
    return cell(rows[name], "accuracy", published)


def _full(setting: Setting, every: Sequence[Asked], rows: Mapping[str, Any]) -> Table:
    """Tables 32 to 35: every task in a row of its own."""
    place = beside(setting, ACCURACY)
    other = next(iter(_others(setting)), None)
    names = (*ROWS, ANOTHER)
    return Table(
        "Accuracy of every word task",
        names,
        tuple(
            Row(
                task.name,
                tuple(
                    _cell(
                        rows[task.name],
                        name,
                        published_of(place, name, same_task(setting, task), "accuracy", other),
                    )
                    for name in names
                ),
            )
            for task in every
        ),
        place.reference,
        "Beside the bundled model's tasks stand the paper's of the same kind: "
        + ", ".join(f"{own} and {theirs}" for own, theirs in SAME.items())
        + "."
        if setting.pocket and not setting.data.tasks
        else "",
    )


def _found(setting: Setting, right: Verdict) -> str:
    if not right.ran:
        return ""
    theirs = published_reached(beside(setting, ACCURACY), "accuracy", True)
    return (
        f"Without an instruction the mask answers more words rightly than the whole model in "
        f"{share(right.better, right.ran, 'task')}{values(right)}{way(right)}. "
        f"{reached(right, 'task', 'accuracy', theirs)}"
    )


TABLE_2 = Experiment(
    "table-2",
    ("Table 2", *(f"Table {number}" for number in range(32, 36))),
    "Masks that make the model do word tasks without being told",
    _steps,
    _tell,
    _needs,
)
