"""Figure 1 and Tables 4 and 36: what is written for one input, and by models of other sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headscope.papers.heads_up.asked import (
    NO_MASKS,
    NO_PAIRS,
    Asked,
    chosen,
    directions,
    of_printed,
    too_few,
)
from headscope.papers.heads_up.samples import outputs
from headscope.papers.heads_up.similarity import default_masks
from headscope.papers.heads_up.states import states_name, states_steps
from headscope.papers.heads_up.steps import mask_name, proof_name, prove, slug, trained
from headscope.papers.paper import Experiment, Missing, Needed, Setting, Step
from headscope.shown.blocks import Cell, Findings, Row, Table
from headscope.studies.inputs import kin

CONDITIONS = ("as is", "instructed", "masked")
#: The directions of Table 4, and that of Table 36.
TABLE_4_DIRECTIONS, TABLE_36 = ("en-zh", "en-fr", "en-es", "en-de"), "zh-en"


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


def _tell(setting: Setting) -> Findings:
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
        return Findings((table,))
    total = len(kept["as is"])
    counts = ", ".join(f"{sum(kept[name])} {name}" for name in CONDITIONS if kept[name])
    return Findings(
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


def _size_tasks(setting: Setting) -> tuple[Asked, ...]:
    """The default directions, and Table 36's, which a folder has besides."""
    return tuple(one for one in directions(setting) if one.default or one.name == TABLE_36)


def _printed(setting: Setting, task: Asked) -> bool:
    """Whether the paper's sentence is asked about: of the directions that Table 4 has."""
    return bool(setting.data.pairs) and task.name in TABLE_4_DIRECTIONS


def _size_step(task: Asked, other: str | None) -> str:
    return proof_name(task, other=other).replace("proof-", "printed-", 1)


def _probed(setting: Setting) -> Asked | None:
    """Whose first tokens Table 4 shows: English to German, else the first direction."""
    every = chosen(directions(setting))
    return next((one for one in every if one.name == "en-de"), next(iter(every), None))


def _size_steps(setting: Setting) -> tuple[Step, ...] | Missing:
    tasks = _size_tasks(setting)
    if not tasks:
        return Missing(NO_PAIRS[0], f"{NO_PAIRS[1]}; --others MODEL for each size of its family")
    found: list[Step] = []
    for other in (None, *_sizes(setting)):
        found += trained(setting, tasks, other=other)
        for task in tasks:
            if _printed(setting, task):
                title, mask = f"{task.name} on the paper's sentences", mask_name(task, other=other)
                name, asked = _size_step(task, other), of_printed(task)
                found.append(prove(setting, name, title, asked, mask, other=other))
    states = states_steps(setting, _probed(setting))
    return tuple({step.name: step for step in (*found, *states)}.values())


def _sizes(setting: Setting) -> tuple[str, ...]:
    """The other sizes of the model's family, by their names."""
    others = setting.data.others if setting.data.pairs else ()
    return kin(setting.model.model, others, r"\d+(\.\d+)?[bm]\b")


def _size_needs(setting: Setting, element: str, steps: Sequence[Step]) -> Needed:
    if not _sizes(setting):
        give = "--others MODEL for each size, with --pairs"
        return Missing("the table compares sizes of one family", give, "needs MODEL")
    own = (TABLE_36,) if element == "Table 36" else TABLE_4_DIRECTIONS
    return too_few(setting, own) or [
        step for step in steps if any(f"-{name}" in step.name for name in own)
    ]


def _size_tell(setting: Setting) -> Findings:
    rows, inputs = [], {}
    for other in (None, *_sizes(setting)):
        model = slug(other or setting.model.model)
        for task in _size_tasks(setting):
            printed = _printed(setting, task)
            step = _size_step(task, other) if printed else proof_name(task, other=other)
            # The second of the printed sentences is Table 4's.
            own = _shown(setting, task, step, at=int(printed))
            texts = (*(_text(own, name) for name in CONDITIONS), _right(own))
            rows.append(Row(f"{model}, {task.name}", texts))
            if "as is" in own:
                inputs[task.name] = own["as is"]["input"]
    tables = [
        Table(
            "Outputs for one sentence of each direction",
            (*CONDITIONS, "right"),
            tuple(rows),
            note="Inputs, the paper's from English (Table 4), else the first held-out ones: "
            + "; ".join(f"{name}: {text}" for name, text in inputs.items())
            if inputs
            else "",
        )
    ]
    probed = _probed(setting)
    states = None if probed is None else setting.result(states_name(setting, probed))
    if states is not None:
        tables.append(_top_tokens(setting, states))
    return Findings(tuple(tables), (), *_size_words(setting))


def _right(rows: Mapping[str, Mapping[str, Any]]) -> Cell:
    first = next(iter(rows.values()), None)
    return Cell(why="not run") if first is None else Cell(first["reference"])


def _top_tokens(setting: Setting, states: Mapping[str, Any]) -> Table:
    """The right-hand half of Table 4: the likeliest first tokens, masked and instructed."""
    lens = states["lens"]["conditions"]
    masked, told = (lens[name][-1] for name in ("masked", "instructed"))
    rows = []
    for place in range(len(masked["tokens"])):
        pairs = ((one["tokens"][place], one["logits"][place]) for one in (masked, told))
        cells = [(Cell(token), Cell(logit, digits=2)) for token, logit in pairs]
        rows.append(Row(str(place + 1), (*cells[0], *cells[1])))
    return Table(
        f"The likeliest first tokens and their logits ({slug(setting.model.model)}, "
        f"{states['task']})",
        ("masked", "logit", "instructed", "logit, instructed"),
        tuple(rows),
        note="The paper has its smallest model here, so give that as --model. "
        f"Input {states['lens']['input']!r}; the right token has rank "
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
