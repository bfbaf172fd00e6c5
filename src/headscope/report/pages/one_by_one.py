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
from headscope.report.records.one_by_one import OneByOneRecord, Step, read_one_by_one
from headscope.report.sections.mask_walk import (
    cut_line,
    example_section,
    mask_words,
    switch_section,
)
from headscope.report.words import count, fixed, number
from headscope.runs.reading import read_result

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
    record = read_one_by_one(path)
    did = "removed" if record.gate == 0 else f"set to a gate of {number(record.gate)}"
    lead = (
        f"{count(len(record.rows) - 1, 'head')} of {record.model} {did} one after another, "
        f"{ORDERS.get(record.order, record.order)}."
    )
    facts = [
        ("prompts", str(record.sentences)),
        ("layers", str(len(record.rows[0].similarity))),
        ablated(read_result(path)),
    ]
    return simple_page(
        f"{record.model} \u00b7 one by one",
        masthead("Heads one by one", lead, facts, kicker="headscope verify one-by-one"),
        [
            ("summary", "", _summary(record)),
            ("switch", "Switch", switch_section(record)),
            ("ranks", "Ranks", _ranks(record)),
            ("texts", "Texts", _texts(record)),
            ("example", "One prompt", example_section(record)),
            ("layers", "Layers", _layers(record)),
            ("provenance", "Provenance", about_run(path)),
        ],
    )


def _summary(record: OneByOneRecord) -> Html:
    first, last = record.rows[0], record.rows[-1]
    what = "The mean rank of the targets' first tokens" if record.sentences > 1 else "The rank of "
    named: Child = "" if record.sentences > 1 else _token(record.target_token)
    parts: list[Child] = [
        tag(
            "p",
            what,
            named,
            f" is {_rank(first.target)} in the model as it is and {_rank(last.target)} after the "
            f"last of {count(len(record.rows) - 1, 'step')}. {_best(record)} Rank 1 is the token "
            "the model would write next, rank 10 one that nine others are likelier than.",
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
        if record.sentences == 1
        else f"Means over {record.sentences} prompts; single ones may differ widely, and no random "
        "order is shown beside this one."
    )
    if record.random and record.sentences > 1:
        sure = f"Means over {record.sentences} prompts; single ones may differ widely."
    words = mask_words(record)
    return section("summary", "In short", *parts, words, tag("p", sure, class_="sure"))


def _ranks(record: OneByOneRecord) -> Html:
    rows = _thinned(record.rows)
    labels = [_plain(token) for token in record.top_tokens] or [""] * 5
    target = _plain(record.target_token) if record.target_token else ""
    marks = ("key-base", "key-s14", "key-s9", "key-s4", "key-off")
    series = [
        Series(f"target {target}".strip(), [(row.step, row.target) for row in rows], "key-top")
    ]
    for place, (label, mark) in enumerate(zip(labels, marks, strict=False)):
        points = [(row.step, row.top[place]) for row in rows]
        series.append(Series(f"at first rank {place + 1} {label}".strip(), points, mark))
    worst = max(y for one in series for _, y in one.points)
    series += cut_line(record, (1.0, worst))
    chart = line_chart(
        series,
        "heads removed" if record.gate == 0 else "heads changed",
        "rank (1: the likeliest)",
        "Ranks of the target's first token and of the five tokens that were likeliest at first, "
        f"after each step. {_told(record)}",
        y_log=True,
    )
    caption = (
        "The rank of a token among all that the model could write next, after each step: of the "
        "first token of the target, and of the five tokens that were the likeliest before any head "
        "was changed. Rank 1 is the likeliest; equal distances upwards are equal ratios, as from "
        "1 to 10 and from 10 to 100. "
        + (
            f"Means of ranks over {record.sentences} prompts, which a few prompts with large "
            "ranks can lift far; they carry no interval."
            if record.sentences > 1
            else "One prompt: exact for it, and no interval for others."
        )
        + _left_out(record)
    )
    return section(
        "ranks", "What the model is about to say", figure("ranks-figure", caption, chart)
    )


def _texts(record: OneByOneRecord) -> Html | None:
    if record.rows[0].changed is None:
        return None
    if record.sentences > 1:
        series = [
            Series(
                "chrF++", [(r.step, r.chrf) for r in _thinned(record.rows) if r.chrf is not None]
            )
        ]
        chart = line_chart(
            series,
            "heads removed" if record.gate == 0 else "heads changed",
            "chrF++",
            "chrF++ of the texts against the targets after each step",
            y_range=(0, 100),
        )
        mean = ", mean over directions" if record.directions > 1 else ""
        caption = (
            f"chrF++ (0 to 100) of the greedy continuations of {record.sentences} prompts against "
            f"their targets{mean}. With so few sentences it can move by several points by chance, "
            "and it carries no interval. Every text of every step is in steps.jsonl of the run."
        )
        return section("texts", "What it writes", figure("texts-figure", caption, chart))
    changes = [row for row in record.rows if row.text is not None]
    shown = [
        [
            str(row.step),
            row.head or "none, as it is",
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


def _layers(record: OneByOneRecord) -> Html:
    rows = _thinned(record.rows)
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
        Axis([str(r.step) if i % every == 0 else "" for i, r in enumerate(rows)], "step"),
        max(5, min(14, 560 // len(rows))),
        "Similarity of each layer's output to the reference pass, after each step",
        row_pitch=14,
    )
    against = (
        "the untouched model under another prompt, given as the reference"
        if record.reference
        else "the untouched model"
    )
    caption = (
        "Cosine between the hidden state at the last input token after each layer and that of "
        f"{against}; late layers on top, steps from left to right. 1 is the same direction; "
        "values below 0 are shown as 0. "
        + (
            f"Means over {record.sentences} prompts, without intervals."
            if record.sentences > 1
            else "One prompt."
        )
        + _left_out(record)
    )
    box = scroll("Similarity by layer and step", grid)
    return section(
        "layers",
        "How far each layer is from before",
        figure("layers-figure", caption, box, ramp_bar("0", "1")),
    )


def _thinned(rows: Sequence[Step]) -> list[Step]:
    """At most about `POINTS` rows at even distances, the first and the last among them."""
    if len(rows) <= POINTS:
        return list(rows)
    places = {round(place * (len(rows) - 1) / (POINTS - 1)) for place in range(POINTS)}
    return [rows[place] for place in sorted(places)]


def _left_out(record: OneByOneRecord) -> str:
    shown = len(_thinned(record.rows))
    if shown == len(record.rows):
        return ""
    return f" {shown} of {len(record.rows)} steps are drawn, at even distances."


def _best(record: OneByOneRecord) -> str:
    """Where the target's rank is best, in a sentence."""
    best = min(record.rows, key=lambda row: row.target)
    if best.step == 0:
        return "After no step is it better than in the untouched model."
    return f"It is best, {_rank(best.target)}, {_after(best)}."


def _after(row: Step) -> str:
    """When a row was seen, in words."""
    return f"after step {row.step} (head {row.head})" if row.step else "in the untouched model"


def _told(record: OneByOneRecord) -> str:
    """The target's ranks in words, at a few steps."""
    rows = record.rows[:: max(1, len(record.rows) // 8)]
    return "Target: " + ", ".join(f"{_rank(row.target)} {_after(row)}" for row in rows) + "."


def _rank(value: float) -> str:
    return number(value)


def _plain(token: str | None) -> str:
    return (token or "").strip() or repr(token)


def _token(token: str | None) -> Html:
    return tag("bdi", f"\u201c{_plain(token)}\u201d")
