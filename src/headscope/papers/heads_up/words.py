"""Tables 2 and 32 to 35: masks of word tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headscope.papers.claims import with_claims
from headscope.papers.heads_up.asked import NO_TASKS, Asked, chosen, too_few, word_tasks
from headscope.papers.heads_up.asked import TABLE_2 as DEFAULT
from headscope.papers.heads_up.beside import ANOTHER, beside, cell
from headscope.papers.heads_up.translation import (
    CONDITIONS,
    ONCE,
    beside_others,
    of_tasks,
    other_note,
    task_lines,
    task_rows,
    told,
)
from headscope.papers.heads_up.verdict import (
    bars,
    published_reached,
    without_instruction,
    words_of,
)
from headscope.papers.paper import Experiment, Missing, Needed, Setting, Step
from headscope.shown.blocks import Cell, Findings, Row, Table, grid

_MODELS = ("Llama-3.1-8B-Instruct", "Llama-3.1-8B", "Qwen2.5-7B-Instruct", "Qwen2.5-7B")
ACCURACY = {model: f"Table {32 + at}" for at, model in enumerate(_MODELS)}
#: The bundled model's tasks that are the paper's under another name.
SAME = {
    "plural-en": "singular-plural",
    "translate-en-de": "english-german",
    "past-en": "present-past",
    "capital": "country-capital",
}


def _steps(setting: Setting) -> tuple[Step, ...] | Missing:
    every = word_tasks(setting)
    return beside_others(setting, every) if every else Missing(*NO_TASKS)


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


def _tell(setting: Setting) -> Findings:
    every = word_tasks(setting)
    rows = {task.name: task_rows(setting, task) for task in every}
    own = {task.name: rows[task.name] for task in chosen(every)}
    theirs = published_reached(beside(setting, ACCURACY), "accuracy", True)
    found = words_of(own, "accuracy", "task", theirs)
    return Findings(
        (_main(setting, chosen(every), rows), _full(setting, every, rows)),
        bars("Accuracy in each word task", own, "accuracy", "share of right answers"),
        found,
        ONCE if found else "",
        {
            "not_run": [name for name, one in rows.items() if one["mask"] is None],
            **with_claims(*without_instruction(own, ("accuracy",), "answers", "word task")),
        },
    )


def _main(setting: Setting, shown: Sequence[Asked], rows: Mapping[str, Any]) -> Table:
    """Table 2: heads and accuracy of the chosen tasks; of the paper's six what it published."""
    place = beside(setting, "Table 2")
    words = (cell(rows[task.name]["mask"], "accuracy_words") for task in shown)
    return Table(
        "Masks of word tasks",
        tuple(task.name for task in shown),
        (
            *task_lines(setting, place, shown, rows, {"accuracy": "accuracy"}),
            Row("accuracy without echoes, mask", tuple(words)),
        ),
        place.reference,
        "An answer counts as right where it stands among ten tokens that are written, as in the "
        "paper (of some tasks only at the start); without echoes, where it is a word of its own. "
        f"{instructions(setting)} {other_note(setting, shown[0])}",
    )


def _full(setting: Setting, every: Sequence[Asked], rows: Mapping[str, Any]) -> Table:
    """Tables 32 to 35: every task in a row of its own."""
    place, tasks = beside(setting, ACCURACY), {task.name: task for task in every}

    def shown(name: str, condition: str) -> Cell:
        column = same_task(setting, tasks[name])
        return told(setting, place, rows, "accuracy", tasks[name], condition, column)

    return grid(
        "Accuracy of every word task",
        tasks,
        (*CONDITIONS, ANOTHER),
        shown,
        place.reference,
        "Beside the bundled model's tasks stand the paper's of the same kind: "
        + ", ".join(f"{own} and {theirs}" for own, theirs in SAME.items())
        + "."
        if setting.pocket and not setting.data.tasks
        else "",
    )


TABLE_2 = Experiment(
    "table-2",
    ("Table 2", *(f"Table {number}" for number in range(32, 36))),
    "Masks that make the model do word tasks without being told",
    _steps,
    _tell,
    _needs,
)
