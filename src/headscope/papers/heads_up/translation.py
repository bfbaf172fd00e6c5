"""Table 1, and Tables 12 to 31: masks of directions, and what they do without an instruction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headscope.papers.claims import with_claims
from headscope.papers.heads_up.asked import (
    EN_ZH,
    NO_PAIRS,
    Asked,
    chosen,
    directions,
    too_few,
)
from headscope.papers.heads_up.asked import TABLE_1 as DEFAULT
from headscope.papers.heads_up.beside import (
    ANOTHER,
    MAIN,
    NAME,
    Beside,
    beside,
    cell,
    condition,
    conditions,
    heads_cell,
    mean_cell,
    published_of,
    task_of,
)
from headscope.papers.heads_up.steps import (
    mask_name,
    mask_step,
    proof_name,
    slug,
    swap_name,
    swap_step,
    trained,
)
from headscope.papers.heads_up.verdict import (
    bars,
    published_reached,
    tests,
    without_instruction,
    words_of,
)
from headscope.papers.paper import Experiment, Missing, Needed, Setting, Step
from headscope.papers.published import paper_model
from headscope.shown.blocks import NOT_RUN, Cell, Findings, Row, Table, grid
from headscope.studies.costs.reading import heads_of

_MODELS = (
    "Llama-3.1-8B-Instruct",
    "Llama-3.1-8B",
    "Qwen2.5-7B-Instruct",
    "Qwen2.5-7B",
    "Qwen2.5-0.5B-Instruct",
    "Qwen2.5-1.5B-Instruct",
    "Qwen2.5-3B-Instruct",
    "Qwen2.5-14B-Instruct",
    "Phi-3.5-mini-instruct",
    "Mistral-7B-Instruct-v0.3",
)
#: Which table is of which model.
LOSSES = {model: f"Table {12 + at}" for at, model in enumerate(_MODELS)}
ROUGE = {model: f"Table {22 + at}" for at, model in enumerate(_MODELS)}
#: The paper's name of each condition, and ours.
CONDITIONS = {"original": "as is", "instructed": "instructed", "random mask": "", "mask": "masked"}
#: What no interval of a mask holds.
ONCE = "Every mask was trained once, with one seed."
GIVE_OTHER = "For the mask of another model give --others MODEL and files of the data."
NO_OTHER = "no other model"


def others_of(setting: Setting) -> tuple[str, ...]:
    """The other models whose masks fit this one's heads."""
    return tuple(one for one in setting.data.others if heads_of(one) in (None, setting.geometry))


def others_asked(setting: Setting, task: Asked) -> tuple[str, ...]:
    """The other models that are asked for tasks of this kind."""
    given = setting.data.pairs if task.translation else setting.data.tasks
    return others_of(setting) if given else ()


def beside_others(setting: Setting, every: Sequence[Asked]) -> tuple[Step, ...]:
    """The masks of tasks with their tests, and other models' masks tested on this one."""
    found = list(trained(setting, every))
    for other in others_asked(setting, every[0]):
        for task in every:
            found += [mask_step(setting, task, other=other), swap_step(setting, task, other)]
    return tuple(found)


def _steps(setting: Setting) -> tuple[Step, ...] | Missing:
    every = directions(setting)
    return beside_others(setting, every) if every else Missing(*NO_PAIRS)


def of_tasks(
    setting: Setting,
    element: str,
    steps: Sequence[Step],
    tables: Sequence[Mapping[str, str]],
    few: Missing | None,
    few_default: Missing | None,
) -> Needed:
    """What a table needs: of those that each model has one of, its own all tasks.

    Every other table needs the default tasks alone. `few` and `few_default` say what is missing
    where all the paper's tasks, or those of that table, are not given.
    """
    for by_model in tables:
        if element in by_model.values():
            own = by_model.get(paper_model(NAME, setting.model.model) or MAIN, by_model[MAIN])
            models = ", ".join(f"{model} ({table})" for model, table in by_model.items())
            why = "the table is of another model of the paper"
            return few if element == own else Missing(why, f"--model: {models}", "needs MODEL")
    return few_default or [step for step in steps if not step.extended]


def _needs(setting: Setting, element: str, steps: Sequence[Step]) -> Needed:
    few = too_few(setting, EN_ZH if element in ROUGE.values() else ())
    return of_tasks(setting, element, steps, (LOSSES, ROUGE), few, too_few(setting, DEFAULT))


def proof_rows(
    setting: Setting, task: Asked, proof: str, foreign: str | None = None
) -> dict[str, Any]:
    """The conditions of a task by the paper's names; a list of draws under `random mask`.

    Under `examples` is how many the task has.
    """
    result = setting.result(proof)
    found: dict[str, Any] = {
        name: condition(result, task.name, own) for name, own in CONDITIONS.items() if own
    }
    found["examples"] = task_of(result, task.name).get("examples")
    found["random mask"] = [
        row for row in conditions(result, task.name) if row["kind"] == "shuffled"
    ]
    if foreign is not None:
        found[ANOTHER] = condition(setting.result(foreign), task.name, "foreign 1")
    return found


def task_rows(setting: Setting, task: Asked) -> dict[str, Any]:
    """The conditions of a task, under the first other model's mask too where there is one."""
    foreign = [swap_name(task, other) for other in others_asked(setting, task)[:1]]
    return proof_rows(setting, task, proof_name(task), *foreign)


def told(
    setting: Setting,
    place: Beside,
    rows: Mapping[str, Mapping[str, Any]],
    measure: str,
    task: Asked,
    name: str,
    column: str | None = None,
) -> Cell:
    """A condition's figure of a task, beside the published one of this column."""
    other = next(iter(others_asked(setting, task)), None)
    published = published_of(place, name, column or task.name, measure, other)
    own = rows[task.name]
    if name == "random mask":
        return mean_cell(own[name], measure, published)
    why = NO_OTHER if name == ANOTHER and name not in own else NOT_RUN
    return cell(own.get(name), measure, published, why)


def _tell(setting: Setting) -> Findings:
    every = directions(setting)
    shown = chosen(every)
    rows = {task.name: task_rows(setting, task) for task in every}
    own = {task.name: rows[task.name] for task in shown}
    measures = ("nll", "rouge_l")
    theirs = published_reached(beside(setting, LOSSES), "nll", False)
    found = [words_of(own, "nll", "direction", theirs), words_of(own, "rouge_l", "direction")]
    return Findings(
        (
            _main(setting, shown, rows),
            _full(setting, every, rows, "nll", "NLL", LOSSES),
            _full(setting, every, rows, "rouge_l", "ROUGE-L", ROUGE),
        ),
        bars("NLL of each direction", own, "nll", "NLL"),
        " ".join(filter(None, found)),
        ONCE if any(found) else "",
        {
            "not_run": [name for name, one in rows.items() if one["mask"] is None],
            **with_claims(*without_instruction(own, measures, "translation", "direction")),
        },
    )


def task_lines(
    setting: Setting,
    place: Beside,
    shown: Sequence[Asked],
    rows: Mapping[str, Mapping[str, Any]],
    measures: Mapping[str, str],
) -> list[Row]:
    """The heads of chosen tasks, and their conditions by one measure after the other."""
    kept = [
        heads_cell(setting, mask_name(task), place.value("mask", task.name, "heads"))
        for task in shown
    ]
    lines = [Row("heads in the mask", tuple(kept))]
    for measure, title in measures.items():
        lines += [
            Row(
                f"{title}, {name}",
                tuple(told(setting, place, rows, measure, task, name) for task in shown),
            )
            for name in (*CONDITIONS, ANOTHER)
        ]
        found = [tests(rows[task.name]["mask"], measure) for task in shown]
        lines += [Row(f"{title}, {name}", tuple(one[name] for one in found)) for name in found[0]]
    return lines


def other_note(setting: Setting, task: Asked) -> str:
    """Which other model's masks are meant, or how to name one."""
    other = next(iter(others_asked(setting, task)), None)
    return f"The other model is {slug(other)}." if other else GIVE_OTHER


def _instruction(setting: Setting) -> str:
    """Whose words the instructions of directions are."""
    if setting.pocket:
        return "Instructions are worded by us."
    return (
        "The instruction is the paper's; what it puts between that and the sentence is not printed."
    )


def _main(setting: Setting, shown: Sequence[Asked], rows: Mapping[str, Any]) -> Table:
    """Table 1: heads, losses and ROUGE-L of the chosen directions."""
    place = beside(setting, "Table 1", "XNLI")
    return Table(
        "Masks of directions",
        tuple(task.name for task in shown),
        tuple(task_lines(setting, place, shown, rows, {"nll": "NLL", "rouge_l": "ROUGE-L"})),
        place.reference,
        "NLL is the mean over sentences of the mean over the output's tokens, in nats, which the "
        "paper calls PPL; lower is better. Random masks keep as many heads, mean of the draws. "
        f"{_instruction(setting)} {other_note(setting, shown[0])}",
    )


def _full(
    setting: Setting,
    every: Sequence[Asked],
    rows: Mapping[str, Any],
    measure: str,
    title: str,
    tables: Mapping[str, str],
) -> Table:
    """One of Tables 12 to 31: every direction in a row of its own."""
    place, tasks = beside(setting, tables, "XNLI"), {task.name: task for task in every}
    return grid(
        f"{title} of every direction",
        tasks,
        (*CONDITIONS, ANOTHER),
        lambda task, name: told(setting, place, rows, measure, tasks[task], name),
        place.reference,
    )


TABLE_1 = Experiment(
    "table-1",
    ("Table 1", *(f"Table {number}" for number in range(12, 32))),
    "Masks that make the model translate without being told",
    _steps,
    _tell,
    _needs,
)
