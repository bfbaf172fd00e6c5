"""The report of `verify transfer`: which of two contradicting statements an answer follows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from headscope.report.charts import Series, line_chart
from headscope.report.html import Child, Html, join, tag
from headscope.report.page import Page
from headscope.report.pages.frame import ablated, about_run, masthead, simple_page
from headscope.report.parts import figure, scroll, section, table
from headscope.report.sections.writing import (
    Scale,
    bars_section,
    examples_section,
    numbers_section,
    sure,
    told,
)
from headscope.results.writing import LensExample, Transfer
from headscope.runs.reading import result_of
from headscope.shown.words import count, enumeration, fixed, number

__all__ = ["page"]

KIND = "attention transfer"
SCALES = {
    "follows_a": Scale("answers of A, %", 100.0),
    "follows_b": Scale("answers of B, %", 100.0),
    "neither": Scale("answers of neither, %", 100.0),
    "ranked_a": Scale("A ranks above B, %", 100.0),
}
SAID = {
    "follows_a": Scale("the share of answers that follow A, in\u00a0%,", 100.0),
    "follows_b": Scale("the share that follow B", 100.0),
    "ranked_a": Scale("the share in which A\u2019s answer ranks above B\u2019s", 100.0),
}


def page(path: Path) -> Page:
    """The report of the run of `verify transfer` in this folder."""
    result = result_of(path, Transfer, KIND)
    down = "removed" if result.down == 0 else f"times {number(result.down)}"
    kinds = {
        "up": f"A\u2019s heads times {number(result.up)}",
        "down": f"B\u2019s heads {down}",
    }
    sizes = sorted({len(own.heads) for own in result.heads.values()})
    head = masthead(
        result.model_name,
        "A statement in language A, one in language B that contradicts it, a question in English: "
        "which does the answer follow, with A\u2019s heads turned up or B\u2019s turned down?",
        [
            ("pairs", count(len(result.groups), "pair")),
            ("heads of a language", " or ".join(map(str, sizes))),
            ablated(result),
        ],
        kicker="headscope verify transfer",
    )
    return simple_page(
        f"{result.model_name} \u00b7 {KIND}",
        head,
        [
            ("summary", "", _summary(result, kinds)),
            *_bars(result, kinds),
            ("lens", "Lens", _lens(result.lens, kinds)),
            ("numbers", "Numbers", numbers_section(result, SCALES, kinds, "Pair")),
            ("examples", "Answers", examples_section(path, kinds, "pair")),
            ("provenance", "Provenance", about_run(path)),
        ],
    )


def _bars(result: Transfer, kinds: Mapping[str, str]) -> list[tuple[str, str, Html | None]]:
    read = {
        "follows_a": (
            "Read from the text",
            "An answer follows A if the words written hold A\u2019s answer and not B\u2019s, in "
            "English or in A\u2019s language.",
        ),
        "ranked_a": (
            "Read from the ranks",
            "The better rank, among all tokens the model could go on with, of the English or the "
            "native first token of A\u2019s answer is compared with that of B\u2019s; equal ranks "
            "count half. This can show a pull that the text does not show.",
        ),
    }
    return [
        (
            f"bars-{measure}",
            title,
            bars_section(
                f"bars-{measure}",
                f"{title}: share that follows A",
                result,
                measure,
                SCALES[measure],
                kinds,
                join(
                    tag("strong", "Share of answers that follow language A, in per cent. "),
                    meaning,
                    " The whisker is the 95\u00a0% interval of the change over prompts, rings are "
                    "single draws of as many random heads under the same gate.",
                ),
            ),
        )
        for measure, (title, meaning) in read.items()
    ]


def _summary(result: Transfer, kinds: Mapping[str, str]) -> Html:
    known = [
        (effect, scale, f"With {words}")
        for kind, words in kinds.items()
        for measure, scale in SAID.items()
        if (effect := result.whole.effect(kind, measure)) is not None
    ]
    lines = [told(*effect) for effect in known]
    if empty := result.without_heads:
        lines.append(f"No heads are specific to {enumeration(empty)}, so none are changed there.")
    first = known[0][0] if known else None
    return section(
        "summary", "In short", [tag("p", line) for line in lines], sure(first, result.whole)
    )


def _lens(lens: LensExample, kinds: Mapping[str, str]) -> Html:
    """Ranks of both answers layer by layer of one prompt, and the likeliest tokens."""
    charts, rows = [], []
    for condition in lens.conditions:
        words = "as is" if condition.kind == "baseline" else kinds[condition.kind]
        layers = condition.layers
        of_a = [(row.layer, row.rank_a) for row in layers if row.rank_a is not None]
        of_b = [(row.layer, row.rank_b) for row in layers if row.rank_b is not None]
        series = [
            Series(title, points, mark)
            for title, points, mark in (("A", of_a, "key-top"), ("B", of_b, "key-base"))
            if points
        ]
        last = layers[-1]
        said = (
            f"{words}: ranks of the answers of A and B after each layer; after the last "
            f"{fixed(last.rank_a, 0)} and {fixed(last.rank_b, 0)}"
        )
        charts.append(
            tag("div", tag("h3", words), line_chart(series, "layer", "rank", said, y_log=True))
        )
        rows += [
            (
                str(row.layer),
                words,
                fixed(row.rank_a, 0),
                fixed(row.rank_b, 0),
                _tokens(row.tokens),
            )
            for row in layers
        ]
    answers = [", ".join(forms) for forms in (lens.answers_a, lens.answers_b)]
    caption = join(
        tag("strong", "One prompt through the logit lens. "),
        "The hidden state after each layer at the last token of the prompt is read as if that "
        "layer were the last. Ranks are those of the best first token of either answer; rank 1 is "
        "the likeliest. A single example: exact for it, and no evidence for others.",
    )
    prompt = tag("pre", tag("bdi", lens.prompt), class_="text")
    said = tag("p", "A: ", tag("bdi", answers[0]), "; B: ", tag("bdi", answers[1]), class_="note")
    header = ["Layer", "Heads", "Rank of A", "Rank of B", "Likeliest tokens"]
    numbers = scroll("Lens", table("Likeliest tokens by layer", header, rows))
    more = tag("details", tag("summary", "The likeliest tokens of each layer"), numbers)
    return section(
        "lens",
        "One example, layer by layer",
        figure("lens-figure", caption, prompt, said, charts),
        more,
    )


def _tokens(tokens: Sequence[str]) -> Child:
    return [
        part
        for at, token in enumerate(tokens)
        for part in ((", " if at else ""), tag("code", tag("bdi", token)))
    ]
