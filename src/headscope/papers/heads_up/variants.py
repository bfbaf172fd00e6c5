"""Tables 39, 40, 43 and 44: masks of queries, of feed-forward layers, of models with experts."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from headscope.papers.heads_up.asked import (
    EN_ZH,
    NO_PAIRS,
    Asked,
    chosen,
    directions,
    too_few,
)
from headscope.papers.heads_up.beside import (
    Beside,
    beside,
    cell,
    condition,
    heads_cell,
    mean_cell,
    not_run,
)
from headscope.papers.heads_up.samples import outputs
from headscope.papers.heads_up.steps import Kind, mask_name, proof_name, trained
from headscope.papers.heads_up.translation import ONCE, proof_rows
from headscope.papers.heads_up.verdict import words_of
from headscope.papers.paper import Experiment, Missing, Setting, Step
from headscope.shown.blocks import Cell, Findings, Row, Table

#: Failed outputs that Table 39 shows.
EXAMPLES = 5
#: How models with experts are told apart, by their names.
_EXPERTS = re.compile(r"moe|mixtral|-a\d+(\.\d+)?b\b|olmoe|deepseek-v[23]", re.IGNORECASE)


def _both(kind: Kind, first: bool) -> Callable[[Setting], tuple[Step, ...] | Missing]:
    """The masks of a kind beside those of heads; of the first direction alone, or of all."""

    def steps(setting: Setting) -> tuple[Step, ...] | Missing:
        tasks = chosen(directions(setting))
        if not tasks:
            return Missing(*NO_PAIRS)
        kinds: tuple[Kind, ...] = ("", kind)
        every = tasks[:1] if first else directions(setting)
        return tuple(
            step for task in every for one in kinds for step in trained(setting, (task,), one)
        )

    return steps


def _kinds_table(
    setting: Setting, tasks: Sequence[Asked], kind: Kind, name: str, place: Beside | None
) -> Table:
    """Loss, ROUGE-L and heads of both kinds of masks."""
    rows = []
    for task in tasks:
        own = proof_rows(setting, task, proof_name(task))
        other = proof_rows(setting, task, proof_name(task, kind))
        theirs = None if place is None else place.value("mask", task.name, "nll")
        cells = (
            cell(own["original"], "nll"),
            cell(own["instructed"], "nll"),
            cell(own["mask"], "nll"),
            cell(other["mask"], "nll", theirs),
            mean_cell(other["random mask"], "nll"),
            cell(own["mask"], "rouge_l"),
            cell(other["mask"], "rouge_l"),
            heads_cell(setting, mask_name(task, kind)),
            _layers(setting, task, kind),
        )
        rows.append(Row(task.name, cells))
    columns = (
        "NLL as is",
        "instructed",
        "mask of heads",
        name,
        "random masks",
        "ROUGE-L, mask of heads",
        f"ROUGE-L, {name}",
        "heads kept",
        "feed-forward layers kept",
    )
    return Table(
        f"Masks of heads beside a {name}",
        columns,
        tuple(rows),
        None if place is None else place.reference,
    )


def _layers(setting: Setting, task: Asked, kind: Kind) -> Cell:
    result = setting.result(mask_name(task, kind))
    if result is None or (kind == "feed-forward" and result["feed_forward"] is None):
        return not_run(digits=0)
    if kind != "feed-forward":
        return Cell(setting.geometry.layers, digits=0)
    return Cell(sum(one["selected"] for one in result["feed_forward"]), digits=0)


def _query_tell(setting: Setting) -> Findings:
    tasks = chosen(directions(setting))[:1]
    table = _kinds_table(setting, tasks, "query", "mask of queries", None)
    shown = tasks[0]
    made = outputs(setting, proof_name(shown, "query"), shown.name).get("masked", [])
    wrong = [one for one in made if one["output"].strip() != one["reference"].strip()]
    examples = Table(
        "Outputs under the mask of queries that are not the reference",
        ("output", "right"),
        tuple(
            Row(one["input"], (Cell(one["output"]), Cell(one["reference"])))
            for one in wrong[:EXAMPLES]
        ),
        note=f"The first of {len(wrong)} among {len(made)} outputs of {shown.name}."
        if made
        else "Not run: left to --full.",
    )
    return Findings((table, examples), found=_kind_found(setting, tasks, "query", "of queries"))


def _kind_found(setting: Setting, tasks: Sequence[Asked], kind: Kind, name: str) -> str:
    told = []
    for task in tasks:
        one = condition(setting.result(proof_name(task, kind)), task.name, "masked")
        heads = condition(setting.result(proof_name(task)), task.name, "masked")
        if one is None or heads is None:
            continue
        own, other = (row["intervals"]["nll"] for row in (one, heads))
        apart = own["low"] > other["high"] or own["high"] < other["low"]
        told.append(
            f"{task.name}: loss {one['nll']:.2f} under the mask {name}, {heads['nll']:.2f} under "
            f"that of heads{'' if apart else ' (the intervals meet)'}"
        )
    return "; ".join(told) + "." if told else ""


TABLE_39 = Experiment(
    "table-39",
    ("Table 39",),
    "Masks of queries: removed heads attend evenly",
    _both("query", first=True),
    _query_tell,
    needs=lambda setting, element, steps: too_few(setting, ("en-zh",)),
)


def _layers_tell(setting: Setting) -> Findings:
    tasks = directions(setting)
    name, place = "mask of heads and feed-forward layers", beside(setting, "Table 40", "XNLI")
    table = _kinds_table(setting, tasks, "feed-forward", name, place)
    found = _kind_found(setting, tasks, "feed-forward", "of heads and layers")
    kept = [
        result["feed_forward"]
        for task in tasks
        if (result := setting.result(mask_name(task, "feed-forward"))) is not None
    ]
    if kept:
        whole = sum(all(one["selected"] for one in layers) for layers in kept)
        found = f"{whole} of {len(kept)} masks keep every feed-forward layer. {found}".strip()
    return Findings((table,), found=found, sure=ONCE if kept else "")


TABLE_40 = Experiment(
    "table-40",
    ("Table 40",),
    "Masks with gates of feed-forward layers, too",
    _both("feed-forward", first=False),
    _layers_tell,
    needs=lambda setting, element, steps: too_few(setting),
)


def _experts(setting: Setting) -> bool:
    return _EXPERTS.search(setting.model.model) is not None


def _expert_tasks(setting: Setting) -> tuple[Asked, ...]:
    """The paper's rows: directions from English and from Chinese."""
    return tuple(one for one in directions(setting) if one.name.startswith(("en-", "zh-")))


def _expert_steps(setting: Setting) -> tuple[Step, ...] | Missing:
    if not _experts(setting):
        return Missing(
            "a model with a mixture of experts, told by its name, and sentence pairs",
            "--model microsoft/Phi-3.5-MoE-instruct (or another one) with --pairs en-zh=FILE for "
            f"each of {', '.join(EN_ZH)}, or --pairs FOLDER",
            "needs MODEL",
        )
    tasks = _expert_tasks(setting)
    return trained(setting, tasks) if tasks else Missing(*NO_PAIRS)


def _expert_tell(setting: Setting) -> Findings:
    tasks = _expert_tasks(setting)
    rows = {task.name: proof_rows(setting, task, proof_name(task)) for task in tasks}
    tables = []
    for measure, title, number in (("nll", "NLL", 43), ("rouge_l", "ROUGE-L", 44)):
        # The paper has one such model, whose values stand beside any other one's.
        place = beside(setting, f"Table {number}", "XNLI", "Phi-3.5-MoE-instruct")
        lines = [
            Row(
                name,
                tuple(
                    cell(own[name], measure, place.value(name, task, measure))
                    for task, own in rows.items()
                ),
            )
            for name in ("instructed", "mask")
        ]
        about = f"{title} of a model with a mixture of experts"
        tables.append(Table(about, tuple(rows), tuple(lines), place.reference))
    found = words_of(rows, "nll", "direction")
    # What is claimed of these masks Table 1 tells.
    return Findings(tuple(tables), (), found, ONCE if found else "")


TABLE_43 = Experiment(
    "table-43",
    ("Table 43", "Table 44"),
    "Masks of a model with a mixture of experts",
    _expert_steps,
    _expert_tell,
    needs=lambda setting, element, steps: too_few(setting, EN_ZH),
)
