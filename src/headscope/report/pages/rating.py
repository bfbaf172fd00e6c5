"""The report of `use rate`: which documents need the heads, and how fast that was found."""

from __future__ import annotations

from pathlib import Path

from headscope.report.html import Child, Html, join, tag
from headscope.report.page import Page
from headscope.report.pages.frame import ablated, about_run, masthead, simple_page
from headscope.report.parts import figure, scroll, section, table
from headscope.report.records.rating import RatedLanguage, RatingRecord, read_rating
from headscope.report.sections.histograms import STYLE, Panel, histograms, widest
from headscope.report.words import count, fixed, number, percent
from headscope.runs.reading import read_result

__all__ = ["page"]

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
    record = read_rating(path)
    heads = f"{count(len(record.heads), 'head')} removed" if record.heads else ""
    named = [one.name for one in record.languages if one.name]
    return simple_page(
        f"{record.model} \u00b7 rated corpus",
        masthead(
            "A rated corpus",
            f"How much worse {record.model} predicts each document without these heads: the "
            "higher its score, the more a document needs them.",
            [
                ("", record.model),
                ("", heads),
                ("", count(record.documents, "document")),
                ("", count(len(named), "language") if named else ""),
                ablated(read_result(path)),
            ],
            kicker="headscope use rate",
        ),
        [
            ("summary", "", _summary(record)),
            ("scores", "Scores", _scores(record)),
            ("documents", "Documents", _documents(record)),
            ("rejects", "Rejects", _rejects(record)),
            ("caveats", "Caveats", _caveats()),
            ("heads", "Heads", _heads(record)),
            ("provenance", "Provenance", about_run(path)),
        ],
        styles=(STYLE,),
    )


def _summary(record: RatingRecord) -> Html:
    tiles = [
        (f"{record.documents:,}".replace(",", "\u202f"), "documents rated"),
        (f"{record.rejected:,}".replace(",", "\u202f"), "records rejected, none lost"),
        (number(record.tokens), "predicted tokens"),
        (
            "\u2013" if record.tokens_per_second is None else number(record.tokens_per_second),
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
    rated = [one for one in record.languages if one.mean is not None]
    if len(rated) > 1:
        by_mean = sorted(rated, key=lambda one: -(one.mean or 0.0))
        first, last = by_mean[0], by_mean[-1]
        high, low = fixed(first.mean, DIGITS), fixed(last.mean, DIGITS)
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
    workers, executor = record.result.get("workers"), record.result.get("executor")
    if workers is not None:
        lines.append(
            tag(
                "p",
                f"{count(int(workers), 'worker')} ({executor}) did the work; neither the number of "
                "workers nor an interruption changes what is computed.",
                class_="note",
            )
        )
    return section("summary", "In short", shown, lines)


def _scores(record: RatingRecord) -> Html | None:
    rated = [one for one in record.languages if sum(one.histogram.counts)]
    if not rated:
        return None
    panels = [_panel(one) for one in rated]
    charts = histograms(panels, "score in nats a token", "document", OPEN_LANGUAGES)
    caption = join(
        tag("strong", "How the scores are spread. "),
        "The height of a bar is the share of a language's documents with such a score, in a step "
        f"of {number(widest([one.histogram for one in rated]))} nats (bars of narrower steps are "
        "as much higher), so all panels have the same axes and can be compared. Point at a bar for "
        "its numbers. These are counts, not estimates: they carry no interval and speak of this "
        "corpus alone.",
    )
    header = ("Language", "Documents", "Tokens", "Mean score", "Highest score")
    rows = [
        (
            _named(one),
            number(one.documents),
            number(one.tokens),
            fixed(one.mean, DIGITS),
            fixed(one.top[0].score if one.top else None, DIGITS),
        )
        for one in record.languages
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


def _panel(one: RatedLanguage) -> Panel:
    heading = join(
        tag("h3", _named(one)),
        tag(
            "p",
            f"{count(one.documents, 'document')}, mean {fixed(one.mean, DIGITS)}",
            class_="note",
        ),
    )
    return heading, _words(one), one.histogram


def _documents(record: RatingRecord) -> Html | None:
    shown = [one for one in record.languages if one.top][:WITH_TEXTS]
    if not shown:
        return None
    left = sum(1 for one in record.languages if one.top) - len(shown)
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
    for place, one in enumerate(shown):
        body = [_list(one, 0, OPEN_DOCUMENTS)]
        if len(one.top) > OPEN_DOCUMENTS:
            rest = tag("summary", f"The other {len(one.top) - OPEN_DOCUMENTS}")
            body.append(tag("details", rest, _list(one, OPEN_DOCUMENTS, None)))
        if place < OPEN_LANGUAGES:
            parts.append(tag("div", tag("h3", _named(one)), body))
        else:
            parts.append(tag("details", tag("summary", _named(one)), body))
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
                    tag("bdi", document.id),
                ),
                # The text's own direction decides where its lines begin.
                tag("div", text, class_="excerpt", dir="auto"),
            )
        )
    return tag("ol", items, class_="documents", start=start + 1)


def _rejects(record: RatingRecord) -> Html:
    if not record.rejected:
        words = "Every record was rated; none was rejected."
        return section("rejects", "Rejects", tag("p", words))
    total = record.rejected + record.documents
    rows = [(tag("bdi", reason), number(many)) for reason, many in record.reasons.items()]
    caption = join(
        tag("strong", "Records that have no score. "),
        f"{count(record.rejected, 'record')} of {number(total)} "
        f"({percent(record.rejected / total, 1)}). All stand in rejects.jsonl of the run, as they "
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


def _heads(record: RatingRecord) -> Html | None:
    if not record.heads:
        return None
    return section(
        "heads",
        "The heads that were removed",
        tag("p", ", ".join(record.heads), class_="heads"),
        tag("p", "Layer and head, both from 0.", class_="note"),
    )


def _named(one: RatedLanguage) -> Html:
    return tag("bdi", _words(one))


def _words(one: RatedLanguage) -> str:
    return one.name or "no language given"
