"""The report of `use mix`: that the languages kept their shares, and what was selected."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headscope.report.charts import BarRow, Series, bar_rows, line_chart
from headscope.report.html import Child, Html, join, tag
from headscope.report.page import Page
from headscope.report.pages.frame import about_run, masthead, simple_page
from headscope.report.parts import figure, legend, scroll, section, table
from headscope.report.records.mixture import MixedLanguage, MixtureRecord, Shown, read_mixture
from headscope.report.sections.histograms import STYLE
from headscope.report.words import count, fixed, number, percent
from headscope.runs.reading import naming

__all__ = ["page"]

OPEN = 8
"""Languages shown at once; the others are folded away."""
WITH_TEXTS = 60
"""The most languages whose documents are shown, so that a page stays small."""
DIGITS = 4
TITLES = {
    "baseline": "A baseline mixture",
    "remove": "A mixture without the selected documents",
    "enhance": "A mixture with more of the selected documents",
}


def page(path: Path) -> Page:
    """The report of the run in this folder."""
    record = read_mixture(path)
    manifest = record.manifest
    with naming(path / "manifest.json", "a mixture"):
        facts = [
            ("", count(int(manifest["documents"]), "document")),
            ("", "" if manifest["tokens"] is None else f"{number(manifest['tokens'])} tokens"),
            ("", count(len(record.languages), "language")),
            ("", count(len(manifest["files"]), "file")),
        ]
        return simple_page(
            TITLES[record.kind],
            masthead(TITLES[record.kind], _lead(record), facts, kicker="headscope use mix"),
            [
                ("summary", "", _summary(record)),
                ("shares", "Shares", _shares(record)),
                ("budgets", "Documents", _budgets(record)),
                ("scores", "Scores", _scores(record)),
                ("selected", "Texts", _documents(record)),
                ("caveats", "Caveats", _caveats(record)),
                ("provenance", "Provenance", about_run(path)),
            ],
            styles=(STYLE, "mixture.css"),
        )


def _lead(record: MixtureRecord) -> str:
    if record.manifest["plan"]["select"] == "random":
        return (
            f"A control: a mixture of the kind \u201c{record.kind}\u201d whose selected documents "
            "were drawn at random."
        )
    return {
        "baseline": "A draw of a rated corpus as it is, to compare other mixtures with.",
        "remove": "A draw of a rated corpus in which the documents with the highest scores of "
        "each language give way to others of the same language.",
        "enhance": "A draw of a rated corpus in which the documents with the highest scores of "
        "each language are repeated, and others of the same language give way.",
    }[record.kind]


def _summary(record: MixtureRecord) -> Html:
    manifest, plan = record.manifest, record.manifest["plan"]
    selected = sum(int(one.numbers["selected"]["documents"]) for one in record.languages)
    base = sum(int(one.numbers["baseline"]["documents"]) for one in record.languages)
    there = {
        "baseline": "each is there once",
        "remove": "none of them is in the mixture",
        "enhance": f"each is in the mixture {count(int(plan['times']), 'time')}",
    }[record.kind]
    how = "have the highest scores of their language"
    if plan["select"] == "random":
        how = "were drawn at random, as a control,"
    lines: list[Child] = [
        tag(
            "p",
            f"Of {count(base, 'document')} of the baseline, {number(selected)} {how} "
            f"({plan['share']} of each language's {record.unit} asked for): ",
            tag("strong", there),
            ".",
        ),
        tag(
            "p",
            "No language's share differs from the baseline's by more than ",
            tag("strong", f"{fixed(float(manifest['largest_difference']) * 100, 4)} points"),
            f" of a hundred, counted in {record.unit}.",
        ),
    ]
    if float(manifest["factor"]) < 1:
        lines.append(
            tag(
                "p",
                "The corpus had too little in reserve to replace all that was removed, so every "
                f"language was cut to the same {percent(float(manifest['factor']), 2)} of its "
                "baseline. Compare this mixture with a baseline of that size.",
            )
        )
    return section("summary", "In short", lines)


def _shares(record: MixtureRecord) -> Html:
    rows = []
    for one in record.languages:
        before, after = float(one.numbers["share_before"]), float(one.numbers["share_after"])
        rows.append(BarRow(_named(one), 100 * before, "key-base"))
        rows.append(BarRow(tag("span", "in the mixture", class_="note"), 100 * after, "key-top"))
    end = max((row.value or 0.0 for row in rows), default=0.0) or 1.0
    bars = [bar_rows(rows[: 2 * OPEN], end, 2)]
    if len(rows) > 2 * OPEN:
        more = tag("summary", f"The other {len(record.languages) - OPEN} languages")
        bars.append(tag("details", more, bar_rows(rows[2 * OPEN :], end, 2)))
    header = ("Language", "Baseline", "Mixture", "Difference in points")
    cells = [
        (
            _named(one),
            percent(float(one.numbers["share_before"]), 3),
            percent(float(one.numbers["share_after"]), 3),
            fixed(100 * float(one.numbers["share_difference"]), 4),
        )
        for one in record.languages
    ]
    caption = join(
        tag("strong", "Every language's share before and after. "),
        f"In per cent of all {record.unit}. These are counts of what was written, not estimates; "
        "with tokens a share can be met only up to one document.",
    )
    numbers = scroll("Shares", table("Shares by language", header, cells, class_="numbers"))
    key = legend(("key-base", "baseline"), ("key-top", "mixture"))
    return section(
        "shares", "Language shares", figure("shares-figure", caption, key, bars, numbers)
    )


def _budgets(record: MixtureRecord) -> Html:
    names = (
        ("corpus", "Corpus"),
        ("baseline", "Baseline"),
        ("selected", "Selected"),
        ("kept", "Others kept"),
        ("reserve", "Usable reserve"),
        ("refilled", "From the reserve"),
        ("mixture", "Mixture"),
    )
    header = ("Language", *(title for _, title in names))
    rows = [
        (_named(one), *(_count(one.numbers[name]) for name, _ in names)) for one in record.languages
    ]
    duplicates: Mapping[str, Any] = record.manifest["duplicates"]
    caption = join(
        tag("strong", "Where the documents come from. "),
        "Documents and, below, their tokens. Usable in reserve is what stands below the cut with a "
        "text that the baseline has not, each text once. Selected documents count once here. "
        f"Documents whose text stands in an earlier one: {number(duplicates['baseline'])} in the "
        f"baseline, {number(duplicates['mixture'])} in the mixture"
        + (
            f", and {number(duplicates['by_copies'])} that are there for being repeated."
            if duplicates["by_copies"]
            else "."
        ),
    )
    counts = scroll("Documents", table("Documents by language", header, rows, class_="numbers"))
    return section("budgets", "Documents and tokens", figure("budgets-figure", caption, counts))


def _count(value: Mapping[str, Any]) -> Html:
    tokens = value["tokens"]
    return join(
        number(int(value["documents"])),
        None if tokens is None else tag("br"),
        None if tokens is None else tag("span", number(int(tokens)), class_="note"),
    )


def _scores(record: MixtureRecord) -> Html | None:
    charts = [_chart(one) for one in record.languages if one.scores is not None]
    if not charts:
        return None
    shown = [tag("div", charts[:OPEN], class_="histograms")]
    if len(charts) > OPEN:
        more = tag("summary", f"The other {len(charts) - OPEN} languages")
        shown.append(tag("details", more, tag("div", charts[OPEN:], class_="histograms")))
    caption = join(
        tag("strong", "The scores of each language's baseline, and where the cut is. "),
        "Selected is what stands to the right of the upright line, if there is one; a point is the "
        "share of the documents in one of 60 bins. Languages have their own axes: their scores are "
        "no common scale. These are counts of this baseline.",
    )
    header = ("Language", "Selected from", "Highest below", "Selected", "Share of it")
    rows = [
        (
            _named(one),
            fixed(one.threshold, DIGITS),
            fixed(one.numbers["next_score"], DIGITS),
            number(int(one.numbers["selected"]["documents"])),
            percent(float(one.numbers["selected_share"]), 2),
        )
        for one in record.languages
    ]
    numbers = scroll("Cuts", table("Cuts by language", header, rows, class_="numbers"))
    return section("scores", "Scores", figure("scores-figure", caption, shown, numbers))


def _chart(one: MixedLanguage) -> Html:
    scores = one.scores
    assert scores is not None
    total = sum(scores.counts) or 1
    points = [
        ((left + right) / 2, 100 * documents / total)
        for left, right, documents in zip(
            scores.edges, scores.edges[1:], scores.counts, strict=False
        )
    ]
    highest = max(share for _, share in points)
    lines = [Series("per cent of documents", points, "key-base")]
    said = f"{_words(one)}: scores of the baseline"
    if one.threshold is not None:
        upright = [(one.threshold, 0.0), (one.threshold, highest)]
        lines.append(Series(f"selected from {fixed(one.threshold, DIGITS)}", upright, "key-top"))
        said += f", selected from {fixed(one.threshold, DIGITS)}"
    chart = line_chart(lines, "score in nats a token", "% of documents", f"{said}.")
    return tag("div", tag("h3", _named(one)), chart)


def _documents(record: MixtureRecord) -> Html | None:
    shown = [one for one in record.languages if one.documents][:WITH_TEXTS]
    if not shown:
        return None
    note = tag(
        "p",
        "Of each language's baseline the highest scores, and the documents just above and just "
        "below the cut, where the choice is least sure. At most the first 400 characters.",
        class_="note",
    )
    left = sum(1 for one in record.languages if one.documents) - len(shown)
    more = None
    if left:
        words = f"{count(left, 'more language')} did not fit; summary.json of the run holds them."
        more = tag("p", words, class_="note")
    parts = [
        tag(
            "details",
            tag("summary", _named(one)),
            tag("ol", [_document(document) for document in one.documents], class_="documents"),
            open=place == 0,
        )
        for place, one in enumerate(shown)
    ]
    return section("selected", "Documents at the top and at the cut", note, more, parts)


def _document(one: Shown) -> Html:
    head = tag(
        "header",
        tag("b", fixed(one.score, DIGITS)),
        tag("span", one.place),
        tag("bdi", one.id),
    )
    # The text's own direction decides where its lines begin.
    return tag("li", head, tag("div", one.text, class_="excerpt", dir="auto"))


def _caveats(record: MixtureRecord) -> Html:
    notes = [
        (
            "A mixture shows nothing by itself.",
            "Whether the selected documents matter is shown by models trained on this mixture, "
            "on a baseline of the same size, over several seeds, and on mixtures selected at "
            "random (--select random).",
        ),
        (
            "Equal in one count only.",
            f"Budgets are equal in {record.unit}; documents with high scores are often shorter or "
            f"longer than others, so {'tokens' if record.unit == 'documents' else 'documents'} "
            "may differ.",
        ),
        (
            "The selection is one of rank.",
            "The share is taken of every language alike, whether or not it has documents that "
            "need the heads; read the texts at the cut.",
        ),
    ]
    if record.kind == "enhance":
        notes.append(
            (
                "Repetition is a change of its own.",
                "Models learn repeated documents by heart sooner; repeating as many random "
                "documents (--select random) is the control.",
            )
        )
    items = [tag("li", tag("strong", first), " ", rest) for first, rest in notes]
    return section("caveats", "What this mixture does not say", tag("ul", items, class_="caveats"))


def _named(one: MixedLanguage) -> Html:
    return tag("bdi", _words(one))


def _words(one: MixedLanguage) -> str:
    return one.name or "all documents"
