"""The report of `verify layers`: text without whole layers, and where important heads lie."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

from headscope.report.charts import Series, line_chart
from headscope.report.drawing.key_text import STYLE, shade
from headscope.report.html import Html, join, tag
from headscope.report.matrix import ramp_bar
from headscope.report.page import Page
from headscope.report.pages.frame import ablated, about_run, masthead, simple_page
from headscope.report.parts import figure, scroll, section, table
from headscope.results.common import few_draws
from headscope.results.language_texts import LanguageLayers, Profile, TextWithoutLayers
from headscope.runs.reading import result_of
from headscope.shown.words import between, count, enumeration, fixed, number, p_value

__all__ = ["page"]

Languages = Mapping[str, LanguageLayers]
MARKS = ("key-top", "key-base", "key-ta", "key-low", "key-matched", "key-s14", "key-s9", "key-s4")
#: Most languages that are drawn as lines; every one is in the table.
DRAWN = 8


def page(path: Path) -> Page:
    """The report of the run in this folder."""
    result = result_of(path, TextWithoutLayers, "whole layers")
    languages = result.languages
    return simple_page(
        "Text without whole layers",
        masthead(
            "Text without whole layers",
            f"How well {result.model_name} predicts text of each language when all attention heads "
            "of one layer are removed, beside as many random heads of all layers.",
            [
                ("languages", enumeration(list(languages))),
                ("layers", str(max(len(text.layers) for text in languages.values()))),
                ("documents", number(sum(text.documents for text in languages.values()))),
                ("random draws", str(result.draws)),
                ablated(result),
            ],
            "headscope verify layers",
        ),
        [
            ("summary", "", _summary(languages)),
            ("layers", "Layers", _changes(languages)),
            ("profile", "Important heads", _profile(result.profile)),
            ("numbers", "Numbers", _numbers(result)),
            ("provenance", "Provenance", about_run(path)),
        ],
        styles=(STYLE,),
    )


def _summary(languages: Languages) -> Html:
    highest = {
        name: max(text.layers, key=lambda row: row.change.value) for name, text in languages.items()
    }
    where = [
        join(tag("bdi", name), f": layer {row.layer} (+{fixed(row.change.value, 2)})")
        for name, row in highest.items()
    ]
    listed: list[Html] = [part for one in where for part in (join("; "), one)][1:]
    every = [row for text in languages.values() for row in text.layers]
    clear = sum(row.against_random.difference.low > 0 for row in every)
    words = [
        join(
            "What is told is the rise of the mean negative log-likelihood (NLL, in nats a token): "
            "how much worse the text is foreseen. The layer whose removal hurts most: ",
            *listed,
            ".",
        ),
        join(
            f"In {clear} of {len(every)} cases the heads of a layer are missed more than as many "
            "random heads spread over all layers (the whole 95\u00a0% interval of the difference "
            "is above zero)."
        ),
    ]
    heading = tag("h2", "In short", id="summary-title", class_="unseen")
    body = [tag("p", one) for one in words]
    return tag("section", heading, body, id="summary", aria_labelledby="summary-title")


def _changes(languages: Languages) -> Html:
    shown = dict(list(languages.items())[:DRAWN])
    series = [
        Series(
            name,
            [(row.layer, row.change.value) for row in text.layers],
            mark,
            [(row.layer, row.change.low, row.change.high) for row in text.layers],
        )
        for mark, (name, text) in zip(MARKS, shown.items(), strict=False)
    ]
    rows = next(iter(languages.values())).layers
    layers = [row.layer for row in rows]
    random = [
        fmean([fmean(text.draws[str(row.heads)]) for text in languages.values()]) for row in rows
    ]
    series.append(Series("random heads", list(zip(layers, random, strict=True)), "key-random"))
    positive = all(
        y > 0
        for one in series
        for y in [*(y for _, y in one.points), *(low for _, low, _ in one.band or ())]
    )
    high = max(y for one in series for _, y in one.points)
    low = min(y for one in series for _, y in one.points)
    log = positive and high > 20 * low
    chart = line_chart(
        series,
        "layer removed",
        "rise of NLL",
        "Rise of the mean NLL of each language's text when the heads of a layer are removed, by "
        "layer. The table below holds every number.",
        y_log=log,
        x_labels={float(layer): str(layer) for layer in _ticks(layers)},
    )
    more = len(languages) - len(shown)
    caption = join(
        tag("strong", "Without the heads of one layer. "),
        "The rise of the mean NLL in nats a token of each language\u2019s text, with 95\u00a0% "
        "bootstrap intervals over documents as bands"
        + (" (on a logarithmic scale)" if log else "")
        + ". The line of random heads is the mean over languages and draws of as many heads from "
        "anywhere in the model; the layer\u2019s other parts stay in place.",
        f" {count(more, 'further language')} are in the table below." if more else "",
    )
    return section("layers", "Which layers a language needs", figure("chart", caption, chart))


def _ticks(layers: list[int]) -> list[int]:
    step = max(1, len(layers) // 12)
    return layers[::step]


def _profile(profiles: Mapping[str, Profile]) -> Html | None:
    if not profiles:
        return None
    scale = max(row.share for profile in profiles.values() for row in profile.layers) or 1.0
    rows = [
        [
            str(counts[0].layer),
            *(
                join(
                    tag("span", fixed(row.share, 2), class_=f"shade {shade(row.share, scale)}"),
                    tag("small", f"{row.important} of {row.heads}"),
                )
                for row in counts
            ),
            fixed(counts[0].even, 2),
        ]
        for counts in zip(*(profile.layers for profile in profiles.values()), strict=True)
    ]
    header = ["layer", *(tag("bdi", name) for name in profiles), "even"]
    grid = table("Share of the important heads in each layer", header, rows,
                 class_="numbers key-table")  # fmt: skip
    counts = enumeration([f"{name} {profile.important}" for name, profile in profiles.items()])
    caption = join(
        tag("strong", "Where each language\u2019s important heads lie. "),
        "The share of a language\u2019s important heads in each layer, and how many of the "
        "layer\u2019s heads that is. \u201cEven\u201d is the share a layer has of all heads. The "
        f"sets are small ({counts}), so a share moves by a whole step with a single head.",
    )
    return section(
        "profile",
        "Where important heads lie",
        figure("profile-figure", caption, scroll("Profile", grid), ramp_bar("0", fixed(scale, 2))),
    )


def _numbers(result: TextWithoutLayers) -> Html:
    header = ("Text", "Layer", "Heads", "NLL", "Change", "95\u00a0% interval", "Random",
              "Difference", "95\u00a0% interval", "p (documents)", "p (draws)")  # fmt: skip
    rows: list[tuple[Any, ...]] = []
    for name, text in result.languages.items():
        untouched = fixed(text.baseline.nll.value, 4)
        rows.append((tag("bdi", name), "none", 0, untouched, *["\u2013"] * 7))
        for row in text.layers:
            against = row.against_random
            rows.append(
                (
                    tag("bdi", name),
                    row.layer,
                    row.heads,
                    fixed(row.nll.value, 4),
                    fixed(row.change.value, 4),
                    between(row.change.low, row.change.high, 4),
                    fixed(row.random.mean, 4),
                    fixed(against.difference.value, 4),
                    between(against.difference.low, against.difference.high, 4),
                    p_value(against.p_examples),
                    p_value(against.p_draws),
                )
            )
    shown = table("Every layer and language", header, rows, class_="numbers")
    caption = join(
        tag("strong", "Every layer and language. "),
        "The difference is that to the mean of the random draws; intervals come from resampling "
        "documents. p over documents swaps losses of single documents with those under random "
        "heads; p over draws ranks the layer among the draws and cannot be lower than "
        f"{p_value(1 / (1 + result.draws))}.",
        (few := few_draws(result)) and f" {few}",
    )
    body = figure("numbers-figure", caption, scroll("Numbers", shown))
    return section("numbers", "Every number", body)
