"""The report of key-token attention: heads by words, controls, and the text itself."""

from __future__ import annotations

from pathlib import Path

from headscope.report.charts import BarRow, bar_rows
from headscope.report.drawing.key_text import (
    SCRIPT,
    STYLE,
    KeyTokensRun,
    read_key_tokens,
    shade,
    shown,
    text_data,
    text_section,
)
from headscope.report.html import Child, Html, join, tag
from headscope.report.matrix import ramp_bar
from headscope.report.page import Page
from headscope.report.pages.frame import about_run, masthead, simple_page
from headscope.report.parts import figure, scroll, section, table
from headscope.results.key_tokens import KeyTokensResult, WordAttention
from headscope.shown.words import count, enumeration, fixed, percent

__all__ = ["page"]

CONTROLS = {
    "random": "Random other heads",
    "random-layer-matched": "Random other heads of the same layers",
}


def page(path: Path) -> Page:
    """The report of the run of `find key-tokens` in this folder."""
    run = read_key_tokens(path)
    result = run.result
    title = f"{result.model_name} \u00b7 key tokens"
    lead = (
        f"How much of their attention {count(len(result.heads), 'head')} of {result.model_name} "
        f"pay to {count(len(result.words), 'key word')} of a prompt{_while(run)}."
    )
    facts = [
        ("key words", enumeration(result.names)),
        ("steps", str(result.tokens)),
        ("answer", _whose(run)),
    ]
    return simple_page(
        title,
        masthead("Key tokens", lead, facts, kicker="headscope find key-tokens"),
        [
            ("summary", "", _summary(result)),
            ("text", "Text", text_section(run)),
            ("words", "Heads and words", _heat_map(run)),
            ("control", "Controls", _controls(result)),
            ("provenance", "Provenance", about_run(path)),
        ],
        scripts=(SCRIPT,),
        styles=(STYLE,),
        data={"keyTokens": text_data(run)},
    )


def _while(run: KeyTokensRun) -> str:
    if not run.answer_spans:
        return ", at its last token"
    return (
        " while it writes its answer" if run.result.generated else " while it reads on in an answer"
    )


def _whose(run: KeyTokensRun) -> str:
    if not run.answer_spans:
        return "none, the last token of the prompt was looked at"
    return "the model's own, greedy" if run.result.generated else "given"


def _summary(result: KeyTokensResult) -> Html:
    best = result.heads[0]
    strongest = max(best.words, key=lambda word: word.mean)
    parts: list[Child] = [
        tag(
            "p",
            "Before it predicts a token, a word or a piece of one, each attention head of a model "
            "looks back over the text: it spreads a weight of 100\u00a0% over the tokens so far. "
            "Each such look is a step, and what falls on the key words is counted here.",
        ),
        tag(
            "p",
            f"On average over {count(result.tokens, 'step')} the heads pay ",
            tag("strong", percent(result.score, 1)),
            " of their attention to the key words. Spread evenly over all tokens a step sees, "
            f"attention would give them {percent(result.uniform, 1)}.",
        ),
        tag(
            "p",
            f"Head {best.place} pays the most, {percent(best.score, 1)}, and of that most to ",
            tag("bdi", strongest.word),
            f" ({percent(strongest.mean, 1)}).",
        ),
    ]
    for kind, control in result.control.items():
        parts.append(
            tag(
                "p",
                f"{CONTROLS.get(kind, kind)}, as many in each of {len(control.draws)} draws, pay "
                f"{percent(control.mean, 1)}; {control.at_least_as_much or 'none'} of the draws "
                "pay at least as much as the heads looked at.",
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


def _heat_map(run: KeyTokensRun) -> Html:
    heads = run.result.heads
    scale = max((word.mean for head in heads for word in head.words), default=0.0) or 1.0
    words = [tag("bdi", name) for name in run.result.names]
    rows = [
        [
            str(head.place),
            tag("span", fixed(head.score, 3), class_="sum"),
            fixed(head.uniform, 3),
            *(_cell(word, scale) for word in head.words),
        ]
        for head in heads
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
        if run.answer_spans
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


def _cell(word: WordAttention, scale: float) -> Html:
    peak = None
    if word.token is not None:
        most = f"most {fixed(word.max, 2)}, at "
        peak = tag("small", most, tag("bdi", f"\u201c{shown(word.token)}\u201d"))
    number = tag("span", fixed(word.mean, 3), class_=f"shade {shade(word.mean, scale)}")
    return join(number, peak)


def _controls(result: KeyTokensResult) -> Html:
    highest = [control.high for control in result.control.values()]
    end = max([result.score, result.uniform, *highest]) or 1.0
    rows = [
        BarRow(count(len(result.heads), "head") + " looked at", result.score, "key-top"),
        BarRow("Attention spread evenly", result.uniform, "key-s9"),
        *(
            BarRow(CONTROLS.get(kind, kind), control.mean, "key-random", control.scores)
            for kind, control in result.control.items()
        ),
    ]
    matched = result.control.get("random-layer-matched")
    filled = max((draw.filled_up for draw in matched.draws), default=0) if matched else 0
    caption = join(
        tag("strong", "Mean attention to all key words, beside its controls. "),
        "Each ring is one draw of as many random other heads of the model, and the bar their mean; "
        "where the heads looked at lie beyond all rings, no draw does the same on this prompt. "
        if result.control
        else "No random heads were drawn. ",
        f"In the layers of the heads looked at there are not enough others: up to {filled} of a "
        "draw come from other layers. "
        if filled
        else "",
    )
    return section(
        "control", "Beside random heads", figure("controls", caption, bar_rows(rows, end, 3))
    )
