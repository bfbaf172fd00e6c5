"""The report of `verify scaling`: heads outside a mask at part of their strength."""

from __future__ import annotations

from pathlib import Path

from headscope.report.charts import Series, line_chart
from headscope.report.html import Child, Html, join, tag
from headscope.report.page import Page
from headscope.report.pages.frame import about_run, masthead, simple_page
from headscope.report.parts import figure, scroll, section, table
from headscope.report.sections.mask_tests import (
    UNITS,
    bars,
    conditions_table,
    gap_words,
    outputs_table,
    value_words,
)
from headscope.results.mask_tests import Measure, ScaledTask, ScalingTests
from headscope.runs.reading import result_of
from headscope.shown.words import between, count, enumeration, fixed, percent

__all__ = ["page"]

TABLED: tuple[Measure, ...] = (
    "nll",
    "bleu",
    "chrf",
    "bleu_published",
    "rouge_l",
    "accuracy",
    "accuracy_words",
)


def page(path: Path) -> Page:
    """The report of the run of `verify scaling` in this folder."""
    result = result_of(path, ScalingTests, "tests of a mask")
    lead = (
        f"What {result.model_name} makes of {enumeration([*result.tasks])}, told "
        "what to do, when the heads outside a learned mask keep a part \u03b1 of their strength."
    )
    facts = [
        ("values of \u03b1", str(len(result.grid))),
        ("shuffled masks", str(result.draws)),
    ]
    parts = [
        (f"task-{place}", name, _task(path, place, name, task))
        for place, (name, task) in enumerate(result.tasks.items())
    ]
    return simple_page(
        f"{result.model_name} \u00b7 scaling",
        masthead("Scaled mask", lead, facts, kicker="headscope verify scaling"),
        [
            ("summary", "", _summary(result)),
            *parts,
            ("provenance", "Provenance", about_run(path)),
        ],
    )


def _summary(result: ScalingTests) -> Html:
    parts: list[Child] = [
        tag(
            "p",
            "At \u03b1 = 1 the model is as it is, at \u03b1 = 0 only the heads of the mask are "
            "left. The \u03b1 with the lowest loss on some held-out examples was chosen, and its "
            "outputs were measured on others, so the choice cannot flatter itself.",
        )
    ]
    for name, task in result.tasks.items():
        measure = task.first_taken(*task.output_measures)
        outputs = ""
        if measure is not None:
            (scaled,) = task.of_kind("scaled")
            outputs = (
                f" {UNITS[measure].words}: {value_words(task.base, measure)} as it is, "
                f"{value_words(scaled, measure)} scaled, "
                f"a change of {gap_words(scaled.changed(measure), measure)}."
            )
        share = next(share for outcome, share in task.shares if outcome.alpha == task.best)
        parts.append(
            tag(
                "p",
                tag("strong", tag("bdi", name)),
                f": the loss is lowest at \u03b1 = {task.best:g}; "
                f"{percent(share)} of resamples of the {task.chosen_on} examples would "
                f"choose it again.{outputs}",
            )
        )
    return section("summary", "In short", *parts)


def _task(path: Path, place: int, name: str, task: ScaledTask) -> Html:
    losses = [(outcome.alpha, outcome.level("nll")) for outcome in task.alphas]
    series = [
        Series(
            "this mask",
            [(alpha, loss.value) for alpha, loss in losses],
            "key-top",
            [(alpha, loss.low, loss.high) for alpha, loss in losses],
        )
    ]
    beside = [
        (outcome.alpha, mean)
        for outcome in task.alphas
        if (mean := outcome.shuffled_mean) is not None
    ]
    if beside:
        series.append(Series("shuffled masks, mean", beside, "key-random"))
    chart = line_chart(
        series,
        "\u03b1, strength of the heads outside the mask",
        "loss, nats a token",
        f"Loss of the instructed task by \u03b1; lowest at {task.best:g}.",
    )
    plain = " and ".join(
        f"{fixed(each.nll, 3)} {'under the mask' if each.kind == 'masked' else 'as it is'}"
        for each in task.uninstructed
    )
    caption = join(
        tag("strong", "Loss of the instructed task by \u03b1. "),
        f"Mean over {count(task.chosen_on, 'held-out example')}; the band is its 95\u00a0% "
        "interval over examples, most of which the values of \u03b1 have in common. "
        f"Without the instruction the loss is {plain}.",
    )
    shares = table(
        "Values of \u03b1",
        ["\u03b1", "loss", "95\u00a0% interval", "shuffled masks", "chosen in resamples"],
        [
            [
                f"{outcome.alpha:g}" + (" (best)" if outcome.alpha == task.best else ""),
                fixed(outcome.nll, 4),
                between(loss.low, loss.high, 3),
                fixed(outcome.shuffled_mean, 4),
                percent(share),
            ]
            for (outcome, share), (_, loss) in zip(task.shares, losses, strict=True)
        ],
        class_="numbers",
    )
    parts: list[Child] = [
        figure(f"curve-{place}", caption, chart),
        scroll("Values of \u03b1", shares),
    ]
    measure = task.first_taken(*task.output_measures)
    if measure is not None:
        words = join(
            tag("strong", f"{UNITS[measure].words} at the best \u03b1. "),
            f"Of {count(task.examples, 'other example')}, all instructed; whiskers are 95\u00a0% "
            "intervals over examples, rings single shuffled masks at the same \u03b1. ",
            "\u201cBLEU as published\u201d counts characters without punctuation in the best "
            "paragraph of an output, so its numbers are high and compare with that paper alone."
            if task.translation
            else "",
        )
        parts.append(bars(f"outputs-{place}", task, measure, words))
    parts += [conditions_table(task, TABLED), outputs_table(path, name, task)]
    return section(f"task-{place}", name, *parts)
