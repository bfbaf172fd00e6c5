"""Table 6: heads that all masks share, those of one language, and heads that none keeps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from headscope.papers.claims import with_claims
from headscope.papers.heads_up.asked import (
    NO_PAIRS,
    PAPER_DIRECTIONS,
    Asked,
    chosen,
    directions,
    too_few,
)
from headscope.papers.heads_up.beside import (
    beside,
    cell,
    condition,
    conditions,
    listed,
    mean_cell,
    not_run,
    task_of,
)
from headscope.papers.heads_up.steps import (
    Kind,
    asking_work,
    draws_of,
    mask_name,
    mask_step,
)
from headscope.papers.heads_up.verdict import of_masks
from headscope.papers.paper import Experiment, Missing, Setting, Step
from headscope.runs import encode
from headscope.shown.blocks import NOT_RUN, Cell, Claim, Findings, Table, grid
from headscope.studies.inputs import Progress
from headscope.studies.tasks import TaskChoice
from headscope.studies.verify.families import VerifyFamilies, verify_families
from headscope.verify.masks.asking import Asking

#: The column of how many heads are left.
LEFT = "heads left"


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
            draws_of(setting, text=False),
            seed=setting.seed,
            asking=Asking(batch_tokens=setting.batch_tokens),
            # Directions of one parallel corpus say the same things: what one holds out is among
            # what another's mask was trained on. How often is told.
            allow_overlap=bool(setting.data.pairs),
        )
        return encode(verify_families(config, place, progress))


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
        draws = draws_of(setting, text=False)
        measured = len(tasks) * (1 + _family_count(run.masks) * (1 + 2 * draws))
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


def _family_tell(setting: Setting) -> Findings:
    tasks = chosen(directions(setting))
    tables, found, sure, claims = [], "", "", {}
    for run in _runs(setting):
        result = setting.result(run.name)
        tables.append(_family_table(setting, tasks, run))
        if result is not None:  # the last is the paper's
            claims = _family_claims(result, tasks)
            found, sure = _family_found(result, claims), _family_sure(result, run)
    return Findings(tuple(tables), (), found, sure, with_claims(*claims.values()))


def _family_table(setting: Setting, tasks: Sequence[Asked], run: _Families) -> Table:
    result = setting.result(run.name)
    other = f"heads shared by {len(run.masks)} masks, in the paper by {PAPER_DIRECTIONS}"
    if not run.kind:
        other = "in the paper of masks begun with hardly any head"
    same = run.kind and len(run.masks) == PAPER_DIRECTIONS
    place = beside(setting, "Table 6", "XNLI", other="" if same else other)
    draws = draws_of(setting, text=False) if result is None else result["draws"]
    names = [task.name for task in tasks]
    whole = {"kept": None if result is None else setting.geometry.total}
    if result is None:
        families = [{"name": name, "kept": None} for name in ("all", "en", "unused")]
    else:
        families = result["families"]
    removed = {
        f"without {'random ' if random else ''}{family['name']}": (family, random)
        for family in families
        for random in (False, True)
    }

    def shown(row: str, column: str) -> Cell:
        family, random = removed.get(row, (whole, False))
        if column == LEFT:
            kept, theirs = family["kept"], place.value(row, "heads", "heads")
            why = None if kept is not None else NOT_RUN
            return Cell(kept, published=theirs, why=why, digits=0)
        theirs = place.value(row, column, "nll")
        if family is whole:
            return cell(condition(result, column, row), "nll", theirs)
        return _family_cell(result, column, family, random, theirs)

    how = "hardly any head, as in the paper" if run.kind else "all heads, as in Table 1"
    return grid(
        f"NLL of instructed directions without the heads that {len(run.masks)} masks share, begun "
        f"with {how}",
        ("instructed", *removed),
        (LEFT, *names),
        shown,
        place.reference,
        "All: heads that every mask keeps; a language: those that every mask of its directions "
        f"keeps; unused: those that none keeps. Random: as many others, mean of {draws} draws.",
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
        return mean_cell(_random(result, task, family), "nll", published)
    return cell(condition(result, task, family["name"]), "nll", published)


def _family_claims(result: Mapping[str, Any], tasks: Sequence[Asked]) -> dict[str, Claim]:
    """That translation needs what masks share, and gains without what none keeps, by loss.

    By what is removed. A language's heads are tested in its own directions.
    """
    tested = [one for one in result["families"] if one["tested"]]
    languages = [one["name"] for one in tested if one["name"] not in ("all", "unused")]
    claims = {}
    for names, heads, does, sign in (
        (["all"], "the heads that every mask keeps", "needs", 1),
        (languages, "the heads that every mask of a language keeps", "needs", 1),
        (["unused"], "the heads that no mask keeps", "gains without", -1),
    ):
        own = [one for one in tested if one["name"] in names]
        rows = {
            f"{one['name']} {task.name}": {
                "instructed": condition(result, task.name, "instructed"),
                "mask": condition(result, task.name, one["name"]),
                "random mask": _random(result, task.name, one),
                "examples": task_of(result, task.name).get("examples"),
            }
            for one in own
            for task in tasks
            if task.name in one["tasks"]
        }
        if not rows:
            continue
        sizes = " to ".join(
            dict.fromkeys(str(pick(one["removed"] for one in own)) for pick in (min, max))
        )
        words = {"instructed": "with all heads", "mask": f"without these {sizes}"}
        words["random mask"] = "without random ones"
        named = f"instructed translation {does} {heads}, by loss"
        what = "direction" if names != languages else "case"
        claims[heads] = of_masks(named, rows, "nll", what, sign, words, "random")
    return claims


def _random(
    result: Mapping[str, Any] | None, task: str, family: Mapping[str, Any]
) -> list[Mapping[str, Any]]:
    """A task without as many random heads as the family has, draw by draw."""
    place = ("random", family["name"])
    return [row for row in conditions(result, task) if (row["kind"], row["of"]) == place]


def _family_found(result: Mapping[str, Any], claims: Mapping[str, Claim]) -> str:
    told = [f"Without {heads}: {one.by}." for heads, one in claims.items()]
    for name, where in (("all", "in all masks"), ("unused", "outside all masks")):
        own = next(one for one in result["families"] if one["name"] == name)
        if not own["tested"]:
            told.append(f"{'Every' if own['removed'] else 'No'} head is {where}.")
    return " ".join(told)


def _family_sure(result: Mapping[str, Any], run: _Families) -> str:
    told = (
        "As in the paper, masks begin with hardly any head."
        if run.kind
        else "The paper takes masks begun with hardly any head, which are smaller; those were not "
        "run, and these begin with all heads, as those of Table 1 do."
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
