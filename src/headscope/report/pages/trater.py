"""The report of the TRater experiment: what models trained on each mixture can do."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headscope.report.charts import BarRow, bar_rows
from headscope.report.html import Html, join, tag
from headscope.report.page import Page
from headscope.report.pages.frame import about_run, masthead, simple_page
from headscope.report.parts import figure, scroll, section, table
from headscope.runs.reading import naming, read_result
from headscope.shown.words import between, count, fixed, percent

__all__ = ["page"]

KIND = "a TRater experiment"
WORDS = {
    "baseline": ("baseline", "key-base"),
    "remove": ("remove", "key-off"),
    "enhance": ("enhance", "key-top"),
    "remove random": ("remove random", "key-random"),
    "enhance random": ("enhance random", "key-random"),
}
#: What is measured: its name in the results, its words, and its digits.
FIGURES = (
    ("chrf_prompt", "chrF++, prompt", 1),
    ("chrf_document", "chrF++, document", 1),
    ("gain", "gain of the source, nats", 3),
    ("plain_nll", "loss of plain text, nats", 3),
    ("words_across", "words translated, %", 1),
    ("words_within", "word tasks, %", 1),
    ("questions", "questions, %", 1),
)


def page(path: Path) -> Page:
    """The report of the run of `pocket trater` in this folder."""
    result = read_result(path)
    with naming(path / "result.json", KIND):
        seeds = len({one["seed"] for one in result["models"]})
        corpus = result["corpus"]
        lead = (
            "A corpus was rated by how much its documents need the token alignment heads. Small "
            "models were then trained from nothing on mixtures of it: as it is, without the "
            "documents with the highest scores, with those three times, and the same with as many "
            "random documents. Which can translate?"
        )
        facts = [
            ("models trained", str(len(result["models"]))),
            ("seeds", str(seeds)),
            ("tokens that carry a translation", percent(corpus["bilingual_share_of_tokens"], 1)),
        ]
        return simple_page(
            "TRater experiment",
            masthead("TRater experiment", lead, facts, kicker="headscope pocket trater"),
            [
                ("translation", "Translation", _translation(result)),
                ("differences", "Differences", _differences(result)),
                ("mixtures", "Mixtures", _mixtures(result)),
                ("paper", "The paper", _paper(result)),
                ("provenance", "Provenance", about_run(path)),
            ],
        )


def _name(row: Mapping[str, Any]) -> str:
    words = WORDS[row["kind"]][0]
    return words if row["share"] is None else f"{words} {percent(row['share'], 1)}"


def _translation(result: Mapping[str, Any]) -> Html:
    models = result["models"]
    charts = []
    for key, title, digits in FIGURES[:3]:
        rows = []
        for one in result["conditions"]:
            same = [
                m[key] for m in models if (m["kind"], m["share"]) == (one["kind"], one["share"])
            ]
            rows.append(BarRow(_name(one), one[key], WORDS[one["kind"]][1], same))
        end = max(1e-9, *(max(row.value or 0, *row.points) for row in rows))
        charts.append(tag("h3", title))
        charts.append(bar_rows(rows, end, digits))
    caption = join(
        tag("strong", "What the models can do, means over seeds; each ring is one model. "),
        "Prompt: greedy translations under the default prompt, chrF++ over all directions. "
        "Document: the model goes on after a sentence and a new line, as documents with a "
        "translation do; it may choose the language, so each output counts against the best of "
        "its references. Gain: how much likelier, in nats a token, the true translation is after "
        "its own source than after another sentence.",
    )
    return section(
        "translation", "Translation by mixture", figure("models-figure", caption, *charts)
    )


def _differences(result: Mapping[str, Any]) -> Html:
    rows = []
    compared = [
        (one, other, title, digits, one[kind][key])
        for one in result["conditions"]
        for kind, other in (("differences", "baseline"), ("against_random", "random"))
        for key, title, digits in FIGURES
        if key in one.get(kind, {})
    ]
    for one, other, title, digits, change in compared:
        value = change["value"]
        rows.append(
            [
                _name(one),
                other,
                title,
                f"{'+' if value > 0 else ''}{fixed(value, digits)}",
                between(change["low"], change["high"], digits) if "low" in change else "",
                ", ".join(fixed(single, digits) for single in change["by_seed"]),
            ]
        )
    caption = join(
        tag(
            "strong",
            "Differences to the baseline, and to random selections of the same size and seeds. ",
        ),
        "Intervals (95\u00a0%) are over test sentences, with those of all seeds drawn together; "
        "how much another training would differ is to be read from the last column.",
    )
    head = ("mixture", "minus", "measure", "difference", "95\u00a0% interval", "seed by seed")
    body = scroll("Differences", table("Differences", head, rows, class_="numbers"))
    return section("differences", "Differences", figure("differences-figure", caption, body))


def _mixtures(result: Mapping[str, Any]) -> Html:
    rows = [
        [
            _name(one),
            str(one["seed"]),
            str(one["documents"]),
            str(one["tokens"]),
            percent(one["bilingual_share_of_tokens"], 1),
            fixed(100 * one["largest_difference_of_shares"], 3),
            str(one["steps"]),
            *(fixed(one.get(key), digits) for key, _, digits in FIGURES),
        ]
        for one in result["models"]
    ]
    documents = result["corpus"]["documents"]
    caption = join(
        tag("strong", "The mixtures and the models one by one. "),
        f"The corpus has {count(sum(documents.values()), 'document')}, of which "
        f"{documents.get('bilingual', 0)} carry their translation; the rater was not told which. "
        "Every model read its mixture once, and the same translation prompts beside it; the "
        "mixtures have one budget of tokens, which whole documents miss by a little. The shares of "
        "languages differ from those of the baseline by at most the percentage points given. The "
        "lower the loss, the better.",
    )
    head = (
        "mixture",
        "seed",
        "documents",
        "tokens",
        "bilingual",
        "shares off by",
        "steps",
        *(title for _, title, _ in FIGURES),
    )
    body = scroll("Models", table("Mixtures and models", head, rows, class_="numbers"))
    return section("mixtures", "Mixtures and models", figure("mixtures-figure", caption, body))


def _paper(result: Mapping[str, Any]) -> Html:
    paper = result["paper"]
    kinds = [name for name in WORDS if name in paper]
    rows = [[name, *(fixed(value, 2) for value in paper[name])] for name in kinds]
    caption = join(
        tag("strong", "What the paper measured. "),
        f"{paper['source']}. Its top 1.3\u00a0% of each language were selected; chrF++ on FLORES, "
        "then accuracies in per cent. Model, data and measures are others, so only the order of "
        "the rows can be compared.",
    )
    head = ("mixture", *paper["measures"])
    body = scroll("The paper", table("Table 1 of the paper", head, rows, class_="numbers"))
    return section("paper", "The paper\u2019s Table 1", figure("paper-figure", caption, body))
