"""The report of `verify transfer`: which of two contradicting statements an answer follows."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headscope.report.charts import Series, line_chart
from headscope.report.html import Child, Html, join, tag
from headscope.report.page import Page
from headscope.report.pages.frame import ablated, about_run, masthead, simple_page
from headscope.report.parts import figure, scroll, section, table
from headscope.report.records.writing import WritingRecord, read_writing
from headscope.report.sections.writing import (
    Scale,
    bars_section,
    examples_section,
    numbers_section,
    sure,
    told,
)
from headscope.report.words import count, enumeration, fixed, number
from headscope.runs.reading import naming

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
MARKS = {"baseline": "key-base", "up": "key-top", "down": "key-low"}


def page(path: Path) -> Page:
    """The report of the run of `verify transfer` in this folder."""
    record = read_writing(path, "pairs", "pair", KIND)
    with naming(path / "result.json", KIND):
        up, down = float(record.result["up"]), float(record.result["down"])
        heads = {str(code): one["heads"] for code, one in record.result["heads"].items()}
        lens = record.result["lens"]
        kinds = {
            "up": f"A\u2019s heads times {number(up)}",
            "down": "B\u2019s heads removed"
            if down == 0
            else f"B\u2019s heads times {number(down)}",
        }
        looked = _lens(lens, kinds)
    sizes = sorted({len(one) for one in heads.values()})
    head = masthead(
        record.model,
        "A statement in language A, one in language B that contradicts it, a question in English: "
        "which does the answer follow, with A\u2019s heads turned up or B\u2019s turned down?",
        [
            ("pairs", count(len(record.parts) - ("mean" in record.parts), "pair")),
            ("heads of a language", " or ".join(map(str, sizes))),
            ablated(record.result),
        ],
        kicker="headscope verify transfer",
    )
    shown = _bars(record, kinds)
    return simple_page(
        f"{record.model} \u00b7 {KIND}",
        head,
        [
            ("summary", "", _summary(record, kinds, [c for c, one in heads.items() if not one])),
            *shown,
            ("lens", "Lens", looked),
            ("numbers", "Numbers", numbers_section(record, SCALES, kinds, "Pair")),
            ("examples", "Answers", examples_section(record, kinds, "Pair")),
            ("provenance", "Provenance", about_run(path)),
        ],
    )


def _bars(record: WritingRecord, kinds: Mapping[str, str]) -> list[tuple[str, str, Html | None]]:
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
                record,
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


def _summary(record: WritingRecord, kinds: Mapping[str, str], empty: list[str]) -> Html:
    lines = []
    first = None
    for kind, words in kinds.items():
        for measure, scale in SAID.items():
            effect = record.whole.effects.get(kind, {}).get(measure)
            if effect is not None:
                first = first or effect
                lines.append(told(effect, scale, f"With {words}"))
    if empty:
        lines.append(f"No heads are specific to {enumeration(empty)}, so none are changed there.")
    return section(
        "summary", "In short", [tag("p", line) for line in lines], sure(first, record.whole)
    )


def _lens(lens: Mapping[str, Any], kinds: Mapping[str, str]) -> Html:
    """Ranks of both answers layer by layer of one prompt, and the likeliest tokens."""
    charts, rows = [], []
    for one in lens["conditions"]:
        kind = str(one["kind"])
        words = "as is" if kind == "baseline" else kinds[kind]
        layers = one["layers"]
        series = [
            Series(title, points, mark)
            for title, key, mark in (("A", "rank_a", "key-top"), ("B", "rank_b", "key-base"))
            if (points := [(row["layer"], row[key]) for row in layers if row[key] is not None])
        ]
        last = layers[-1]
        said = (
            f"{words}: ranks of the answers of A and B after each layer; after the last "
            f"{fixed(last['rank_a'], 0)} and {fixed(last['rank_b'], 0)}"
        )
        charts.append(
            tag("div", tag("h3", words), line_chart(series, "layer", "rank", said, y_log=True))
        )
        rows += [
            (
                str(row["layer"]),
                words,
                fixed(row["rank_a"], 0),
                fixed(row["rank_b"], 0),
                _tokens(row["tokens"]),
            )
            for row in layers
        ]
    answers = [", ".join(map(str, lens[key])) for key in ("answers_a", "answers_b")]
    caption = join(
        tag("strong", "One prompt through the logit lens. "),
        "The hidden state after each layer at the last token of the prompt is read as if that "
        "layer were the last. Ranks are those of the best first token of either answer; rank 1 is "
        "the likeliest. A single example: exact for it, and no evidence for others.",
    )
    prompt = tag("pre", tag("bdi", str(lens["prompt"])), class_="text")
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


def _tokens(tokens: list[str]) -> Child:
    return [
        part
        for at, token in enumerate(tokens)
        for part in ((", " if at else ""), tag("code", tag("bdi", token)))
    ]
