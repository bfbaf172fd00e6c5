"""The report of key-token attention: heads by words, controls, and the text itself."""

from __future__ import annotations

from pathlib import Path

from headscope.report.charts import BarRow, bar_rows
from headscope.report.html import Child, Html, join, tag
from headscope.report.matrix import ramp_bar
from headscope.report.page import Page
from headscope.report.pages.frame import about_run, masthead, simple_page
from headscope.report.parts import figure, scroll, section, table
from headscope.report.records.key_tokens import (
    KeyTokensRecord,
    WordCell,
    read_key_tokens,
)
from headscope.report.sections.key_text import SCRIPT, STYLE, shade, shown, text_data, text_section
from headscope.report.words import count, enumeration, fixed, percent

__all__ = ["page"]

CONTROLS = {
    "random": "Random other heads",
    "random-layer-matched": "Random other heads of the same layers",
}


def page(path: Path) -> Page:
    """The report of the run of `find key-tokens` in this folder."""
    record = read_key_tokens(path)
    title = f"{record.model} \u00b7 key tokens"
    lead = (
        f"How much of their attention {count(len(record.heads), 'head')} of {record.model} pay to "
        f"{count(len(record.words), 'key word')} of a prompt{_while(record)}."
    )
    facts = [
        ("key words", enumeration(record.words)),
        ("steps", str(record.steps)),
        ("answer", _whose(record)),
    ]
    return simple_page(
        title,
        masthead("Key tokens", lead, facts, kicker="headscope find key-tokens"),
        [
            ("summary", "", _summary(record)),
            ("text", "Text", text_section(record)),
            ("words", "Heads and words", _heat_map(record)),
            ("control", "Controls", _controls(record)),
            ("provenance", "Provenance", about_run(path)),
        ],
        scripts=(SCRIPT,),
        styles=(STYLE,),
        data={"keyTokens": text_data(record)},
    )


def _while(record: KeyTokensRecord) -> str:
    if not record.answer_tokens:
        return ", at its last token"
    return " while it writes its answer" if record.generated else " while it reads on in an answer"


def _whose(record: KeyTokensRecord) -> str:
    if not record.answer_tokens:
        return "none, the last token of the prompt was looked at"
    return "the model's own, greedy" if record.generated else "given"


def _summary(record: KeyTokensRecord) -> Html:
    best = record.heads[0]
    strongest = max(zip(record.words, best.words, strict=True), key=lambda pair: pair[1].mean)
    parts: list[Child] = [
        tag(
            "p",
            "Before it predicts a token, a word or a piece of one, each attention head of a model "
            "looks back over the text: it spreads a weight of 100\u00a0% over the tokens so far. "
            "Each such look is a step, and what falls on the key words is counted here.",
        ),
        tag(
            "p",
            f"On average over {count(record.steps, 'step')} the heads pay ",
            tag("strong", percent(record.score, 1)),
            " of their attention to the key words. Spread evenly over all tokens a step sees, "
            f"attention would give them {percent(record.even, 1)}.",
        ),
        tag(
            "p",
            f"Head {best.name} pays the most, {percent(best.score, 1)}, and of that most to ",
            tag("bdi", strongest[0]),
            f" ({percent(strongest[1].mean, 1)}).",
        ),
    ]
    for kind, draws in record.controls.items():
        reached = sum(draw >= record.score for draw in draws)
        parts.append(
            tag(
                "p",
                f"{CONTROLS.get(kind, kind)}, as many in each of {len(draws)} draws, pay "
                f"{percent(sum(draws) / len(draws), 1)}; {reached or 'none'} of the draws pay at "
                "least as much as the heads looked at.",
            )
        )
    parts.append(
        tag(
            "p",
            "This is one prompt: it shows what these heads did here, and no interval can be given "
            "for other prompts.",
            class_="sure",
        )
    )
    return section("summary", "In short", *parts)


def _heat_map(record: KeyTokensRecord) -> Html:
    scale = max((word.mean for head in record.heads for word in head.words), default=0.0) or 1.0
    words = [tag("bdi", word) for word in record.words]
    rows = [
        [
            head.name,
            tag("span", fixed(head.score, 3), class_="sum"),
            fixed(head.even, 3),
            *(_cell(cell, scale) for cell in head.words),
        ]
        for head in record.heads
    ]
    grid = table(
        "Mean attention over the steps",
        ["head", "all words", "spread evenly", *words],
        rows,
        class_="numbers key-table",
    )
    caption = join(
        tag("strong", "Attention of each head to each key word. "),
        "For every step that predicts a token of the answer"
        if record.answer_tokens
        else "For the last token of the prompt",
        ", the softmax weights on the tokens of a word are added up; the large number is the mean "
        "over the steps, and the small one the most in any step, with the token it predicts. "
        "\u201cAll words\u201d counts a token once even where key words overlap. "
        "\u201cSpread evenly\u201d is what all words together would get if a head gave every token "
        "it can see the same weight. The weights are exact, computed in single precision from the "
        "model's own queries and keys; they come from a single prompt, so they carry no interval.",
    )
    return section(
        "words",
        "Heads and words",
        figure(
            "heat",
            caption,
            scroll("Attention, heads by key words", grid),
            ramp_bar("0", fixed(scale, 3)),
        ),
    )


def _cell(cell: WordCell, scale: float) -> Html:
    peak = None
    if cell.token is not None:
        most = f"most {fixed(cell.largest, 2)}, at "
        peak = tag("small", most, tag("bdi", f"\u201c{shown(cell.token)}\u201d"))
    number = tag("span", fixed(cell.mean, 3), class_=f"shade {shade(cell.mean, scale)}")
    return join(number, peak)


def _controls(record: KeyTokensRecord) -> Html | None:
    draws = [value for values in record.controls.values() for value in values]
    end = max([record.score, record.even, *draws]) or 1.0
    rows = [
        BarRow(count(len(record.heads), "head") + " looked at", record.score, "key-top"),
        BarRow("Attention spread evenly", record.even, "key-s9"),
        *(
            BarRow(CONTROLS.get(kind, kind), sum(values) / len(values), "key-random", values)
            for kind, values in record.controls.items()
        ),
    ]
    filled = record.filled_up.get("random-layer-matched", 0)
    caption = join(
        tag("strong", "Mean attention to all key words, beside its controls. "),
        "Each ring is one draw of as many random other heads of the model, and the bar their mean; "
        "where the heads looked at lie beyond all rings, no draw does the same on this prompt. "
        if record.controls
        else "No random heads were drawn. ",
        f"In the layers of the heads looked at there are not enough others: up to {filled} of a "
        "draw come from other layers. "
        if filled
        else "",
    )
    return section(
        "control", "Beside random heads", figure("controls", caption, bar_rows(rows, end, 3))
    )
