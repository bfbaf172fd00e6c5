"""The report of `verify off-target`: the language a model writes in without a language's heads."""

from __future__ import annotations

from pathlib import Path

from headscope.report.html import Html, join, tag
from headscope.report.page import Page
from headscope.report.pages.frame import ablated, about_run, masthead, simple_page
from headscope.report.parts import scroll, section, table
from headscope.report.sections.writing import (
    Scale,
    bars_section,
    examples_section,
    not_measured,
    numbers_section,
    sure,
    told,
)
from headscope.results.writing import OffTarget
from headscope.runs.reading import result_of
from headscope.shown.words import count, enumeration

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
    result = result_of(path, OffTarget, KIND)
    doing = "Translations into" if result.ask == "translate" else "Continued documents in"
    head = masthead(
        result.model_name,
        f"{doing} each language without that language\u2019s heads: how many are in another "
        "language, beside as many random heads.",
        [
            ("languages", ", ".join(result.groups)),
            ("identified by", result.identifier or ""),
            ablated(result),
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
        "shares", "Another language than asked for", result, "off_target", TABLE["off_target"],
        KINDS, caption, "asked for ",
    )  # fmt: skip
    return simple_page(
        f"{result.model_name} \u00b7 {KIND}",
        head,
        [
            ("summary", "", _summary(result)),
            ("shares", "Shares", bars),
            ("written", "Languages", _written(result)),
            ("numbers", "Numbers", numbers_section(result, TABLE, KINDS, "Language")),
            ("examples", "Outputs", examples_section(path, KINDS, "language")),
            ("provenance", "Provenance", about_run(path)),
        ],
    )


def _summary(result: OffTarget) -> Html:
    effects = {kind: result.whole.effect(kind, "off_target") for kind in KINDS}
    known = {kind: effect for kind, effect in effects.items() if effect is not None}
    lines = [
        told(effect, SCALES["off_target"], f"With {KINDS[kind]}") for kind, effect in known.items()
    ]
    if result.too_few:
        few = [f"{code}: {own.available} of {own.wanted}" for code, own in result.too_few.items()]
        lines.append(
            "Some languages have fewer specific heads than were asked for, and then fewer are "
            f"removed: {enumeration(few)}."
        )
    if result.without_heads:
        lines.append(
            f"No heads are known of {enumeration(result.without_heads)}, so nothing is shown for "
            "them."
        )
    lines += not_measured(result.not_measured, TABLE)
    first = next(iter(known.values()), None)
    return section(
        "summary", "In short", [tag("p", line) for line in lines], sure(first, result.whole)
    )


def _written(result: OffTarget) -> Html | None:
    """In which languages the outputs are, as is and with chosen heads removed."""
    rows = []
    for code, part in result.groups.items():
        for written in part.written or ():
            if written.draw is None:
                said = "as is" if written.kind == "baseline" else KINDS[written.kind]
                counted = ", ".join(f"{name} {n}" for name, n in written.languages.items())
                total = count(sum(written.languages.values()), "output")
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
