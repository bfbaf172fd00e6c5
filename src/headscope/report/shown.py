"""What a run shows as a page: the finding first, then sections of blocks, last where it is from."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from headscope.report.drawing.blocks import draw
from headscope.report.html import Child, Html, join, tag
from headscope.report.page import Page
from headscope.report.parts import section
from headscope.report.provenance import about_run
from headscope.shown.blocks import Block, Histograms, KeyText, Sentences, Shown
from headscope.shown.words import MEAN, arrow, unbroken

FLAG = re.compile(r"--[a-z][a-z-]*(?:[ =](?=[^\s,;]*[A-Z=/])[^\s,;]+)?")
#: Style sheets that only pages with such a block need.
STYLES: dict[type[Block], str] = {
    Histograms: "histograms.css",
    KeyText: "key_tokens.css",
    Sentences: "sentences.css",
}


def page_of(shown: Shown, run: Path, command: str) -> Page:
    """The page of a run in this folder."""
    names = _slugs(each.title for each in shown.sections)
    sections: list[tuple[str, str, Html]] = [("summary", "", _finding(shown))]
    data: dict[str, Any] = {}
    scripts: list[str] = []
    parts: list[str] = []
    for name, each in zip(names, shown.sections, strict=True):
        drawn = [draw(f"{name}-{at}", block) for at, block in enumerate(each.blocks, 1)]
        lead = tag("p", with_flags(each.lead), class_="found") if each.lead else None
        kicker = tag("span", each.kicker, class_="elements") if each.kicker else None
        html = section(
            name,
            join(kicker, tag("span", each.title)),
            lead,
            [block.html for block in drawn],
            [tag("p", with_flags(words), class_="note") for words in each.after],
            tag("p", each.traced, class_="traced") if each.traced else None,
            class_="experiment" if each.compact else None,
        )
        sections.append((name, each.kicker or each.title, html))
        for block in drawn:
            data |= block.data
            scripts += block.scripts
            parts += block.parts
    parts = list(dict.fromkeys(parts))
    sections.append(("provenance", "Provenance", about_run(run)))
    blocks = {type(block) for each in shown.sections for block in each.blocks}
    many = len(parts) - (MEAN in parts)
    named = [(part, f"mean of {many}" if part == MEAN else arrow(part)) for part in parts]
    return Page(
        f"{shown.title} \u00b7 headscope",
        _masthead(shown, command),
        sections,
        named if len(parts) > 1 else (),
        data,
        tuple(dict.fromkeys(scripts)),
        ("paper.css", *(style for kind, style in STYLES.items() if kind in blocks)),
    )


def _masthead(shown: Shown, command: str) -> Html:
    line = [
        tag("span", tag("span", f"{name}: ") if name else None, tag("bdi", words))
        for name, words in shown.facts
        if words
    ]
    between: list[Child] = [part for fact in line for part in (" \u00b7 ", fact)]
    return tag(
        "header",
        tag("p", f"headscope {command}", class_="kicker"),
        tag("h1", tag("bdi", shown.title)),
        tag("p", shown.lead, class_="lead"),
        tag("p", between[1:], class_="facts") if line else None,
        class_="masthead",
    )


def with_flags(words: str) -> list[Child]:
    """Words with the command line's flags in them set as code."""
    words = unbroken(words)
    made: list[Child] = []
    end = 0
    for match in FLAG.finditer(words):
        made += [words[end : match.start()], tag("code", match[0])]
        end = match.end()
    return [*made, words[end:]]


def _finding(shown: Shown) -> Html:
    answer, *more = shown.finding or ("Nothing was found to say.",)
    remedy = join(" ", tag("code", shown.remedy)) if shown.remedy else None
    badge = (
        tag("p", with_flags(shown.uncertainty), remedy, class_="badge")
        if shown.uncertainty
        else None
    )
    cautions = [tag("li", with_flags(words)) for words in shown.cautions]
    return tag(
        "section",
        tag("h2", "Finding", id="summary-title", class_="unseen"),
        tag("p", unbroken(answer), class_="answer"),
        [tag("p", unbroken(words)) for words in more],
        badge,
        tag("ul", cautions, class_="cautions") if cautions else None,
        id="summary",
        aria_labelledby="summary-title",
    )


def _slugs(titles: Iterator[str]) -> list[str]:
    """Identifiers made of titles, each once."""
    taken = {"summary", "provenance", "data", "tip", "direction", "search", "earlier", "later"}
    names = []
    for title in titles:
        slug = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-") or "part"
        name, number = slug, 2
        while name in taken:
            name, number = f"{slug}-{number}", number + 1
        taken.add(name)
        names.append(name)
    return names
