"""The report of `use rate`: which documents need the heads, and how fast that was found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from headscope.report.drawing.histograms import STYLE, Panel, histograms, widest
from headscope.report.html import Child, Html, join, tag
from headscope.report.page import Page
from headscope.report.pages.frame import ablated, about_run, masthead, simple_page
from headscope.report.parts import figure, scroll, section, table
from headscope.results.rating import RatedCorpus, RatedFigures, RatedLanguage, RatingSummary
from headscope.runs import decode
from headscope.runs.reading import naming, read_object, result_of
from headscope.shown.words import count, fixed, number, percent

__all__ = ["page"]

KIND = "a rated corpus"
#: Rated languages by code, those with the most documents first.
Languages = Sequence[tuple[str, RatedLanguage]]

OPEN_LANGUAGES = 8
"""Languages shown at once; the others are folded away."""
OPEN_DOCUMENTS = 5
"""Documents of a language shown at once."""
WITH_TEXTS = 40
"""The most languages whose documents are shown, so that a page stays small."""
EXCERPT = 400
"""Characters shown of a document."""
DIGITS = 4


def page(path: Path) -> Page:
    """The report of the run in this folder."""
    result = result_of(path, RatedCorpus, KIND)
    file = path / "summary.json"
    with naming(file, KIND):
        summary: RatingSummary = decode(RatingSummary, read_object(file), "summary")
    languages = sorted(
        summary.languages.items(), key=lambda one: (-one[1].scores.documents, one[0])
    )
    heads = f"{count(len(result.heads), 'head')} removed" if result.heads else ""
    named = [code for code, _ in languages if code]
    return simple_page(
        f"{result.model_name} \u00b7 rated corpus",
        masthead(
            "A rated corpus",
            f"How much worse {result.model_name} predicts each document without these heads: the "
            "higher its score, the more a document needs them.",
            [
                ("", result.model_name),
                ("", heads),
                ("", count(result.figures.documents, "document")),
                ("", count(len(named), "language") if named else ""),
                ablated(result),
            ],
            kicker="headscope use rate",
        ),
        [
            ("summary", "", _summary(result, languages)),
            ("scores", "Scores", _scores(languages)),
            ("documents", "Documents", _documents(languages)),
            ("rejects", "Rejects", _rejects(result.figures, summary.figures.reasons)),
            ("caveats", "Caveats", _caveats()),
            ("heads", "Heads", _heads(result.heads)),
            ("provenance", "Provenance", about_run(path)),
        ],
        styles=(STYLE,),
    )


def _summary(result: RatedCorpus, languages: Languages) -> Html:
    figures = result.figures
    speed = figures.tokens_per_second
    tiles = [
        (f"{figures.documents:,}".replace(",", "\u202f"), "documents rated"),
        (f"{figures.rejected:,}".replace(",", "\u202f"), "records rejected, none lost"),
        (number(figures.tokens), "predicted tokens"),
        (
            "\u2013" if speed is None else number(speed),
            "tokens a second of scoring, all workers together",
        ),
    ]
    shown = tag(
        "dl",
        [tag("div", tag("dt", words), tag("dd", value)) for value, words in tiles],
        class_="tiles",
    )
    lines: list[Child] = [
        tag(
            "p",
            "The score of a document is the mean over its predicted tokens of what a token's "
            "negative log-likelihood rises, in nats, when the heads are removed. At 0 the heads "
            "make no difference; below 0 the model does better without them.",
        )
    ]
    if len(languages) > 1:
        by_mean = sorted(languages, key=lambda one: -one[1].scores.mean)
        (first, highest), (last, lowest) = by_mean[0], by_mean[-1]
        high, low = fixed(highest.scores.mean, DIGITS), fixed(lowest.scores.mean, DIGITS)
        levels: list[Child] = ["The mean score is ", high, " in all languages. "]
        if high != low:
            levels = ["The mean score is highest in ", _named(first), f" ({high}) and lowest in "]
            levels += [_named(last), f" ({low}). "]
        lines.append(
            tag(
                "p",
                levels,
                "Documents are to be picked within a language: levels of different languages are "
                "no common scale.",
            )
        )
    if result.workers is not None:
        lines.append(
            tag(
                "p",
                f"{count(result.workers, 'worker')} ({result.executor}) did the work; neither the "
                "number of workers nor an interruption changes what is computed.",
                class_="note",
            )
        )
    return section("summary", "In short", shown, lines)


def _scores(languages: Languages) -> Html | None:
    rated = {code: one for code, one in languages if sum(one.histogram.counts)}
    if not rated:
        return None
    panels = [_panel(code, one) for code, one in rated.items()]
    charts = histograms(panels, "score in nats a token", "document", OPEN_LANGUAGES)
    caption = join(
        tag("strong", "How the scores are spread. "),
        "The height of a bar is the share of a language's documents with such a score, in a step "
        f"of {number(widest([one for _, _, one in panels]))} nats (bars of narrower steps are "
        "as much higher), so all panels have the same axes and can be compared. Point at a bar for "
        "its numbers. These are counts, not estimates: they carry no interval and speak of this "
        "corpus alone.",
    )
    header = ("Language", "Documents", "Tokens", "Mean score", "Highest score")
    rows = [
        (
            _named(code),
            number(one.scores.documents),
            number(one.scores.tokens),
            fixed(one.scores.mean, DIGITS),
            fixed(one.top[0].score if one.top else None, DIGITS),
        )
        for code, one in languages
    ]
    numbers = table("Scores by language", header, rows, class_="numbers")
    return section(
        "scores",
        "The scores",
        figure("histograms", caption, charts),
        figure(
            "by-language",
            join(tag("strong", "Each language in numbers. "), "The mean is over its documents."),
            scroll("Scores by language", numbers),
        ),
    )


def _panel(code: str, one: RatedLanguage) -> Panel:
    scores = one.scores
    words = f"{count(scores.documents, 'document')}, mean {fixed(scores.mean, DIGITS)}"
    heading = join(tag("h3", _named(code)), tag("p", words, class_="note"))
    return heading, _words(code), one.histogram


def _documents(languages: Languages) -> Html | None:
    every = [(code, one) for code, one in languages if one.top]
    shown = every[:WITH_TEXTS]
    if not shown:
        return None
    left = len(every) - len(shown)
    note = tag(
        "p",
        f"The documents with the highest scores of each language, at most 20, highest first, with "
        f"the first {EXCERPT} characters of their text. They are the extremes and not typical. "
        + (
            f"{count(left, 'more language')} did not fit into this page; summary.json of the run "
            "holds them."
            if left
            else ""
        ),
        class_="note",
    )
    parts = []
    for place, (code, one) in enumerate(shown):
        body = [_list(one, 0, OPEN_DOCUMENTS)]
        if len(one.top) > OPEN_DOCUMENTS:
            rest = tag("summary", f"The other {len(one.top) - OPEN_DOCUMENTS}")
            body.append(tag("details", rest, _list(one, OPEN_DOCUMENTS, None)))
        if place < OPEN_LANGUAGES:
            parts.append(tag("div", tag("h3", _named(code)), body))
        else:
            parts.append(tag("details", tag("summary", _named(code)), body))
    return section("documents", "The documents that need the heads most", note, parts)


def _list(one: RatedLanguage, start: int, end: int | None) -> Html:
    items = []
    for document in one.top[start:end]:
        cut = len(document.text) > EXCERPT
        text = document.text[:EXCERPT] + ("\u2026" if cut else "")
        items.append(
            tag(
                "li",
                tag(
                    "header",
                    tag("b", fixed(document.score, DIGITS)),
                    tag("bdi", str(document.id)),
                ),
                # The text's own direction decides where its lines begin.
                tag("div", text, class_="excerpt", dir="auto"),
            )
        )
    return tag("ol", items, class_="documents", start=start + 1)


def _rejects(figures: RatedFigures, reasons: Mapping[str, int]) -> Html:
    if not figures.rejected:
        words = "Every record was rated; none was rejected."
        return section("rejects", "Rejects", tag("p", words))
    total = figures.rejected + figures.documents
    ordered = sorted(reasons.items(), key=lambda one: (-one[1], one[0]))
    rows = [(tag("bdi", reason), number(many)) for reason, many in ordered]
    caption = join(
        tag("strong", "Records that have no score. "),
        f"{count(figures.rejected, 'record')} of {number(total)} "
        f"({percent(figures.rejected / total, 1)}). All stand in rejects.jsonl of the run, as they "
        "were read, each with its file, line and reason.",
    )
    shown = table("Rejects by reason", ("Reason", "Records"), rows, class_="numbers")
    return section("rejects", "Rejects", figure("reasons", caption, scroll("Rejects", shown)))


def _caveats() -> Html:
    notes = [
        (
            "A high score is no praise.",
            "It says that the model needs these heads to predict the document, not that the "
            "document is good, true or well written. Lists, tables and boilerplate may need them "
            "too. Read the documents above before you select by score.",
        ),
        (
            "What the heads do was not measured here.",
            "That a document needs them says nothing of why. Whether they translate, say, is "
            "shown by headscope verify removal, not by a list of documents.",
        ),
        (
            "This page has no controls.",
            "Removing any heads hurts somewhere. As controls, rate a sample of the same documents "
            "with as many random heads removed (--heads with such a list), and rank them by "
            "nll_full, the untouched model's loss that each record holds. What these rank as high, "
            "too, is not high because of these heads.",
        ),
        (
            "Short documents are noisy.",
            "A score is a mean over tokens; the fewer there are, the more a single token counts, "
            "and the extremes of a list hold more short documents than the corpus does. Each "
            "record has its number of tokens.",
        ),
        (
            "Languages are no common scale.",
            "The same model knows some languages better, and cuts them into other tokens. Compare "
            "scores within one language.",
        ),
    ]
    return section(
        "caveats",
        "What these scores do not say",
        tag(
            "ul",
            [tag("li", tag("strong", first), " ", rest) for first, rest in notes],
            class_="caveats",
        ),
    )


def _heads(heads: Sequence[str]) -> Html | None:
    if not heads:
        return None
    return section(
        "heads",
        "The heads that were removed",
        tag("p", ", ".join(heads), class_="heads"),
        tag("p", "Layer and head, both from 0.", class_="note"),
    )


def _named(code: str) -> Html:
    return tag("bdi", _words(code))


def _words(code: str) -> str:
    return code or "no language given"
