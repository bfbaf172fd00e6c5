"""The report of `verify tasks`: each task as is, without chosen heads, without random ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from headscope.estimates import Against, Estimate
from headscope.heads import rank_words
from headscope.report.charts import BarRow, bar_rows
from headscope.report.html import Html, join, tag
from headscope.report.page import Page
from headscope.report.pages.frame import ablated, about_run, masthead, simple_page
from headscope.report.parts import figure, scroll, section, table
from headscope.results.common import few_draws
from headscope.results.removal import Kind
from headscope.results.tasks import Group, Task, TaskCondition, TasksResult, tops
from headscope.runs import encode
from headscope.runs.reading import naming, result_of
from headscope.shown.words import between, count, fixed, number, p_value

__all__ = ["page"]

#: Most tasks that are drawn; every task is in the table.
DRAWN = 40

METRICS = {
    "acc": "share answered right",
    "acc_norm": "share answered right, choices weighed by their length",
    "exact_match": "share written exactly right",
    "f1": "words in common with the right answer",
}
"""The usual metrics of the harness in plain words."""

#: How random controls are called.
CONTROLS: dict[Kind, str] = {"random": "random", "random-layer-matched": "same layers"}


def page(path: Path) -> Page:
    """The report of the run in this folder."""
    result = result_of(path, TasksResult, "tasks under removal")
    with naming(path / "result.json", "tasks under removal"):
        tasks, largest = result.tasks, max(result.k)
        model = result.model and result.model.name
        return simple_page(
            "Tasks without heads",
            masthead(
                "Tasks without heads",
                f"What {model} can still do when "
                f"{count(largest, 'attention head')} are removed: each task beside the untouched "
                "model, as many random heads, and guessing.",
                [
                    ("", count(len(tasks), "task")),
                    ("examples", number(sum(one.examples for one in tasks.values()))),
                    ("random draws", str(result.draws)),
                    ablated(result),
                    ("lm-evaluation-harness", result.harness),
                ],
                "headscope verify tasks",
            ),
            [
                ("summary", "", _summary(result, tasks, largest)),
                ("tasks", "Tasks", _bars(result, tasks, largest)),
                ("groups", "Groups", _groups(result.groups)),
                ("numbers", "Numbers", _table(tasks, result.draws, few_draws(encode(result)))),
                ("provenance", "Provenance", about_run(path)),
            ],
        )


def _top(task: Task, k: int) -> TaskCondition:
    """The condition of `k` chosen heads at the first gate."""
    return next(row for row in tops(task.conditions) if row.label.k == k)


def _mean(numbers: Sequence[float]) -> float | None:
    return sum(numbers) / len(numbers) if numbers else None


def _summary(result: TasksResult, tasks: Mapping[str, Task], k: int) -> Html:
    hurt: list[str] = []
    spared: list[str] = []
    for name, one in tasks.items():
        than = _top(one, k).free
        if than is not None and than.p_examples is not None:
            (hurt if than.p_examples < 0.05 else spared).append(name)
    draws = max((len(one.drawn(_top(one, k))) for one in tasks.values()), default=0)
    words = [
        join(
            "Removing the chosen heads hurts ",
            tag("strong", f"{len(hurt)} of {count(len(tasks), 'task')}"),
            " more than removing as many random heads does (p below 0.05 over examples, each task "
            f"by itself; over {count(draws, 'draw')} of random heads p cannot be below "
            f"{fixed(1 / (1 + draws), 3)}).",
        )
    ]
    tests = (_top(one, k).matched for one in tasks.values())
    matched = [than.p_examples for than in tests if than and than.p_examples is not None]
    if matched:
        more = [p for p in matched if p < 0.05]
        words.append(
            join(
                f"Of random heads of the same layers the same holds for {len(more)} of "
                f"{count(len(tasks), 'task')}."
            )
        )
    if spared:
        listed = [join(tag("code", name), " ") for name in spared[:12]]
        words.append(join("Not clearly hurt more than by random heads: ", listed))
    by = rank_words(vars(result))
    words += [join(f"The chosen heads are the highest by {by}.")] if by else []
    heading = tag("h2", "In short", id="summary-title", class_="unseen")
    body = [tag("p", one) for one in words]
    return tag("section", heading, body, id="summary", aria_labelledby="summary-title")


def _bars(result: TasksResult, tasks: Mapping[str, Task], k: int) -> Html:
    shown = dict(list(tasks.items())[:DRAWN])
    parts = [
        tag("div", tag("h3", tag("bdi", name)), _rows(one, k), class_="task")
        for name, one in shown.items()
    ]
    top = _top(next(iter(tasks.values())), k)
    what = "removed" if top.label.gate == 0 else f"multiplied by {top.label.gate:g}"
    more = len(tasks) - len(shown)
    caption = join(
        tag("strong", f"Each task with {count(k, 'head')} {what}. "),
        f"Bars are the task\u2019s own metric: of the untouched model, without the chosen heads, "
        f"and the mean over {count(result.draws, 'random draw')} of as many heads (rings: "
        "single draws). Whiskers are 95\u00a0% intervals over the examples, Wilson\u2019s where "
        "each is right or wrong and else the bootstrap\u2019s: they say how sure the values are "
        "for these examples and this model, not for other heads. Chance is guessing among the "
        "choices; a damaged model may fall below it where wrong choices look likelier than the "
        "right one.",
        f" {count(more, 'further task')} are in the table below." if more else "",
    )
    return section("tasks", "What is lost, and what is not", figure("bars", caption, parts))


def _rows(one: Task, k: int) -> Html:
    top, base = _top(one, k), one.baseline
    drawn, matched = (one.drawn(top, kind) for kind in CONTROLS)
    values = [base.value, top.value, *drawn, *matched, one.chance or 0.0]
    rows = [
        BarRow("as is", base.value, "key-base", (), base.interval),
        BarRow(f"without {count(k, 'chosen head')}", top.value, "key-top", (), top.interval),
        BarRow("without random heads", _mean(drawn), "key-random", drawn),
    ]
    if matched:
        words = "without random heads of the same layers"
        rows.append(BarRow(words, _mean(matched), "key-random", matched))
    if one.chance is not None:
        rows.append(BarRow("chance", one.chance, "key-off"))
    end = 1.0 if all(0 <= value <= 1 for value in values) else max(map(abs, values))
    label = f"{_metric(one.metric)}, {count(one.examples, 'example')}"
    return join(tag("p", label, class_="note"), bar_rows(rows, end, 3))


def _metric(name: str) -> str:
    """A metric in words, with the name that the harness gives it."""
    return f"{METRICS[name]} ({name})" if name in METRICS else name


def _groups(groups: Mapping[str, Group]) -> Html | None:
    if not groups:
        return None
    rows = []
    for name, one in groups.items():
        top = max(tops(one.conditions), key=lambda row: row.label.k)
        for kind, words in CONTROLS.items():
            drawn = one.drawn(top, kind)
            if not drawn:
                continue
            rows.append(
                (
                    tag("bdi", name),
                    one.metric,
                    len(one.tasks),
                    fixed(one.baseline.value, 3),
                    fixed(top.value, 3),
                    words,
                    fixed(_mean(drawn), 3),
                    between(min(drawn), max(drawn), 3),
                )
            )
    header = ("Group", "Measured by", "Tasks", "As is", "Chosen removed", "Control",
              "Control removed", "Draws")  # fmt: skip
    caption = join(
        tag("strong", "Means over the tasks of a group, "),
        "each task counting the same, whatever its number of examples. \u201cDraws\u201d goes from "
        "the lowest to the highest draw of random heads. These means carry no intervals; those of "
        "single tasks are below.",
    )
    body = scroll("Groups", table("Groups of tasks", header, rows, said={1, 5}, class_="numbers"))
    return section("groups", "Groups of tasks", figure("groups-figure", caption, body))


def _table(tasks: Mapping[str, Task], draws: int, few: str | None) -> Html:
    header = ("Task", "Measured by", "Examples", "Chance", "Heads", "Gate", "As is", "Chosen",
              "Change", "95\u00a0% interval", "Control", "Mean", "Difference",
              "95\u00a0% interval", "p (examples)", "p (draws)")  # fmt: skip
    rows = [
        _numbers(name, one, top, kind)
        for name, one in tasks.items()
        for top in tops(one.conditions)
        for kind in CONTROLS
        if one.drawn(top, kind)
    ]
    shown = table("Every task and head set", header, rows, said={1, 10}, class_="numbers")
    caption = join(
        tag("strong", "Every task with every set of chosen heads. "),
        "The change is that to the untouched model, the difference that to the mean of the "
        "control\u2019s draws (random heads, or as many of each layer as are chosen there); both "
        "intervals come from resampling examples. p over examples swaps the outcomes of single "
        "examples with those under the control, p over draws ranks the chosen heads "
        f"among the {count(draws, 'draw')} and cannot be lower than {p_value(1 / (1 + draws))}. ",
        few and f"{few} ",
        "A dash stands where a metric is no mean over examples.",
    )
    body = figure("numbers-figure", caption, scroll("Numbers", shown))
    return section("numbers", "Every number", body)


def _numbers(name: str, one: Task, top: TaskCondition, kind: Kind) -> tuple[Any, ...]:
    than = top.than(kind) or Against(Estimate(), None, None, 0)
    gap = than.difference
    return (
        tag("bdi", name),
        one.metric,
        one.examples,
        fixed(one.chance, 3),
        top.label.k,
        f"{top.label.gate:g}",
        fixed(one.baseline.value, 3),
        fixed(top.value, 3),
        fixed(top.change.value, 3),
        between(top.change.low, top.change.high, 3),
        CONTROLS[kind],
        fixed(_mean(one.drawn(top, kind)), 3),
        fixed(gap.value, 3),
        between(gap.low, gap.high, 3),
        p_value(than.p_examples),
        p_value(than.p_draws),
    )
