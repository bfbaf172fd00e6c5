"""The report of `verify perplexity`: each language's text without each language's heads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from headscope.report.charts import BarRow, bar_rows
from headscope.report.html import Html, join, tag
from headscope.report.matrix import ramp_bar
from headscope.report.page import Page
from headscope.report.pages.frame import ablated, about_run, masthead, simple_page
from headscope.report.parts import figure, scroll, section, table
from headscope.report.sections.key_text import STYLE, shade
from headscope.report.words import between, count, enumeration, few_draws, fixed, number, p_value
from headscope.runs.reading import naming, read_result

__all__ = ["page"]

Row = Mapping[str, Any]
DIGITS = 4


def page(path: Path) -> Page:
    """The report of the run in this folder."""
    result = read_result(path)
    with naming(path / "result.json", "language heads"):
        languages: Mapping[str, Row] = result["languages"]
        sizes = sorted({len(one["chosen"]) for one in result["sets"]} - {0})
        heads = " or ".join(map(str, sizes))
        return simple_page(
            "Text without language heads",
            masthead(
                "Text without language heads",
                f"How well {result['model']['name']} predicts text of each language when heads of "
                "a language are removed: beside the untouched model, as many random heads, and the "
                "text of every other language.",
                [
                    ("languages", enumeration(list(languages))),
                    ("heads removed", heads),
                    ("documents", number(sum(one["documents"] for one in languages.values()))),
                    ("random draws", str(result["draws"])),
                    ablated(result),
                ],
                "headscope verify perplexity",
            ),
            [
                ("summary", "", _summary(result)),
                ("changes", "Languages", _bars(result, languages)),
                ("matrix", "Matrix", _matrices(result)),
                ("numbers", "Numbers", _numbers(result, languages)),
                ("sets", "Heads", _sets(result)),
                ("provenance", "Provenance", about_run(path)),
            ],
            styles=(STYLE,),
        )


def _summary(result: Row) -> Html:
    words: list[Html] = [
        join(
            "A language model gives every next token a probability; the negative logarithm of it, "
            "averaged over the tokens of a text (NLL, in nats), says how badly the text was "
            "foreseen. What is told here is by how much it rises when heads are removed."
        )
    ]
    for matrix in result["matrices"]:
        if matrix["role"] == "chosen" and matrix["answer"]:
            words.append(_answer(matrix))
    if result["empty"]:
        words.append(
            join(
                f"For {enumeration(result['empty'])} no specific heads were found, so none were "
                "removed: nothing else was put in their place."
            )
        )
    if result["leakage"]["overlap"]:
        words.append(
            join(
                f"{result['leakage']['overlap']} of {result['leakage']['of']} documents are among "
                "those the heads were found on."
            )
        )
    heading = tag("h2", "In short", id="summary-title", class_="unseen")
    body = [tag("p", one) for one in words]
    return tag("section", heading, body, id="summary", aria_labelledby="summary-title")


def _answer(matrix: Row) -> Html:
    answer = matrix["answer"]
    every = int(answer["languages"])
    parts: list[Html] = [
        join(
            f"With {count(int(matrix['k']), 'head')} of a language removed (fewer where it has "
            "fewer), ",
            tag("strong", f"in {answer['own_rises_most']} of {count(every, 'language')}"),
            " the language's own text suffers more than that of any other; in "
            f"{answer['own_rises_most_surely']} the whole 95\u00a0% interval of the difference "
            "says so.",
        )
    ]
    if "above_random" in answer:
        parts.append(
            join(
                f" In {answer['above_random']} its own text suffers more than without as many "
                f"random heads (surely in {answer['above_random_surely']})."
            )
        )
    return join(parts)


def _bars(result: Row, languages: Mapping[str, Row]) -> Html:
    shown = {name: _removed(one) for name, one in languages.items()}
    values = [0.0]
    for one in languages.values():
        for row in one["conditions"]:
            values += [row["change"]["value"], row["change"]["high"]]
    end = max(values) or 1.0
    parts = []
    for name, rows in shown.items():
        bars = [bar for row in rows for bar in _rows(row, languages[name], _ranked(result))]
        if bars:
            title = tag("h3", tag("bdi", name))
            base = languages[name]["baseline"]
            note = tag(
                "p",
                f"{count(languages[name]['documents'], 'document')}, "
                f"{count(languages[name]['tokens'], 'token')}; untouched: NLL "
                f"{fixed(base['nll']['value'], 3)}, perplexity "
                f"{fixed(base['perplexity']['value'], 2)}",
                class_="note",
            )
            parts.append(tag("div", title, note, bar_rows(bars, end, DIGITS), class_="task"))
    caption = join(
        tag("strong", "How much worse each language's own text is foreseen without its heads. "),
        "Bars are the rise of the mean NLL in nats a token, all on one scale; where removal "
        "helped, the number is negative and there is no bar. Whiskers are 95\u00a0% bootstrap "
        "intervals over documents: how sure the rise is for other documents of this kind, not "
        f"for other models. Rings are the {result['draws']} single draws of as many random heads, "
        "their bar the mean.",
        " Specific heads are those important for this language and for few others; the most "
        "important are as many by importance alone."
        if _ranked(result)
        else "",
    )
    return section("changes", "Each language without its own heads", figure("bars", caption, parts))


def _removed(one: Row) -> list[Row]:
    return [row for row in one["conditions"] if row["kind"] == "removed"]


def _rows(row: Row, one: Row, ranked: bool) -> list[BarRow]:
    """The heads themselves, then the mean and the single draws of each kind of random heads."""
    interval = row["change"]["low"], row["change"]["high"]
    size = count(int(row["size"]), "head")
    rows = [
        BarRow(f"{_role(row, ranked)}: {size}", row["change"]["value"], _mark(row), (), interval)
    ]
    named = {"random": "random heads", "random-layer-matched": "random heads, same layers"}
    for kind, words in named.items():
        drawn = _draws(row, one, kind)
        if drawn:
            rows.append(BarRow(words, sum(drawn) / len(drawn), "key-random", drawn))
    return rows


def _role(row: Row, ranked: bool) -> str:
    """Which heads were removed, in words; `ranked`: whether they are a method's specific ones."""
    if row["role"] == "full":
        return "most important"
    return f"specific to {row['of']}" if ranked else f"of {row['of']}"


def _ranked(result: Row) -> bool:
    return any(one["full"] is not None for one in result["sets"])


def _mark(row: Row) -> str:
    return "key-low" if row["role"] == "full" else "key-top"


def _draws(row: Row, one: Row, kind: str) -> list[float]:
    return [
        other["change"]["value"]
        for other in one["conditions"]
        if (other["of"], other["role"], other["k"], other["kind"])
        == (row["of"], row["role"], row["k"], kind)
    ]


def _matrices(result: Row) -> Html | None:
    made = [_matrix(at, one) for at, one in enumerate(result["matrices"])]
    return section("matrix", "Heads of one language, text of another", made) if made else None


def _matrix(at: int, matrix: Row) -> Html:
    texts: Sequence[str] = matrix["text_of"]
    scale = max((cell["value"] for row in matrix["change"] for cell in row), default=0.0)
    scale = scale if scale > 0 else 1.0
    rows = []
    for place, name in enumerate(matrix["heads_of"]):
        cells = [
            _cell(cell, matrix["random"][place][column], scale)
            for column, cell in enumerate(matrix["change"][place])
        ]
        own = (matrix["own"] or {}).get(name)
        rows.append([join(tag("bdi", name), f" ({matrix['sizes'][place]})"), *cells, _own(own)])
    role = "The most important heads" if matrix["role"] == "full" else "Heads"
    grid = table(
        f"Change of NLL, k = {matrix['k']}",
        ["heads of", *(join("text of ", tag("bdi", name)) for name in texts), "own \u2212 other"],
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


def _beside(matrix: Row) -> str:
    """Which cells have random heads below them, and where these were drawn."""
    if all(cell for row in matrix["random"] for cell in row):
        return (
            "below it what as many random heads do to the same text on average (drawn outside the "
            "chosen heads of all languages, so that the draws are the same for all of them)."
        )
    return (
        "where random heads were read on the same text (that of the language itself), below it "
        "what as many of them do on average."
    )


def _cell(cell: Row, random: Row | None, scale: float) -> Html:
    value = float(cell["value"])
    below = between(cell["low"], cell["high"], 3)
    return join(
        tag("span", fixed(value, 3), class_=f"shade {shade(value, scale)}"),
        tag("small", below),
        tag("small", f"random {fixed(random['value'], 3)}") if random else None,
    )


def _own(own: Row | None) -> Html:
    if own is None:
        return join("\u2013")
    margin = own["own_minus_largest_other"]
    return join(
        tag("span", fixed(margin["value"], 3), class_="sum"),
        tag("small", between(margin["low"], margin["high"], 3)),
        tag("small", "other: ", tag("bdi", own["largest_other"]["language"])),
    )


def _numbers(result: Row, languages: Mapping[str, Row]) -> Html:
    header = ("Text", "Removed", "Heads", "NLL", "Perplexity", "Published", "Change",
              "95\u00a0% interval", "Random", "Difference", "95\u00a0% interval",
              "p (documents)", "p (draws)")  # fmt: skip
    rows = []
    for name, one in languages.items():
        rows.append(_line(name, "nothing", 0, one["baseline"]))
        rows += [
            _line(name, _role(row, _ranked(result)), int(row["size"]), row) for row in _removed(one)
        ]
    lowest = 1 / (1 + int(result["draws"]))
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


def _line(name: str, removed: str, size: int, row: Row) -> tuple[Any, ...]:
    changed, against = row.get("change") or {}, row.get("against_random") or {}
    random = row.get("random") or {}
    return (
        tag("bdi", name),
        removed,
        size,
        fixed(row["nll"]["value"], DIGITS),
        fixed(row["perplexity"]["value"], 3),
        fixed(row["published_perplexity"]["value"], 3),
        fixed(changed.get("value"), DIGITS),
        between(changed.get("low"), changed.get("high"), DIGITS),
        fixed(random.get("mean"), DIGITS),
        fixed(against.get("value"), DIGITS),
        between(against.get("low"), against.get("high"), DIGITS),
        p_value(row.get("p_documents")),
        p_value(row.get("p_draws")),
    )


def _sets(result: Row) -> Html:
    rows = [
        (
            tag("bdi", str(one["language"])),
            one["k"],
            one["available"],
            tag("code", ", ".join(one["chosen"]) or "none"),
            tag("code", ", ".join(one["full"])) if one["full"] else "\u2013",
        )
        for one in result["sets"]
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
