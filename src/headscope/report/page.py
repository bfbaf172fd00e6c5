"""A page: the finding beside its figure, then sections of blocks, last how it was made."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from headscope.report.drawing.blocks import draw
from headscope.report.html import Child, Html, embed_json, join, tag
from headscope.report.parts import COLOURS, Drawn, bdi, folded, named, section
from headscope.report.provenance import about_run
from headscope.shown.blocks import METHOD, HeadSets, Next, Section, Shown, Table
from headscope.shown.words import MEAN, arrow, enumeration, unbroken

#: Characters of an answer that is set smaller, so that it does not fill the screen.
LONG = 120
FLAG = re.compile(r"(--[a-z][a-z-]*(?:[ =](?=[^\s,;]*[A-Z=/])[^\s,;]+)?)")
RULE = re.compile(r"(@media[^{]+)\{|([^{}]+)\{([^{}]*)\}|\}")


@dataclass(frozen=True)
class Page:
    """A page before it becomes a document.

    `sections` are an id, a title for the navigation (empty: not in it) and HTML; `choices` are the
    value and words of the page's one selector, `chosen` names the sections that follow it; `data`
    is what the scripts need, which `scripts` name among the assets besides the one of all pages.
    """

    title: str
    masthead: Html
    sections: Sequence[tuple[str, str, Html]]
    choices: Sequence[tuple[str, str]] = ()
    data: Mapping[str, Any] = field(default_factory=dict)
    scripts: Sequence[str] = ()
    kind: str | None = None
    chosen: str = ""


def page_of(shown: Shown, run: Path | None, command: str) -> Page:
    """The page of a run in this folder, or of none: verdict and figure, then sections, last how it
    was made."""
    first = draw("figure", shown.figure) if shown.figure else None
    sections, drawn = [("summary", "", _finding(shown, first))], [first] if first else []
    following = ["the figure"] if first and first.parts else []
    if first and first.more:
        sections.append(("heads", "Every head", section("heads", "Every head", first.more)))
    ordered = _sets_first(shown.sections)
    names = _slugs(shown_section.title for shown_section in ordered)
    for name, shown_section in zip(names, ordered, strict=True):
        blocks = [draw(f"{name}-{at}", block) for at, block in enumerate(shown_section.blocks, 1)]
        sections.append(
            (
                name,
                "" if shown_section.folded else shown_section.kicker or shown_section.title,
                _section(name, shown_section, blocks, first),
            )
        )
        drawn += blocks
        if any(block.parts or "sentences" in block.data for block in blocks):
            following.append(shown_section.title)
    parts = list(dict.fromkeys(part for block in drawn for part in block.parts))
    many = len(parts) - (MEAN in parts)
    named_parts = [(part, f"mean of {many}" if part == MEAN else arrow(part)) for part in parts]
    return Page(
        f"{shown.title} \u00b7 headscope",
        _masthead(shown, command),
        [*sections, *([("provenance", "Provenance", about_run(run))] if run else [])],
        named_parts if len(parts) > 1 else (),
        {key: value for block in drawn for key, value in block.data.items()},
        tuple(dict.fromkeys(script for block in drawn for script in block.scripts)),
        "paper" if any(section.compact for section in shown.sections) else None,
        enumeration(following),
    )


def _section(
    name: str, shown_section: Section, blocks: Sequence[Drawn], first: Drawn | None
) -> Html:
    """A section; where the page has its figure, tables and the method are folded."""
    tables = [isinstance(block, Table) for block in shown_section.blocks]
    folding = first is not None and not shown_section.compact
    closed = shown_section.folded or shown_section.title == METHOD
    closed = closed or (folding and bool(tables) and all(tables))

    def shown(block: Drawn, title: str, folds: bool) -> Child:
        # What has the title of its section does not say it again.
        around = title if folds else shown_section.title
        html = Html(block.html.replace(f"{named(around)} ", "", 1))
        return [folded(title, html) if folds else html, block.more]

    return section(
        name,
        join(
            tag("span", shown_section.kicker, class_="elements") if shown_section.kicker else None,
            shown_section.title,
        ),
        tag("p", with_flags(shown_section.lead), class_="found") if shown_section.lead else None,
        [
            shown(block, getattr(content, "title", ""), folding and table and not closed)
            for block, content, table in zip(blocks, shown_section.blocks, tables, strict=True)
        ],
        [tag("p", with_flags(words), class_="note") for words in shown_section.after],
        tag("p", shown_section.traced, class_="traced") if shown_section.traced else None,
        class_="experiment" if shown_section.compact else None,
        closed=closed,
    )


def _sets_first(sections: Sequence[Section]) -> list[Section]:
    """The sections: all sets of heads in one of their own at the beginning, the method last."""
    sets = [
        block for section in sections for block in section.blocks if isinstance(block, HeadSets)
    ]
    others = [
        replace(section, blocks=[block for block in section.blocks if block not in sets])
        for section in sections
    ]
    kept = [
        section
        for section in others
        if section.blocks or section.lead or section.after or section.traced
    ]
    kept.sort(key=lambda section: section.title == METHOD)
    return [Section("Selected heads", sets), *kept] if sets else kept


def _masthead(shown: Shown, command: str) -> Html:
    facts: list[Child] = []
    for name, words in shown.facts:
        if words:
            facts += [" \u00b7 ", tag("span", f"{name}: " if name else None, bdi(words))]
    return tag(
        "header",
        tag("p", f"headscope {command}", class_="kicker"),
        tag("h1", bdi(shown.title)),
        tag("p", shown.lead, class_="lead"),
        tag("p", facts[1:], class_="facts") if facts else None,
        class_="masthead",
    )


def with_flags(words: str) -> list[Child]:
    """Words with the command line's flags in them set as code."""
    parts = FLAG.split(unbroken(words))
    return [tag("code", part) if at % 2 else part for at, part in enumerate(parts)]


def _finding(shown: Shown, first: Drawn | None) -> Html:
    """The verdict and what it rests on, and beside it the figure."""
    answer, *more = shown.finding or ("This run has no finding.",)
    remedy = [" Try ", tag("code", shown.remedy), "."] if shown.remedy else None
    uncertainty = tag("p", with_flags(shown.uncertainty), remedy, class_="badge")
    cautions = [tag("li", with_flags(words)) for words in shown.cautions]
    warning = tag("strong", "Warning: "), with_flags(shown.warning)
    words = tag(
        "div",
        tag("h2", "Finding", id="summary-title", class_="unseen"),
        tag("p", warning, class_="warning") if shown.warning else None,
        tag("p", with_flags(answer), class_="answer long" if len(answer) > LONG else "answer"),
        [tag("p", with_flags(words)) for words in more],
        uncertainty if shown.uncertainty else None,
        _next(shown.next) if shown.next else None,
        class_="finding",
    )
    weak = tag("ul", cautions, class_="cautions") if cautions else None
    parts = tag("div", words, first.html, weak, class_="first") if first else [words, weak]
    look = "muted" if shown.muted else None
    return tag("section", parts, id="summary", class_=look, aria_labelledby="summary-title")


def _next(following: Next) -> Html:
    """The command that goes on, to be copied."""
    copy = tag("button", "copy", class_="copy script", data_text=following.command)
    words = [[tag("span", word), " "] for word in following.command.split(" ")]
    return tag(
        "div",
        tag("p", tag("strong", following.words), " ", copy),
        tag("pre", tag("code", words), tabindex=0),
        class_="next",
    )


def _slugs(titles: Iterator[str]) -> Iterator[str]:
    """Identifiers made of titles, each once."""
    taken = {"summary", "figure", "heads", "provenance", "data", "tip", "direction", "search"}
    taken |= {"earlier", "later"}
    for title in titles:
        slug = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-") or "part"
        name, number = slug, 2
        while name in taken:
            name, number = f"{slug}-{number}", number + 1
        taken.add(name)
        yield name


def render(page: Page) -> str:
    """The whole document. It loads nothing, and its policy forbids it to."""
    drawn = any("<figure" in html for _, _, html in page.sections)
    own = ("report.js", *page.scripts, *(["pictures.js"] if drawn else []))
    scripts = [_script(name) for name in own]
    # Text is escaped wherever it goes in; should a script slip in all the same, the browser runs
    # none but those with these digests, and connects to nothing. Images are those that a figure
    # makes of itself.
    policy = (
        f"default-src 'none'; script-src {' '.join(map(_digest, scripts))}; "
        "style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
    )
    start = page.sections[0][0] if page.sections else "data"
    body = tag(
        "body",
        tag("a", "Skip to the report", href=f"#{start}", class_="skip"),
        page.masthead,
        _toolbar(page),
        tag("main", [html for _, _, html in page.sections], class_=page.kind),
        tag("footer", "Made by headscope. This file is complete and needs no network."),
        tag("div", id="tip", role="status", aria_live="polite", hidden=True),
        embed_json("data", page.data),
        [Html(f"<script>{script}</script>") for script in scripts],
    )
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", name="generator", content="headscope"),
        tag("title", page.title),
        Html(f"<style>{_style(body)}</style>"),
    )
    return join(Html("<!DOCTYPE html>\n"), tag("html", head, body, lang="en")) + "\n"


def _toolbar(page: Page) -> Html:
    links = [tag("a", title, href=f"#{name}") for name, title, _ in page.sections if title]
    options = [tag("option", words, value=value) for value, words in page.choices]
    choice = tag(
        "label", tag("span", page.chosen), tag("select", options, id="direction"), class_="script"
    )
    return tag(
        "div",
        choice if len(options) > 1 else None,
        tag("nav", links, aria_label="Parts of the report"),
        class_="toolbar",
    )


# ---- assets --------------------------------------------------------------------------------------
def _style(html: str) -> str:
    """The style sheet as far as the page needs it: rules of its classes, colours of these rules."""
    named_by = r'(?:class|id)="([^"]*)"|class(?:List\.\w+\(|Name = )"([\w -]+)'
    names = {
        name for pair in re.findall(named_by, html) for words in pair for name in words.split()
    }
    made: dict[str, list[tuple[str, str]]] = {}
    for media, selectors, declarations in _rules():
        kept = ",".join(selector for selector, needed in selectors if needed <= names)
        if kept:
            made.setdefault(media, []).append((kept, declarations))
    used = set(re.findall(r"var\((--[\w-]+)", f"{html}{made}"))

    def written(selector: str, declarations: str) -> str:
        if selector == ":root":
            single = declarations.split(";")
            declarations = ";".join(d for d in single if d[:2] != "--" or d.split(":")[0] in used)
        return f"{selector}{{{declarations}}}"

    blocks = {media: "".join(written(*rule) for rule in rules) for media, rules in made.items()}
    return "".join(f"{media}{{{rules}}}" if media else rules for media, rules in blocks.items())


@cache
def _rules() -> list[tuple[str, list[tuple[str, set[str]]], str]]:
    """The rules of the style sheet: @media, selectors with the names in them, declarations."""
    sheet = re.sub(r"/\*.*?\*/", "", style_sheet(), flags=re.DOTALL)
    found: list[tuple[str, list[tuple[str, set[str]]], str]] = []
    media = ""
    for at_media, selectors, declarations in RULE.findall(re.sub(r"\s+", " ", sheet)):
        if at_media or not selectors:
            media = at_media.strip()
            continue
        listed = [selector.strip() for selector in re.split(r",(?![^()]*\))", selectors)]
        # What stands in brackets, as in `:is(.a, .b)`, does not say which names are needed.
        needed = [
            set(re.findall(r"[.#]([\w-]+)", re.sub(r"\(.*\)", "", selector))) for selector in listed
        ]
        brief = re.sub(r" ?([:;,]) ?", r"\1", declarations).strip(" ;")
        found.append((media, list(zip(listed, needed, strict=True)), brief))
    return found


def style_sheet() -> str:
    """The whole style sheet, with the classes of the colour ramps."""
    ramps = (f".{name}{{fill:var(--{name});background:var(--{name})}}\n" for name in COLOURS)
    return _asset("report.css") + "".join(ramps)


@cache
def _script(name: str) -> str:
    """A script without comments, which have lines of their own, and without indentation."""
    lines = (line.strip() for line in _asset(name).splitlines())
    return "\n".join(line for line in lines if line and not line.startswith("//"))


def _digest(script: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def _asset(name: str) -> str:
    return files("headscope.report").joinpath("assets", name).read_text(encoding="utf-8")
