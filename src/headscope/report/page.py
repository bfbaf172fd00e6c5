"""The document around the sections: head, style, script, the bar with the choice of direction."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

from headscope.report.html import Html, embed_json, join, tag

STYLES, SCRIPTS = ("report.css", "charts.css"), ("report.js",)
"""The assets of every page."""


@dataclass(frozen=True)
class Page:
    """A page before it becomes a document.

    `sections` are pairs of a title for the navigation (empty: not in it) and HTML with an id;
    `data` is what the scripts need; `choices` are the value and words of the page's one selector.
    `scripts` and `styles` name files among the assets that this page needs beside those of all
    pages, such as `atlas.js`; they come after them, in this order.
    """

    title: str
    masthead: Html
    sections: Sequence[tuple[str, str, Html]]
    choices: Sequence[tuple[str, str]] = ()
    data: Mapping[str, Any] = field(default_factory=dict)
    scripts: Sequence[str] = ()
    styles: Sequence[str] = ()


def render(page: Page) -> str:
    """The whole document. It loads nothing, and its policy forbids it to."""
    style = "\n".join(_asset(name) for name in (*STYLES, *page.styles))
    scripts = [_asset(name) for name in (*SCRIPTS, *page.scripts)]
    # Text is escaped wherever it goes in; should a script slip in all the same, the browser runs
    # none but those with these digests, and connects to nothing.
    policy = (
        f"default-src 'none'; script-src {' '.join(map(_digest, scripts))}; "
        "style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
    )
    start = page.sections[0][0] if page.sections else "data"
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", name="generator", content="headscope"),
        tag("title", page.title),
        Html(f"<style>\n{style}</style>"),
    )
    tip = tag("div", id="tip", role="status", aria_live="polite", hidden=True)
    body = tag(
        "body",
        tag("a", "Skip to the report", href=f"#{start}", class_="skip"),
        page.masthead,
        _bar(page),
        tag("main", [html for _, _, html in page.sections]),
        tag("footer", "Made by headscope. This file is complete and needs no network."),
        tip,
        embed_json("data", page.data),
        [Html(f"<script>{script}</script>") for script in scripts],
    )
    return join(Html("<!DOCTYPE html>\n"), tag("html", head, body, lang="en")) + "\n"


def _bar(page: Page) -> Html:
    links = [
        tag("a", title, href=f"#{identifier}") for identifier, title, _ in page.sections if title
    ]
    options = [tag("option", words, value=value) for value, words in page.choices]
    choice = tag(
        "label", tag("span", "Show"), tag("select", options, id="direction"), class_="script"
    )
    return tag(
        "div",
        choice if len(options) > 1 else None,
        tag("nav", links, aria_label="Parts of the report"),
        class_="toolbar",
    )


def _digest(script: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def _asset(name: str) -> str:
    return files("headscope.report").joinpath("assets", name).read_text(encoding="utf-8")
