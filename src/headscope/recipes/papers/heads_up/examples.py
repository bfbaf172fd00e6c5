"""Figure 1 and Tables 4 and 36: what is written for one input, and by models of other sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headscope.recipes.papers.heads_up.asked import NO_MASKS, NO_PAIRS, Asked, chosen, directions
from headscope.recipes.papers.heads_up.samples import outputs
from headscope.recipes.papers.heads_up.similarity import default_masks
from headscope.recipes.papers.heads_up.states import STATES, states_steps
from headscope.recipes.papers.heads_up.steps import proof_name, slug, trained
from headscope.recipes.papers.paper import Experiment, Missing, Needed, Setting, Step
from headscope.recipes.papers.told import Cell, Row, Table, Told

__all__ = ["FIGURE_1", "TABLE_4"]

CONDITIONS = ("as is", "instructed", "masked")


def _steps(setting: Setting) -> tuple[Step, ...] | Missing:
    tasks = default_masks(setting)
    return trained(setting, tasks) if tasks else NO_MASKS


def _shown(
    setting: Setting, task: Asked, step: str, at: int = 0
) -> Mapping[str, Mapping[str, Any]]:
    """One example's samples by condition; empty where the run is not at hand."""
    made = outputs(setting, step, task.name)
    return {name: rows[at] for name, rows in made.items() if at < len(rows)}


def _text(rows: Mapping[str, Mapping[str, Any]], name: str) -> Cell:
    return Cell(rows[name]["output"]) if name in rows else Cell(why="not run")


def _tell(setting: Setting) -> Told:
    rows = []
    kept: dict[str, list[bool]] = {name: [] for name in CONDITIONS}
    for task in default_masks(setting):
        own = _shown(setting, task, proof_name(task))
        if not own:
            rows.append(Row(task.name, tuple(Cell(why="not run") for _ in range(5))))
            continue
        first = own["as is"]
        for name in CONDITIONS:
            if name in own:
                kept[name].append(own[name]["output"].strip() == first["reference"].strip())
        written = (_text(own, name) for name in CONDITIONS)
        rows.append(Row(task.name, (Cell(first["input"]), *written, Cell(first["reference"]))))
    table = Table(
        "The same input under each condition",
        ("input", *CONDITIONS, "right"),
        tuple(rows),
        note="The first held-out example of every task, not a chosen one.",
    )
    if not kept["as is"]:
        return Told((table,))
    total = len(kept["as is"])
    counts = ", ".join(f"{sum(kept[name])} {name}" for name in CONDITIONS if kept[name])
    return Told(
        (table,),
        found=f"Of the first held-out example of {total} tasks exactly the reference is written "
        f"for: {counts}.",
        sure="Single examples; Tables 1 and 2 have the shares.",
    )


FIGURE_1 = Experiment(
    "figure-1",
    ("Figure 1",),
    "The same input with and without the mask",
    _steps,
    _tell,
)


def _size_steps(setting: Setting) -> tuple[Step, ...] | Missing:
    tasks = chosen(directions(setting))
    if not tasks:
        return Missing(
            f"{NO_PAIRS[0]}, and other sizes of the model's family",
            f"{NO_PAIRS[1]}; --others MODEL for each size",
        )
    models = (None, *_sizes(setting))
    found = [step for other in models for step in trained(setting, tasks, other=other)]
    return tuple({step.name: step for step in (*found, *states_steps(setting))}.values())


def _sizes(setting: Setting) -> tuple[str, ...]:
    """The other models that translate, too."""
    return setting.data.others if setting.data.pairs else ()


def _size_needs(setting: Setting, element: str, steps: Sequence[Step]) -> Needed:
    """Both tables compare models of several sizes."""
    if setting.data.pairs and setting.data.others:
        return None
    give = "--others MODEL for each size, with --pairs"
    return Missing("the table compares sizes of one family", give, "needs MODEL")


def _size_tell(setting: Setting) -> Told:
    tasks = chosen(directions(setting))
    rows = []
    for other in (None, *_sizes(setting)):
        model = slug(other or setting.model.model)
        for task in tasks:
            own = _shown(setting, task, proof_name(task, other=other))
            cells = (*(_text(own, name) for name in CONDITIONS), _right(own))
            rows.append(Row(f"{model}, {task.name}", cells))
    inputs = {
        task.name: own["as is"]["input"]
        for task in tasks
        if (own := _shown(setting, task, proof_name(task)))
    }
    tables = [
        Table(
            "Outputs for the first held-out sentence of each direction",
            (*CONDITIONS, "right"),
            tuple(rows),
            note="Inputs: " + "; ".join(f"{name}: {text}" for name, text in inputs.items())
            if inputs
            else "",
        )
    ]
    states = setting.result(STATES)
    if states is not None:
        tables.append(_top_tokens(states))
    return Told(tuple(tables), (), *_size_words(setting))


def _right(rows: Mapping[str, Mapping[str, Any]]) -> Cell:
    first = next(iter(rows.values()), None)
    return Cell(why="not run") if first is None else Cell(first["reference"])


def _top_tokens(states: Mapping[str, Any]) -> Table:
    """The right-hand half of Table 4: the likeliest first tokens, masked and instructed."""
    lens = states["lens"]["conditions"]
    masked, told = (lens[name][-1] for name in ("masked", "instructed"))
    rows = []
    for place in range(len(masked["tokens"])):
        pairs = ((one["tokens"][place], one["logits"][place]) for one in (masked, told))
        cells = [(Cell(token), Cell(logit, digits=2)) for token, logit in pairs]
        rows.append(Row(str(place + 1), (*cells[0], *cells[1])))
    return Table(
        f"The likeliest first tokens and their logits ({states['task']})",
        ("masked", "logit", "instructed", "logit, instructed"),
        tuple(rows),
        note=f"Input {states['lens']['input']!r}; the right token has rank "
        f"{masked['target_rank']} masked and {told['target_rank']} instructed.",
    )


def _size_words(setting: Setting) -> tuple[str, str]:
    """How many outputs are the reference by model; nothing on sizes where there is one model."""
    told = []
    for other in (None, *_sizes(setting)):
        right, total = 0, 0
        for task in chosen(directions(setting)):
            made = outputs(setting, proof_name(task, other=other), task.name).get("masked", [])
            right += sum(one["output"].strip() == one["reference"].strip() for one in made)
            total += len(made)
        if total:
            told.append(f"{slug(other or setting.model.model)} {right} of {total}")
    if not told:
        return "", ""
    found = f"Masked outputs that are exactly the reference: {', '.join(told)}."
    if len(told) > 1:
        return found, "Exact outputs over all held-out sentences, without intervals."
    return (
        f"{found} There is one model here, so nothing is said about sizes.",
        "For other sizes of a family give --others MODEL with --pairs.",
    )


TABLE_4 = Experiment(
    "table-4",
    ("Table 4", "Table 36"),
    "What masked models of several sizes write",
    _size_steps,
    _size_tell,
    _size_needs,
)
