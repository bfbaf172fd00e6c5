"""Table 3: masks behind five examples, and one mask for many tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headscope.papers.claims import with_claims
from headscope.papers.heads_up.asked import (
    NO_TASKS,
    Asked,
    as_hybrid,
    chosen,
    too_few,
    with_shots,
    word_tasks,
)
from headscope.papers.heads_up.beside import beside, cell, condition, task_of
from headscope.papers.heads_up.steps import mask_name, mask_step, prove
from headscope.papers.heads_up.verdict import as_instructed
from headscope.papers.paper import Experiment, Missing, Setting, Step
from headscope.shown.blocks import Cell, Findings, grid


def _shots_name(task: Asked) -> str:
    return f"shots-{task.name}"


def _shot_steps(setting: Setting) -> tuple[Step, ...] | Missing:
    every = word_tasks(setting)
    if not every:
        return Missing(*NO_TASKS)
    hybrid = as_hybrid(every)
    found: list[Step] = []
    for task in chosen(every):
        shots, mask = with_shots(task), mask_name(task)
        title = f"{task.name} behind five examples, mask without examples"
        found += [
            mask_step(setting, task),
            prove(setting, _shots_name(task), title, shots, mask),
            mask_step(setting, shots, "shots"),
        ]
    if hybrid is not None:
        found.append(mask_step(setting, hybrid, "shots"))
    both = None if hybrid is None else mask_name(hybrid, "shots")
    for task in chosen(every):
        name, mask = f"{_shots_name(task)}-masked", mask_name(task, "shots")
        title = f"{task.name} behind five examples, mask with examples"
        found.append(prove(setting, name, title, with_shots(task), mask, both, extended=True))
    return tuple(found)


def _shot_tell(setting: Setting) -> Findings:
    shown, hybrid = chosen(word_tasks(setting)), as_hybrid(word_tasks(setting))
    place = beside(setting, "Table 3")
    plain = {task.name: setting.result(_shots_name(task)) for task in shown}
    trained = {task.name: setting.result(f"{_shots_name(task)}-masked") for task in shown}
    lines = {
        "original, 5-shot": (plain, "as is"),
        "instructed, 5-shot": (plain, "instructed"),
        "mask without examples, 5-shot": (plain, "masked"),
        "mask, 5-shot": (trained, "masked"),
        "mask of hybrid, 5-shot": (trained, "hybrid"),
    }

    def accuracy(name: str, task: str) -> Cell:
        results, own = lines[name]
        row, theirs = condition(results[task], task, own), place.value(name, task, "accuracy")
        # Of other tasks than the paper's hybrid: a text beside ours, with which none is compared.
        other = theirs if own != "hybrid" or theirs is None else f"{theirs:.2f}"
        return cell(row, "accuracy", other)

    table = grid(
        "Accuracy behind five examples",
        lines,
        plain,
        accuracy,
        place.reference,
        "The third row is not in the paper: the mask of Table 2, trained without examples."
        + ("" if hybrid is None else _hybrid_note(len(hybrid.choice.task))),
    )
    masks = {task.name: condition(trained[task.name], task.name, "masked") for task in shown}
    masked = {
        name: {"mask": one, "examples": task_of(trained[name], name).get("examples")}
        for name, one in masks.items()
        if one is not None
    }
    named = "masks made behind five examples do at least as well there as an instruction"
    claims = as_instructed(f"{named} in every word task", masked, "accuracy", "word task")
    found, sure = _shot_found(shown, plain, trained), _shot_sure(plain, trained)
    return Findings((table,), (), found, sure, with_claims(*claims))


def _hybrid_note(tasks: int) -> str:
    return (
        f" The hybrid mixes {tasks} tasks, that of the paper 32 of its 35; of the three left out "
        "it names one (product-company)."
    )


def _shot_found(
    shown: Sequence[Asked], plain: Mapping[str, Any], trained: Mapping[str, Any]
) -> str:
    told = []
    for task in shown:
        as_is = condition(plain[task.name], task.name, "as is")
        masked = condition(trained[task.name], task.name, "masked")
        zero = condition(plain[task.name], task.name, "masked")
        if as_is is None or zero is None:
            continue
        text = (
            f"{task.name}: {as_is['accuracy']:.0%} behind five examples as is, "
            f"{zero['accuracy']:.0%} with the mask trained without examples"
        )
        if masked is not None:
            text += f", {masked['accuracy']:.0%} with one trained on examples"
        told.append(text)
    return "; ".join(told) + "." if told else ""


def _shot_sure(plain: Mapping[str, Any], trained: Mapping[str, Any]) -> str:
    if all(one is None for one in plain.values()):
        return ""
    told = "Intervals are Wilson's over the held-out words; tasks with few of them have wide ones."
    if all(one is None for one in trained.values()):
        told += " The paper's own comparison, masks trained on prompts with examples, was not run."
    return told


TABLE_3 = Experiment(
    "table-3",
    ("Table 3",),
    "Masks behind five examples, and one mask for many tasks",
    _shot_steps,
    _shot_tell,
    # Its last row is of a mask of nearly all of them.
    needs=lambda setting, element, steps: too_few(setting, words=True),
)
