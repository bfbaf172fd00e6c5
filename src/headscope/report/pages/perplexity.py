"""The report of `verify perplexity`: each language's text without each language's heads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headscope.estimates import Estimate
from headscope.report.charts import BarRow, bar_rows
from headscope.report.drawing.key_text import STYLE, shade
from headscope.report.html import Html, join, tag
from headscope.report.matrix import ramp_bar
from headscope.report.page import Page
from headscope.report.pages.frame import ablated, about_run, masthead, simple_page
from headscope.report.parts import figure, scroll, section, table
from headscope.results.common import few_draws
from headscope.results.language_texts import (
    Answer,
    LanguageText,
    Level,
    Matrix,
    OwnText,
    TextWithoutHeads,
    WithoutHeads,
)
from headscope.runs.reading import result_of
from headscope.shown.words import between, count, enumeration, fixed, number, p_value

__all__ = ["page"]

DIGITS = 4


def page(path: Path) -> Page:
    """The report of the run in this folder."""
    result = result_of(path, TextWithoutHeads, "language heads")
    languages = result.languages
    sizes = sorted({len(one.chosen) for one in result.sets} - {0})
    return simple_page(
        "Text without language heads",
        masthead(
            "Text without language heads",
            f"How well {result.model_name} predicts text of each language when heads of a language "
            "are removed: beside the untouched model, as many random heads, and the text of every "
            "other language.",
            [
                ("languages", enumeration(list(languages))),
                ("heads removed", " or ".join(map(str, sizes))),
                ("documents", number(sum(text.documents for text in languages.values()))),
                ("random draws", str(result.draws)),
                ablated(result),
            ],
            "headscope verify perplexity",
        ),
        [
            ("summary", "", _summary(result)),
            ("changes", "Languages", _bars(result)),
            ("matrix", "Matrix", _matrices(result)),
            ("numbers", "Numbers", _numbers(result)),
            ("sets", "Heads", _sets(result)),
            ("provenance", "Provenance", about_run(path)),
        ],
        styles=(STYLE,),
    )


def _summary(result: TextWithoutHeads) -> Html:
    words: list[Html] = [
        join(
            "A language model gives every next token a probability; the negative logarithm of it, "
            "averaged over the tokens of a text (NLL, in nats), says how badly the text was "
            "foreseen. What is told here is by how much it rises when heads are removed."
        )
    ]
    for matrix in result.matrices:
        if matrix.role == "chosen" and matrix.answer is not None:
            words.append(_answer(matrix.k, matrix.answer))
    if result.empty:
        words.append(
            join(
                f"For {enumeration(result.empty)} no specific heads were found, so none were "
                "removed: nothing else was put in their place."
            )
        )
    if result.leakage.overlap:
        words.append(
            join(
                f"{result.leakage.overlap} of {result.leakage.of} documents are among "
                "those the heads were found on."
            )
        )
    heading = tag("h2", "In short", id="summary-title", class_="unseen")
    body = [tag("p", one) for one in words]
    return tag("section", heading, body, id="summary", aria_labelledby="summary-title")


def _answer(k: int, answer: Answer) -> Html:
    parts: list[Html] = [
        join(
            f"With {count(k, 'head')} of a language removed (fewer where it has fewer), ",
            tag("strong", f"in {answer.own_rises_most} of {count(answer.languages, 'language')}"),
            " the language's own text suffers more than that of any other; in "
            f"{answer.own_rises_most_surely} the whole 95\u00a0% interval of the difference "
            "says so.",
        )
    ]
    if answer.above_random is not None:
        parts.append(
            join(
                f" In {answer.above_random} its own text suffers more than without as many "
                f"random heads (surely in {answer.above_random_surely})."
            )
        )
    return join(parts)


def _bars(result: TextWithoutHeads) -> Html:
    changes = [row.change for text in result.languages.values() for row in text.conditions]
    end = max([0.0, *(bound for each in changes for bound in (each.value, each.high))]) or 1.0
    parts = []
    for name, text in result.languages.items():
        bars = [bar for row in text.removed for bar in _rows(row, text, result.ranked)]
        if bars:
            title = tag("h3", tag("bdi", name))
            note = tag(
                "p",
                f"{count(text.documents, 'document')}, {count(text.tokens, 'token')}; untouched: "
                f"NLL {fixed(text.baseline.nll.value, 3)}, perplexity "
                f"{fixed(text.baseline.perplexity.value, 2)}",
                class_="note",
            )
            parts.append(tag("div", title, note, bar_rows(bars, end, DIGITS), class_="task"))
    caption = join(
        tag("strong", "How much worse each language's own text is foreseen without its heads. "),
        "Bars are the rise of the mean NLL in nats a token, all on one scale; where removal "
        "helped, the number is negative and there is no bar. Whiskers are 95\u00a0% bootstrap "
        "intervals over documents: how sure the rise is for other documents of this kind, not "
        f"for other models. Rings are the {result.draws} single draws of as many random heads, "
        "their bar the mean.",
        " Specific heads are those important for this language and for few others; the most "
        "important are as many by importance alone."
        if result.ranked
        else "",
    )
    return section("changes", "Each language without its own heads", figure("bars", caption, parts))


def _rows(row: WithoutHeads, text: LanguageText, ranked: bool) -> list[BarRow]:
    """The heads themselves, then the mean and the single draws of each kind of random heads."""
    mark = "key-low" if row.role == "full" else "key-top"
    words = f"{_role(row, ranked)}: {count(row.size, 'head')}"
    rows = [BarRow(words, row.change.value, mark, (), (row.change.low, row.change.high))]
    named = {"random": "random heads", "random-layer-matched": "random heads, same layers"}
    for kind, words in named.items():
        drawn = [draw.change.value for draw in text.draws(row, kind)]
        if drawn:
            rows.append(BarRow(words, sum(drawn) / len(drawn), "key-random", drawn))
    return rows


def _role(row: WithoutHeads, ranked: bool) -> str:
    """Which heads were removed, in words; `ranked`: whether they are a method's specific ones."""
    if row.role == "full":
        return "most important"
    return f"specific to {row.of}" if ranked else f"of {row.of}"


def _matrices(result: TextWithoutHeads) -> Html | None:
    made = [_matrix(at, matrix) for at, matrix in enumerate(result.matrices)]
    return section("matrix", "Heads of one language, text of another", made) if made else None


def _matrix(at: int, matrix: Matrix) -> Html:
    scale = max((cell.value for row in matrix.change for cell in row), default=0.0)
    scale = scale if scale > 0 else 1.0
    rows = [
        [
            join(tag("bdi", name), f" ({size})"),
            *(_cell(cell, other, scale) for cell, other in zip(changes, random, strict=True)),
            _own(matrix.own.get(name)),
        ]
        for name, size, changes, random in zip(
            matrix.heads_of, matrix.sizes, matrix.change, matrix.random, strict=True
        )
    ]
    role = "The most important heads" if matrix.role == "full" else "Heads"
    grid = table(
        f"Change of NLL, k = {matrix.k}",
        [
            "heads of",
            *(join("text of ", tag("bdi", name)) for name in matrix.text_of),
            "own \u2212 other",
        ],
        rows,
        class_="numbers key-table",
    )
    caption = join(
        tag("strong", f"{role} of one language removed, text of every language read. "),
        "Each cell is the rise of the mean NLL in nats a token, with its 95\u00a0% bootstrap "
        "interval over documents, and ",
        _beside(matrix),
        " Were heads a language's own, the diagonal would be the darkest of its "
        "row. The last column says how much more the language's own text rises than the one that "
        "rises most among the others, which is found anew in every bootstrap draw; an interval "
        "below zero means another language needs these heads more.",
    )
    return figure(
        f"matrix-{at}",
        caption,
        scroll("Matrix, heads by texts", grid),
        ramp_bar("0", fixed(scale, 3)),
    )


def _beside(matrix: Matrix) -> str:
    """Which cells have random heads below them, and where these were drawn."""
    if all(cell for row in matrix.random for cell in row):
        return (
            "below it what as many random heads do to the same text on average (drawn outside the "
            "chosen heads of all languages, so that the draws are the same for all of them)."
        )
    return (
        "where random heads were read on the same text (that of the language itself), below it "
        "what as many of them do on average."
    )


def _cell(cell: Estimate, random: Estimate | None, scale: float) -> Html:
    return join(
        tag("span", fixed(cell.value, 3), class_=f"shade {shade(cell.value, scale)}"),
        tag("small", between(cell.low, cell.high, 3)),
        tag("small", f"random {fixed(random.value, 3)}") if random else None,
    )


def _own(own: OwnText | None) -> Html:
    if own is None:
        return join("\u2013")
    margin = own.own_minus_largest_other
    return join(
        tag("span", fixed(margin.value, 3), class_="sum"),
        tag("small", between(margin.low, margin.high, 3)),
        tag("small", "other: ", tag("bdi", own.largest_other.language)),
    )


def _numbers(result: TextWithoutHeads) -> Html:
    header = ("Text", "Removed", "Heads", "NLL", "Perplexity", "Published", "Change",
              "95\u00a0% interval", "Random", "Difference", "95\u00a0% interval",
              "p (documents)", "p (draws)")  # fmt: skip
    rows: list[tuple[Any, ...]] = []
    for name, text in result.languages.items():
        rows.append((tag("bdi", name), "nothing", 0, *_levels(text.baseline), *["\u2013"] * 7))
        rows += [_line(name, _role(row, result.ranked), row) for row in text.removed]
    lowest = 1 / (1 + result.draws)
    caption = join(
        tag("strong", "Every number. "),
        "Perplexity is exp of the NLL, in which every token counts the same; \u201cpublished\u201d "
        "is the mean over documents of exp of each document\u2019s own mean, which long tails of "
        "short documents drive. The difference is that to the mean of the random draws. p over "
        "documents swaps the losses of single documents with those under random heads; p over "
        f"draws ranks the heads among the draws and cannot be lower than {p_value(lowest)}. ",
        (few := few_draws(result)) and f"{few} ",
        "Intervals come from resampling documents.",
    )
    shown = table("Text and removed heads", header, rows, said={1}, class_="numbers")
    body = figure("numbers-figure", caption, scroll("Numbers", shown))
    return section("numbers", "Every number", body)


def _levels(level: Level) -> tuple[str, str, str]:
    return (
        fixed(level.nll.value, DIGITS),
        fixed(level.perplexity.value, 3),
        fixed(level.published_perplexity.value, 3),
    )


def _line(name: str, removed: str, row: WithoutHeads) -> tuple[Any, ...]:
    random: tuple[str, ...] = ("\u2013",) * 5
    if row.random is not None and row.against_random is not None:
        random = (
            fixed(row.random.mean, DIGITS),
            *_change(row.against_random.difference),
            p_value(row.against_random.p_examples),
            p_value(row.against_random.p_draws),
        )
    return (tag("bdi", name), removed, row.size, *_levels(row), *_change(row.change), *random)


def _change(change: Estimate) -> tuple[str, str]:
    return fixed(change.value, DIGITS), between(change.low, change.high, DIGITS)


def _sets(result: TextWithoutHeads) -> Html:
    rows = [
        (
            tag("bdi", heads.language),
            heads.k,
            heads.available,
            tag("code", ", ".join(heads.chosen) or "none"),
            tag("code", ", ".join(heads.full)) if heads.full else "\u2013",
        )
        for heads in result.sets
    ]
    header = ("Language", "Asked for", "Specific heads", "Removed", "Most important")
    shown = table("The heads of each language", header, rows, said={3, 4}, class_="numbers")
    caption = join(
        tag("strong", "The heads that were removed, best first. "),
        "There may be fewer specific heads than were asked for; then the controls and the most "
        "important heads are as few.",
    )
    body = figure("sets-figure", caption, scroll("Heads", shown))
    return section("sets", "The heads", body)
