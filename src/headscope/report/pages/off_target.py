"""The report of `verify off-target`: the language a model writes in without a language's heads."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headscope.report.html import Html, join, tag
from headscope.report.page import Page
from headscope.report.pages.frame import ablated, about_run, masthead, simple_page
from headscope.report.parts import scroll, section, table
from headscope.report.records.writing import WritingRecord, read_writing
from headscope.report.sections.writing import (
    Scale,
    bars_section,
    examples_section,
    numbers_section,
    sure,
    told,
)
from headscope.report.words import count, enumeration
from headscope.runs.reading import naming

__all__ = ["page"]

KIND = "off-target rates"
SCALES = {
    "off_target": Scale("the share of outputs in another language, in\u00a0%,", 100.0),
    "empty": Scale("empty outputs, %", 100.0),
}
TABLE = {**SCALES, "off_target": Scale("outputs in another language, %", 100.0)}
KINDS = {
    "specific": "specific heads removed",
    "full": "most important heads removed",
    "chosen": "chosen heads removed",
}


def page(path: Path) -> Page:
    """The report of the run of `verify off-target` in this folder."""
    record = read_writing(path, "languages", "language", KIND)
    with naming(path / "result.json", KIND):
        ask = str(record.result["ask"])
        written = {name: one.get("written") for name, one in record.result["languages"].items()}
        heads: Mapping[str, Any] = record.result["heads"]
        few = [
            f"{code}: {one['available']} of {one['wanted']}"
            for code, one in heads.items()
            if one["available"] < one["wanted"]
        ]
        missing = dict(record.result["not_measured"])
        identifier = record.result["identifier"]
    doing = "Translations into" if ask == "translate" else "Continued documents in"
    head = masthead(
        record.model,
        f"{doing} each language without that language\u2019s heads: how many are in another "
        "language, beside as many random heads.",
        [
            ("languages", ", ".join(name for name in record.parts if name != "mean")),
            ("identified by", str(identifier or "")),
            ablated(record.result),
        ],
        kicker="headscope verify off-target",
    )
    caption = join(
        tag("strong", "Outputs in another language than asked for, in per cent. "),
        "Each block is a language that was asked for; its own heads are removed. Specific heads "
        "are important in few languages; the most important ones are as many by importance alone. "
        "The identifier errs on short texts, so the untouched model\u2019s share is the floor. The "
        "whisker is the 95\u00a0% interval of the change over prompts, rings are single random "
        "draws.",
    )
    bars = bars_section(
        "shares", "Another language than asked for", record, "off_target", TABLE["off_target"],
        KINDS, caption, "asked for ",
    )  # fmt: skip
    return simple_page(
        f"{record.model} \u00b7 {KIND}",
        head,
        [
            ("summary", "", _summary(record, few, missing)),
            ("shares", "Shares", bars),
            ("written", "Languages", _written(written)),
            ("numbers", "Numbers", numbers_section(record, TABLE, KINDS, "Language")),
            ("examples", "Outputs", examples_section(record, KINDS, "Language")),
            ("provenance", "Provenance", about_run(path)),
        ],
    )


def _summary(record: WritingRecord, few: list[str], missing: dict[str, str]) -> Html:
    lines = []
    first = None
    for kind, words in KINDS.items():
        effect = record.whole.effects.get(kind, {}).get("off_target")
        if effect is not None:
            first = first or effect
            lines.append(told(effect, SCALES["off_target"], f"With {words}"))
    if few:
        lines.append(
            "Some languages have fewer specific heads than were asked for, and then fewer are "
            f"removed: {enumeration(few)}."
        )
    if record.result["without_heads"]:
        lines.append(
            f"No heads are known of {enumeration(list(record.result['without_heads']))}, so "
            "nothing is shown for them."
        )
    lines += [f"{TABLE[name].words} was not measured: {why}." for name, why in missing.items()]
    return section(
        "summary", "In short", [tag("p", line) for line in lines], sure(first, record.whole)
    )


def _written(written: Mapping[str, Any]) -> Html | None:
    """In which languages the outputs are, as is and with chosen heads removed."""
    rows = []
    for code, several in written.items():
        for one in several or ():
            if one["draw"] is None:
                said = "as is" if one["kind"] == "baseline" else KINDS[str(one["kind"])]
                counted = ", ".join(f"{name} {n}" for name, n in one["languages"].items())
                total = count(sum(one["languages"].values()), "output")
                rows.append((tag("bdi", code), said, total, tag("bdi", counted)))
    if not rows:
        return None
    header = ["Asked for", "Heads", "Outputs", "Language of the outputs and how many"]
    shown = table("Languages of the outputs", header, rows)
    note = "Outputs without a letter are in no language (none)."
    return section(
        "written",
        "In which language instead",
        tag("p", note, class_="note"),
        scroll("Languages", shown),
    )
