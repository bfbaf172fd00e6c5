"""Table 6: heads that all masks share, those of one language, and heads that none keeps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from headscope.recipes.inputs import Progress
from headscope.recipes.papers.heads_up.asked import (
    NO_PAIRS,
    PAPER_DIRECTIONS,
    Asked,
    chosen,
    directions,
    too_few,
)
from headscope.recipes.papers.heads_up.beside import (
    beside,
    cell,
    changed,
    condition,
    conditions,
    listed,
    mean_cell,
    not_run,
    surely,
)
from headscope.recipes.papers.heads_up.steps import (
    Kind,
    asking_work,
    draws_of,
    mask_name,
    mask_step,
)
from headscope.recipes.papers.paper import Experiment, Missing, Setting, Step
from headscope.recipes.papers.told import Cell, Row, Table, Told
from headscope.recipes.tasks import TaskChoice
from headscope.recipes.verify.families import VerifyFamilies, verify_families
from headscope.verify.masks.asking import Asking

__all__ = ["TABLE_6"]

#: Draws of random heads, free and layer by layer; the paper has one.
DRAWS = 3


@dataclass(frozen=True)
class _Families:
    """The masks of some directions, whose shared heads are removed from instructed ones."""

    name: str
    masks: tuple[Asked, ...]
    tasks: tuple[Asked, ...]
    kind: Kind = ""

    def __call__(
        self, setting: Setting, place: Path, progress: Progress | None
    ) -> Mapping[str, Any]:
        masks = tuple(f"{t.name}={setting.at(mask_name(t, self.kind))}" for t in self.masks)
        config = VerifyFamilies(
            masks,
            (),
            _together(self.tasks),
            setting.model,
            draws_of(setting, DRAWS),
            seed=setting.seed,
            asking=Asking(batch_tokens=setting.batch_tokens),
            # Directions of one parallel corpus say the same things: what one holds out is among
            # what another's mask was trained on. How often is told.
            allow_overlap=bool(setting.data.pairs),
        )
        return verify_families(config, place, progress)


def _together(tasks: Sequence[Asked]) -> TaskChoice:
    """All these directions in one choice, held out and asked for as their masks were."""
    data = tuple(dict.fromkeys(place for task in tasks for place in task.choice.data))
    pairs = tuple(task.choice.pair[0] for task in tasks)
    return replace(tasks[0].choice, pair=pairs, data=data)


def _runs(setting: Setting) -> tuple[_Families, ...]:
    """The masks of the default directions; and those of all, begun with all heads and with few.

    Both are tested on the default directions, as the paper tests those of its Table 1.
    """
    every = directions(setting)
    tested = chosen(every)
    whole = (_Families("families-every", every, tested),) if len(every) > len(tested) else ()
    negative = _Families("families-negative", every, tested, "negative")
    return _Families("families", tested, tested), *whole, negative


def _family_steps(setting: Setting) -> tuple[Step, ...] | Missing:
    tasks = chosen(directions(setting))
    if not tasks:
        return Missing(*NO_PAIRS)
    if len(tasks) < 2:
        return Missing("sentence pairs of more than one direction", NO_PAIRS[1])
    found: list[Step] = []
    for run in _runs(setting):
        found += [mask_step(setting, task, run.kind) for task in run.masks]
        names = tuple(mask_name(task, run.kind) for task in run.masks)
        # Of each direction the whole model, and each family's heads with two kinds of draws.
        measured = len(tasks) * (1 + _family_count(run.masks) * (1 + 2 * draws_of(setting, DRAWS)))
        work = asking_work(setting, tasks[0], measured, measured, write=False)
        title = f"heads shared by {len(run.masks)} masks, by those of a language, and by none"
        if run.kind:
            title += ", begun with hardly any head"
        found.append(Step(run.name, title, run, work, names, run.name != "families"))
    return tuple(found)


def _family_count(tasks: Sequence[Asked]) -> int:
    """All tasks, the languages of some but not all of at least two, and unused heads."""
    spoken = Counter(code for task in tasks for code in set(task.name.split("-")))
    return 2 + sum(2 <= count < len(tasks) for count in spoken.values())


def _family_tell(setting: Setting) -> Told:
    tasks = chosen(directions(setting))
    tables, found, sure = [], "", ""
    for run in _runs(setting):
        result = setting.result(run.name)
        tables.append(_family_table(setting, tasks, run))
        if result is not None:  # the last is the paper's
            found, sure = _family_found(result, tasks), _family_sure(result, run)
    return Told(tuple(tables), found=found, sure=sure)


def _family_table(setting: Setting, tasks: Sequence[Asked], run: _Families) -> Table:
    result = setting.result(run.name)
    other = f"heads shared by {len(run.masks)} masks, in the paper by {PAPER_DIRECTIONS}"
    if not run.kind:
        other = "in the paper of masks begun with hardly any head"
    same = run.kind and len(run.masks) == PAPER_DIRECTIONS
    place = beside(setting, "Table 6", "XNLI", other="" if same else other)
    names = [task.name for task in tasks]
    total = setting.geometry.total
    if result is None:
        families = [{"name": name, "kept": None} for name in ("all", "en", "unused")]
    else:
        families = result["families"]
    rows = [
        Row(
            "instructed",
            (
                Cell(
                    None if result is None else total,
                    published=place.value("instructed", "heads", "heads"),
                    why="not run" if result is None else None,
                    digits=0,
                ),
                *(
                    cell(
                        condition(result, name, "instructed"),
                        "nll",
                        place.value("instructed", name, "nll"),
                    )
                    for name in names
                ),
            ),
        )
    ]
    for family in families:
        for random in (False, True):
            row = f"without {'random ' if random else ''}{family['name']}"
            theirs = place.value(row, "heads", "heads")
            kept = family["kept"]
            heads = (
                not_run(theirs, digits=0)
                if kept is None
                else Cell(kept, published=theirs, digits=0)
            )
            rows.append(
                Row(
                    row,
                    (
                        heads,
                        *(
                            _family_cell(
                                result, name, family, random, place.value(row, name, "nll")
                            )
                            for name in names
                        ),
                    ),
                )
            )
    how = "hardly any head, as in the paper" if run.kind else "all heads, as in Table 1"
    return Table(
        f"NLL of instructed directions without the heads that {len(run.masks)} masks share, begun "
        f"with {how}",
        ("heads left", *names),
        tuple(rows),
        place.reference,
        "All: heads that every mask keeps; a language: those that every mask of its directions "
        f"keeps; unused: those that none keeps. Random: as many others, mean of "
        f"{draws_of(setting, DRAWS)} draws.",
    )


def _family_cell(
    result: Mapping[str, Any] | None,
    task: str,
    family: Mapping[str, Any],
    random: bool,
    published: float | None,
) -> Cell:
    if result is None:
        return not_run(published)
    if not family["tested"]:
        return not_run(published, "no heads" if not family["removed"] else "all heads")
    if random:
        rows = [
            row
            for row in conditions(result, task)
            if row["kind"] == "random" and row["of"] == family["name"]
        ]
        return mean_cell(rows, "nll", published)
    return cell(condition(result, task, family["name"]), "nll", published)


def _family_found(result: Mapping[str, Any], tasks: Sequence[Asked]) -> str:
    told = [
        _harm(result, family, tasks) for family in result["families"] if family["name"] == "all"
    ]
    languages = [one for one in result["families"] if one["name"] not in ("all", "unused")]
    if languages:
        told.append(_languages(result, languages, tasks))
    told += [
        _spared(result, family, tasks)
        for family in result["families"]
        if family["name"] == "unused"
    ]
    return " ".join(told)


def _rows(result: Mapping[str, Any], name: str, tasks: Sequence[Asked]) -> list[Mapping[str, Any]]:
    rows = (condition(result, task.name, name) for task in tasks)
    return [row for row in rows if row is not None]


def _losses(
    result: Mapping[str, Any], family: Mapping[str, Any], tasks: Sequence[Asked]
) -> tuple[float, float]:
    """The mean loss of the instructed directions before and after."""
    before, after = (
        fmean(row["nll"] for row in _rows(result, name, tasks))
        for name in ("instructed", family["name"])
    )
    return before, after


def _beyond_random(
    result: Mapping[str, Any], family: Mapping[str, Any], tasks: Sequence[Asked]
) -> int:
    """Directions in which the family's removal surely harms more than that of random heads."""
    rows = _rows(result, family["name"], tasks)
    return sum(surely(changed(row, "nll", "against_random"), 1) for row in rows)


def _harm(result: Mapping[str, Any], family: Mapping[str, Any], tasks: Sequence[Asked]) -> str:
    if not family["tested"]:
        return f"{'No' if not family['removed'] else 'Every'} head is in all masks."
    before, after = _losses(result, family, tasks)
    return (
        f"Without the {family['removed']} heads that every mask keeps the instructed loss goes "
        f"from {before:.2f} to {after:.2f}, surely more than without random heads in "
        f"{_beyond_random(result, family, tasks)} of {len(tasks)} directions."
    )


def _languages(
    result: Mapping[str, Any], found: Sequence[Mapping[str, Any]], tasks: Sequence[Asked]
) -> str:
    tested = [one for one in found if one["tested"]]
    if not tested:
        return "No language has heads of its own that could be removed."
    parts = [
        f"{one['name']} ({one['removed']} heads: {_losses(result, one, tasks)[1]:.2f}; "
        f"{_beyond_random(result, one, tasks)} of {len(tasks)})"
        for one in tested
    ]
    return (
        "Likewise without those that all masks of one language keep, with the loss and the "
        f"directions surely harmed beyond random: {listed(parts)}."
    )


def _spared(result: Mapping[str, Any], family: Mapping[str, Any], tasks: Sequence[Asked]) -> str:
    if not family["tested"]:
        return f"{'No' if not family['removed'] else 'Every'} head is outside all masks."
    before, after = _losses(result, family, tasks)
    changes = [changed(row, "nll") for row in _rows(result, "unused", tasks)]
    down, up = (sum(surely(one, sign) for one in changes) for sign in (-1, 1))
    return (
        f"Without the {family['removed']} heads that no mask keeps it goes from {before:.2f} to "
        f"{after:.2f}: surely down in {down} and surely up in {up} of {len(tasks)} directions, "
        "where the paper's goes down."
    )


def _family_sure(result: Mapping[str, Any], run: _Families) -> str:
    if run.kind:
        return "Intervals over held-out sentences, random heads beside every family." + _overlap(
            result
        )
    told = (
        "The paper takes masks begun with hardly any head, which are smaller; those were not run, "
        "and these begin with all heads, as those of Table 1 do."
    )
    large = [
        family["name"]
        for family in result["families"]
        if family["tested"] and family["pool"] == "all"
    ]
    if large:
        told += (
            f" {listed(large)} {'has' if len(large) == 1 else 'have'} more than half of all heads, "
            "so random heads overlap with them and any such removal is harmful."
        )
    return told + _overlap(result)


def _overlap(result: Mapping[str, Any]) -> str:
    """How many tested sentences masks have seen, counted once a mask."""
    seen = result["leakage"]["overlap"]
    if not seen:
        return ""
    return (
        f" Of {result['leakage']['of']} tested sentences masks were trained on {seen}, counted "
        "once a mask, in another direction's words."
    )


TABLE_6 = Experiment(
    "table-6",
    ("Table 6",),
    "Heads that all masks share, those of one language, and heads that no mask keeps",
    _family_steps,
    _family_tell,
    needs=lambda setting, element, steps: too_few(setting),
)
