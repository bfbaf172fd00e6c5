"""The report of soft gates: accuracies beside their controls, gates, and how training went."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from headscope.report.charts import BarRow, Series, bar_rows, line_chart
from headscope.report.html import Child, Html, join, tag
from headscope.report.page import Page
from headscope.report.pages.frame import about_run, masthead, simple_page
from headscope.report.parts import figure, scroll, section, table
from headscope.results.soft_gate import Changed, PairCounts, Seed, SoftGateResult
from headscope.runs.reading import result_of
from headscope.shown.words import between, count, enumeration, fixed, percent

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
    result = result_of(path, SoftGateResult, "soft gates")
    lead = (
        f"The gates of {count(len(result.gates), 'attention head')} of {result.model_name} were "
        "trained on questions and answers, and everything else was left as it is. Does the model "
        "then answer more questions that it has not seen, and more than with random heads?"
    )
    facts = [
        ("pairs learned from", str(result.pairs.train)),
        ("stopped on", str(result.pairs.stop)),
        ("tested on", str(result.pairs.test)),
        ("seeds", str(len(result.seeds))),
    ]
    return simple_page(
        f"{result.model_name} \u00b7 soft gates",
        masthead("Soft gates", lead, facts, kicker="headscope find soft-gate"),
        [
            ("summary", "", _summary(result)),
            ("answers", "Answers", _answers(result)),
            ("differences", "Differences", _differences(result)),
            ("gates", "Gates", _gates(result)),
            ("training", "Training", _training(result.seeds)),
            ("provenance", "Provenance", about_run(path)),
        ],
    )


def _summary(result: SoftGateResult) -> Html:
    right = {name: measures.accuracy.mean for name, measures in result.accuracy.items()}
    lines: list[Child] = [
        tag(
            "p",
            f"The untouched model answers {percent(right['untouched'], 1)} of the "
            "questions that nothing was trained on; with the trained gates it answers ",
            tag("strong", percent(right["trained"], 1)),
            f", the mean over {count(len(result.seeds), 'seed')}. With random heads, trained "
            f"in the same way, it answers {percent(right['random'], 1)}.",
        )
    ]
    changes = {(row.condition, row.minus): row.accuracy for row in result.differences}
    change = changes.get(("trained", "random"))
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


def _answers(result: SoftGateResult) -> Html:
    shown = {
        name: (*words, result.accuracy[name])
        for name, words in CONDITIONS.items()
        if name in result.accuracy
    }
    rows = [
        BarRow(
            words,
            100 * right.mean,
            mark,
            [100 * value for value in right.by_seed] if len(right.by_seed) > 1 else (),
            (100 * right.low, 100 * right.high),
        )
        for words, mark, right in (
            (words, mark, measures.accuracy) for words, mark, measures in shown.values()
        )
    ]
    caption = join(
        tag("strong", "Questions answered, in per cent. "),
        f"A question counts as answered if one of its answers occurs, letter for letter, in the "
        f"first generated tokens. The same {count(result.pairs.test, 'question')} were "
        "asked under every condition. Each ring is one seed: other pairs to learn from, in "
        "another order, and other random heads. The bar is the mean over seeds; the whisker is "
        "the 95\u00a0% interval over questions, of which those on one context are drawn together.",
        _left_out(result.pairs),
    )
    detail = scroll(
        "All measures",
        table(
            "All measures, means over seeds",
            ["", "answered", "answered, as SQuAD compares", "loss of the answer"],
            [
                [
                    words,
                    percent(measures.accuracy.mean, 1),
                    percent(measures.normalized.mean, 1),
                    fixed(measures.nll.mean, 3),
                ]
                for words, _, measures in shown.values()
            ],
            class_="numbers",
        ),
    )
    return section(
        "answers",
        "Questions answered",
        figure("answers-figure", caption, bar_rows(rows, 100.0), detail),
    )


def _left_out(pairs: PairCounts) -> str:
    """What was not asked, or not with its whole context."""
    said = []
    if pairs.unanswerable:
        said.append(f"{count(pairs.unanswerable, 'question')} without an answer left out")
    if pairs.shared_contexts:
        said.append(
            f"{count(pairs.shared_contexts, 'pair')} not learned from, being on a context that is "
            "tested on"
        )
    if pairs.cut:
        said.append(f"{count(pairs.cut, 'context')} too long for the model cut around the answer")
    return f" Beside that: {'; '.join(said)}." if said else ""


def _differences(result: SoftGateResult) -> Html:
    rows = [
        [
            SHORT[row.condition],
            SHORT[row.minus],
            _points(row.accuracy.value),
            _interval(row.accuracy),
            f"{sum(value > 0 for value in row.accuracy.by_seed)} of {len(row.accuracy.by_seed)}",
            fixed(row.nll.value, 4),
            between(row.nll.low, row.nll.high, 4),
        ]
        for row in result.differences
        if row.condition in CONDITIONS and row.minus in CONDITIONS
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
    matched = [seed.random_layer_matched for seed in result.seeds]
    filled_up = max(training.filled_up if training else 0 for training in matched)
    filled = (
        f"Up to {filled_up} of the random heads of the same layers had to come from other layers. "
        if filled_up
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


def _gates(result: SoftGateResult) -> Html:
    means = {name: sum(gates) / len(gates) for name, gates in result.gates.items()}
    rows = [
        BarRow(name, means[name], "key-top", gates if len(gates) > 1 else ())
        for name, gates in sorted(result.gates.items(), key=lambda each: -means[each[0]])
    ]
    below = [one for one in rows if (one.value or 0) < 0 or min(one.points or (0,)) < 0]
    end = max([1.0, *(max(one.value or 0, *one.points, 0.0) for one in rows)])
    caption = join(
        tag("strong", "The trained gates, largest first. "),
        "A gate multiplies what a head writes: 1 leaves it as it is, 0 removes it, above 1 makes "
        "it stronger. Each ring is one seed, the bar their mean. ",
        f"The gate saved as gate/ is that of seed {result.gate_seed}, whose training lowered the "
        "loss on its pairs held out for stopping the most. ",
        f"{count(len(below), 'head')} with gates below 0 are drawn at 0. " if below else "",
    )
    return section("gates", "Gates", figure("gates-figure", caption, bar_rows(rows, end, 2)))


def _training(seeds: Sequence[Seed]) -> Html:
    looks = [[(look.step, look.nll) for look in seed.trained.checks] for seed in seeds]
    series = [
        Series(f"seed {seed.seed}", points, mark)
        for seed, points, mark in zip(seeds, looks, MARKS, strict=False)
    ]
    early = [str(seed.seed) for seed in seeds if seed.trained.stopped_early]
    best = enumeration([str(seed.trained.best_step) for seed in seeds])
    values = [loss for points in looks for _, loss in points]
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


def _interval(change: Changed) -> str:
    return between(100 * change.low, 100 * change.high, 1)
