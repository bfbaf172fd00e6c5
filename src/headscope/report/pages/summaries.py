"""The report of `verify summaries`: what is written without heads that all languages share."""

from __future__ import annotations

from pathlib import Path

from headscope.report.html import Html, join, tag
from headscope.report.page import Page
from headscope.report.pages.frame import ablated, about_run, masthead, simple_page
from headscope.report.parts import section
from headscope.report.records.writing import WritingRecord, read_writing
from headscope.report.sections.writing import (
    Scale,
    bars_section,
    examples_section,
    numbers_section,
    sure,
    told,
)
from headscope.report.words import count, number
from headscope.runs.reading import naming

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
    record = read_writing(path, "languages", "language", KIND)
    with naming(path / "result.json", KIND):
        heads, gate = list(map(str, record.result["heads"])), float(record.result["gate"])
        repeated = record.result["task"] == "repeat"
        missing = dict(record.result["not_measured"])
        done = "removed" if gate == 0 else f"times {number(gate)}"
    kinds = {"general": f"general heads {done}"}
    what = "sentences that it repeats" if repeated else "summaries"
    head = masthead(
        record.model,
        f"How well it writes {what} with {count(len(heads), 'head')} that all languages share "
        f"{done}, beside as many random ones.",
        [
            ("heads", ", ".join(heads)),
            ("languages", ", ".join(_names(record))),
            ablated(record.result),
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
                record,
                measure,
                SCALES[measure],
                kinds,
                _caption(measure),
            ),
        )
        for measure, title in TITLES.items()
    ]
    return simple_page(
        f"{record.model} \u00b7 {KIND}",
        head,
        [
            ("summary", "", _summary(record, repeated, missing)),
            *bars,
            ("numbers", "Numbers", numbers_section(record, SCALES, kinds, "Language")),
            ("examples", "Outputs", examples_section(record, kinds, "Language")),
            ("provenance", "Provenance", about_run(path)),
        ],
    )


def _names(record: WritingRecord) -> list[str]:
    return [name for name in record.parts if name != "mean"]


def _summary(record: WritingRecord, repeated: bool, missing: dict[str, str]) -> Html:
    effects = record.whole.effects.get("general", {})
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
    lines += [f"{SCALES[name].words} was not measured: {why}." for name, why in missing.items()]
    return section(
        "summary",
        "In short",
        [tag("p", line) for line in lines],
        sure(effects.get("rouge_l"), record.whole),
    )


def _caption(measure: str) -> Html:
    return join(
        tag("strong", f"{TITLES[measure]} as is, without general heads, without random ones. "),
        f"{MEANING[measure]} The whisker is the 95\u00a0% interval of the change against the "
        "untouched model, over texts; rings are single draws of as many random heads.",
    )
