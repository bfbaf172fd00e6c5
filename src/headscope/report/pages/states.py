"""The report of `compare states`: cosines layer by layer, the lens, ranks of the answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from headscope.report.charts import Series, line_chart
from headscope.report.html import Html, join, tag
from headscope.report.page import Page
from headscope.report.pages.frame import about_run, masthead, simple_page
from headscope.report.parts import figure, scroll, section, table
from headscope.report.words import arrow, between, count, fixed, p_value, percent
from headscope.runs.reading import naming, read_result

__all__ = ["page"]

Rows = Sequence[Mapping[str, float]]

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
PLACES = (("after_layer", "after each layer"), ("after_attention", "after each attention"))


def page(path: Path) -> Page:
    """The report of the comparison in this folder."""
    result = read_result(path)
    with naming(path / "result.json", "a comparison of states"):
        mask, task = result["mask"], str(result["task"])
        facts = [
            ("task", arrow(task)),
            ("samples", str(result["samples"])),
            ("heads kept", f"{mask['kept']} ({percent(mask['kept_share'])})"),
            ("layers", str(result["layers"])),
        ]
        return simple_page(
            f"{task} \u00b7 hidden states",
            masthead(
                "Hidden states",
                "Does a mask lead through the states that an instruction leads through? The state "
                "at the last input token, layer by layer.",
                facts,
                "headscope compare states",
            ),
            [
                ("summary", "", _summary(result)),
                ("cosines", "Cosines", _cosines(result)),
                ("nearer", "Nearer", _nearer(result)),
                ("lens", "Lens", _lens(result)),
                ("answer", "Answer", _answer(result)),
                ("all-pairs", "Pairs", _pairs(result)),
                ("provenance", "Provenance", about_run(path)),
            ],
        )


def _summary(result: Mapping[str, Any]) -> Html:
    nearer = result["nearer"]
    parts = [
        join(
            "In the later half of the layers the masked model without instruction is ",
            tag("strong", _by(nearer["as is"]["later_half"])),
            " to the instructed model than the model as it is, by cosine",
            f" (interval {_interval(nearer['as is']['later_half'])} over samples).",
        )
    ]
    for name, words in CONTROLS.items():
        if name in nearer:
            one = nearer[name]
            drawn = next(c for c in result["controls"] if c["kind"] == name)["draws"]
            parts.append(
                join(
                    f"It is {_by(one['later_half'])} than with a {words}, of the same size "
                    f"({_interval(one['later_half'])}; "
                    f"p\u00a0{p_value(one['p_draws'])} among {count(drawn, 'draw')})."
                )
            )
    heading = tag("h2", "In short", id="summary-title", class_="unseen")
    body = [tag("p", one) for one in parts]
    return tag("section", heading, body, id="summary", aria_labelledby="summary-title")


def _by(row: Mapping[str, float]) -> str:
    mean = row["mean"]
    return f"{fixed(abs(mean), 3)} {'nearer' if mean >= 0 else 'farther'}"


def _interval(row: Mapping[str, float]) -> str:
    return between(row["low"], row["high"], 3)


def _line(name: str, rows: Rows, mark: str, first: int = 0) -> Series:
    points = [(at + first, row["mean"]) for at, row in enumerate(rows)]
    band = [(at + first, row["low"], row["high"]) for at, row in enumerate(rows)]
    return Series(name, points, mark, band)


def _cosines(result: Mapping[str, Any]) -> Html:
    charts = []
    for place, words in PLACES:
        lines = [
            _line(f"{pair['a']} \u2013 {pair['b']}", pair[place], MARKS[pair["a"], pair["b"]])
            for pair in result["pairs"]
            if (pair["a"], pair["b"]) in MARKS
        ]
        lines += [
            _line(f"{CONTROLS[one['kind']]} \u2013 instructed", one[place], mark)
            for one, mark in zip(result["controls"], ("key-random", "key-matched"), strict=False)
        ]
        told = "; ".join(
            f"{line.name}: {fixed(line.points[0][1], 2)} in the first layer, "
            f"{fixed(line.points[-1][1], 2)} in the last"
            for line in lines
        )
        charts.append(tag("h3", f"Cosine {words}"))
        charts.append(line_chart(lines, "layer", "cosine", f"Cosine {words}. {told}"))
    caption = join(
        tag("strong", "How alike two models\u2019 hidden states are at the last input token"),
        f", mean over {count(result['samples'], 'sample')} with 95 % intervals over samples. "
        "\u201cAs is\u201d and \u201cmasked\u201d read the bare input, \u201cinstructed\u201d "
        "the input with its instruction. 1 is the same direction. Shuffled masks keep as many "
        "heads, drawn at random (mean over draws). After attention means: the stream of states "
        "with what the layer\u2019s attention wrote, before its feed-forward part.",
    )
    return section("cosines", "Cosines by layer", figure("cosines-figure", caption, *charts))


def _nearer(result: Mapping[str, Any]) -> Html:
    lines = [_line("than as is", result["nearer"]["as is"]["after_layer"], "key-top")]
    lines += [
        _line(f"than with a {words}", result["nearer"][name]["after_layer"], mark)
        for (name, words), mark in zip(CONTROLS.items(), ("key-random", "key-matched"), strict=True)
        if name in result["nearer"]
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


def _lens(result: Mapping[str, Any]) -> Html:
    shown = result["lens"]
    conditions = shown["conditions"]
    names = list(conditions)
    rows = []
    for at in range(len(conditions[names[0]])):
        layer = conditions[names[0]][at]["layer"]
        cells: list[Any] = ["embedding" if layer is None else str(layer)]
        cells += [_tokens(conditions[name][at]) for name in names]
        rows.append(cells)
    grid = table("Likeliest tokens by layer", ["layer", *names], rows)
    caption = join(
        tag("strong", "What each layer would say if it were the last: "),
        "the likeliest next tokens through the model\u2019s own final norm and head, likeliest "
        "first, for one sample: ",
        tag("bdi", str(shown["input"])),
        ", whose right answer is ",
        tag("bdi", str(shown["output"])),
        ". The number is the rank of the answer\u2019s first token. One sample: others may differ.",
    )
    body = figure("lens-figure", caption, scroll("Lens", grid))
    return section("lens", "Through the lens", body)


def _tokens(row: Mapping[str, Any]) -> Html:
    pieces: list[Any] = []
    for number, token in enumerate(row["tokens"]):
        pieces.append(" \u00b7 " if number else None)
        shown = str(token).strip() or repr(str(token))
        pieces.append(tag("strong" if not number else "span", tag("bdi", shown)))
    return join(*pieces, tag("small", f" ({row['target_rank']})"))


def _answer(result: Mapping[str, Any]) -> Html:
    ranks = result["target_ranks"]
    lines = []
    for (name, rows), mark in zip(ranks.items(), CONDITION_MARKS, strict=True):
        points = [(at - 1, row["geometric_mean"]) for at, row in enumerate(rows)]
        band = [(at - 1, row["low"], row["high"]) for at, row in enumerate(rows)]
        lines.append(Series(name, points, mark, band))
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
            _line(f"{one['a']} \u2013 {one['b']}", one["layers"], mark, -1)
            for one, mark in zip(
                result["shared_top"], ("key-base", "key-top", "key-ta"), strict=True
            )
        ],
        "layer (\u22121: embedding)",
        "share",
        "Share of the likeliest tokens that two conditions have in common, by layer",
        y_range=(0, 1),
    )
    k = len(next(iter(result["lens"]["conditions"].values()))[0]["tokens"])
    caption = join(
        tag("strong", "Where the answer comes up. "),
        "Above: the rank of the answer\u2019s first token in the lens, geometric mean over "
        f"samples. Below: the share of the {k} likeliest tokens that two conditions have in "
        f"common. Means over {count(result['samples'], 'sample')} with 95 % intervals.",
    )
    body = figure("answer-figure", caption, chart, shared)
    return section("answer", "The answer, layer by layer", body)


def _pairs(result: Mapping[str, Any]) -> Html:
    layers = range(result["layers"])
    rows = [
        [
            f"{pair['a']} \u2013 {pair['b']}",
            *(
                tag(
                    "span",
                    fixed(pair["after_layer"][layer]["mean"], 2),
                    title=_interval(pair["after_layer"][layer]),
                )
                for layer in layers
            ),
        ]
        for pair in result["pairs"]
    ]
    header = ["Pair", *map(str, layers)]
    grid = table("Cosine after each layer", header, rows, class_="numbers")
    caption = (
        "The mean cosine of every two conditions after each layer; intervals by pointer, and in "
        "result.json of the run, which also has the states after attention."
    )
    return section(
        "all-pairs", "Every pair", figure("pairs-figure", caption, scroll("Pairs", grid))
    )
