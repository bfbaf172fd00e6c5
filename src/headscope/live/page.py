"""The live page as HTML: its skeleton, the whole document, its style sheets, a static picture.

The policy of the page allows neither inline scripts nor inline styles. So styles of single
elements stand in `data-style`, and the script sets them; all else is in the style sheets.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from typing import Any

from headscope.report.drawing.maps import head_axes
from headscope.report.html import Child, Html, embed_json, join, tag
from headscope.report.matrix import Cell, matrix, ramp_bar
from headscope.report.notebook import page_in_frame
from headscope.report.page import Page, style_sheet
from headscope.report.parts import caption, figure, ramp_class, scroll
from headscope.shown.words import count, number

INTERVAL = ("low", "high")
"""Columns that are the interval of another one."""

LANES = {
    "original": ("Original", "out", "base"),
    "gated": ("Selected", "out top", "top"),
    "random": ("Random", "out random", "random"),
}
"""The lanes of the page by their name in events: title, the report's mark, and colour."""

FACTS = {
    "language": "Language",
    "copied": "Copied share",
    "chrf": "chrF++",
    "reference": "Reference, log-prob.",
}
"""What is said of an output, beside it."""


# ---- documents -----------------------------------------------------------------------------------
def page(about: Mapping[str, Any]) -> str:
    """The whole document of the explorer of a model; `about` is embedded as data."""
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", f"{about['model']} \u00b7 headscope explore"),
        [tag("link", rel="stylesheet", href=f"/{name}.css") for name in ("report", "explore")],
        # A page without a picture of its own asks the server for one.
        tag("link", rel="icon", href="data:,"),
        embed_json("about", about),
        tag("script", type="module", src="/boot.js"),
    )
    body = tag("body", tag("main", skeleton(about), class_="explorer"))
    return join(Html("<!DOCTYPE html>\n"), tag("html", head, body, lang="en")) + "\n"


def assets() -> dict[str, str]:
    """The files that a page asks for, by name."""
    own = {name: _asset(name) for name in ("boot.js", "explore.js", "explore.css")}
    return {"report.css": style_sheet(), **own}


def widget_css() -> str:
    """The style of a widget, which lives in a shadow tree: what holds for a page is its host's."""
    sheet = style_sheet() + _asset("explore.css")
    return re.sub(r"(?m)^(\s*)(?::root|body)(?= \{)", r"\1:host", sheet)


def static(about: Mapping[str, Any]) -> Html:
    """The map of heads by the first score with its scale, for where no script runs."""
    title, values, high = "Heads", None, 1.0
    if about["scores"]:
        scores = about["scores"][0]
        first = shades(scores)[0]
        title, values, high = first["title"], first["values"], _high(first["values"])
    words = caption(title, "One cell a head. Darker means higher (in a dark scheme, lighter)")
    scale = ramp_bar("0", number(high)) if values else None
    picture = figure("map", words, scroll(_matrix(about, values, high)), scale)
    return Html(page_in_frame(Page(about["model"], Html(""), [("heads", "", picture)])))


def shades(scores: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The columns of a run that cells can be coloured by, first what its heads are ranked by."""
    known = [column for column in scores["columns"] if column["key"] not in INTERVAL]
    return sorted(known, key=lambda column: bool(column["key"] != scores["by"]))


# ---- the skeleton --------------------------------------------------------------------------------
def skeleton(about: Mapping[str, Any]) -> Html:
    """What is in the root element; the script fills it and listens to it."""
    heads = sum(about["counts"])
    run = f"{count(heads, 'head')} in {count(about['layers'], 'layer')}"
    names = [scores["title"] for scores in about["scores"]]
    facts = " \u00b7 ".join([run, f"scores: {'; '.join(names)}" if names else "no scores"])
    masthead = tag(
        "header",
        tag("p", "headscope explore", class_="kicker"),
        tag("h1", tag("bdi", about["model"])),
        tag("p", "Set the gates of heads and compare the output with the original model and with "
            "random heads.", class_="lead"),
        tag("p", facts, class_="facts"),
        class_="masthead",
    )  # fmt: skip
    parts = tag("div", _input(about), _heads(about), _outputs(), _pinned(), class_="bench")
    return join(
        masthead,
        parts,
        tag("div", class_="tip", aria_hidden="true", hidden=True),
        tag("p", class_="announcer unseen", role="status", aria_live="polite"),
    )


def _input(about: Mapping[str, Any]) -> Html:
    kinds = [(each["pair"], f"sentence, {each['title']}") for each in about["pairs"]]
    kinds.append(("prompt", "prompt as it is"))
    if about["chat"]:
        kinds.append(("chat", "prompt in the chat template"))
    length = {"min": 1, "max": 512, "value": about["new_tokens"]}
    examples = [
        tag("button", each["title"], class_="more example-input", data_at=at)
        for at, each in enumerate(about["examples"])
    ]
    return _part(
        "input", "Input",
        tag("label", "Sentence or prompt",
            tag("textarea", class_="own-text", rows=2, dir="auto", spellcheck="false"),
            class_="control wide"),
        _row(_choice("Use as", "kind", kinds),
             _field("Reference (optional)", "own-reference", dir="auto"),
             _field("New tokens", "length", type="number", **length),
             tag("button", "Run", class_="go", title="Ctrl+Enter in the text")),
        _row(tag("span", "Examples", class_="note"), examples, role="group",
             aria_label="Examples") if examples else None,
        _data(about["data"]) if about["data"] else None,
    )  # fmt: skip


def _data(data: Mapping[str, Any]) -> Html:
    ways = [(each["pair"], each["title"]) for each in data["directions"]]
    return _row(
        _choice(f"Sentence of {data['name']}", "of-data", ways),
        _button("earlier", "Previous"),
        _button("later", "Next"),
        tag("span", class_="note data-place", role="status"),
        role="group",
        aria_label="Sentences of the data",
    )


def _heads(about: Mapping[str, Any]) -> Html:
    runs = [(at, scores["title"]) for at, scores in enumerate(about["scores"])]
    low, high = about["gate"]
    bounds = {"min": low, "max": high, "value": 1}
    most = about["scores"][0]["k"] if runs else min(5, sum(about["counts"]))
    colours = [
        tag("optgroup",
            [tag("option", column["title"], value=f"{at} {column['key']}")
             for column in shades(scores)],
            label=scores["title"])
        for at, scores in enumerate(about["scores"])
    ]  # fmt: skip
    named = {"aria_label": "Gate of the current head"}
    plain = _matrix(about, None, 1.0)
    return _part(
        "heads", "Heads",
        tag("h2", "Heads"),
        tag("p", "Click: gate 0, and back to 1. Shift-click: any gate. Keys: arrows, Enter, "
            "+ and \u2212, p pins.", class_="note keys"),
        tag("label", "Colour shows", tag("select", colours, class_="shade"), class_="control")
        if runs else None,
        tag("div", Html(plain.replace(' style="', ' data-style="')), class_="scroll map"),
        ramp_bar("0", "") if runs else None,
        tag("ul",
            [tag("li", _sign(mark), words) for mark, words in (
                ("zero", "gate 0"), ("other", "other gate"),
                ("drawn", "random control"), ("held", "pinned"))],
            class_="legend"),
        tag("p", class_="head-words"),
        _row(tag("label", tag("span", "Gate", class_="current-head"),
                 tag("input", type="range", class_="slider", step=0.25, **bounds),
                 class_="control slide"),
             tag("input", type="number", class_="gate-value", step="any", **bounds, **named),
             tag("button", "Pin", class_="more pin", aria_pressed="false")),
        _row(tag("span", "Remove", class_="note"),
             [_button("top", "top"), _choice("of", "of-run", runs, label_unseen=True)]
             if runs else None,
             _field("k", "k", type="number", min=1, max=sum(about["counts"]), value=most),
             _button("random", "random"), _button("random-layers", "random, same layers"),
             _button("everything", "all"), _button("nothing", "none"),
             role="group", aria_label="Remove heads"),
        _row(_button("undo", "Undo"), _button("redo", "Redo"),
             tag("span", class_="note selected-count")),
        _row(_choice("Random control", "matched", (("", "random"), ("1", "random, same layers"))),
             _button("draw", "Next draw"),
             tag("span", class_="note drawn-count", role="status")),
    )  # fmt: skip


def _outputs() -> Html:
    actions = (
        ("copy-link", "Copy link"),
        ("save-run", "Save as run"),
        ("copy-command", "Copy as command"),
        ("copy-python", "Copy as Python"),
        ("save-svg", "Map as SVG"),
        ("save-csv", "Tokens as CSV"),
    )
    return _part(
        "outputs", "Outputs",
        tag("p", class_="badge failure", role="alert", hidden=True),
        tag("div",
            tag("dl", tag("dt", "Prompt, with the source marked"),
                tag("dd", class_="prompt", dir="auto", tabindex=0), class_="text"),
            tag("div", class_="reading"),
            tag("div", [_lane(name) for name in LANES], class_="lanes"),
            Html('<svg class="arcs" aria-hidden="true"></svg>'),
            class_="stage"),
        tag("div", tag("h3"), tag("dl", class_="bars"), tag("p", class_="note"),
            class_="place", hidden=True),
        _row([_button(name, words) for name, words in actions], role="group",
             aria_label="Keep what is seen"),
        tag("div", tag("p", role="status", class_="note"), tag("pre", tabindex=0, dir="ltr"),
            class_="kept", hidden=True),
    )  # fmt: skip


def _lane(name: str) -> Iterator[Html]:
    title, mark, colour = LANES[name]
    own, before = "Output", "Original output: change of log-probability"
    rows = [
        tag("div", tag("dt", FACTS[fact]), tag("dd", "\u2013", data_fact=fact)) for fact in FACTS
    ]
    yield tag(
        "section",
        tag("dl", tag("dt", title, " ", tag("span", class_="heads-of")), class_=f"text {mark}"),
        tag("dl", tag("dt", "Scale: change of log-probability, in nats"),
            tag("dd", ramp_bar("", "", diverging=True),
                tag("span", tag("span", "less likely", class_="tok less"), " \u00b7 ",
                    tag("span", "more likely", class_="tok more"), class_="note")),
            class_="text scale")
        if name == "original"
        else _tokens("shifted", before, f"{title}: {before.lower()}"),
        _tokens("written", own, f"{title}: output"),
        tag("p", class_="note ending"),
        tag("dl", rows, class_="facts"),
        class_=f"lane key-{colour}", data_lane=name, aria_label=title,
    )  # fmt: skip


def _tokens(kind: str, words: str, name: str) -> Html:
    listed = tag(
        "div", class_="tokens", role="listbox", aria_label=name, aria_orientation="horizontal",
        dir="auto",
    )  # fmt: skip
    title = tag("dt", words, " ", tag("span", class_="total"))
    return tag("dl", title, tag("dd", listed), class_=f"text {kind}")


def _pinned() -> Html:
    return _part(
        "pinned", "Pinned head",
        tag("h2", "Pinned head"),
        tag("p", "No head is pinned. Pin the current one by its button or with the key p.",
            class_="note"),
        tag("div",
            tag("dl", class_="facts"),
            tag("div", tag("h3"), tag("p", class_="note"), tag("div", class_="best")),
            class_="about-head", hidden=True),
    )  # fmt: skip


# ---- pieces --------------------------------------------------------------------------------------
def _matrix(about: Mapping[str, Any], values: Sequence[float | None] | None, high: float) -> Html:
    """The map of all heads, plain without values."""
    places = [(layer, head) for layer, n in enumerate(about["counts"]) for head in range(n)]
    width = max(1, *about["counts"])
    pitch = max(12, min(26, 400 // width))
    cells = [
        Cell(layer, head, "plain" if values is None else _colour(values[at], high))
        for at, (layer, head) in enumerate(places)
    ]
    words = f"Heads of {about['model']}, layers down, heads across"
    return matrix(cells, *head_axes(about["layers"], width, pitch), pitch, words, data_pitch=pitch)


def _colour(value: float | None, high: float) -> str:
    return ramp_class(None if value is None else max(0.0, value), high)


def _high(values: Sequence[float | None]) -> float:
    return max([0.0, *(value for value in values if value is not None)]) or 1.0


def _part(name: str, title: str, *children: Child) -> Html:
    return tag("section", *children, class_=f"part {name}", aria_label=title)


def _row(*children: Child, **attributes: object) -> Html:
    return tag("div", *children, class_="controls", **attributes)


def _button(name: str, words: str) -> Html:
    return tag("button", words, class_=f"more {name}")


def _field(words: str, name: str, **attributes: object) -> Html:
    return tag("label", words, tag("input", class_=name, **attributes), class_="control")


def _choice(
    words: str, name: str, values: Sequence[tuple[object, str]], label_unseen: bool = False
) -> Html:
    options = [tag("option", label, value=value) for value, label in values]
    title = tag("span", words, class_="unseen") if label_unseen else words
    return tag("label", title, tag("select", options, class_=name), class_="control")


def _sign(mark: str) -> Html:
    """The mark of a head in the key of the map."""
    return Html(
        f'<svg class="sign {mark}" viewBox="0 0 14 14" aria-hidden="true">{SIGNS[mark]}</svg>'
    )


SIGNS = {
    "zero": '<rect width="14" height="14" class="s4"/><path d="M2 2L12 12M12 2L2 12"/>',
    "other": '<rect width="14" height="14" class="s4"/><circle cx="7" cy="7" r="4"/>',
    "drawn": '<rect x="1" y="1" width="12" height="12"/>',
    "held": '<rect x="1.5" y="1.5" width="11" height="11"/>',
}


def _asset(name: str) -> str:
    return files("headscope.live").joinpath("assets", name).read_text(encoding="utf-8")
