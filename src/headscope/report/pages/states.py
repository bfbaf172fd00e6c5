"""The report of `compare states`: cosines layer by layer, the lens, ranks of the answer."""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter
from pathlib import Path
from typing import Any

from headscope.estimates import Mean
from headscope.report.charts import Series, line_chart
from headscope.report.html import Html, join, tag
from headscope.report.page import Page
from headscope.report.pages.frame import about_run, masthead, simple_page
from headscope.report.parts import figure, scroll, section, table
from headscope.results.states import ByPlace, ComparedStates, Lens, LensRow, StatesFound
from headscope.runs.reading import result_of
from headscope.shown.words import arrow, between, count, fixed, p_value, percent

__all__ = ["page"]

MARKS = {
    ("as is", "instructed"): "key-base",
    ("instructed", "masked"): "key-top",
    ("masked", "masked, instructed"): "key-ta",
}
CONDITION_MARKS = ("key-base", "key-s9", "key-top", "key-ta")
CONTROLS = {
    "shuffled": "shuffled mask",
    "shuffled_by_layer": "mask shuffled within layers",
}
CONTROL_MARKS = ("key-random", "key-matched")
PLACES = (
    ("after each layer", attrgetter("after_layer")),
    ("after each attention", attrgetter("after_attention")),
)


def page(path: Path) -> Page:
    """The report of the comparison in this folder."""
    result = result_of(path, ComparedStates, "a comparison of states")
    states, mask = result.states, result.mask
    facts = [
        ("task", arrow(result.task)),
        ("samples", str(states.samples)),
        ("heads kept", f"{mask.kept} ({percent(mask.kept_share)})"),
        ("layers", str(states.layers)),
    ]
    return simple_page(
        f"{result.task} \u00b7 hidden states",
        masthead(
            "Hidden states",
            "Does a mask lead through the states that an instruction leads through? The state "
            "at the last input token, layer by layer.",
            facts,
            "headscope compare states",
        ),
        [
            ("summary", "", _summary(states)),
            ("cosines", "Cosines", _cosines(states)),
            ("nearer", "Nearer", _nearer(states)),
            ("lens", "Lens", _lens(result.lens)),
            ("answer", "Answer", _answer(result)),
            ("all-pairs", "Pairs", _pairs(states)),
            ("provenance", "Provenance", about_run(path)),
        ],
    )


def _summary(states: StatesFound) -> Html:
    as_is = states.nearer["as is"].later_half
    parts = [
        join(
            "In the later half of the layers the masked model without instruction is ",
            tag("strong", _by(as_is)),
            " to the instructed model than the model as it is, by cosine",
            f" (interval {_interval(as_is)} over samples).",
        )
    ]
    for control in states.controls:
        nearer = states.nearer[control.kind]
        parts.append(
            join(
                f"It is {_by(nearer.later_half)} than with a {CONTROLS[control.kind]}, of the same "
                f"size ({_interval(nearer.later_half)}; "
                f"p\u00a0{p_value(nearer.p_draws)} among {count(control.draws, 'draw')})."
            )
        )
    heading = tag("h2", "In short", id="summary-title", class_="unseen")
    body = [tag("p", part) for part in parts]
    return tag("section", heading, body, id="summary", aria_labelledby="summary-title")


def _by(nearer: Mean) -> str:
    return f"{fixed(abs(nearer.mean), 3)} {'nearer' if nearer.mean >= 0 else 'farther'}"


def _interval(value: Mean) -> str:
    return between(value.low, value.high, 3)


def _line(name: str, rows: Iterable[Mean], mark: str, first: int = 0) -> Series:
    places = list(enumerate(rows, first))
    points = [(at, row.mean) for at, row in places]
    return Series(name, points, mark, [(at, row.low, row.high) for at, row in places])


def _cosines(states: StatesFound) -> Html:
    charts = []
    shown: list[tuple[str, ByPlace, str]] = [
        (f"{pair.a} \u2013 {pair.b}", pair, MARKS[pair.a, pair.b])
        for pair in states.pairs
        if (pair.a, pair.b) in MARKS
    ]
    shown += [
        (f"{CONTROLS[control.kind]} \u2013 instructed", control, mark)
        for control, mark in zip(states.controls, CONTROL_MARKS, strict=False)
    ]
    for words, after in PLACES:
        lines = [_line(name, after(cosines), mark) for name, cosines, mark in shown]
        told = "; ".join(
            f"{line.name}: {fixed(line.points[0][1], 2)} in the first layer, "
            f"{fixed(line.points[-1][1], 2)} in the last"
            for line in lines
        )
        charts.append(tag("h3", f"Cosine {words}"))
        charts.append(line_chart(lines, "layer", "cosine", f"Cosine {words}. {told}"))
    caption = join(
        tag("strong", "How alike two models\u2019 hidden states are at the last input token"),
        f", mean over {count(states.samples, 'sample')} with 95 % intervals over samples. "
        "\u201cAs is\u201d and \u201cmasked\u201d read the bare input, \u201cinstructed\u201d "
        "the input with its instruction. 1 is the same direction. Shuffled masks keep as many "
        "heads, drawn at random (mean over draws). After attention means: the stream of states "
        "with what the layer\u2019s attention wrote, before its feed-forward part.",
    )
    return section("cosines", "Cosines by layer", figure("cosines-figure", caption, *charts))


def _nearer(states: StatesFound) -> Html:
    lines = [_line("than as is", states.nearer["as is"].after_layer, "key-top")]
    lines += [
        _line(f"than with a {words}", states.nearer[name].after_layer, mark)
        for (name, words), mark in zip(CONTROLS.items(), CONTROL_MARKS, strict=True)
        if name in states.nearer
    ]
    chart = line_chart(
        lines,
        "layer",
        "difference of cosines",
        "How much nearer the masked model is to the instructed one, by layer",
    )
    caption = join(
        tag("strong", "How much nearer the masked model is to the instructed one"),
        " than the model as it is, and than with shuffled masks: differences of cosines after each "
        "layer, sample by sample, with 95 % intervals. Above 0 is nearer. With many layers some "
        "intervals miss 0 by chance.",
    )
    return section("nearer", "Nearer to the instruction?", figure("nearer-figure", caption, chart))


def _lens(lens: Lens) -> Html:
    names = list(lens.conditions)
    rows = [
        ["embedding" if said[0].layer is None else str(said[0].layer), *map(_tokens, said)]
        for said in zip(*lens.conditions.values(), strict=True)
    ]
    grid = table("Likeliest tokens by layer", ["layer", *names], rows)
    caption = join(
        tag("strong", "What each layer would say if it were the last: "),
        "the likeliest next tokens through the model\u2019s own final norm and head, likeliest "
        "first, for one sample: ",
        tag("bdi", lens.input),
        ", whose right answer is ",
        tag("bdi", lens.output),
        ". The number is the rank of the answer\u2019s first token. One sample: others may differ.",
    )
    body = figure("lens-figure", caption, scroll("Lens", grid))
    return section("lens", "Through the lens", body)


def _tokens(row: LensRow) -> Html:
    pieces: list[Any] = []
    for number, token in enumerate(row.tokens):
        pieces.append(" \u00b7 " if number else None)
        shown = token.strip() or repr(token)
        pieces.append(tag("strong" if not number else "span", tag("bdi", shown)))
    return join(*pieces, tag("small", f" ({row.target_rank})"))


def _answer(result: ComparedStates) -> Html:
    states = result.states
    lines = [
        _line(name, [Mean(row.geometric_mean, row.low, row.high) for row in rows], mark, -1)
        for (name, rows), mark in zip(states.target_ranks.items(), CONDITION_MARKS, strict=True)
    ]
    chart = line_chart(
        lines,
        "layer (\u22121: embedding)",
        "rank (1: the likeliest)",
        "Rank of the answer's first token by layer and condition; in the last layer "
        + ", ".join(f"{one.name} {fixed(one.points[-1][1], 1)}" for one in lines),
        y_log=True,
    )
    shared = line_chart(
        [
            _line(f"{shared.a} \u2013 {shared.b}", shared.layers, mark, -1)
            for shared, mark in zip(states.shared_top, MARKS.values(), strict=True)
        ],
        "layer (\u22121: embedding)",
        "share",
        "Share of the likeliest tokens that two conditions have in common, by layer",
        y_range=(0, 1),
    )
    k = len(next(iter(result.lens.conditions.values()))[0].tokens)
    caption = join(
        tag("strong", "Where the answer comes up. "),
        "Above: the rank of the answer\u2019s first token in the lens, geometric mean over "
        f"samples. Below: the share of the {k} likeliest tokens that two conditions have in "
        f"common. Means over {count(states.samples, 'sample')} with 95 % intervals.",
    )
    body = figure("answer-figure", caption, chart, shared)
    return section("answer", "The answer, layer by layer", body)


def _pairs(states: StatesFound) -> Html:
    rows = [
        [
            f"{pair.a} \u2013 {pair.b}",
            *(tag("span", fixed(row.mean, 2), title=_interval(row)) for row in pair.after_layer),
        ]
        for pair in states.pairs
    ]
    header = ["Pair", *map(str, range(states.layers))]
    grid = table("Cosine after each layer", header, rows, class_="numbers")
    caption = (
        "The mean cosine of every two conditions after each layer; intervals by pointer, and in "
        "result.json of the run, which also has the states after attention."
    )
    return section(
        "all-pairs", "Every pair", figure("pairs-figure", caption, scroll("Pairs", grid))
    )
