"""Table 1, and Tables 12 to 31: masks of directions, and what they do without an instruction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headscope.recipes.papers.heads_up.asked import (
    EN_ZH,
    NO_PAIRS,
    Asked,
    chosen,
    directions,
    too_few,
)
from headscope.recipes.papers.heads_up.asked import TABLE_1 as DEFAULT
from headscope.recipes.papers.heads_up.beside import (
    ANOTHER,
    MAIN,
    NAME,
    Beside,
    beside,
    cell,
    condition,
    conditions,
    mean_cell,
    not_run,
    published_of,
)
from headscope.recipes.papers.heads_up.steps import (
    mask_name,
    mask_step,
    proof_name,
    proof_step,
    slug,
    swap_name,
    swap_step,
)
from headscope.recipes.papers.heads_up.verdict import (
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
from headscope.recipes.papers.published import paper_model
from headscope.recipes.papers.told import Cell, Row, Table, Told

__all__ = ["GIVE_OTHER", "NO_OTHER", "TABLE_1", "of_tasks", "others_of", "proof_rows"]

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
GIVE_OTHER = "For the mask of another model give --others MODEL and files of the data."
NO_OTHER = "no other model"
ANOTHER_MODEL = Missing(
    "the table is of another model of the paper", "--model MODEL, one of Table 9", "needs MODEL"
)


def others_of(setting: Setting) -> tuple[str, ...]:
    """The other models, where there are files that they can be asked about, too."""
    return setting.data.others if setting.data.pairs or setting.data.tasks else ()


def _steps(setting: Setting) -> tuple[Step, ...] | Missing:
    every = directions(setting)
    if not every:
        return Missing(*NO_PAIRS)
    found = []
    for task in every:
        found += [mask_step(setting, task), proof_step(setting, task)]
    for other in others_of(setting) if setting.data.pairs else ():
        for task in every:
            found += [mask_step(setting, task, other=other), swap_step(setting, task, other)]
    return tuple(found)


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
            return few if element == own else ANOTHER_MODEL
    return few_default or [step for step in steps if not step.extended]


def _needs(setting: Setting, element: str, steps: Sequence[Step]) -> Needed:
    few = too_few(setting, EN_ZH if element in ROUGE.values() else ())
    return of_tasks(setting, element, steps, (LOSSES, ROUGE), few, too_few(setting, DEFAULT))


def proof_rows(
    setting: Setting, task: Asked, proof: str, foreign: str | None = None
) -> dict[str, Any]:
    """The conditions of a task by the paper's names; a list of draws under `random mask`."""
    result = setting.result(proof)
    found: dict[str, Any] = {
        name: condition(result, task.name, own) for name, own in CONDITIONS.items() if own
    }
    found["random mask"] = [
        row for row in conditions(result, task.name) if row["kind"] == "shuffled"
    ]
    if foreign is not None:
        found[ANOTHER] = condition(setting.result(foreign), task.name, "foreign 1")
    return found


def _first_other(setting: Setting) -> str | None:
    others = others_of(setting)
    return others[0] if others and setting.data.pairs else None


def _rows(setting: Setting, task: Asked) -> dict[str, Any]:
    other = _first_other(setting)
    return proof_rows(
        setting, task, proof_name(task), None if other is None else swap_name(task, other)
    )


def _cell(rows: Mapping[str, Any], name: str, measure: str, published: float | None) -> Cell:
    if name == "random mask":
        return mean_cell(rows[name], measure, published)
    if name == ANOTHER:
        why = "not run" if name in rows else NO_OTHER
        return cell(rows.get(name), measure, published, why)
    return cell(rows[name], measure, published)


def _told(
    rows: Mapping[str, Any], place: Beside, task: str, name: str, measure: str, other: str | None
) -> Cell:
    """A condition's figure of a task, beside the published one."""
    return _cell(rows[task], name, measure, published_of(place, name, task, measure, other))


def _tell(setting: Setting) -> Told:
    every = directions(setting)
    shown = chosen(every)
    rows = {task.name: _rows(setting, task) for task in every}
    own = {task.name: rows[task.name] for task in shown}
    chart = bars("NLL of each direction", own, "nll", "NLL")
    return Told(
        (_main(setting, shown, rows), *_full(setting, every, rows)),
        () if chart is None else (chart,),
        found=_found(setting, shown, rows),
        sure=_sure(shown, rows),
        more={
            "not_run": [name for name, one in rows.items() if one["mask"] is None],
            "answer": summary(
                verdict(own, "nll", higher=False), "translation", "direction", "loss"
            ),
        },
    )


def _main(setting: Setting, shown: Sequence[Asked], rows: Mapping[str, Any]) -> Table:
    """Table 1: heads, losses and ROUGE-L of the chosen directions."""
    place = beside(setting, "Table 1", "XNLI")
    names = (*CONDITIONS, ANOTHER)
    other = _first_other(setting)
    lines = [Row("heads in the mask", tuple(_heads(setting, task, place) for task in shown))]
    for measure, title in (("nll", "NLL"), ("rouge_l", "ROUGE-L")):
        lines += [
            Row(
                f"{title}, {name}",
                tuple(_told(rows, place, task.name, name, measure, other) for task in shown),
            )
            for name in names
        ]
    return Table(
        "Masks of directions",
        tuple(task.name for task in shown),
        tuple(lines),
        place.reference,
        "NLL is the mean over sentences of the mean over the output's tokens, in nats, which the "
        "paper calls PPL; lower is better. Random masks keep as many heads, mean of the draws. "
        + (
            "Instructions are worded by us."
            if setting.pocket
            else "The instruction is the paper's; what it puts between that and the sentence is "
            "not printed."
        )
        + (f" The other model is {slug(other)}." if other else f" {GIVE_OTHER}"),
    )


def _heads(setting: Setting, task: Asked, place: Beside) -> Cell:
    theirs = place.value("mask", task.name, "heads")
    result = setting.result(mask_name(task))
    if result is None:
        return not_run(theirs, digits=0)
    return Cell(result["selected"], published=theirs, digits=0)


def _full(setting: Setting, every: Sequence[Asked], rows: Mapping[str, Any]) -> tuple[Table, Table]:
    """Tables 12 to 31: every direction in a row of its own."""
    made = []
    other = _first_other(setting)
    for measure, title, tables in (
        ("nll", "NLL of every direction", LOSSES),
        ("rouge_l", "ROUGE-L of every direction", ROUGE),
    ):
        place = beside(setting, tables, "XNLI")
        names = (*CONDITIONS, ANOTHER)
        made.append(
            Table(
                title,
                names,
                tuple(
                    Row(
                        task.name,
                        tuple(
                            _told(rows, place, task.name, name, measure, other) for name in names
                        ),
                    )
                    for task in every
                ),
                place.reference,
            )
        )
    return made[0], made[1]


def _found(setting: Setting, shown: Sequence[Asked], rows: Mapping[str, Any]) -> str:
    own = {task.name: rows[task.name] for task in shown}
    loss = verdict(own, "nll", higher=False)
    if not loss.ran:
        return ""
    told = [
        f"Without an instruction the mask has a lower loss than the whole model in "
        f"{share(loss.better, loss.ran, 'direction')}{values(loss)}{way(loss)}."
    ]
    place = beside(setting, LOSSES)
    told.append(reached(loss, "direction", "loss", published_reached(place, "nll", False)))
    overlap = verdict(own, "rouge_l", higher=True)
    if overlap.ran:
        told.append(
            f"ROUGE-L rises in {share(overlap.better, overlap.ran, 'direction')}"
            f"{values(overlap)}{way(overlap)}."
        )
    return " ".join(told)


def _sure(shown: Sequence[Asked], rows: Mapping[str, Any]) -> str:
    return sureness(
        verdict({task.name: rows[task.name] for task in shown}, "nll", higher=False),
        "direction",
        "loss",
        "lower",
    )


TABLE_1 = Experiment(
    "table-1",
    ("Table 1", *(f"Table {number}" for number in range(12, 32))),
    "Masks that make the model translate without being told",
    _steps,
    _tell,
    _needs,
)
