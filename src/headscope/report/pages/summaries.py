"""The report of `verify summaries`: what is written without heads that all languages share."""

from __future__ import annotations

from pathlib import Path

from headscope.report.html import Html, join, tag
from headscope.report.page import Page
from headscope.report.pages.frame import ablated, about_run, masthead, simple_page
from headscope.report.parts import section
from headscope.report.sections.writing import (
    Scale,
    bars_section,
    examples_section,
    not_measured,
    numbers_section,
    sure,
    told,
)
from headscope.results.writing import Summaries
from headscope.runs.reading import result_of
from headscope.shown.words import count, number

__all__ = ["page"]

KIND = "summaries"
SCALES = {
    "rouge_l": Scale("ROUGE-L"),
    "chrf": Scale("chrF++"),
    "bert_score": Scale("BERTScore"),
    "off_target": Scale("outputs in another language, %", 100.0),
    "empty": Scale("empty outputs, %", 100.0),
}
TITLES = {"rouge_l": "ROUGE-L", "chrf": "chrF++", "bert_score": "BERTScore"}
MEANING = {
    "rouge_l": "ROUGE-L is the F1 of the longest sequence of words that an output and its "
    "reference have in common (single characters where a script puts no spaces between words), "
    "the mean over texts.",
    "chrf": "chrF++ compares sequences of characters and words, of all texts together.",
    "bert_score": "BERTScore compares the words of output and reference by the hidden states of "
    "another model; here its F1 times 100.",
}


def page(path: Path) -> Page:
    """The report of the run of `verify summaries` in this folder."""
    result = result_of(path, Summaries, KIND)
    repeated = result.task == "repeat"
    done = "removed" if result.gate == 0 else f"times {number(result.gate)}"
    kinds = {"general": f"general heads {done}"}
    what = "sentences that it repeats" if repeated else "summaries"
    head = masthead(
        result.model_name,
        f"How well it writes {what} with {count(len(result.heads), 'head')} that all languages "
        f"share {done}, beside as many random ones.",
        [
            ("heads", ", ".join(result.heads)),
            ("languages", ", ".join(result.groups)),
            ablated(result),
        ],
        kicker="headscope verify summaries",
    )
    bars = [
        (
            f"bars-{measure}",
            title,
            bars_section(
                f"bars-{measure}",
                f"{title} by language",
                result,
                measure,
                SCALES[measure],
                kinds,
                _caption(measure),
            ),
        )
        for measure, title in TITLES.items()
    ]
    return simple_page(
        f"{result.model_name} \u00b7 {KIND}",
        head,
        [
            ("summary", "", _summary(result, repeated)),
            *bars,
            ("numbers", "Numbers", numbers_section(result, SCALES, kinds, "Language")),
            ("examples", "Outputs", examples_section(path, kinds, "language")),
            ("provenance", "Provenance", about_run(path)),
        ],
    )


def _summary(result: Summaries, repeated: bool) -> Html:
    effects = result.whole.effects.get("general", {})
    lines = [
        told(effects[measure], SCALES[measure], "Without the heads")
        for measure in TITLES
        if measure in effects
    ]
    if repeated:
        lines.append(
            "No summaries were given, so the model repeated sentences, a task it was trained on: "
            "this says whether it can still write what it reads, not whether it can summarise."
        )
    lines += not_measured(result.not_measured, SCALES)
    return section(
        "summary",
        "In short",
        [tag("p", line) for line in lines],
        sure(effects.get("rouge_l"), result.whole),
    )


def _caption(measure: str) -> Html:
    return join(
        tag("strong", f"{TITLES[measure]} as is, without general heads, without random ones. "),
        f"{MEANING[measure]} The whisker is the 95\u00a0% interval of the change against the "
        "untouched model, over texts; rings are single draws of as many random heads.",
    )
