"""The report of heads removed one by one: ranks, texts where they change, layers along the way."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from headscope.report.charts import Series, line_chart
from headscope.report.html import Child, Html, tag
from headscope.report.matrix import Axis, Cell, matrix, ramp_bar
from headscope.report.page import Page
from headscope.report.pages.frame import ablated, about_run, masthead, simple_page
from headscope.report.parts import figure, ramp_class, scroll, section, table
from headscope.report.sections.mask_walk import (
    cut_line,
    example_section,
    mask_words,
    switch_section,
)
from headscope.results.one_by_one import OneByOneResult, State
from headscope.runs.reading import result_of
from headscope.shown.words import count, fixed, number

__all__ = ["page"]

POINTS = 120
"""The most steps a line is drawn through, and columns of the map; more are left out evenly."""

TEXTS = 60
"""The most texts shown in the table."""

ORDERS = {
    "given": "in the order given",
    "ascending": "lowest first",
    "descending": "highest first",
    "pass": "ordered by what each did to the target's rank in a pass before",
    "alone": "ordered by what each did to the target's rank when removed alone",
}


def page(path: Path) -> Page:
    """The report of the run of `verify one-by-one` in this folder."""
    result = result_of(path, OneByOneResult, "verify one-by-one")
    model = (result.model and result.model.name) or "model"
    did = "removed" if result.gate == 0 else f"set to a gate of {number(result.gate)}"
    lead = (
        f"{count(len(result.steps), 'head')} of {model} {did} one after another, "
        f"{ORDERS.get(result.order, result.order)}."
    )
    facts = [
        ("prompts", str(result.sentences)),
        ("layers", str(len(result.baseline.similarity))),
        ablated(result),
    ]
    return simple_page(
        f"{model} \u00b7 one by one",
        masthead("Heads one by one", lead, facts, kicker="headscope verify one-by-one"),
        [
            ("summary", "", _summary(result)),
            ("switch", "Switch", switch_section(result)),
            ("ranks", "Ranks", _ranks(result)),
            ("texts", "Texts", _texts(result)),
            ("example", "One prompt", example_section(result)),
            ("layers", "Layers", _layers(result)),
            ("provenance", "Provenance", about_run(path)),
        ],
    )


def _summary(result: OneByOneResult) -> Html:
    first, last = result.baseline, result.states[-1]
    what = "The mean rank of the targets' first tokens" if result.sentences > 1 else "The rank of "
    named: Child = "" if result.sentences > 1 else _token(result.baseline.target_token)
    parts: list[Child] = [
        tag(
            "p",
            what,
            named,
            f" is {_rank(first.target_rank)} in the model as it is and {_rank(last.target_rank)} "
            f"after the last of {count(len(result.steps), 'step')}. {_best(result)} Rank 1 is the "
            "token the model would write next, rank 10 one that nine others are likelier than.",
        )
    ]
    if first.chrf is not None and last.chrf is not None:
        parts.append(
            tag(
                "p",
                f"chrF++ of the texts against the targets goes from {fixed(first.chrf, 1)} to "
                f"{fixed(last.chrf, 1)}.",
            )
        )
    sure = (
        "This is one prompt: it shows what happened here, and no interval can be given for others."
        if result.sentences == 1
        else f"Means over {result.sentences} prompts; single ones may differ widely, and no random "
        "order is shown beside this one."
    )
    if result.random_orders and result.sentences > 1:
        sure = f"Means over {result.sentences} prompts; single ones may differ widely."
    words = mask_words(result)
    return section("summary", "In short", *parts, words, tag("p", sure, class_="sure"))


def _ranks(result: OneByOneResult) -> Html:
    rows = _thinned(result.states)
    labels = [_plain(token) for token in (result.baseline.top5_tokens or ())] or [""] * 5
    target = _plain(result.baseline.target_token) if result.baseline.target_token else ""
    marks = ("key-base", "key-s14", "key-s9", "key-s4", "key-off")
    series = [
        Series(f"target {target}".strip(), [(row.at, row.target_rank) for row in rows], "key-top")
    ]
    for place, (label, mark) in enumerate(zip(labels, marks, strict=False)):
        points = [(row.at, row.top5_ranks[place]) for row in rows]
        series.append(Series(f"at first rank {place + 1} {label}".strip(), points, mark))
    worst = max(y for one in series for _, y in one.points)
    series += cut_line(result, (1.0, worst))
    chart = line_chart(
        series,
        "heads removed" if result.gate == 0 else "heads changed",
        "rank (1: the likeliest)",
        "Ranks of the target's first token and of the five tokens that were likeliest at first, "
        f"after each step. {_told(result)}",
        y_log=True,
    )
    caption = (
        "The rank of a token among all that the model could write next, after each step: of the "
        "first token of the target, and of the five tokens that were the likeliest before any head "
        "was changed. Rank 1 is the likeliest; equal distances upwards are equal ratios, as from "
        "1 to 10 and from 10 to 100. "
        + (
            f"Means of ranks over {result.sentences} prompts, which a few prompts with large "
            "ranks can lift far; they carry no interval."
            if result.sentences > 1
            else "One prompt: exact for it, and no interval for others."
        )
        + _left_out(result)
    )
    return section(
        "ranks", "What the model is about to say", figure("ranks-figure", caption, chart)
    )


def _texts(result: OneByOneResult) -> Html | None:
    if result.baseline.texts_changed is None:
        return None
    if result.sentences > 1:
        series = [
            Series(
                "chrF++", [(r.at, r.chrf) for r in _thinned(result.states) if r.chrf is not None]
            )
        ]
        chart = line_chart(
            series,
            "heads removed" if result.gate == 0 else "heads changed",
            "chrF++",
            "chrF++ of the texts against the targets after each step",
            y_range=(0, 100),
        )
        mean = ", mean over directions" if result.directions else ""
        caption = (
            f"chrF++ (0 to 100) of the greedy continuations of {result.sentences} prompts against "
            f"their targets{mean}. With so few sentences it can move by several points by chance, "
            "and it carries no interval. Every text of every step is in steps.jsonl of the run."
        )
        return section("texts", "What it writes", figure("texts-figure", caption, chart))
    changes = [row for row in result.states if row.text is not None]
    shown = [
        [
            str(row.at),
            row.last or "none, as it is",
            tag("bdi", (row.text or "").strip() or "(nothing)"),
        ]
        for row in changes[:TEXTS]
    ]
    more = len(changes) - len(shown)
    caption = (
        "The greedy continuation of the prompt, wherever it differs from that of the step before."
        + (f" {more} further changes are in steps.jsonl of the run." if more else "")
    )
    grid = table("Texts where they change", ["step", "head", "text"], shown, class_="texts")
    return section(
        "texts", "What it writes", figure("texts-figure", caption, scroll("Texts", grid))
    )


def _layers(result: OneByOneResult) -> Html:
    rows = _thinned(result.states)
    layers = len(rows[0].similarity)
    cells = [
        Cell(
            layers - 1 - layer,
            column,
            ramp_class(max(0.0, value), 1.0),
            words=f"layer {layer}, {_after(row)}: {fixed(value, 3)}",
        )
        for column, row in enumerate(rows)
        for layer, value in enumerate(row.similarity)
    ]
    every = max(1, len(rows) // 6)
    grid = matrix(
        cells,
        Axis([str(layer) for layer in reversed(range(layers))], "layer"),
        Axis([str(r.at) if i % every == 0 else "" for i, r in enumerate(rows)], "step"),
        max(5, min(14, 560 // len(rows))),
        "Similarity of each layer's output to the reference pass, after each step",
        row_pitch=14,
    )
    against = (
        "the untouched model under another prompt, given as the reference"
        if result.reference
        else "the untouched model"
    )
    caption = (
        "Cosine between the hidden state at the last input token after each layer and that of "
        f"{against}; late layers on top, steps from left to right. 1 is the same direction; "
        "values below 0 are shown as 0. "
        + (
            f"Means over {result.sentences} prompts, without intervals."
            if result.sentences > 1
            else "One prompt."
        )
        + _left_out(result)
    )
    box = scroll("Similarity by layer and step", grid)
    return section(
        "layers",
        "How far each layer is from before",
        figure("layers-figure", caption, box, ramp_bar("0", "1")),
    )


def _thinned(rows: Sequence[State]) -> list[State]:
    """At most about `POINTS` rows at even distances, the first and the last among them."""
    if len(rows) <= POINTS:
        return list(rows)
    places = {round(place * (len(rows) - 1) / (POINTS - 1)) for place in range(POINTS)}
    return [rows[place] for place in sorted(places)]


def _left_out(result: OneByOneResult) -> str:
    shown = len(_thinned(result.states))
    if shown == len(result.states):
        return ""
    return f" {shown} of {len(result.states)} steps are drawn, at even distances."


def _best(result: OneByOneResult) -> str:
    """Where the target's rank is best, in a sentence."""
    best = min(result.states, key=lambda row: row.target_rank)
    if best.at == 0:
        return "After no step is it better than in the untouched model."
    return f"It is best, {_rank(best.target_rank)}, {_after(best)}."


def _after(row: State) -> str:
    """When a row was seen, in words."""
    return f"after step {row.at} (head {row.last})" if row.at else "in the untouched model"


def _told(result: OneByOneResult) -> str:
    """The target's ranks in words, at a few steps."""
    rows = result.states[:: max(1, len(result.states) // 8)]
    return "Target: " + ", ".join(f"{_rank(row.target_rank)} {_after(row)}" for row in rows) + "."


def _rank(value: float) -> str:
    return number(value)


def _plain(token: str | None) -> str:
    return (token or "").strip() or repr(token)


def _token(token: str | None) -> Html:
    return tag("bdi", f"\u201c{_plain(token)}\u201d")
