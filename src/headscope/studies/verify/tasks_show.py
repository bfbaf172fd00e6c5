"""What a run of tasks without heads shows: each task, groups of tasks, and every number."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from headscope.estimates import Draws, Estimate
from headscope.results.removal import Kind
from headscope.results.tasks import (
    Measured,
    Task,
    TaskComparison,
    TaskCondition,
    TaskGroup,
    TasksResult,
    ValueCondition,
    tops,
)
from headscope.shown.blocks import Bars, Cell, HeadSets, Section, Shown, Table
from headscope.shown.words import between, count, enumeration, fixed, p_value, sentence_of
from headscope.studies.comparison import Compared, Comparison, Scale, draws_remedy
from headscope.studies.shows import (
    ablation_facts,
    few_parts,
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


def show(result: TasksResult, run: Path) -> Shown:
    """Each task with and without the heads, means of groups, and every number."""
    tasks, k = result.tasks, max(result.k)
    heads = HeadSets("Selected heads", {"selected": named_places(result.heads)})
    comparison = _comparison(tasks, k)
    expected = "a larger loss of the metric"
    sections = [
        Section(
            "Tasks",
            comparison.tables(f"Tasks with {count(k, 'head')} removed", expected),
            brief=True,
        ),
        Section("What is lost", [*_bars(tasks, k), heads]),
        Section("Groups of tasks", [_group_table(result.groups)]),
        Section("Every task and head set", [_every(tasks)]),
    ]
    return Shown(
        "Tasks without heads",
        "What can the model still do when attention heads are removed?",
        _finding(tasks, k, comparison),
        "Intervals and p over examples hold for these heads and this model; with "
        f"{count(result.draws, 'random draw')} p over draws is at least "
        f"{p_value(1 / (1 + result.draws))}.",
        draws_remedy(result.draws, 99),
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
    )  # fmt: skip


def _top(task: Task, k: int) -> TaskCondition:
    """The condition of `k` selected heads at the first gate."""
    return next(row for row in tops(task.conditions) if row.label.k == k)


def _finding(tasks: Mapping[str, Task], k: int, comparison: Comparison) -> list[str]:
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
        task = tasks[most]
        examples = count(task.examples, "example")
        words += comparison.said(most, f"Largest difference: {most}", task.metric, examples)
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
    return _scale(task).factor * loss


def _cautions(result: TasksResult) -> list[str]:
    tasks = result.tasks
    cautions = leakage_caution(result.leakage, "examples")
    if result.pool_note:
        cautions.append(sentence_of(result.pool_note))
    cautions += few_parts({name: task.examples for name, task in tasks.items()}, "examples", 50)
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


def _scale(metric: TaskComparison) -> Scale:
    """The usual metrics are shares."""
    if metric.metric.partition(",")[0] in METRICS:
        return Scale(metric.metric)
    return Scale(metric.metric, unit="", digits=3, to_100=False)


def _level(value: Measured) -> Estimate:
    """A metric's value with its interval."""
    return Estimate(value.value, *value.interval) if value.interval else Estimate(value.value)


def _draws(metric: TaskComparison, top: ValueCondition) -> tuple[Draws | None, Draws | None]:
    """The values under random draws, free and of the same layers."""
    free, matched = (Draws.of(drawn) if (drawn := metric.drawn(top, kind)) else None
                     for kind in DRAWN)  # fmt: skip
    return free, matched


def _comparison(tasks: Mapping[str, Task], k: int) -> Comparison:
    return Comparison(
        {
            name: Compared(
                _scale(task),
                (top := _top(task, k)).change,
                _level(task.baseline),
                _level(top),
                _draws(task, top),
                (top.free, top.matched),
                task.chance,
                {"metric": Cell(task.metric), "examples": Cell(task.examples)},
            )
            for name, task in tasks.items()
        },
        "examples",
    )


def _bars(tasks: Mapping[str, Task], k: int) -> list[Bars]:
    """Bars of each metric."""
    made = []
    for metric in dict.fromkeys(task.metric for task in tasks.values()):
        own = {name: task for name, task in tasks.items() if task.metric == metric}
        words = METRICS.get(metric.partition(",")[0], metric)
        made.append(_comparison(own, k).bars(sentence_of(words).rstrip(".")))
    return made


def _by_control(metric: TaskComparison, top: ValueCondition) -> Iterator[tuple[str, Draws, Cell]]:
    """The kinds of random draws that there are, in words, with their range."""
    for words, draws in zip(DRAWN.values(), _draws(metric, top), strict=True):
        if draws is not None:
            scale = _scale(metric)
            low, high = (scale.of(end).value for end in (min(draws.each), max(draws.each)))
            yield words, draws, Cell(between(low, high, scale.digits))


def _group_table(groups: Mapping[str, TaskGroup]) -> Table:
    rows = {}
    for name, group in groups.items():
        top = max(tops(group.conditions), key=lambda row: row.label.k)
        for words, draws, ends in _by_control(group, top):
            more = {"metric": Cell(group.metric), "tasks": Cell(len(group.tasks))}
            rows[f"{name}: {words}"] = Compared(
                _scale(group),
                original=group.baseline.value,
                selected=top.value,
                random=(draws, None),
                more={**more, "range of draws": ends},
            )
    note = "Means over the tasks of a group, each task counting the same, without intervals"
    return Comparison(rows).table("Groups of tasks", note)


def _every(tasks: Mapping[str, Task]) -> Table:
    rows = {}
    several = any(len(list(tops(task.conditions))) > 1 for task in tasks.values())
    for name, task in tasks.items():
        for top in tops(task.conditions):
            heads = f", {count(top.label.k, 'head')}, gate {top.label.gate:g}" * several
            tests = dict(zip(DRAWN.values(), (top.free, top.matched), strict=True))
            for words, draws, ends in _by_control(task, top):
                rows[f"{name}{heads}: {words}"] = Compared(
                    _scale(task),
                    top.change,
                    _level(task.baseline),
                    _level(top),
                    (draws, None),
                    (tests[words], None),
                    more={"range of draws": ends},
                )
    note = (
        "Intervals of levels are Wilson's where each example is right or wrong, else the "
        "bootstrap's; those of differences resample examples. An empty cell: the metric is no mean "
        "over examples"
    )
    return Comparison(rows, "examples").table("Every task and head set", note)
