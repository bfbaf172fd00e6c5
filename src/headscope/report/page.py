"""The document around the sections: head, style, script, the bar with the choice of direction."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from headscope.report.html import Html, embed_json, join, tag

__all__ = ["Page", "render"]


@dataclass(frozen=True)
class Page:
    """A page before it becomes a document.

    `sections` are pairs of a title for the navigation (empty: not in it) and HTML with an id;
    `data` is what the script needs; `choices` are the value and words of the page's one selector.
    """

    title: str
    masthead: Html
    sections: Sequence[tuple[str, str, Html]]
    choices: Sequence[tuple[str, str]]
    data: Mapping[str, Any]


def render(page: Page) -> str:
    """The whole document. It loads nothing, and its policy forbids it to."""
    style, script = _asset("report.css"), _asset("report.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    # Text is escaped wherever it goes in; should a script slip in all the same, the browser runs
    # none but the one with this digest, and connects to nothing.
    policy = (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; "
        "base-uri 'none'; form-action 'none'"
    )
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
        tag("a", "Skip to the report", href="#summary", class_="skip"),
        page.masthead,
        _bar(page),
        tag("main", [html for _, _, html in page.sections]),
        tag("footer", "Made by headscope. This file is complete and needs no network."),
        tip,
        embed_json("data", page.data),
        Html(f"<script>{script}</script>"),
    )
    return join(Html("<!DOCTYPE html>\n"), tag("html", head, body, lang="en")) + "\n"


def _bar(page: Page) -> Html:
    links = [
        tag("a", title, href=f"#{identifier}") for identifier, title, _ in page.sections if title
    ]
    options = [tag("option", words, value=value) for value, words in page.choices]
    choice = tag(
        "label", tag("span", "Direction"), tag("select", options, id="direction"), class_="script"
    )
    return tag(
        "div",
        choice if len(options) > 1 else None,
        tag("nav", links, aria_label="Parts of the report"),
        class_="toolbar",
    )


def _asset(name: str) -> str:
    return files("headscope.report").joinpath("assets", name).read_text(encoding="utf-8")
