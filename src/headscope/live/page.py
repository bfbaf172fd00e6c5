"""The live page as HTML: its skeleton, the whole document, its style sheets, a static picture.

The policy of the page allows neither inline scripts nor inline styles. So styles of single
elements stand in `data-style`, and the script sets them; all else is in the style sheets.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

from headscope.evidence.controls import DEFAULT
from headscope.report.drawing.maps import head_axes
from headscope.report.html import Child, Html, embed_json, join, tag
from headscope.report.matrix import Cell, matrix, ramp_bar
from headscope.report.notebook import page_in_frame
from headscope.report.page import Page, style_sheet
from headscope.report.parts import caption, figure, legend, ramp_class, scroll
from headscope.shown.words import count, number

LANES = {
    "original": ("Original", "out", "base"),
    "gated": ("Selected", "out top", "top"),
    "random": ("Random", "out random", "random"),
}
"""The outputs by their name in events: title, mark and colour."""

EFFECT = "effect"
"""The choice of colours by what each head does when it is removed by itself."""

FACTS = {
    "language": "Language", "copied": "Copied share", "chrf": "chrF++",
    "reference": "log p(reference)",
}  # fmt: skip
"""What is said of an output, beside it."""

KEPT = {
    "copy-link": "Copy link", "save-run": "Save as run", "copy-command": "Copy as command",
    "copy-python": "Copy as Python", "save-svg": "Map as SVG", "save-csv": "Tokens as CSV",
}  # fmt: skip


# ---- documents -----------------------------------------------------------------------------------
def page(about: Mapping[str, Any]) -> str:
    """The whole document of the explorer of a model; `about` is embedded as data."""
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
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
    column, scale = None, None
    if about["scores"]:
        column = shades(about["scores"][0])[0]
        high, signed = column["high"], column["signed"]
        scale = ramp_bar(number(-high) if signed else "0", number(high), diverging=signed)
    words = "One cell a head. Darker means higher (in a dark scheme, lighter)"
    if column and column["signed"]:
        words = "One cell a head. Blue: below 0, orange: above"
    title = caption(column["title"] if column else "Heads", words)
    picture = figure("map", title, scroll(_map(about, column)), scale)
    return Html(page_in_frame(Page(about["model"], Html(""), [("heads", "", picture)])))


def shades(scores: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The columns of a run that cells can be coloured by, first what its heads are ranked by."""
    known = [column for column in scores["columns"] if column["key"] not in ("low", "high")]
    return sorted(known, key=lambda column: bool(column["key"] != scores["by"]))


# ---- the skeleton --------------------------------------------------------------------------------
def skeleton(about: Mapping[str, Any]) -> Html:
    """What is in the root element; the script fills it and listens to it."""
    size = f"{count(sum(about['counts']), 'head')} in {count(about['layers'], 'layer')}"
    masthead = tag(
        "header",
        tag("p", "headscope explore", class_="kicker"),
        tag("h1", tag("bdi", about["model"])),
        tag("p", f"{size}. Set the gates of heads and compare the output with the original model "
            "and with random heads.", class_="lead"),
        class_="masthead",
    )  # fmt: skip
    parts = _finding(), _input(about), _heads(about), _outputs(about), _pinned()
    return join(
        masthead,
        _lesson(about["lesson"]) if about["lesson"] else None,
        tag("div", parts, class_="bench"),
        tag("div", class_="tip", aria_hidden="true", hidden=True),
        tag("p", class_="announcer unseen", role="status", aria_live="polite"),
    )


def _lesson(steps: Sequence[Mapping[str, Any]]) -> Html:
    buttons = [
        _button("step", f"{number} {step['title']}", aria_pressed="false")
        for number, step in enumerate(steps, 1)
    ]
    return _part("lesson", "Lesson", _row("Lesson", buttons),
                 tag("p", class_="step-text", role="status"))  # fmt: skip


def _finding() -> Html:
    """What the selected gates do, among random draws; before all else, since it is the answer."""
    bars = [
        tag("div", tag("dt", words),
            tag("dd", tag("span", tag("b"), tag("em"), class_="bar"), tag("span"), class_=mark))
        for words, mark in (("Selected", "key-top"), ("Random", "key-random"))
    ]  # fmt: skip
    return _part(
        "place", "Finding",
        tag("h2", "Nothing is computed yet"), tag("dl", bars, class_="bars", hidden=True),
        tag("p", "Give a text and press Run.", class_="note"),
    )  # fmt: skip


def _input(about: Mapping[str, Any]) -> Html:
    kinds = {pair["pair"]: f"sentence, {pair['title']}" for pair in about["pairs"]}
    kinds |= {"prompt": "prompt as it is"}
    kinds |= {"chat": "prompt in the chat template"} if about["chat"] else {}
    text = tag("textarea", class_="own-text", rows=2, dir="auto", spellcheck="false")
    examples = [_button("example-input", example["title"], data_at=at)
                for at, example in enumerate(about["examples"])]  # fmt: skip
    return _part(
        "input", "Input",
        tag("label", "Sentence or prompt", text, class_="control wide"),
        _row(None, _choice("Use as", "kind", kinds),
             _field("Reference", "own-reference", dir="auto", placeholder="optional"),
             _field("New tokens", "length", type="number", min=1, max=512,
                    value=about["new_tokens"]),
             tag("button", "Run", class_="go", title="Ctrl+Enter in the text")),
        _row("Examples", examples) if examples else None,
        _data(about["data"]) if about["data"] else None,
    )  # fmt: skip


def _data(data: Mapping[str, Any]) -> Html:
    ways = {direction["pair"]: direction["title"] for direction in data["directions"]}
    place = tag("span", class_="note data-place", role="status")
    turn = _button("earlier", "Previous"), _button("later", "Next")
    return _row(None, _choice(f"Sentence of {data['name']}", "of-data", ways), turn, place)


def _heads(about: Mapping[str, Any]) -> Html:
    scores, total = about["scores"], sum(about["counts"])
    gate = {"min": about["gate"][0], "max": about["gate"][1], "value": 1}
    columns = [
        tag("optgroup", [tag("option", column["title"], value=f"{at} {column['key']}")
                         for column in shades(run)], label=run["title"])
        for at, run in enumerate(scores)
    ] or [tag("option", "nothing", value="")]  # fmt: skip
    columns.append(tag("optgroup", tag("option", "effect when removed", value=EFFECT),
                       label="This text"))  # fmt: skip
    slider = tag("input", type="range", class_="slider", step=0.25, **gate)
    highest = scores[0]["k"] if scores else min(5, total)
    controls = {name: name for name in DEFAULT}
    return _part(
        "heads", "Heads",
        tag("h2", "Heads"),
        tag("p", "Click: gate 0, and back to 1. Shift-click: any gate. Keys: arrows, Enter, "
            "+ and \u2212, p pins.", class_="note"),
        tag("label", "Colour shows", tag("select", columns, class_="shade"), class_="control"),
        tag("p", class_="note shown"),
        tag("div", Html(_map(about, None).replace(' style="', ' data-style="')),
            class_="scroll map"),
        [ramp_bar("", "", diverging=both) for both in (False, True)],
        legend(("zero", "gate 0"), ("other", "other gate"), ("drawn", "random control"),
               ("held", "pinned")),
        tag("p", class_="head-words"),
        _row(None, tag("label", tag("span", class_="current-head"), slider, class_="control"),
             tag("input", type="number", class_="gate-value", step="any",
                 aria_label="Gate of the current head", **gate),
             _button("pin", "Pin", aria_pressed="false")),
        _row(None, _field("Remove", "k", type="number", min=1, max=total, value=highest),
             _button("top", "highest", title="of the scores that colour the map"),
             _button("random", "random"), _button("random-layers", "random, same layers"),
             _button("everything", "all"), _button("nothing", "none")),
        _row("Given", [_button("given-set", given["title"]) for given in about["sets"]])
        if about["sets"] else None,
        _row(None, _button("undo", "Undo"), _button("redo", "Redo"),
             tag("span", class_="note selected-count")),
        _row(None, _choice("Random control", "drawn-from", controls), _button("draw", "Next draw"),
             tag("span", class_="note drawn-count", role="status")),
    )  # fmt: skip


def _outputs(about: Mapping[str, Any]) -> Html:
    prompt = tag("dd", class_="prompt", dir="auto", tabindex=0)
    return _part(
        "outputs", "Outputs",
        tag("p", class_="badge failure", role="alert", hidden=True),
        _row(None, _button("arrives", "As it arrives", aria_pressed="false"),
             tag("span", class_="note of-arrival"))
        if about["pairs"] else None,
        _arriving(),
        tag("div",
            tag("dl", tag("dt", "Prompt"), prompt, class_="text"),
            tag("div", class_="reading"),
            tag("div", map(_lane, LANES), class_="lanes"),
            tag("svg", class_="arcs", aria_hidden="true"),
            class_="stage"),
        _row("Keep", [_button(name, words) for name, words in KEPT.items()]),
        tag("div", tag("p", role="status", class_="note"), tag("pre", tabindex=0, dir="ltr"),
            class_="kept", hidden=True),
    )  # fmt: skip


def _arriving() -> Html:
    """A source whose words arrive one by one; it is shown in place of the lanes."""
    policies = {"alignatt": "AlignAtt: where the heads look", "wait-k": "wait-k: so many words"}
    slider = tag("input", type="range", class_="number", min=0, max=8, value=2)
    arrivals = tag("ol", class_="arrivals", dir="auto")
    return tag(
        "div",
        _row(None, _choice("Policy", "policy", policies),
             tag("label", tag("span", class_="number-of"), slider, class_="control")),
        _row("Source", _button("play", "Play"), _button("word-on", "Next word"),
             _button("word-back", "Back"), _button("rewind", "Start over")),
        tag("p", class_="why", role="status"),
        tag("dl", tag("dt", "Source, and what is written at each word"),
            tag("dd", arrivals), class_="text"),
        _tokens("drafted", "As it arrives", "Translation, with the words read by then; behind it "
                "the draft"),
        legend(("last", "frontier"), ("lit", "most attention"), ("waits", "waits")),
        class_="arriving",
    )  # fmt: skip


def _lane(name: str) -> Html:
    title, mark, colour = LANES[name]
    facts = [tag("div", tag("dt", words), tag("dd", data_fact=fact))
             for fact, words in FACTS.items()]  # fmt: skip
    signs = tag("p", tag("span", "less likely", class_="tok less"), " \u00b7 ",
                tag("span", "more likely", class_="tok more"), class_="note")  # fmt: skip
    scale = "Scale: change of log-probability, in nats"
    return tag(
        "section",
        tag("dl", tag("dt", title, " ", tag("span", class_="heads-of")), class_=f"text {mark}"),
        tag("dl", tag("dt", scale), tag("dd", ramp_bar("", "", diverging=True), signs),
            class_="text scale")
        if name == "original"
        else _tokens("shifted", title, "Original output: change of log-probability"),
        _tokens("written", title, "Output"),
        tag("p", class_="note ending"),
        tag("dl", facts, class_="facts"),
        class_=f"lane key-{colour}", data_lane=name, aria_label=title,
    )  # fmt: skip


def _tokens(kind: str, lane: str, words: str) -> Html:
    name = f"{lane}: {words}"
    listed = tag("div", class_="tokens", role="listbox", aria_label=name, dir="auto")
    title = tag("dt", words, " ", tag("span", class_="total"))
    return tag("dl", title, tag("dd", listed), class_=f"text {kind}")


def _pinned() -> Html:
    how = "No head is pinned. Pin the current one by its button or with the key p."
    best = tag("h3", "Its best sentences"), tag("p", class_="note"), tag("div", class_="best")
    seen = tag("h3", "Its attention"), tag("p", class_="note"), tag("div", class_="scroll attended")
    known = (
        tag("dl", class_="facts"),
        tag("div", seen, class_="whole"),
        tag("div", best, class_="sentences"),
    )
    return _part(
        "pinned", "Pinned head", tag("h2"), tag("p", how, class_="note"),
        tag("div", known, class_="about-head", hidden=True),
    )  # fmt: skip


# ---- pieces --------------------------------------------------------------------------------------
def _map(about: Mapping[str, Any], column: Mapping[str, Any] | None) -> Html:
    """The map of all heads, plain without a column of scores."""
    places = [(layer, head) for layer, n in enumerate(about["counts"]) for head in range(n)]
    colours = ["plain"] * len(places)
    if column is not None:
        high, signed = column["high"], column["signed"]
        colours = [ramp_class(value, high, signed) for value in column["values"]]
    cells = [Cell(*place, colour) for place, colour in zip(places, colours, strict=True)]
    pitch = max(12, min(26, 400 // max(about["counts"])))
    axes = head_axes(about["layers"], max(about["counts"]), pitch)
    words = f"Heads of {about['model']}, layers down, heads across"
    return matrix(cells, *axes, pitch, words, data_pitch=pitch)


def _part(name: str, title: str, *children: Child) -> Html:
    return tag("section", *children, class_=f"part {name}", aria_label=title)


def _row(title: str | None, *children: Child) -> Html:
    """Controls in a row; a title makes them a group."""
    named = {"role": "group", "aria_label": title} if title else {}
    words = tag("span", title, class_="note") if title else None
    return tag("div", words, *children, class_="controls", **named)


def _button(name: str, words: str, **attributes: object) -> Html:
    return tag("button", words, class_=f"more {name}", **attributes)


def _field(words: str, name: str, **attributes: object) -> Html:
    return tag("label", words, tag("input", class_=name, **attributes), class_="control")


def _choice(words: str, name: str, values: Mapping[str, str]) -> Html:
    options = [tag("option", label, value=value) for value, label in values.items()]
    return tag("label", words, tag("select", options, class_=name), class_="control")


def _asset(name: str) -> str:
    return files("headscope.live").joinpath("assets", name).read_text(encoding="utf-8")
