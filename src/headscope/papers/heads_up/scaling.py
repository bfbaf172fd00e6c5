"""Figure 6 and Tables 8 and 42: heads outside the mask at part of their strength."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from headscope.papers.claims import with_claims
from headscope.papers.heads_up.asked import NO_PAIRS, Asked, check_file, directions, too_few
from headscope.papers.heads_up.beside import (
    Beside,
    beside,
    cell,
    changed,
    condition,
    listed,
    mean_cell,
    not_run,
    task_of,
)
from headscope.papers.heads_up.samples import outputs
from headscope.papers.heads_up.steps import asking_work, draws_of, mask_name, mask_step
from headscope.papers.heads_up.verdict import MEASURES, of_masks
from headscope.papers.paper import Experiment, Missing, Needed, Setting, Step
from headscope.runs import encode
from headscope.shown.blocks import Cell, Claim, Findings, Lines, Row, Series, Table, grid
from headscope.studies.inputs import Progress
from headscope.studies.verify.scaling import VerifyScaling, verify_scaling
from headscope.verify.masks.asking import Asking
from headscope.verify.masks.published import paragraph_bleu

#: Shuffled masks that are scaled likewise for Figure 6, which only shows them; the paper has none.
DRAWN = 2
FLAT = "Where the loss is flat in α, the best one depends on the sentences it was chosen on."
#: Examples that Table 42 shows.
EXAMPLES = 3
#: The directions of Table 8.
TABLE_8 = ("en-zh", "en-fr", "en-de", "zh-en", "fr-en", "de-en")
CHECK = Missing(
    "IWSLT2017's sentences to measure BLEU on",
    "a second --pairs en-zh=FILE of the same direction to measure on, or one beside a --pairs "
    f"FOLDER, of {listed(TABLE_8)}",
)
SCALED = "scaled and instructed"
CONDITIONS = {
    "instructed": "instructed",
    "mask": "masked and instructed",
    "scaled mask": SCALED,
}


def _scale(
    task: Asked, setting: Setting, place: Path, progress: Progress | None
) -> Mapping[str, Any]:
    draws = draws_of(setting)
    config = VerifyScaling(
        (str(setting.at(mask_name(task))),),
        task.choice,
        setting.model,
        check_file(setting, task.name),
        draws=draws,
        grid_draws=min(DRAWN, draws),
        seed=setting.seed,
        asking=Asking(paragraphs=True, batch_tokens=setting.batch_tokens),
    )
    return encode(verify_scaling(config, place, progress))


def _name(task: Asked) -> str:
    return f"scaling-{task.name}"


def _tasks(setting: Setting) -> tuple[Asked, ...]:
    """The default directions, and those of Table 8 that a folder has besides."""
    return tuple(one for one in directions(setting) if one.default or one.name in TABLE_8)


def _steps(setting: Setting) -> tuple[Step, ...] | Missing:
    tasks = _tasks(setting)
    if not tasks:
        return Missing(f"{NO_PAIRS[0]}; {CHECK.why}", f"{NO_PAIRS[1]}; {CHECK.give}")
    found: list[Step] = []
    draws = draws_of(setting)
    for task in tasks:
        grid = 11 + 10 * min(DRAWN, draws) + 2
        # Half of the examples each; all are instructed but the last two of the grid.
        work = asking_work(setting, task, grid / 2, grid / 2 - 1, write=False)
        work += asking_work(setting, task, (3 + draws) / 2, (3 + draws) / 2)
        title, mask = f"heads outside the mask for {task.name} scaled", mask_name(task)
        scale = Step(_name(task), title, partial(_scale, task), work, (mask,), not task.default)
        found += [mask_step(setting, task), scale]
    return tuple(found)


def _needs(setting: Setting, element: str, steps: Sequence[Step]) -> Needed:
    """BLEU is of other sentences than the masks; the bundled model's halves are such."""
    if setting.pocket and not setting.data.pairs:
        return None
    # The examples of Table 42 are of one direction, which its caption has the other way round.
    wanted = {f"scaling-{name}" for name in (("zh-en",) if element == "Table 42" else TABLE_8)}
    own = [step for step in steps if step.name in wanted]
    if element == "Figure 6":  # the α of Table 8's directions are its
        return too_few(setting, TABLE_8) or own
    checked = {_name(task) for task in _tasks(setting) if check_file(setting, task.name)}
    return CHECK if wanted - checked else own


def _tell(setting: Setting) -> Findings:
    tasks = _tasks(setting)
    results = {task.name: task_of(setting.result(_name(task)), task.name) for task in tasks}
    ran = {name: one for name, one in results.items() if one}
    # Masks and α come from XNLI in the paper, BLEU from the second files.
    bleu = beside(
        setting,
        "Table 8",
        "XNLI and IWSLT2017",
        other="words of Chinese not set apart, as the published code sets them",
    )
    tables = [_bleu(setting, tasks, bleu), _alphas(setting, tasks, results)]
    if ran:
        tables.append(_examples(setting, [task for task in tasks if results[task.name]]))
    claims = _claims(ran) if ran else []
    return Findings(
        tuple(tables),
        (_lines(ran),) if ran else (),
        _found(ran),
        FLAT if ran else "",
        with_claims(*claims),
    )


def _bleu(setting: Setting, tasks: Sequence[Asked], place: Beside) -> Table:
    """Table 8: BLEU of the instructed model, under the mask, under the scaled mask; and a control.

    The paper has no random masks.
    """
    results = {task.name: setting.result(_name(task)) for task in tasks}
    draws = next((one["draws"] for one in results.values() if one), draws_of(setting))
    random = "scaled random masks"
    left = sum(task_of(one, name).get("left_out", 0) for name, one in results.items())

    def shown(name: str, task: str) -> Cell:
        if name == random:
            return mean_cell(_drawn(task_of(results[task], task)), "bleu_published")
        row = condition(results[task], task, CONDITIONS[name])
        return cell(row, "bleu_published", place.value(name, task, "bleu"))

    return grid(
        "BLEU of instructed translations",
        (*CONDITIONS, random),
        results,
        shown,
        place.reference,
        "BLEU over characters as the published code has it, a mean over outputs. α was chosen by "
        "the loss on other sentences than these. Random masks, which the paper does not have, keep "
        f"as many heads and have the same α: mean of {draws} draws."
        + (f" {left} sentences were left out, which masks or α were made with." * (left > 0)),
    )


def _alphas(
    setting: Setting, tasks: Sequence[Asked], results: Mapping[str, Mapping[str, Any]]
) -> Table:
    place = beside(setting, "Figure 6", "XNLI")
    low, high = (place.value("scaled mask", f"best, {end}", "alpha") for end in ("least", "most"))
    theirs = None if low is None or high is None else f"{low:g} or {high:g}"
    rows = []
    for task in tasks:
        one = results[task.name]
        cells = [not_run(theirs), not_run(), not_run(), not_run()]
        if one:
            loss = {row["alpha"]: row for row in one["alphas"]}
            cells = [Cell(one["best"], published=theirs, digits=1)]
            cells += [cell(loss[alpha], "nll") for alpha in (0.0, one["best"], 1.0)]
        rows.append(Row(task.name, tuple(cells)))
    return Table(
        "The best α by the loss of the instructed task",
        ("best α", "NLL at α = 0", "at the best α", "at α = 1, no mask"),
        tuple(rows),
        place.reference,
    )


def _lines(ran: Mapping[str, Mapping[str, Any]]) -> Lines:
    series, ends = [], {"masked": 0.0, "as is": 1.0}
    for name, one in ran.items():
        rows = one["alphas"]
        series.append(
            Series(
                name,
                tuple((row["alpha"], row["nll"]) for row in rows),
                tuple(row["intervals"]["nll"]["low"] for row in rows),
                tuple(row["intervals"]["nll"]["high"] for row in rows),
            )
        )
        drawn = [(row["alpha"], fmean(row["shuffled"])) for row in rows if row["shuffled"]]
        if drawn:
            series.append(Series(f"{name}, random masks", tuple(drawn)))
        # The paper's "x": one point at the end that is no mask, one where the mask is whole.
        series += [
            Series(f"{name}, no instruction, {row['name']}", ((ends[row["name"]], row["nll"]),))
            for row in one.get("uninstructed", ())
        ]
    note = "Points without a line are the same sentences without an instruction."
    return Lines("Loss of instructed directions by α", tuple(series), "α", "NLL", note=note)


def _differ(setting: Setting, task: Asked) -> tuple[list[tuple[Mapping[str, Any], ...]], int]:
    """The outputs that the scaled mask changes, instructed and under it, and how many there are."""
    made = outputs(setting, _name(task), task.name)
    plain, scaled = made.get("instructed", []), made.get(SCALED, [])
    both = zip(plain, scaled, strict=False)
    return [pair for pair in both if pair[0]["output"] != pair[1]["output"]], len(plain)


def _examples(setting: Setting, tasks: Sequence[Asked]) -> Table:
    """Table 42: some outputs, instructed and under the scaled mask, each with its BLEU."""
    place = beside(setting, "Table 42", "IWSLT2017", other="other sentences than the paper's three")
    found = {task.name: _differ(setting, task) for task in tasks}
    shown = next((name for name in ("zh-en", *found) if found.get(name, ((), 0))[0]), "")
    rows = []
    for at, pair in enumerate(found[shown][0][:EXAMPLES] if shown else (), 1):
        cells = [Cell(pair[0]["reference"])]
        for name, one in zip(("instructed", "scaled mask"), pair, strict=True):
            (bleu,) = paragraph_bleu([one["output"]], [one["reference"]])
            theirs = place.value(name, f"example {at}", "bleu")
            cells += [Cell(one["output"]), Cell(float(bleu), published=theirs)]
        rows.append(Row(pair[0]["input"], tuple(cells)))
    told = ", ".join(f"{name} {len(own)} of {all_}" for name, (own, all_) in found.items() if all_)
    return Table(
        "Outputs that the scaled mask changes" + (f" ({shown})" if shown else ""),
        ("right", "instructed", "its BLEU", "with the scaled mask", "its BLEU, scaled"),
        tuple(rows),
        place.reference,
        f"The first of those that differ; by direction: {told}."
        if told
        else "The outputs are not at hand.",
    )


def _found(ran: Mapping[str, Mapping[str, Any]]) -> str:
    if not ran:
        return ""
    losses = [{row["alpha"]: row["nll"] for row in one["alphas"]} for one in ran.values()]
    lower = sum(loss[0.0] < loss[1.0] for loss in losses)
    between = [f"{name}, {_less(name, one)}" for name, one in ran.items() if 0 < one["best"] < 1]
    best = (
        f"An α between 0 and 1 is best in {len(between)}; on other sentences its loss less that at "
        f"α = 1 is {listed(between)}."
    )
    none = "No α between 0 and 1 is better than both ends."
    return (
        f"Under the instruction the mask lowers the loss in {lower} of {len(ran)} directions. "
        f"{best if between else none}"
    )


def _less(name: str, one: Mapping[str, Any]) -> str:
    """The loss at the best α less that without a mask, on sentences that it was not chosen on."""
    less = changed(condition({"tasks": {name: one}}, name, SCALED), "nll")
    if less is None:
        return f"α {one['best']:g} (not known)"
    return f"α {one['best']:g}: {less['value']:+.3f} ({less['low']:+.3f} to {less['high']:+.3f})"


def _claims(ran: Mapping[str, Mapping[str, Any]]) -> list[Claim]:
    """That the scaled mask helps an instructed model, where an α below 1 was chosen."""
    rows = {
        name: {
            "instructed": condition({"tasks": ran}, name, "instructed"),
            "mask": condition({"tasks": ran}, name, SCALED),
            "random mask": _drawn(one),
            "examples": one.get("examples"),
        }
        for name, one in ran.items()
        if one["best"] < 1
    }
    words = {"instructed": "instructed", "mask": "scaled"}
    words["random mask"] = "with random masks scaled"
    claims = []
    for measure, gain in (("bleu_published", "higher BLEU"), ("nll", "lower loss")):
        named = f"instructed translation has a {gain} with the other heads turned down"
        claims.append(
            of_masks(named, rows, measure, "direction", MEASURES[measure][1], words)
            if rows
            else Claim(named, None, "α = 1 is best in every direction", decides="more examples")
        )
    return claims


def _drawn(one: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """A task under random masks scaled likewise, draw by draw."""
    return [row for row in one.get("conditions", ()) if row["kind"] == "shuffled"]


FIGURE_6 = Experiment(
    "figure-6",
    ("Figure 6", "Table 8", "Table 42"),
    "Heads outside the mask turned down instead of removed",
    _steps,
    _tell,
    _needs,
)
