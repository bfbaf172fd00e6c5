"""Figures 4 and 5 and Table 41: hidden states of the masked and the instructed model."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from headscope.errors import InputError
from headscope.measure.intervals import t_interval
from headscope.papers.claims import of_removal, with_claims
from headscope.papers.heads_up.asked import NO_PAIRS, Asked, first_task, of_printed, too_few
from headscope.papers.heads_up.steps import draws_of, mask_name, mask_step
from headscope.papers.heads_up.walks import WALK, beside_walk, walk_step
from headscope.papers.paper import Experiment, Missing, Setting, Step
from headscope.runs import encode
from headscope.shown.blocks import Cell, Claim, Findings, Lines, Row, Series, Table
from headscope.studies.compare.states import CompareStates, compare_states
from headscope.studies.costs.work import Work
from headscope.studies.inputs import Progress

STATES = "states"
#: The paper's lines of Figure 4.
PAIRS = {
    ("as is", "instructed"): "as is and instructed",
    ("instructed", "masked"): "masked and instructed",
    ("masked", "masked, instructed"): "masked and masked with instruction",
}
#: The conditions of Table 41.
LENS = {"as is": "as is", "instructed": "instructed", "masked": "masked"}


def _states(
    task: Asked, setting: Setting, place: Path, progress: Progress | None
) -> Mapping[str, Any]:
    printed = bool(setting.data.pairs) and states_name(setting, task) != STATES  # Table 4's own
    config = CompareStates(
        str(setting.at(mask_name(task))),
        setting.model,
        of_printed(task).choice if printed else task.choice,
        "3" if printed else None,  # by its line
        draws=draws_of(setting),
        seed=setting.seed,
        batch_tokens=setting.batch_tokens,
    )
    found: Mapping[str, Any] = encode(compare_states(config, place, progress))
    return found


def states_name(setting: Setting, task: Asked) -> str:
    """The step of a task's states; the first task's are those of Figure 4."""
    first = first_task(setting)
    return STATES if first is None or first.name == task.name else f"{STATES}-{task.name}"


def states_steps(setting: Setting, task: Asked | None = None) -> tuple[Step, ...]:
    """The mask of a task (by default the first), and the states under it; nothing without one."""
    task = task or first_task(setting)
    if task is None:
        return ()
    size, draws = task.size, draws_of(setting)
    # Four conditions, two of them instructed, and the bare prompt under shuffled masks.
    tokens = size.tested * ((2 + 2 * draws) * size.bare + 2 * size.told)
    rows = min(float(size.tested), 16.0)
    work = Work(
        forward=tokens, length=size.told, rows=rows, calls=(4 + 2 * draws) * size.tested / rows
    )
    title, run = "hidden states beside the instructed model's", partial(_states, task)
    name, mask = states_name(setting, task), mask_name(task)
    return mask_step(setting, task), Step(name, title, run, work, (mask,))


def _steps(setting: Setting) -> tuple[Step, ...] | Missing:
    task = first_task(setting)
    if task is None:
        return Missing(*NO_PAIRS)
    return (*states_steps(setting), walk_step(setting, task, WALK))


def _tell(setting: Setting) -> Findings:
    result, walk = setting.result(STATES), setting.result(WALK)
    figures, tables, found, sure, claims = [], [], [], [], []
    if result is not None:
        figures.append(_by_layer(result))
        tables.append(_lens(result))
        said, claim = _nearer(result)
        found.append(said)
        claims.append(claim)
    if walk is not None:
        figures.append(_along(walk))
        tables.append(_along_table(setting, walk))
        found += [one for one in [_along_words(setting, walk)] if one]
        sure.append(f"Along the removal: {walk['sentences']} prompts.")
    more = with_claims(*claims)
    return Findings(tuple(tables), tuple(figures), " ".join(found), " ".join(sure), more)


def _by_layer(result: Mapping[str, Any]) -> Lines:
    rows = {(pair["a"], pair["b"]): pair for pair in result["pairs"]}
    series = [_series(name, rows[pair]["after_layer"]) for pair, name in PAIRS.items()]
    series += [
        _series(f"{name}, after attention", rows[pair]["after_attention"])
        for pair, name in PAIRS.items()
    ]
    series += [
        _series("random mask and instructed", control["after_layer"])
        for control in result["controls"]
        if control["kind"] == "shuffled"
    ]
    return Lines(
        f"Cosine of hidden states at the last token of the prompt ({result['task']})",
        tuple(series),
        "layer",
        "cosine",
        note=f"Means over {result['samples']} held-out prompts.",
    )


def _series(name: str, rows: list[Mapping[str, float]]) -> Series:
    return Series(
        name,
        tuple((float(layer), row["mean"]) for layer, row in enumerate(rows)),
        tuple(row["low"] for row in rows),
        tuple(row["high"] for row in rows),
    )


def _lens(result: Mapping[str, Any]) -> Table:
    """Table 41: what each layer would say, as the likeliest tokens."""
    lens = result["lens"]
    by = {name: lens["conditions"][name] for name in LENS}
    layers = len(next(iter(by.values())))
    rows = []
    for at in range(layers):
        layer = by["as is"][at]["layer"]
        cells = [Cell(" ".join(repr(token) for token in by[name][at]["tokens"])) for name in LENS]
        cells += [Cell(by["masked"][at]["target_rank"], digits=0)]
        rows.append(Row("embedding" if layer is None else f"layer {layer}", tuple(cells)))
    return Table(
        "The likeliest tokens after each layer, for one prompt",
        (*LENS.values(), "rank of the right token, masked"),
        tuple(rows),
        note=f"Input {lens['input']!r}, output {lens['output']!r}.",
    )


def _nearer(result: Mapping[str, Any]) -> tuple[str, Claim]:
    """How near the masked model and the model as it is are to the instructed one, and the claim."""
    nearer = result["nearer"]
    rows = {(pair["a"], pair["b"]): pair["after_layer"] for pair in result["pairs"]}
    half = result["layers"] // 2
    masked, plain = (
        fmean(row["mean"] for row in rows[pair][half:])
        for pair in (("instructed", "masked"), ("as is", "instructed"))
    )
    controls = {one["kind"]: one for one in result["controls"]}
    row = {
        f"{key}{ending}": value
        for kind, ending in (("shuffled", ""), ("shuffled_by_layer", "_layer_matched"))
        if kind in nearer
        for key, value in (nearer[kind] | controls[kind]).items()
    }
    change, random = nearer["as is"]["later_half"], row.get("later_half", {})
    by = f"mean cosine {_interval(change)} beside that as it is"
    by += f", {_interval(random)} beside random masks" if random else ""
    found = (
        f"In the later half of the layers the mean cosine with the instructed model is "
        f"{masked:.3f} under the mask and {plain:.3f} as it is"
    )
    claim = of_removal(
        "in later layers the masked model is nearer to the instructed one than the model as it is",
        row | {"against_random": random},
        f"{by}; {result['samples']} prompts of {result['task']}",
        change=change,
        sign=1,
    )
    return f"{found}.", claim


def _interval(one: Mapping[str, float]) -> str:
    return f"{one['mean']:+.3f} ({one['low']:+.3f} to {one['high']:+.3f})"


def _along(walk: Mapping[str, Any]) -> Lines:
    by_layer = zip(*(row["similarity"] for row in (walk["baseline"], *walk["steps"])), strict=True)
    series = [
        Series(f"layer {layer}", tuple((float(step), one) for step, one in enumerate(values)))
        for layer, values in enumerate(by_layer)
    ]
    title = "Cosine with the instructed model as heads go by rising weight"
    return Lines(title, tuple(series), "heads removed", "cosine")


def _at(walk: Mapping[str, Any]) -> int:
    """The step at which exactly the mask's heads are left, else the middle."""
    cut = (walk["mask"] or {}).get("cut_step")
    return len(walk["heads"]) // 2 if cut is None else cut


def _along_table(setting: Setting, walk: Mapping[str, Any]) -> Table:
    place = beside_walk(setting, "Figure 5")
    rows = (walk["baseline"], *walk["steps"])
    ends = rows[0]["similarity"], rows[_at(walk)]["similarity"]
    stable = place.value("removal in order of weight", "similarity is stable", "heads")
    half = len(ends[0]) // 2
    early, late = slice(0, max(half, 1)), slice(half, None)
    return Table(
        "Cosine with the instructed model, before and when the mask's heads are left",
        ("all heads", "the mask's heads"),
        (
            Row("first half of the layers", tuple(Cell(fmean(one[early])) for one in ends)),
            Row("second half of the layers", tuple(Cell(fmean(one[late])) for one in ends)),
            Row("heads removed", (Cell(0, digits=0), Cell(_at(walk), published=stable, digits=0))),
        ),
        place.reference,
        "The paper's number of heads is that after which the cosine stays as it is.",
    )


def _shifts(setting: Setting, walk: Mapping[str, Any]) -> list[tuple[float, float]]:
    """By how much each prompt's cosine changes, in the later and the earlier half of the layers."""
    file, cut = setting.at(WALK) / "steps.jsonl", _at(walk)
    if not file.is_file():
        return []
    by: dict[str, dict[int, list[float]]] = {}
    try:
        for line in file.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            if row["step"] in (0, cut):
                by.setdefault(row["id"], {})[row["step"]] = row["similarity"]
        moved = [[b - a for a, b in zip(one[0], one[cut], strict=True)] for one in by.values()]
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{file}: is damaged; delete {file.parent} and run the same command again"
        ) from error
    return [(fmean(one[len(one) // 2 :]), fmean(one[: max(1, len(one) // 2)])) for one in moved]


def _along_words(setting: Setting, walk: Mapping[str, Any]) -> str:
    """How the cosine changes by its interval over prompts; nothing of a single prompt."""
    shifts = _shifts(setting, walk)
    if len(shifts) < 2:
        return ""
    told = []
    for values, where in zip(zip(*shifts, strict=True), ("later", "earlier"), strict=True):
        low, high = (float(one) for one in t_interval(values))
        told.append(f"{fmean(values):+.3f} ({low:+.3f} to {high:+.3f}) in the {where} layers")
    return (
        "As heads go by rising weight until the mask's are left, the cosine with the instructed "
        f"model changes by {told[0]} and {told[1]}, 95 % intervals over prompts."
    )


FIGURE_4 = Experiment(
    "figure-4",
    ("Figure 4", "Figure 5", "Table 41"),
    "Whether the masked model passes through the states of the instructed one",
    _steps,
    _tell,
    needs=lambda setting, element, steps: too_few(setting, ("en-zh",)),
)
