"""The report of `verify attention`: attention on the right candidate, in and out of a mask."""

from __future__ import annotations

from pathlib import Path

from headscope.estimates import Mean
from headscope.report.charts import BarRow, bar_rows
from headscope.report.html import Html, join, tag
from headscope.report.page import Page
from headscope.report.pages.frame import about_run, masthead, simple_page
from headscope.report.parts import figure, scroll, section, table
from headscope.results.attention import AttendedTask, AttentionResult, GroupShare, RandomSets
from headscope.runs.reading import result_of
from headscope.shown.words import arrow, between, count, enumeration, fixed, p_value

__all__ = ["page"]

GROUPS = {"all": "all heads", "in": "heads in the mask", "out": "heads out of it"}
MARKS = {"all": "key-base", "in": "key-top", "out": "key-random"}


def page(path: Path) -> Page:
    """The report of the run in this folder."""
    result = result_of(path, AttentionResult, "verify attention")
    tasks = result.tasks
    facts = [
        ("tasks", str(len(tasks))),
        ("examples", str(sum(task.examples for task in tasks.values()))),
        ("model", result.model_name),
    ]
    return simple_page(
        "Attention on the answer",
        masthead(
            "Attention on the answer",
            "Do the heads that a mask keeps look at the right one of several words? The last "
            "input token\u2019s attention on the candidates, and how much of it the right one "
            "gets.",
            facts,
            "headscope verify attention",
        ),
        [
            ("summary", "", _summary(result)),
            ("shares", "Shares", _shares(result)),
            *[
                (f"task-{number}", arrow(name), _task(number, name, task))
                for number, (name, task) in enumerate(tasks.items())
            ],
            ("provenance", "Provenance", about_run(path)),
        ],
    )


def _summary(result: AttentionResult) -> Html:
    parts = []
    for name, task in result.tasks.items():
        rows = task.by_name
        words = [
            f"{shown} {fixed(rows[key].heads['all'].mean, 3)}"
            for key, shown in (("as is", "as it is"), ("instructed", "instructed"),
                               ("masked", "masked"), ("shuffled", "under shuffled masks"))
            if key in rows
        ]  # fmt: skip
        difference = rows["masked"].in_minus_out or Mean()
        parts.append(
            join(
                tag("bdi", tag("strong", arrow(name))),
                f": the right word gets {enumeration(words)} of the attention on the candidates, "
                f"where even attention would give {fixed(rows['as is'].uniform.mean, 3)}. In the "
                "masked model heads in the mask give it "
                f"{fixed(abs(difference.mean), 3)} "
                f"{'more' if difference.mean >= 0 else 'less'} than heads out of it "
                "(95\u00a0% interval of the difference "
                f" {between(difference.low, difference.high, 3)}).",
            )
        )
    heading = tag("h2", "In short", id="summary-title", class_="unseen")
    body = [tag("p", one) for one in parts]
    return tag("section", heading, body, id="summary", aria_labelledby="summary-title")


def _shares(result: AttentionResult) -> Html:
    tasks = result.tasks
    rows = []
    for row in result.conditions:
        own = [task.by_name[row.condition].heads for task in tasks.values()]
        for group in row.heads:
            cells = [_cell(heads[group]) for heads in own]
            rows.append([f"{row.condition}, {GROUPS[group]}", *cells])
    even = [fixed(task.conditions[0].uniform.mean, 3) for task in tasks.values()]
    rows.append(["even attention", *even])
    header = ["Condition", *(tag("bdi", arrow(name)) for name in tasks)]
    caption = join(
        tag(
            "strong",
            "The right word\u2019s share of the attention that heads pay to the candidates",
        ),
        ", from the last input token, mean over heads and samples, with 95 % intervals over "
        "samples. Weights are exact; each head\u2019s attention is first divided by what it pays "
        "to all candidates. Even attention: the share of tokens that are the right word\u2019s. "
        "Heads out of the mask are computed, but not used, in the masked model.",
    )
    grid = scroll("Shares", table("Attention on the right word", header, rows, class_="numbers"))
    return section("shares", "Shares by task", figure("shares-figure", caption, grid))


def _cell(share: GroupShare) -> Html | str:
    if share.mean is None:
        return fixed(None, 3)
    words = (
        between(share.bounds.low, share.bounds.high, 3)
        if share.bounds
        else count(len(share.draws or ()), "draw")
    )
    return join(fixed(share.mean, 3), tag("small", f" ({words})"))


def _task(number: int, name: str, task: AttendedTask) -> Html:
    bars = [
        BarRow(
            f"{condition.condition}, {GROUPS[group]}",
            share.mean,
            MARKS[group],
            [draw for draw in share.draws or () if draw is not None],
            (share.bounds.low, share.bounds.high)
            if share.bounds and share.mean is not None
            else None,
        )
        for condition in task.conditions
        for group, share in condition.heads.items()
    ]
    end = max([0.5, *(row.value or 0.0 for row in bars)])
    rows = []
    for condition in task.conditions:
        if condition.in_minus_out is None:
            continue
        above, less = condition.above_uniform or Mean(), condition.in_minus_out
        random = condition.random or RandomSets()
        rows.append(
            (
                condition.condition,
                fixed(above.mean, 3),
                between(above.low, above.high, 3),
                fixed(less.mean, 3),
                between(less.low, less.high, 3),
                fixed(random.mean, 3),
                between(random.low, random.high, 3),
                p_value(random.p_value),
                fixed(condition.heads["all"].attention, 3),
            )
        )
    header = ("Condition", "Above even", "interval", "In less out", "interval",
              "Random sets", "central 95 %", "p", "On all candidates")  # fmt: skip
    caption = join(
        tag("strong", f"{count(task.examples, 'held-out example')}, "),
        f"a mask that keeps {task.mask.kept} heads. Rings are single shuffled masks. Random "
        "sets: the share of as many heads, drawn at random from all; p, two-sided, is how often "
        "such a set lies as far from their mean as the heads of the mask. On all candidates: the "
        "part of a head\u2019s attention that falls on them at all.",
    )
    grid = scroll("Details", table("Differences", header, rows, class_="numbers"))
    body = figure(f"task-{number}-figure", caption, bar_rows(bars, end, 3), grid)
    return section(f"task-{number}", arrow(name), body)
