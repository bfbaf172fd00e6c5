"""The report of `verify scaling`: heads outside a mask at part of their strength."""

from __future__ import annotations

from pathlib import Path

from headscope.report.charts import Series, line_chart
from headscope.report.html import Child, Html, join, tag
from headscope.report.page import Page
from headscope.report.pages.frame import about_run, masthead, simple_page
from headscope.report.parts import figure, scroll, section, table
from headscope.report.records.mask_tests import MaskTests, TaskTests, read_mask_tests
from headscope.report.sections.mask_tests import (
    UNITS,
    bars,
    conditions_table,
    gap_words,
    outputs_table,
)
from headscope.report.words import between, count, enumeration, fixed, percent

__all__ = ["page"]

TABLED = ("nll", "bleu", "chrf", "bleu_published", "rouge_l", "accuracy", "accuracy_words")


def page(path: Path) -> Page:
    """The report of the run of `verify scaling` in this folder."""
    record = read_mask_tests(path)
    lead = (
        f"What {record.model} makes of {enumeration([task.name for task in record.tasks])}, told "
        "what to do, when the heads outside a learned mask keep a part \u03b1 of their strength."
    )
    facts = [
        ("values of \u03b1", str(len(record.tasks[0].alphas))),
        ("shuffled masks", str(record.draws)),
    ]
    parts = [
        (f"task-{place}", task.name, _task(path, place, task))
        for place, task in enumerate(record.tasks)
    ]
    return simple_page(
        f"{record.model} \u00b7 scaling",
        masthead("Scaled mask", lead, facts, kicker="headscope verify scaling"),
        [
            ("summary", "", _summary(record)),
            *parts,
            ("provenance", "Provenance", about_run(path)),
        ],
    )


def _measure(task: TaskTests) -> str | None:
    names = ("bleu", "chrf", "bleu_published") if task.translation else ("accuracy",)
    return next((name for name in names if task.rows[0].values[name] is not None), None)


def _summary(record: MaskTests) -> Html:
    parts: list[Child] = [
        tag(
            "p",
            "At \u03b1 = 1 the model is as it is, at \u03b1 = 0 only the heads of the mask are "
            "left. The \u03b1 with the lowest loss on some held-out examples was chosen, and its "
            "outputs were measured on others, so the choice cannot flatter itself.",
        )
    ]
    for task in record.tasks:
        measure, scaled = _measure(task), task.one("scaled")
        said = ""
        if measure is not None and scaled is not None:
            words, digits, factor = UNITS[measure]
            first = task.rows[0].values[measure]
            value = scaled.values[measure]
            if first is not None and value is not None:
                gap = scaled.against["change"][measure]
                said = (
                    f" {words}: {fixed(factor * first, digits)} as it is, "
                    f"{fixed(factor * value, digits)} scaled, "
                    f"a change of {gap_words(gap, digits, factor)}."
                )
        best = next(one for one in task.alphas if one.alpha == task.best)
        parts.append(
            tag(
                "p",
                tag("strong", tag("bdi", task.name)),
                f": the loss is lowest at \u03b1 = {best.alpha:g}; "
                f"{percent(best.chosen)} of resamples of the {task.chosen_on} examples would "
                f"choose it again.{said}",
            )
        )
    return section("summary", "In short", *parts)


def _task(path: Path, place: int, task: TaskTests) -> Html:
    series = [
        Series(
            "this mask",
            [(one.alpha, one.nll) for one in task.alphas],
            "key-top",
            [(one.alpha, one.low, one.high) for one in task.alphas],
        )
    ]
    beside = [
        (one.alpha, sum(one.shuffled) / len(one.shuffled)) for one in task.alphas if one.shuffled
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
        f"{fixed(row.values['nll'], 3)} {'under the mask' if row.kind == 'masked' else 'as it is'}"
        for row in task.uninstructed
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
                f"{one.alpha:g}" + (" (best)" if one.alpha == task.best else ""),
                fixed(one.nll, 4),
                between(one.low, one.high, 3),
                fixed(sum(one.shuffled) / len(one.shuffled), 4) if one.shuffled else "\u2013",
                percent(one.chosen),
            ]
            for one in task.alphas
        ],
        class_="numbers",
    )
    parts: list[Child] = [
        figure(f"curve-{place}", caption, chart),
        scroll("Values of \u03b1", shares),
    ]
    measure = _measure(task)
    if measure is not None:
        words = join(
            tag("strong", f"{UNITS[measure][0]} at the best \u03b1. "),
            f"Of {count(task.examples, 'other example')}, all instructed; whiskers are 95\u00a0% "
            "intervals over examples, rings single shuffled masks at the same \u03b1. ",
            "\u201cBLEU as published\u201d counts characters without punctuation in the best "
            "paragraph of an output, so its numbers are high and compare with that paper alone."
            if task.translation
            else "",
        )
        parts.append(bars(f"outputs-{place}", task, measure, words))
    parts += [conditions_table(task, TABLED), outputs_table(path, task)]
    return section(f"task-{place}", task.name, *parts)
