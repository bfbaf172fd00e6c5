"""The report of `compare classes`: class shares of models of any geometry."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from headscope.heads import count_words
from headscope.report.html import Html, join, tag
from headscope.report.page import Page
from headscope.report.pages.frame import about_run, masthead, simple_page
from headscope.report.parts import figure, legend, scroll, section, table, var_style
from headscope.report.words import between, count, fixed, percent
from headscope.runs.reading import naming, read_result

__all__ = ["page"]

CLASSES = (
    ("ta", "token_alignment", "token alignment"),
    ("low", "low_activity", "low activity"),
    ("off", "inactive", "inactive"),
)


def page(path: Path) -> Page:
    """The report of the comparison in this folder."""
    result = read_result(path)
    with naming(path / "result.json", "a comparison of classes"):
        models = result["models"]
        threshold, inactive = float(result["threshold"]), float(result.get("inactive", 0.0))
        totals = [int(one["total"]) for one in models]
        return simple_page(
            "Classes of heads",
            masthead(
                "Classes of heads",
                "What share of its attention heads each model uses to find the source word while "
                "it translates.",
                [
                    ("", count(len(models), "model")),
                    ("heads", " to ".join(map(str, sorted({min(totals), max(totals)})))),
                    ("threshold", fixed(threshold, 2)),
                ],
                "headscope compare classes",
            ),
            [
                ("summary", "", _summary(models)),
                ("classes", "Classes", _figure(models, threshold, inactive)),
                ("numbers", "Numbers", _numbers(models)),
                ("provenance", "Provenance", about_run(path)),
            ],
        )


def _summary(models: Sequence[Mapping[str, Any]]) -> Html:
    ordered = sorted(models, key=lambda one: one["shares"]["token_alignment"])
    most, least = (
        join(tag("bdi", str(one["name"])), f" ({percent(one['shares']['token_alignment'], 1)})")
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
    heading = tag("h2", "In short", id="summary-title", class_="unseen")
    return tag("section", heading, tag("p", text), id="summary", aria_labelledby="summary-title")


def _figure(models: Sequence[Mapping[str, Any]], threshold: float, inactive: float) -> Html:
    chance = any(one["shares_above_chance"] for one in models)
    rows = []
    for one in models:
        parts = [one["shares"], one["shares_above_chance"]]
        bars = [tag("span", _bar(part), class_="stack") for part in parts if part]
        numbers = [percent(one["shares"][key], 1) for _, key, _ in CLASSES]
        if chance:
            above = one["shares_above_chance"] or {}
            numbers += [percent(above.get(key), 1) for _, key, _ in CLASSES]
        rows.append(
            tag(
                "tr",
                tag("th", tag("bdi", str(one["name"])), scope="row"),
                tag("td", bars, class_="wide", aria_hidden="true"),
                [tag("td", number, class_="number") for number in numbers],
            )
        )
    groups = ["by TS"] + (["by TS \u2212 chance"] if chance else [])
    names = ("align", "low", "inactive")
    head = tag(
        "thead",
        tag(
            "tr",
            tag("td", rowspan=2),
            tag("td", class_="wide", rowspan=2),
            [tag("th", group, scope="colgroup", colspan=3) for group in groups],
        ),
        tag(
            "tr",
            [tag("th", name, scope="col", class_="number") for _ in groups for name in names],
        ),
    )
    caption = tag("caption", "Share of heads in each class, by model", class_="unseen")
    picture = tag("table", caption, head, tag("tbody", rows), class_="classes")
    words = join(
        tag("strong", "How the heads of each model divide, in shares of all its heads. "),
        f"Token alignment: score above {fixed(threshold, 2)}; low activity: above "
        f"{fixed(inactive, 2)} and at most {fixed(threshold, 2)}; inactive: at most "
        f"{fixed(inactive, 2)}. ",
        "The lower bar of a row takes off what a head scores by position alone. " if chance else "",
        "The thresholds cut a continuous scale, and a head near one may change class with other "
        "sentences; small models score by position more than large ones.",
    )
    key = legend(*((f"key-{mark}", name) for mark, _, name in CLASSES))
    return section(
        "classes",
        "Three classes of heads",
        figure("classes-figure", words, key, scroll("Classes of heads by model", picture)),
    )


def _numbers(models: Sequence[Mapping[str, Any]]) -> Html:
    header = ("Name", "Model", "Method", "Layers", "Heads", "Mean of", "Align", "Low", "Inactive",
              "Mean score", "Highest head", "Its score", "Interval")  # fmt: skip
    rows = [
        (
            tag("bdi", str(one["name"])),
            tag("bdi", str(one["model"])),
            str(one["method"]),
            one["layers"],
            one["total"],
            one.get("counted_over", 1),
            *(count_words(one["counts"][key]) for _, key, _ in CLASSES),
            fixed(one["mean_score"], 3),
            f"{one['highest']['layer']}.{one['highest']['head']}",
            fixed(one["highest"]["score"], 3),
            between(one["highest"]["low"], one["highest"]["high"], 2),
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


def _bar(shares: Mapping[str, float]) -> list[Html]:
    return [
        tag("i", class_=f"key-{mark}", style=var_style(w=float(shares[key])))
        for mark, key, _ in CLASSES
    ]
