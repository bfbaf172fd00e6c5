"""The report of soft gates: accuracies beside their controls, gates, and how training went."""

from __future__ import annotations

from pathlib import Path

from headscope.report.charts import BarRow, Series, bar_rows, line_chart
from headscope.report.html import Child, Html, join, tag
from headscope.report.page import Page
from headscope.report.pages.frame import about_run, masthead, simple_page
from headscope.report.parts import figure, scroll, section, table
from headscope.report.records.soft_gate import Change, SoftGateRecord, read_soft_gate
from headscope.report.words import between, count, enumeration, fixed, percent

__all__ = ["page"]

CONDITIONS = {
    "untouched": ("Untouched model", "key-base"),
    "trained": ("Gates of the heads trained", "key-top"),
    "random": ("Gates of random heads trained", "key-random"),
    "random-layer-matched": ("Random heads of the same layers, trained", "key-matched"),
    "removed": ("The heads removed", "key-off"),
    "random-removed": ("Random heads removed", "key-s4"),
}
SHORT = {
    "untouched": "untouched",
    "trained": "trained",
    "random": "random",
    "random-layer-matched": "same layers",
    "removed": "removed",
    "random-removed": "random removed",
}
#: How the lines of trainings are told apart by colour.
MARKS = ("key-top", "key-base", "key-random", "key-ta", "key-low", "key-matched", "key-off")


def page(path: Path) -> Page:
    """The report of the run of `find soft-gate` in this folder."""
    record = read_soft_gate(path)
    seeds = len(record.trainings)
    lead = (
        f"The gates of {count(len(record.heads), 'attention head')} of {record.model} were trained "
        "on questions and answers, and everything else was left as it is. Does the model then "
        "answer more questions that it has not seen, and more than with random heads?"
    )
    facts = [
        ("pairs learned from", str(record.pairs["train"])),
        ("stopped on", str(record.pairs["stop"])),
        ("tested on", str(record.pairs["test"])),
        ("seeds", str(seeds)),
    ]
    return simple_page(
        f"{record.model} \u00b7 soft gates",
        masthead("Soft gates", lead, facts, kicker="headscope find soft-gate"),
        [
            ("summary", "", _summary(record)),
            ("answers", "Answers", _answers(record)),
            ("differences", "Differences", _differences(record)),
            ("gates", "Gates", _gates(record)),
            ("training", "Training", _training(record)),
            ("provenance", "Provenance", about_run(path)),
        ],
    )


def _change(record: SoftGateRecord, one: str, other: str) -> Change | None:
    found = (c for c in record.changes["accuracy"] if (c.condition, c.minus) == (one, other))
    return next(found, None)


def _summary(record: SoftGateRecord) -> Html:
    measured = record.measures["accuracy"]
    lines: list[Child] = [
        tag(
            "p",
            f"The untouched model answers {percent(measured['untouched'].mean, 1)} of the "
            "questions that nothing was trained on; with the trained gates it answers ",
            tag("strong", percent(measured["trained"].mean, 1)),
            f", the mean over {count(len(record.trainings), 'seed')}. With random heads, trained "
            f"in the same way, it answers {percent(measured['random'].mean, 1)}.",
        )
    ]
    change = _change(record, "trained", "random")
    if change is not None:
        more = sum(value > 0 for value in change.by_seed)
        sure = (
            "The interval leaves out 0: these heads do more than random ones."
            if change.low > 0
            else "The interval leaves out 0: these heads do less than random ones."
            if change.high < 0
            else "The interval holds 0: on these questions the heads cannot be told from random "
            "ones."
        )
        lines.append(
            tag(
                "p",
                f"That is {_points(change.value)} compared with random heads (95\u00a0% interval "
                f"{_interval(change)}), and more in {more} of {len(change.by_seed)} seeds. {sure}",
                class_="sure",
            )
        )
    return section("summary", "In short", *lines)


def _answers(record: SoftGateRecord) -> Html:
    measured = record.measures["accuracy"]
    losses = record.measures["nll"]
    shown = [name for name in CONDITIONS if name in measured]
    rows = [
        BarRow(
            CONDITIONS[name][0],
            100 * measured[name].mean,
            CONDITIONS[name][1],
            [100 * value for value in measured[name].by_seed]
            if len(measured[name].by_seed) > 1
            else (),
            (100 * measured[name].low, 100 * measured[name].high),
        )
        for name in shown
    ]
    caption = join(
        tag("strong", "Questions answered, in per cent. "),
        f"A question counts as answered if one of its answers occurs, letter for letter, in the "
        f"first generated tokens. The same {count(int(record.pairs['test']), 'question')} were "
        "asked under every condition. Each ring is one seed: other pairs to learn from, in "
        "another order, and other random heads. The bar is the mean over seeds; the whisker is "
        "the 95\u00a0% interval over questions, of which those on one context are drawn together.",
        _left_out(record),
    )
    detail = scroll(
        "All measures",
        table(
            "All measures, means over seeds",
            ["", "answered", "answered, as SQuAD compares", "loss of the answer"],
            [
                [
                    CONDITIONS[name][0],
                    percent(measured[name].mean, 1),
                    percent(record.measures["normalized"][name].mean, 1),
                    fixed(losses[name].mean, 3),
                ]
                for name in shown
            ],
            class_="numbers",
        ),
    )
    return section(
        "answers",
        "Questions answered",
        figure("answers-figure", caption, bar_rows(rows, 100.0), detail),
    )


def _left_out(record: SoftGateRecord) -> str:
    """What was not asked, or not with its whole context."""
    said = []
    if record.pairs["unanswerable"]:
        said.append(f"{count(record.pairs['unanswerable'], 'question')} without an answer left out")
    if record.pairs["shared_contexts"]:
        said.append(
            f"{count(record.pairs['shared_contexts'], 'pair')} not learned from, being on a "
            "context that is tested on"
        )
    if record.pairs["cut"]:
        said.append(
            f"{count(record.pairs['cut'], 'context')} too long for the model cut around the answer"
        )
    return f" Beside that: {'; '.join(said)}." if said else ""


def _differences(record: SoftGateRecord) -> Html:
    losses = {(one.condition, one.minus): one for one in record.changes["nll"]}
    rows = [
        [
            SHORT[one.condition],
            SHORT[one.minus],
            _points(one.value),
            _interval(one),
            f"{sum(value > 0 for value in one.by_seed)} of {len(one.by_seed)}",
            fixed(losses[one.condition, one.minus].value, 4),
            between(losses[one.condition, one.minus].low, losses[one.condition, one.minus].high, 4),
        ]
        for one in record.changes["accuracy"]
        if one.condition in CONDITIONS and one.minus in CONDITIONS
    ]
    header = (
        "condition",
        "minus",
        "answered",
        "95\u00a0% interval",
        "seeds above 0",
        "loss",
        "95\u00a0% interval",
    )
    filled = (
        f"Up to {record.filled_up} of the random heads of the same layers had to come from other "
        "layers. "
        if record.filled_up
        else ""
    )
    caption = join(
        tag("strong", "What changes, question by question. "),
        "Answered: percentage points. Loss: nats a token of the right answer, where less is "
        "better; it moves before answers do. Intervals are over questions, from a paired "
        "bootstrap of the means over seeds: they say nothing of other seeds, for which stands the "
        f"number of seeds. {filled}",
    )
    body = scroll(
        "Differences", table("Differences of conditions", header, rows, {1}, class_="numbers")
    )
    return section("differences", "Differences", figure("differences-figure", caption, body))


def _gates(record: SoftGateRecord) -> Html:
    rows = [
        BarRow(one.name, one.mean, "key-top", one.gates if len(one.gates) > 1 else ())
        for one in sorted(record.heads, key=lambda one: -one.mean)
    ]
    below = [one for one in rows if (one.value or 0) < 0 or min(one.points or (0,)) < 0]
    end = max([1.0, *(max(one.value or 0, *one.points, 0.0) for one in rows)])
    caption = join(
        tag("strong", "The trained gates, largest first. "),
        "A gate multiplies what a head writes: 1 leaves it as it is, 0 removes it, above 1 makes "
        "it stronger. Each ring is one seed, the bar their mean. ",
        f"The gate saved as gate/ is that of seed {record.gate_seed}, whose training lowered the "
        "loss on its pairs held out for stopping the most. ",
        f"{count(len(below), 'head')} with gates below 0 are drawn at 0. " if below else "",
    )
    return section("gates", "Gates", figure("gates-figure", caption, bar_rows(rows, end, 2)))


def _training(record: SoftGateRecord) -> Html:
    series = [
        Series(f"seed {one.seed}", one.checks, MARKS[at % len(MARKS)])
        for at, one in enumerate(record.trainings[: len(MARKS)])
    ]
    early = [str(one.seed) for one in record.trainings if one.stopped]
    best = enumeration([str(one.best) for one in record.trainings])
    values = [loss for one in record.trainings for _, loss in one.checks]
    room = (max(values) - min(values)) * 0.1 or 0.1
    chart = line_chart(
        series,
        "step",
        "loss on pairs held out for stopping",
        "Mean loss of answers on the pairs held out for stopping, over the steps of training, one "
        "line a seed.",
        y_range=(max(0.0, min(values) - room), max(values) + room),
    )
    several = len(early) != 1
    stopped = (
        f"Training of seed{'s' if several else ''} {enumeration(early)} ended early. "
        if early
        else "No training ended early. "
    )
    caption = join(
        tag("strong", "How training went. "),
        "Mean loss of the answers, in nats a token, on pairs that are neither learned from nor "
        "tested on. The gates with the lowest one are kept: those after step "
        f"{best}. {stopped}"
        "Lines begin at different heights since every seed holds out other pairs.",
    )
    return section("training", "Training", figure("training-figure", caption, chart))


def _points(share: float) -> str:
    return f"{'+' if share > 0 else ''}{fixed(100 * share, 1)}\u00a0points"


def _interval(change: Change) -> str:
    return between(100 * change.low, 100 * change.high, 1)
