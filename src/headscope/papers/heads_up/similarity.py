"""Tables 5, 37 and 38, and Figure 7: how alike masks are, and where their heads lie."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from headscope.papers.claims import LEVEL, of_interval, with_claims
from headscope.papers.heads_up.asked import (
    NO_PAIRS,
    TABLE_1,
    TABLE_2,
    Asked,
    chosen,
    directions,
    too_few,
    word_tasks,
)
from headscope.papers.heads_up.beside import MAIN, Beside, beside, not_run, partner
from headscope.papers.heads_up.steps import mask_name, mask_step, slug
from headscope.papers.heads_up.translation import of_tasks, others_of
from headscope.papers.paper import Experiment, Missing, Needed, Setting, Step
from headscope.runs import encode
from headscope.shown.blocks import Cell, Claim, Findings, Heatmap, Row, Table, grid
from headscope.studies.compare.masks import CompareMasks, compare_masks
from headscope.studies.costs.work import Work
from headscope.studies.inputs import Progress, kin

#: Of which base model the paper compares the masks of an instructed one.
SIMILARITY = {MAIN: "Table 37", "Llama-3.1-8B": "Table 37"}
SIMILARITY |= {"Qwen2.5-7B-Instruct": "Table 38", "Qwen2.5-7B": "Table 38"}
NO_PARTNER = Missing(
    "the paper compares the masks of an instructed model with those of its base model",
    "--others MODEL with --pairs and --tasks, MODEL being the other one of these two",
    "needs MODEL",
)
COMPARED = "masks-compared"
#: Columns beside another model's masks: our key, the paper's measure, decimals.
PAIR = {
    "heads": ("size_a", "heads", 0),
    "heads of the other": ("size_b", "heads", 0),
    "Jaccard": ("jaccard", "jaccard", 3),
    "expected": ("expected", "expected", 3),
    "recall": ("recall", "recall", 3),
}


def _compare(
    masks: tuple[str, ...], base: tuple[str, ...],
    setting: Setting, place: Path, progress: Progress | None,
) -> Mapping[str, Any]:  # fmt: skip
    """The masks of these steps beside each other, and beside those of a base model."""
    own, others = (tuple(str(setting.at(name)) for name in names) for names in (masks, base))
    return encode(compare_masks(CompareMasks(own, others), place))


def default_masks(setting: Setting) -> tuple[Asked, ...]:
    """The directions and word tasks whose masks are trained by default."""
    return (*chosen(directions(setting)), *chosen(word_tasks(setting)))


def _asked_of_others(setting: Setting) -> tuple[Asked, ...]:
    """The tasks whose files other models can be asked about, too."""
    found = directions(setting) if setting.data.pairs else ()
    return (*found, *(word_tasks(setting) if setting.data.tasks else ()))


def _base_name(other: str) -> str:
    return f"masks-of-{slug(other)}"


def _compared(setting: Setting) -> tuple[Step, ...] | Missing:
    """The masks of directions, as in the paper, and of the bundled model's words."""
    tasks = (*directions(setting), *(word_tasks(setting) if setting.pocket else ()))
    return _beside_each_other(setting, tasks) if len(chosen(tasks)) > 1 else Missing(*NO_PAIRS)


def _beside_each_other(
    setting: Setting, tasks: tuple[Asked, ...], other: str | None = None
) -> tuple[Step, ...]:
    """The default masks, and all of them, beside each other or beside another model's."""
    found = [mask_step(setting, task, other=other) for task in tasks]
    default = chosen(tasks)
    for part in (default, tasks) if len(tasks) > len(default) else (default,):
        own = tuple(mask_name(task) for task in part)
        base = tuple(mask_name(task, other=other) for task in part) if other else ()
        name = _base_name(other) if other else COMPARED
        more = len(part) > len(default)
        whose = f"those of {slug(other)}" if other else "each other"
        title, compare = f"{len(part)} masks beside {whose}", partial(_compare, own, base)
        name += "-every" if more else ""
        found.append(Step(name, title, compare, Work(), (*own, *base), more))
    return tuple(found)


def _widest(setting: Setting, name: str) -> dict[str, Any] | None:
    """The result over all masks, else that over the default ones."""
    return setting.result(f"{name}-every") or setting.result(name)


def _steps(setting: Setting) -> tuple[Step, ...] | Missing:
    tasks = _asked_of_others(setting)
    if not tasks or not others_of(setting):
        return NO_PARTNER
    own = [mask_step(setting, task) for task in tasks]
    others = (_beside_each_other(setting, tasks, other) for other in others_of(setting))
    return (*own, *(step for steps in others for step in steps))


def _needs(setting: Setting, element: str, steps: Sequence[Step]) -> Needed:
    """Table 5 the default masks of both models; of Tables 37 and 38 this model's all masks."""
    if not kin(setting.model.model, others_of(setting), r"-(instruct|it|chat|base)\b"):
        return NO_PARTNER
    every = too_few(setting) or too_few(setting, words=True)
    first = too_few(setting, TABLE_1) or too_few(setting, TABLE_2, words=True)
    return of_tasks(setting, element, steps, (SIMILARITY,), every, first)


def _tell(setting: Setting) -> Findings:
    """Tables 5, 37 and 38: each task's mask of this model beside the other model's."""
    tables, claims = [], []
    for other in others_of(setting):
        place = beside(setting, SIMILARITY, "XNLI" if directions(setting) else None)
        result = _widest(setting, _base_name(other))
        pairs = [] if result is None else result["base"]["pairs"]
        by_task = {pair["task"]: pair for pair in pairs}
        every = _asked_of_others(setting)
        tables.append(
            grid(
                f"Masks beside those of {slug(other)}",
                [task.name for task in every if task.default or task.name in by_task],
                PAIR,
                partial(_pair_cell, place, other, by_task),
                place.reference,
                "Expected is the paper's ratio (equation 4) for random masks of these sizes; "
                "recall is the share of the other model's heads that this model's mask keeps.",
            )
        )
        if result is None:
            continue
        mean = result["base"]["mean"]
        above = result["base"]["above_chance"]
        over = sum(pair["jaccard"] > pair["expected_exact"] for pair in pairs)
        named = f"its masks share more heads with those of {slug(other)} than random ones would"
        by = (
            f"Jaccard index {mean['jaccard']['mean']:.3f} on average, by chance "
            f"{mean['expected_exact']['mean']:.3f}, above by {above['mean']:.3f} "
            f"({above['low']:.3f} to {above['high']:.3f}); more than chance in {over} of "
            f"{len(pairs)} tasks"
        )
        claims.append(of_interval(named, above, by, "an interval over tasks", sign=1))
    told = " ".join(f"{one.by}." for one in claims)
    return Findings(tuple(tables), (), told, more=with_claims(*claims))


def _pair_cell(
    place: Beside, other: str, pairs: Mapping[str, Mapping[str, Any]], task: str, column: str
) -> Cell:
    key, measure, digits = PAIR[column]
    row = "mask" if column == "heads" else partner(place, other)
    published = None if row is None else place.value(row, task, measure)
    pair = pairs.get(task)
    if pair is None or pair[key] is None:
        return not_run(published, digits=digits)
    return Cell(pair[key], published=published, digits=digits)


TABLE_5 = Experiment(
    "table-5",
    ("Table 5", "Table 37", "Table 38"),
    "Masks of an instructed model beside those of its base model",
    _steps,
    _tell,
    _needs,
)


def _maps(setting: Setting) -> Findings:
    result = _widest(setting, COMPARED)
    if result is None:
        return Findings()
    own = [one for one in result["masks"] if not one["base"]]
    figures = [
        Heatmap(
            f"{one['name']}: {one['selected']} heads kept",
            tuple(str(layer) for layer in range(setting.geometry.layers)),
            tuple(str(head) for head in range(setting.geometry.width)),
            tuple(tuple(row) for row in result["maps"][one["name"]]),
            "σ(weight)",
            "layer",
            "head",
            0.0,
            1.0,
            note="A head is kept from 0.5 on.",
        )
        for one in own
    ]
    claims = _alike(result)
    found, sure = _maps_words(own, result)
    found = " ".join((found, *(f"Two directions: {one.by}." for one in claims)))
    return Findings((_group_table(own),), figures, found, sure, with_claims(*claims))


def _alike(result: Mapping[str, Any]) -> list[Claim]:
    """That every two directions' masks share more heads than random ones would."""
    pairs = [pair for pair in result["pairs"] if pair.get("relation") is not None]
    if not pairs:
        return []
    largest = max(pair["p_value"] for pair in pairs)
    jaccard, chance = (fmean(pair[key] for pair in pairs) for key in ("jaccard", "expected_exact"))
    low = sum(pair["p_value"] <= LEVEL for pair in pairs)
    by = (
        f"Jaccard index {jaccard:.2f} on average, {chance:.2f} by chance; p at most {LEVEL} in "
        f"{low} of {len(pairs)} pairs, the largest {largest:.2g}"
    )
    holds = True if largest <= LEVEL else None
    decides = "" if holds else "more masks of each direction, from other seeds"
    tested = "random sets of as many heads (hypergeometric)"
    named = "the masks of every two directions share more heads than random ones would"
    return [Claim(named, holds, by, tested, decides=decides)]


def _group_table(own: Sequence[Mapping[str, Any]]) -> Table:
    rows = []
    for one in own:
        earlier, later = _halves(one)
        groups = one["groups"] or {}
        rows.append(
            Row(
                one["name"],
                (
                    Cell(one["kept_share"]),
                    Cell(why="one layer") if earlier is None else Cell(earlier),
                    Cell(later),
                    _known(groups.get("dropped"), 0),
                    _known(groups.get("expected"), 2),
                    _known(groups.get("p_value")),
                ),
            )
        )
    return Table(
        "Heads kept, and key-value groups without any",
        ("kept", "first half of layers", "second half", "groups dropped", "by chance", "p"),
        tuple(rows),
        note="Shares of heads. A group is the query heads that read the same keys and values.",
    )


def _halves(mask: Mapping[str, Any]) -> tuple[float | None, float]:
    """Mean shares of kept heads in the earlier and later half of the layers that have heads."""
    shares = [layer["share"] for layer in mask["layers"] if layer["share"] is not None]
    half = len(shares) // 2
    return (fmean(shares[:half]) if half else None), fmean(shares[half:])


def _known(value: float | None, digits: int = 3) -> Cell:
    return Cell(value, digits=digits) if value is not None else Cell(why="no groups")


def _maps_words(own: Sequence[Mapping[str, Any]], result: Mapping[str, Any]) -> tuple[str, str]:
    later = 0
    for one in own:
        first, second = _halves(one)
        later += first is not None and second > first
    told = (
        f"Heads are kept in the later half of the layers more than in the earlier one in {later} "
        f"of {len(own)} masks."
    )
    grouped = [one["groups"] for one in own if one["groups"]]
    always = result["always_dropped_groups"]
    if not grouped or always is None:
        return told, "Key-value groups are not known for this model."
    dropped = sum(one["dropped"] for one in grouped)
    by_chance = sum(one["expected"] for one in grouped)
    told += (
        f" Of key-value groups {dropped} are dropped as a whole over all masks, {by_chance:.1f} "
        f"would be by chance; {len(always)} are in every mask."
    )
    least = min(one["p_value"] for one in grouped)
    return told, f"Of the single masks the smallest p for dropped groups is {least:.2g}."


FIGURE_7 = Experiment(
    "figure-7",
    ("Figure 7",),
    "Where the heads of masks lie, and whether key-value groups go as a whole",
    _compared,
    _maps,
    needs=lambda setting, element, steps: too_few(setting),
)
