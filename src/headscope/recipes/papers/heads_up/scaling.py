"""Figure 6 and Tables 8 and 42: heads outside the mask at part of their strength."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from headscope.recipes.inputs import Progress
from headscope.recipes.papers.heads_up.asked import (
    NO_PAIRS,
    Asked,
    check_file,
    directions,
    too_few,
)
from headscope.recipes.papers.heads_up.beside import (
    Beside,
    beside,
    cell,
    changed,
    condition,
    conditions,
    listed,
    mean_cell,
    not_run,
    surely,
    task_of,
)
from headscope.recipes.papers.heads_up.samples import outputs
from headscope.recipes.papers.heads_up.steps import asking_work, draws_of, mask_name, mask_step
from headscope.recipes.papers.paper import Experiment, Missing, Needed, Setting, Step
from headscope.recipes.papers.told import Cell, Lines, Row, Series, Table, Told
from headscope.recipes.verify.scaling import VerifyScaling, verify_scaling
from headscope.verify.masks.asking import Asking
from headscope.verify.masks.published import paragraph_bleu

__all__ = ["FIGURE_6"]

#: Shuffled masks that are scaled likewise; the paper has none.
DRAWS = 2
#: Examples that Table 42 shows.
EXAMPLES = 3
#: The directions of Table 8.
TABLE_8 = ("en-zh", "en-fr", "en-de", "zh-en", "fr-en", "de-en")
CHECK = Missing(
    "IWSLT2017's sentences to measure BLEU on",
    "a second --pairs en-zh=FILE of the same direction to measure on, or one beside a --pairs "
    f"FOLDER, of {listed(TABLE_8)}",
)
CONDITIONS = {
    "instructed": "instructed",
    "mask": "masked and instructed",
    "scaled mask": "scaled and instructed",
}


@dataclass(frozen=True)
class _Scale:
    task: Asked

    def __call__(
        self, setting: Setting, place: Path, progress: Progress | None
    ) -> Mapping[str, Any]:
        config = VerifyScaling(
            (str(setting.at(mask_name(self.task))),),
            self.task.choice,
            setting.model,
            check_file(setting, self.task.name),
            draws=draws_of(setting, DRAWS),
            seed=setting.seed,
            asking=Asking(paragraphs=True, batch_tokens=setting.batch_tokens),
        )
        return verify_scaling(config, place, progress)


def _name(task: Asked) -> str:
    return f"scaling-{task.name}"


def _tasks(setting: Setting) -> tuple[Asked, ...]:
    """The default directions, and those of Table 8 that a folder has besides."""
    return tuple(one for one in directions(setting) if one.default or one.name in TABLE_8)


def _steps(setting: Setting) -> tuple[Step, ...] | Missing:
    tasks = _tasks(setting)
    if not tasks:
        return Missing(
            f"{NO_PAIRS[0]}; {CHECK.why}",
            f"{NO_PAIRS[1]}; {CHECK.give}",
        )
    found: list[Step] = []
    draws = draws_of(setting, DRAWS)
    for task in tasks:
        grid = 11 + 10 * draws + 2
        # Half of the examples each; all are instructed but the last two of the grid.
        work = asking_work(setting, task, grid / 2, grid / 2 - 1, write=False)
        work += asking_work(setting, task, (3 + draws) / 2, (3 + draws) / 2)
        found += [
            mask_step(setting, task),
            Step(
                _name(task),
                f"heads outside the mask for {task.name} scaled",
                _Scale(task),
                work,
                (mask_name(task),),
                not task.default,
            ),
        ]
    return tuple(found)


def _needs(setting: Setting, element: str, steps: Sequence[Step]) -> Needed:
    """BLEU is of other sentences than the masks; the bundled model's halves are such."""
    if setting.pocket and not setting.data.pairs:
        return None
    wanted = {f"scaling-{name}" for name in TABLE_8}
    if element == "Figure 6":  # the α of Table 8's directions are its
        few = too_few(setting, TABLE_8)
        return few or [step for step in steps if step.name in wanted]
    checked = {_name(task) for task in _tasks(setting) if check_file(setting, task.name)}
    own = [step for step in steps if step.name in checked]
    if element == "Table 42":  # outputs of one direction
        return own[:1] or CHECK
    return CHECK if wanted - checked else [step for step in own if step.name in wanted]


def _tell(setting: Setting) -> Told:
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
    return Told(
        tuple(tables),
        (_lines(ran),) if ran else (),
        _found(ran),
        _sure(ran),
        {"answer": _answer(ran)},
    )


def _bleu(setting: Setting, tasks: Sequence[Asked], place: Beside) -> Table:
    """Table 8: BLEU of the instructed model, under the mask, under the scaled mask; and a control.

    The paper has no random masks.
    """
    drawn = tuple(
        mean_cell(
            (
                row
                for row in conditions(setting.result(_name(task)), task.name)
                if row["kind"] == "shuffled"
            ),
            "bleu_published",
        )
        for task in tasks
    )
    return Table(
        "BLEU of instructed translations",
        tuple(task.name for task in tasks),
        (
            *(
                Row(
                    name,
                    tuple(
                        cell(
                            condition(setting.result(_name(task)), task.name, own),
                            "bleu_published",
                            place.value(name, task.name, "bleu"),
                        )
                        for task in tasks
                    ),
                )
                for name, own in CONDITIONS.items()
            ),
            Row("scaled random masks", drawn),
        ),
        place.reference,
        "BLEU over characters as the published code has it, a mean over outputs. α was chosen by "
        "the loss on other sentences than these. Random masks, which the paper does not have, keep "
        "as many heads and "
        f"have the same α: mean of {draws_of(setting, DRAWS)} draws.",
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
        if not one:
            rows.append(Row(task.name, (not_run(theirs), not_run(), not_run(), not_run())))
            continue
        loss = {row["alpha"]: row for row in one["alphas"]}
        rows.append(
            Row(
                task.name,
                (
                    Cell(one["best"], published=theirs, digits=1),
                    cell(loss[0.0], "nll"),
                    cell(loss[one["best"]], "nll"),
                    cell(loss[1.0], "nll"),
                ),
            )
        )
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
    plain, scaled = made.get("instructed", []), made.get("scaled and instructed", [])
    both = zip(plain, scaled, strict=False)
    return [pair for pair in both if pair[0]["output"] != pair[1]["output"]], len(plain)


def _examples(setting: Setting, tasks: Sequence[Asked]) -> Table:
    """Table 42: some outputs, instructed and under the scaled mask, each with its BLEU."""
    place = beside(setting, "Table 42", "IWSLT2017", other="other sentences than the paper's three")
    found = {task.name: _differ(setting, task) for task in tasks}
    shown = next((name for name, (differ, _) in found.items() if differ), "")
    rows = []
    for at, pair in enumerate(found[shown][0][:EXAMPLES] if shown else (), 1):
        cells = [Cell(pair[0]["reference"])]
        for name, one in zip(("instructed", "scaled mask"), pair, strict=True):
            (bleu,) = paragraph_bleu([one["output"]], [one["reference"]])
            theirs = place.value(name, f"example {at}", "bleu")
            cells += [Cell(one["output"]), Cell(float(bleu), published=theirs)]
        rows.append(Row(pair[0]["input"], tuple(cells)))
    counted = (
        f"{name} {len(differ)} of {total}" for name, (differ, total) in found.items() if total
    )
    told = ", ".join(counted)
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
    lower, between = [], []
    for name, one in ran.items():
        loss = {row["alpha"]: row["nll"] for row in one["alphas"]}
        if loss[0.0] < loss[1.0]:
            lower.append(name)
        if 0 < one["best"] < 1:
            between.append(f"{name}, α {one['best']:g}{_less(name, one)}")
    told = (
        f"Under the instruction the mask lowers the loss in {len(lower)} of {len(ran)} directions. "
    )
    told += (
        f"An α between 0 and 1 is best in {len(between)}; on other sentences its loss less that at "
        f"α = 1 is {listed(between)}."
        if between
        else "No α between 0 and 1 is better than both ends."
    )
    bleu = {
        own: [
            row["bleu_published"]
            for name in ran
            if (row := condition({"tasks": ran}, name, own)) is not None
            and row.get("bleu_published") is not None
        ]
        for own in CONDITIONS.values()
    }
    plain, scaled = bleu["instructed"], bleu["scaled and instructed"]
    if plain and len(plain) == len(scaled):
        told += (
            f" BLEU on other sentences is {fmean(plain) / 100:.3f} instructed and "
            f"{fmean(scaled) / 100:.3f} with the scaled mask."
        )
    return told


def _less(name: str, one: Mapping[str, Any]) -> str:
    """The loss at the best α less that without a mask, on sentences that it was not chosen on."""
    less = changed(condition({"tasks": {name: one}}, name, "scaled and instructed"), "nll")
    if less is None:
        return " (not known)"
    return f": {less['value']:+.3f} ({less['low']:+.3f} to {less['high']:+.3f})"


def _sure(ran: Mapping[str, Mapping[str, Any]]) -> str:
    if not ran:
        return ""
    changes = [
        changed(condition({"tasks": ran}, name, "scaled and instructed"), "bleu_published")
        for name in ran
    ]
    control = _beyond_random(ran)
    up = sum(surely(one, 1) for one in changes)
    down = sum(surely(one, -1) for one in changes)
    return (
        f"By paired intervals BLEU surely rises with the scaled mask in {up} of {len(ran)} "
        f"directions and surely falls in {down}; its loss is surely lower than with random masks "
        f"scaled likewise in {control}. Where the instructed loss is flat in α, the best one "
        "depends on the sentences it was chosen on."
    )


def _beyond_random(ran: Mapping[str, Mapping[str, Any]]) -> int:
    """Directions in which the scaled mask surely has a lower loss than random ones scaled so."""
    rows = (condition({"tasks": ran}, name, "scaled and instructed") for name in ran)
    return sum(surely(changed(row, "nll", "against_shuffled"), -1) for row in rows)


def _answer(ran: Mapping[str, Mapping[str, Any]]) -> str:
    if not ran:
        return ""
    better = [
        name
        for name in ran
        if surely(changed(condition({"tasks": ran}, name, "scaled and instructed"), "nll"), -1)
    ]
    where = f"in {len(better)} of {len(ran)} directions" if better else "in no direction"
    told = f"Beside an instruction, turning the other heads down surely lowers the loss {where}"
    if better:
        told += f", and more than turning down random heads in {_beyond_random(ran)}"
    return f"{told}."


FIGURE_6 = Experiment(
    "figure-6",
    ("Figure 6", "Table 8", "Table 42"),
    "Heads outside the mask turned down instead of removed",
    _steps,
    _tell,
    _needs,
)
