"""The report of `compare classes`: class shares of models of any geometry."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from headscope.heads import count_words
from headscope.report.html import Child, Html, join, tag
from headscope.report.page import Page
from headscope.report.pages.frame import about_run, masthead, simple_page
from headscope.report.parts import figure, in_short, scroll, section, table
from headscope.report.sections.classes import classes_figure
from headscope.results.classes import ClassesResult, ClassShares
from headscope.runs.reading import result_of
from headscope.shown.words import between, count, fixed, percent

__all__ = ["page"]


def page(path: Path) -> Page:
    """The report of the comparison in this folder."""
    result = result_of(path, ClassesResult, "a comparison of classes")
    models = result.models
    totals = [one.total for one in models]
    return simple_page(
        "Classes of heads",
        masthead(
            "Classes of heads",
            "What share of its attention heads each model uses to find the source word while "
            "it translates.",
            [
                ("", count(len(models), "model")),
                ("heads", " to ".join(map(str, sorted({min(totals), max(totals)})))),
                ("threshold", fixed(result.threshold, 2)),
            ],
            "headscope compare classes",
        ),
        [
            ("summary", "", _summary(models)),
            ("classes", "Classes", _figure(result)),
            ("numbers", "Numbers", _numbers(models)),
            ("provenance", "Provenance", about_run(path)),
        ],
    )


def _summary(models: Sequence[ClassShares]) -> Html:
    ordered = sorted(models, key=lambda one: one.shares.token_alignment)
    most, least = (
        join(tag("bdi", one.name), f" ({percent(one.shares.token_alignment, 1)})")
        for one in (ordered[-1], ordered[0])
    )
    text = (
        join(
            "The share of token alignment heads is highest in ",
            most,
            " and lowest in ",
            least,
            ". Shares, unlike numbers of heads, can be compared between models of different sizes; "
            "scores found on different sentences can be compared less well.",
        )
        if len(models) > 1
        else join("This is the share of heads that are token alignment heads: ", most, ".")
    )
    return in_short(text)


def _figure(result: ClassesResult) -> Html:
    models = result.models
    chance = any(one.shares_above_chance for one in models)
    threshold, inactive = fixed(result.threshold, 2), fixed(result.inactive, 2)
    caption = join(
        tag("strong", "How the heads of each model divide, in shares of all its heads. "),
        f"Token alignment: score above {threshold}; low activity: above {inactive} and at most "
        f"{threshold}; inactive: at most {inactive}. ",
        "The lower bar of a row takes off what a head scores by position alone. " if chance else "",
        "The thresholds cut a continuous scale, and a head near one may change class with other "
        "sentences; small models score by position more than large ones.",
    )
    rows = [(tag("bdi", one.name), one.shares, one.shares_above_chance) for one in models]
    title = "Share of heads in each class, by model"
    return classes_figure(rows, partial(percent, digits=1), title, "model", caption)


def _numbers(models: Sequence[ClassShares]) -> Html:
    header = ("Name", "Model", "Method", "Layers", "Heads", "Mean of", "Align", "Low", "Inactive",
              "Mean score", "Highest head", "Its score", "Interval")  # fmt: skip
    rows: list[tuple[Child, ...]] = [
        (
            tag("bdi", one.name),
            tag("bdi", one.model),
            one.method,
            one.layers,
            one.total,
            one.counted_over,
            *(count_words(number) for number in one.counts.each),
            fixed(one.mean_score, 3),
            str(one.highest.place),
            fixed(one.highest.score, 3),
            between(one.highest.low, one.highest.high, 2),
        )
        for one in models
    ]
    caption = join(
        tag("strong", "The same in numbers of heads, and the highest head of each model. "),
        "Mean of: the number of directions that heads are counted in. "
        "Its interval holds in 95\u00a0% of resamplings of the sentences, where it was computed. "
        "How sure: the best of many heads looks a little better than it is, and the numbers of "
        "heads in a class carry no interval.",
    )
    shown = table("Models", header, rows, said={1, 2}, class_="numbers")
    return section(
        "numbers", "Numbers", figure("numbers-figure", caption, scroll("Numbers", shown))
    )
