"""What a run of tasks without heads shows: each task, groups of tasks, and every number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import nan
from pathlib import Path
from statistics import fmean

from headscope.estimates import Against, Estimate, known
from headscope.results.removal import Kind
from headscope.results.tasks import Comparison, Group, Task, TaskCondition, TasksResult, Value, tops
from headscope.shown.blocks import Bars, Cell, HeadSets, Row, Section, Shown, Table
from headscope.shown.words import between, count, enumeration, fixed, p_value, sentence_of
from headscope.studies.shows import (
    ablation_facts,
    against_cells,
    interval,
    leakage_caution,
    model_facts,
    named_places,
)
from headscope.studies.verify.removal_blocks import DRAWN

#: The usual metrics of the harness, all shares, in plain words.
METRICS = {
    "acc": "share answered right",
    "acc_norm": "share answered right, choices weighted by their length",
    "exact_match": "share written exactly right",
    "f1": "words in common with the right answer",
}
#: Fewer examples of a task, and fewer draws, decide little.
EXAMPLES, DRAWS = 50, 99


def show(result: TasksResult, run: Path) -> Shown:
    """Each task with and without the heads, means of groups, and every number."""
    tasks, k = result.tasks, max(result.k)
    heads = HeadSets("Selected heads", {"selected": named_places(result.heads)})
    sections = [
        Section("Tasks", [_main_table(tasks, k)], brief=True),
        Section("What is lost", [*_bars(tasks, k), heads]),
        Section("Groups of tasks", [_group_table(result.groups)]),
        Section("Every task and head set", [_every(tasks)]),
    ]
    return Shown(
        "Tasks without heads",
        "What can the model still do when attention heads are removed?",
        _finding(tasks, k),
        "Intervals and p over examples hold for these heads and this model; with "
        f"{count(result.draws, 'random draw')} p over draws is at least "
        f"{p_value(1 / (1 + result.draws))}.",
        f"--draws {DRAWS}" if result.draws < DRAWS else "",
        _cautions(result),
        [
            *model_facts(result.model_name),
            ("tasks", str(len(tasks))),
            ("examples", f"{sum(task.examples for task in tasks.values()):,}"),
            ("random draws", str(result.draws)),
            *ablation_facts(result),
            ("lm-evaluation-harness", result.harness),
        ],
        [section for section in sections if section.title != "Groups of tasks" or result.groups],
    )


def _top(task: Task, k: int) -> TaskCondition:
    """The condition of `k` selected heads at the first gate."""
    return next(row for row in tops(task.conditions) if row.label.k == k)


def _finding(tasks: Mapping[str, Task], k: int) -> list[str]:
    gate = _top(next(iter(tasks.values())), k).label.gate
    heads = count(k, "selected head")
    what = f"Removing {heads}" if gate == 0 else f"Multiplying {heads} by {gate:g}"
    hurt, tested = _hurt(tasks, k, "random")
    if not tested:
        return [f"{what} was tested on no task whose metric is a mean over examples."]
    words = [
        f"{what} hurts {hurt} of {count(len(tested), 'task')} more than removing as many "
        "random heads does (p < 0.05 over examples, each task by itself; "
        f"{fixed(0.05 * len(tested), 1)} expected by chance)."
    ]
    losses = {name: loss for name in tested if (loss := _loss(tasks[name], k)) is not None}
    most = max(losses, key=lambda name: losses[name], default="")
    if losses and losses[most] > 0:
        task, top = tasks[most], _top(tasks[most], k)
        _, digits, unit = _scale(task)
        gap = _scaled(task, None if top.free is None else top.free.difference)
        values = (task.baseline.value, top.value, _mean(task.drawn(top)))
        original, selected, random = (_words(task, value) for value in values)
        words.append(
            f"Largest difference: {most}, {task.metric}: original {original}, selected heads "
            f"{selected}, random heads {random}; selected minus random "
            f"{interval(gap, digits, ' pp' if unit else '')}, {count(task.examples, 'example')}."
        )
    hurt, tested = _hurt(tasks, k, "random-layer-matched")
    if tested:
        words.append(
            f"Against random heads of the same layers: {hurt} of {count(len(tested), 'task')}."
        )
    return words


def _hurt(tasks: Mapping[str, Task], k: int, kind: Kind) -> tuple[int, list[str]]:
    """How many tasks are hurt more than under random heads, and those that were tested."""
    tests = {name: _top(task, k).than(kind) for name, task in tasks.items()}
    p = {name: than.p_examples for name, than in tests.items() if than is not None}
    tested = {name: value for name, value in p.items() if value is not None}
    return sum(value < 0.05 for value in tested.values()), list(tested)


def _loss(task: Task, k: int) -> float | None:
    """By how much a task is worse than under random heads."""
    free = _top(task, k).free
    if free is None or not free.difference.known:
        return None
    loss = -free.difference.value if task.higher_is_better else free.difference.value
    return _scale(task)[0] * loss


def _cautions(result: TasksResult) -> list[str]:
    tasks = result.tasks
    cautions = leakage_caution(result.leakage, "examples")
    if result.pool_note:
        cautions.append(sentence_of(result.pool_note))
    if few := [name for name, task in tasks.items() if task.examples < EXAMPLES]:
        cautions.append(f"Fewer than {EXAMPLES} examples: {enumeration(few)}.")
    chances = {name: (task.baseline.low or 0.0, task.chance) for name, task in tasks.items()}
    guessed = [name for name, (low, chance) in chances.items() if chance and low <= chance]
    if guessed:
        cautions.append(
            f"In {enumeration(guessed)} the original model is not clearly better than guessing, so "
            "there is little to lose."
        )
    if cut := [f"{name} ({task.truncated})" for name, task in tasks.items() if task.truncated]:
        cautions.append(
            f"Prompts longer than the model's context lost their beginning: {enumeration(cut)}."
        )
    if "random-layer-matched" not in _kinds(tasks, max(result.k)):
        cautions.append(
            "No random heads of the same layers were drawn, so an effect of the layers is not "
            "excluded; add --layer-matched."
        )
    return cautions


def _kinds(tasks: Mapping[str, Task], k: int) -> list[Kind]:
    """The kinds of random heads that were drawn."""
    return [
        kind for kind in DRAWN if any(task.drawn(_top(task, k), kind) for task in tasks.values())
    ]


def _scale(task: Comparison) -> tuple[float, int, str]:
    """Factor, digits and unit of a metric: shares are shown as per cent."""
    return (100.0, 1, "%") if task.metric.partition(",")[0] in METRICS else (1.0, 3, "")


def _words(task: Comparison, value: float | None) -> str:
    _, digits, unit = _scale(task)
    return fixed(_scaled(task, value).value, digits) + (unit and f"\u00a0{unit}")


def _scaled(task: Comparison, value: Value | Estimate | float | None) -> Estimate:
    """A value of a task's metric as it is shown, with its interval where there is one."""
    ends: tuple[float | None, ...]
    if value is None or isinstance(value, float | int):
        ends = (value,)
    else:
        ends = (value.value, getattr(value, "low", None), getattr(value, "high", None))
    return Estimate(*(nan if end is None else _scale(task)[0] * end for end in ends))


def _cell(
    task: Comparison, value: Value | Estimate | float | None, difference: bool = False
) -> Cell:
    _, digits, unit = _scale(task)
    return Cell.of(_scaled(task, value), digits, "pp" if unit and difference else unit)


def _tests(task: Comparison, than: Against | None) -> tuple[Cell, Cell, Cell]:
    """Selected minus random with its interval, p over examples, p over draws."""
    factor, digits, unit = _scale(task)
    return against_cells(than, digits, "pp" if unit else "", factor)


def _range(task: Comparison, values: Sequence[float]) -> Cell:
    """The lowest and the highest value, in words."""
    low, high = (_scaled(task, end(values)).value for end in (min, max))
    return Cell(between(low, high, _scale(task)[1]))


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None


def _main_table(tasks: Mapping[str, Task], k: int) -> Table:
    kinds = _kinds(tasks, k)
    rows = []
    for name, task in tasks.items():
        top = _top(task, k)
        cells = (
            Cell(task.metric),
            Cell(task.examples),
            _cell(task, task.chance),
            _cell(task, task.baseline.value),
            _cell(task, top.value),
            *(_cell(task, _mean(task.drawn(top, kind))) for kind in kinds),
            *_tests(task, top.free),
        )
        rows.append(Row(name, cells))
    columns = ("metric", "examples", "chance", "original", "selected",
               *(DRAWN[kind] for kind in kinds),
               "selected \u2212 random", "p over examples", "p over draws")  # fmt: skip
    note = "For p over examples single outcomes are swapped with those under random heads"
    return Table(f"Tasks with {count(k, 'head')} removed", columns, tuple(rows), note=note)


def _bars(tasks: Mapping[str, Task], k: int) -> list[Bars]:
    """Bars of each metric."""
    made, kinds = [], _kinds(tasks, k)
    names = ["original", "selected", *(DRAWN[kind] for kind in kinds), "chance"]
    for metric in dict.fromkeys(task.metric for task in tasks.values()):
        own = {name: task for name, task in tasks.items() if task.metric == metric}
        shown = len(names) - all(task.chance is None for task in own.values())
        rows, draws = [], []
        for task in own.values():
            top = _top(task, k)
            drawn = [task.drawn(top, kind) for kind in kinds]
            levels = [task.baseline, top, *map(_mean, drawn), task.chance][:shown]
            rows.append([_scaled(task, level) for level in levels])
            single = [tuple(_scaled(task, each).value for each in values) for values in drawn]
            draws.append(((), (), *single, ())[:shown])
        _, digits, unit = _scale(next(iter(own.values())))
        words = METRICS.get(metric.partition(",")[0], metric)
        made.append(
            Bars(
                sentence_of(words).rstrip("."),
                tuple(own),
                tuple(names[:shown]),
                tuple(tuple(known(each.value) for each in row) for row in rows),
                f"{metric}, {unit}" if unit else metric,
                tuple(tuple(known(each.low) for each in row) for row in rows),
                tuple(tuple(known(each.high) for each in row) for row in rows),
                digits,
                draws=tuple(draws),
                start=0.0 if unit else None,
                end=100.0 if unit else None,
            )
        )
    return made


def _group_table(groups: Mapping[str, Group]) -> Table:
    rows = []
    for name, group in groups.items():
        top = max(tops(group.conditions), key=lambda row: row.label.k)
        levels = _cell(group, group.baseline.value), _cell(group, top.value)
        for kind, words in DRAWN.items():
            if drawn := group.drawn(top, kind):
                mean, ends = _cell(group, _mean(drawn)), _range(group, drawn)
                tasks = Cell(len(group.tasks))
                rows.append(
                    Row(name, (Cell(group.metric), tasks, *levels, Cell(words), mean, ends))
                )
    columns = ("metric", "tasks", "original", "selected", "control", "control, mean",
               "range of draws")  # fmt: skip
    note = "Means over the tasks of a group, each task counting the same, without intervals"
    return Table("Groups of tasks", columns, tuple(rows), note=note)


def _every(tasks: Mapping[str, Task]) -> Table:
    rows = []
    several = any(len(list(tops(task.conditions))) > 1 for task in tasks.values())
    for name, task in tasks.items():
        for top in tops(task.conditions):
            for kind, words in DRAWN.items():
                if not (drawn := task.drawn(top, kind)):
                    continue
                cells = (
                    _cell(task, task.baseline),
                    _cell(task, top),
                    _cell(task, top.change, difference=True),
                    _cell(task, _mean(drawn)),
                    _range(task, drawn),
                    *_tests(task, top.than(kind)),
                )
                heads = f", {count(top.label.k, 'head')}, gate {top.label.gate:g}" * several
                rows.append(Row(f"{name}{heads}: {words}", cells))
    columns = ("original", "selected", "selected \u2212 original",
               "random, mean", "range of draws", "selected \u2212 random",
               "p over examples", "p over draws")  # fmt: skip
    note = (
        "Intervals of levels are Wilson's where each example is right or wrong, else the "
        "bootstrap's; those of differences resample examples. An empty cell: the metric is no mean "
        "over examples"
    )
    return Table("Every task and head set", columns, tuple(rows), note=note)
