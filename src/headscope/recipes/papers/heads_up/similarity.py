"""Tables 5, 37 and 38, and Figure 7: how alike masks are, and where their heads lie."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from statistics import fmean
from typing import Any

from headscope.recipes.compare.masks import CompareMasks, compare_masks
from headscope.recipes.costs.work import Work
from headscope.recipes.inputs import Progress
from headscope.recipes.papers.heads_up.asked import (
    NO_MASKS,
    Asked,
    all_directions,
    chosen,
    directions,
    few_directions,
    few_words,
    word_tasks,
)
from headscope.recipes.papers.heads_up.beside import MAIN, Beside, beside, not_run, partner
from headscope.recipes.papers.heads_up.steps import mask_name, mask_step, slug
from headscope.recipes.papers.heads_up.translation import of_tasks, others_of
from headscope.recipes.papers.paper import Experiment, Missing, Needed, Setting, Step
from headscope.recipes.papers.told import Cell, Heatmap, Row, Table, Told

__all__ = ["FIGURE_7", "TABLE_5", "default_masks"]

#: Of which base model the paper compares the masks of an instructed one.
SIMILARITY = {MAIN: "Table 37", "Qwen2.5-7B-Instruct": "Table 38"}
COMPARED = "masks-compared"


@dataclass(frozen=True)
class _Compare:
    """The masks of these steps beside each other, and beside those of a base model."""

    masks: tuple[str, ...]
    base: tuple[str, ...] = ()

    def __call__(
        self, setting: Setting, place: Path, progress: Progress | None
    ) -> Mapping[str, Any]:
        own, base = (
            tuple(str(setting.at(name)) for name in names) for names in (self.masks, self.base)
        )
        return compare_masks(CompareMasks(own, base), place)


def default_masks(setting: Setting) -> tuple[Asked, ...]:
    """The directions and word tasks whose masks are trained by default."""
    return (*chosen(directions(setting)), *chosen(word_tasks(setting)))


def _asked_of_others(setting: Setting, every: bool = False) -> tuple[Asked, ...]:
    """The tasks whose files other models can be asked about, too: the default ones, or all."""
    found = directions(setting) if setting.data.pairs else ()
    found += word_tasks(setting) if setting.data.tasks else ()
    return found if every else chosen(found)


def _base_name(other: str) -> str:
    return f"masks-of-{slug(other)}"


def _every(setting: Setting) -> tuple[Asked, ...]:
    """All directions and word tasks, of which `--full` trains those that are no default."""
    return (*directions(setting), *word_tasks(setting))


def _compared(setting: Setting) -> tuple[Step, ...] | Missing:
    """The default masks beside each other, and all of them where there are more."""
    default, every = default_masks(setting), _every(setting)
    if len(default) < 2:
        return NO_MASKS
    steps = [mask_step(setting, task) for task in every]
    for name, tasks in _groups(COMPARED, default, every):
        masks = tuple(mask_name(task) for task in tasks)
        title = f"{len(tasks)} masks beside each other"
        more = len(tasks) > len(default)
        steps.append(Step(name, title, _Compare(masks), Work(), masks, more))
    return tuple(steps)


def _groups(
    name: str, default: tuple[Asked, ...], every: tuple[Asked, ...]
) -> list[tuple[str, tuple[Asked, ...]]]:
    """The steps that compare the default masks and, where there are more, all of them."""
    whole = [(f"{name}-every", every)] if len(every) > len(default) else []
    return [(name, default), *whole]


def _widest(setting: Setting, name: str) -> dict[str, Any] | None:
    """The result over all masks, else that over the default ones."""
    return setting.result(f"{name}-every") or setting.result(name)


def _steps(setting: Setting) -> tuple[Step, ...] | Missing:
    shared = _compared(setting)
    if isinstance(shared, Missing):
        return shared
    found = list(shared)
    default, every = _asked_of_others(setting), _asked_of_others(setting, every=True)
    for other in others_of(setting):
        found += [mask_step(setting, task, other=other) for task in every]
        for name, tasks in _groups(_base_name(other), default, every):
            own = tuple(mask_name(task) for task in tasks)
            base = tuple(mask_name(task, other=other) for task in tasks)
            title = f"{len(tasks)} masks beside those of {slug(other)}"
            more, after = len(tasks) > len(default), (*own, *base)
            found.append(Step(name, title, _Compare(own, base), Work(), after, more))
    return tuple(found)


def _needs(setting: Setting, element: str, steps: Sequence[Step]) -> Needed:
    """Table 5 the default masks of both models; of Tables 37 and 38 this model's all masks."""
    if not others_of(setting):
        give = "--others MODEL with --pairs or --tasks"
        return Missing("masks of the base model", give, "needs MODEL")
    few = few_directions(setting) or few_words(setting)
    return of_tasks(setting, element, steps, (SIMILARITY,), few)


def _tell(setting: Setting) -> Told:
    others = others_of(setting)
    if others:
        return _with_base(setting, others)
    return _among_tasks(setting)


def _with_base(setting: Setting, others: Sequence[str]) -> Told:
    """Tables 37 and 38: each task's mask of this model beside the other model's."""
    tables, told, doubts = [], [], []
    default = _asked_of_others(setting)
    for other in others:
        place = beside(setting, SIMILARITY)
        result = _widest(setting, _base_name(other))
        pairs = [] if result is None else result["base"]["pairs"]
        by_task = {pair["task"]: pair for pair in pairs}
        tables.append(
            Table(
                f"Masks beside those of {slug(other)}",
                ("heads", "heads of the other", "Jaccard", "expected", "recall"),
                tuple(
                    Row(
                        task.name,
                        tuple(
                            _pair_cell(by_task.get(task.name), key, theirs, digits)
                            for key, theirs, digits in _published(place, task.name, other)
                        ),
                    )
                    for task in _asked_of_others(setting, len(pairs) > len(default))
                ),
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
        told.append(
            f"The masks of both models share more heads than chance in {over} of {len(pairs)} "
            f"tasks (mean Jaccard {mean['jaccard']['mean']:.3f}, by chance "
            f"{mean['expected_exact']['mean']:.3f})."
        )
        doubts.append(
            f"Above chance by {above['mean']:.3f} ({above['low']:.3f} to {above['high']:.3f}, "
            "bootstrap over tasks)."
        )
    return Told(tuple(tables), found=" ".join(told), sure=" ".join(doubts))


def _published(place: Beside, task: str, other: str) -> tuple[tuple[str, float | None, int], ...]:
    row = partner(place, other)
    return (
        ("size_a", place.value("mask", task, "heads"), 0),
        *(
            (key, None if row is None else place.value(row, task, measure), digits)
            for key, measure, digits in (
                ("size_b", "heads", 0),
                ("jaccard", "jaccard", 3),
                ("expected", "expected", 3),
                ("recall", "recall", 3),
            )
        ),
    )


def _pair_cell(
    pair: Mapping[str, Any] | None, key: str, published: float | None, digits: int
) -> Cell:
    if pair is None or pair[key] is None:
        return not_run(published, digits=digits)
    return Cell(pair[key], published=published, digits=digits)


def _among_tasks(setting: Setting) -> Told:
    """What stands in for Table 5 where there is one model alone: masks of different tasks."""
    result = setting.result(COMPARED)
    pairs = [] if result is None else result["pairs"]
    known = {frozenset((pair["a"], pair["b"])): pair for pair in pairs}
    names = [task.name for task in default_masks(setting)]
    rows = []
    for a, b in combinations(names, 2):
        pair = known.get(frozenset((a, b)))
        keys = (("jaccard", 3), ("expected", 3), ("expected_exact", 3), ("p_value", 4))
        rows.append(
            Row(f"{a}, {b}", tuple(_pair_cell(pair, key, None, digits) for key, digits in keys))
        )
    table = Table(
        "A stand-in: masks of different tasks of this one model",
        ("Jaccard", "expected", "expected, exact", "p"),
        tuple(rows),
        note="The paper compares the masks of an instructed model with those of its base model, "
        "task by task. There is one model here, so its tasks are compared with each other; the "
        "paper's figures are no measure for that. For the paper's comparison give --others MODEL "
        "with --pairs or --tasks.",
    )
    if not pairs:
        return Told((table,))
    over = [pair for pair in pairs if pair["jaccard"] > pair["expected_exact"]]
    sure = [pair for pair in pairs if pair["p_value"] < 0.05 / len(pairs)]
    return Told(
        (table,),
        found=f"Instructed and base model cannot be compared here. Between tasks of this model the "
        f"masks share more heads than chance in {len(over)} of {len(pairs)} pairs (mean Jaccard "
        f"{fmean(pair['jaccard'] for pair in pairs):.3f}, by chance "
        f"{fmean(pair['expected_exact'] for pair in pairs):.3f}).",
        sure=f"In {len(sure)} of {len(pairs)} pairs p (hypergeometric) is below 0.05 divided by "
        "the number of pairs. It says nothing about what the paper asks.",
    )


TABLE_5 = Experiment(
    "table-5",
    ("Table 5", "Table 37", "Table 38"),
    "Masks of an instructed model beside those of its base model",
    _steps,
    _tell,
    _needs,
)


def _maps(setting: Setting) -> Told:
    result = _widest(setting, COMPARED)
    if result is None:
        return Told()
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
            note="A head is kept above 0.5.",
        )
        for one in own
    ]
    return Told((_group_table(own),), figures, *_maps_words(own, result))


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
                    _known(groups.get("dropped")),
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
    all_directions,
)
