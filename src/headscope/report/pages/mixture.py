"""The report of `use mix`: that the languages kept their shares, and what was selected."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from headscope.report.charts import BarRow, Series, bar_rows, line_chart
from headscope.report.drawing.histograms import STYLE
from headscope.report.html import Child, Html, join, tag
from headscope.report.page import Page
from headscope.report.pages.frame import about_run, masthead, simple_page
from headscope.report.parts import figure, legend, scroll, section, table
from headscope.results.mixture import (
    Count,
    LanguageMix,
    MixManifest,
    MixSummary,
    ShownDocument,
)
from headscope.results.rating import Histogram
from headscope.runs import decode
from headscope.runs.reading import naming, read_object, read_result
from headscope.shown.words import count, fixed, number, percent

__all__ = ["page"]

KIND = "a mixture"

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
    read_result(path)  # which says whether it is damaged
    files = path / "manifest.json", path / "summary.json"
    with naming(files[0], KIND):
        manifest: MixManifest = decode(MixManifest, read_object(files[0]), "manifest")
    with naming(files[1], KIND):
        summary: MixSummary = decode(MixSummary, read_object(files[1]), "summary")
        shown = summary.languages
        languages = [
            _Language(code, mix, shown[code].scores, shown[code].documents)
            for code, mix in sorted(
                manifest.languages.items(), key=lambda item: (-item[1].share_before, item[0])
            )
        ]
    record = _Mixture(manifest, languages)
    facts = [
        ("", count(manifest.documents, "document")),
        ("", "" if manifest.tokens is None else f"{number(manifest.tokens)} tokens"),
        ("", count(len(languages), "language")),
        ("", count(len(manifest.files), "file")),
    ]
    return simple_page(
        TITLES[manifest.kind],
        masthead(TITLES[manifest.kind], _lead(manifest), facts, kicker="headscope use mix"),
        [
            ("summary", "", _summary(record)),
            ("shares", "Shares", _shares(record)),
            ("budgets", "Documents", _budgets(record)),
            ("scores", "Scores", _scores(languages)),
            ("selected", "Texts", _documents(languages)),
            ("caveats", "Caveats", _caveats(manifest)),
            ("provenance", "Provenance", about_run(path)),
        ],
        styles=(STYLE, "mixture.css"),
    )


def _lead(manifest: MixManifest) -> str:
    if manifest.random:
        return (
            f"A control: a mixture of the kind \u201c{manifest.kind}\u201d whose selected "
            "documents were drawn at random."
        )
    return {
        "baseline": "A draw of a rated corpus as it is, to compare other mixtures with.",
        "remove": "A draw of a rated corpus in which the documents with the highest scores of "
        "each language give way to others of the same language.",
        "enhance": "A draw of a rated corpus in which the documents with the highest scores of "
        "each language are repeated, and others of the same language give way.",
    }[manifest.kind]


@dataclass(frozen=True)
class _Language:
    """One language; its code is empty where the data tells none."""

    code: str
    mix: LanguageMix
    scores: Histogram | None
    documents: Sequence[ShownDocument]


@dataclass(frozen=True)
class _Mixture:
    """A mixture; languages with the largest share of the baseline first."""

    manifest: MixManifest
    languages: Sequence[_Language]


def _summary(record: _Mixture) -> Html:
    manifest = record.manifest
    selected = sum(one.mix.selected.documents for one in record.languages)
    base = sum(one.mix.baseline.documents for one in record.languages)
    there = {
        "baseline": "each is there once",
        "remove": "none of them is in the mixture",
        "enhance": f"each is in the mixture {count(int(manifest.plan['times']), 'time')}",
    }[manifest.kind]
    how = "have the highest scores of their language"
    if manifest.random:
        how = "were drawn at random, as a control,"
    lines: list[Child] = [
        tag(
            "p",
            f"Of {count(base, 'document')} of the baseline, {number(selected)} {how} "
            f"({manifest.plan['share']} of each language's {manifest.unit} asked for): ",
            tag("strong", there),
            ".",
        ),
        tag(
            "p",
            "No language's share differs from the baseline's by more than ",
            tag("strong", f"{fixed(manifest.largest_difference * 100, 4)} points"),
            f" of a hundred, counted in {record.manifest.unit}.",
        ),
    ]
    if manifest.factor < 1:
        lines.append(
            tag(
                "p",
                "The corpus had too little in reserve to replace all that was removed, so every "
                f"language was cut to the same {percent(manifest.factor, 2)} of its "
                "baseline. Compare this mixture with a baseline of that size.",
            )
        )
    return section("summary", "In short", lines)


def _shares(record: _Mixture) -> Html:
    rows = []
    for one in record.languages:
        in_mixture = tag("span", "in the mixture", class_="note")
        rows.append(BarRow(_named(one), 100 * one.mix.share_before, "key-base"))
        rows.append(BarRow(in_mixture, 100 * one.mix.share_after, "key-top"))
    end = max((row.value or 0.0 for row in rows), default=0.0) or 1.0
    bars = [bar_rows(rows[: 2 * OPEN], end, 2)]
    if len(rows) > 2 * OPEN:
        more = tag("summary", f"The other {len(record.languages) - OPEN} languages")
        bars.append(tag("details", more, bar_rows(rows[2 * OPEN :], end, 2)))
    header = ("Language", "Baseline", "Mixture", "Difference in points")
    cells = [
        (
            _named(one),
            percent(one.mix.share_before, 3),
            percent(one.mix.share_after, 3),
            fixed(100 * one.mix.share_difference, 4),
        )
        for one in record.languages
    ]
    caption = join(
        tag("strong", "Every language's share before and after. "),
        f"In per cent of all {record.manifest.unit}. These are counts of what was written, not "
        "estimates; with tokens a share can be met only up to one document.",
    )
    numbers = scroll("Shares", table("Shares by language", header, cells, class_="numbers"))
    key = legend(("key-base", "baseline"), ("key-top", "mixture"))
    return section(
        "shares", "Language shares", figure("shares-figure", caption, key, bars, numbers)
    )


def _budgets(record: _Mixture) -> Html:
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
        (_named(one), *(_count(getattr(one.mix, name)) for name, _ in names))
        for one in record.languages
    ]
    duplicates = record.manifest.duplicates
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


def _count(value: Count) -> Html:
    tokens = value.tokens
    return join(
        number(value.documents),
        None if tokens is None else tag("br"),
        None if tokens is None else tag("span", number(tokens), class_="note"),
    )


def _scores(languages: Sequence[_Language]) -> Html | None:
    charts = [_chart(one, one.scores) for one in languages if one.scores is not None]
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
            fixed(one.mix.threshold, DIGITS),
            fixed(one.mix.next_score, DIGITS),
            number(one.mix.selected.documents),
            percent(one.mix.selected_share, 2),
        )
        for one in languages
    ]
    numbers = scroll("Cuts", table("Cuts by language", header, rows, class_="numbers"))
    return section("scores", "Scores", figure("scores-figure", caption, shown, numbers))


def _chart(one: _Language, scores: Histogram) -> Html:
    threshold = one.mix.threshold
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
    if threshold is not None:
        upright = [(threshold, 0.0), (threshold, highest)]
        lines.append(Series(f"selected from {fixed(threshold, DIGITS)}", upright, "key-top"))
        said += f", selected from {fixed(threshold, DIGITS)}"
    chart = line_chart(lines, "score in nats a token", "% of documents", f"{said}.")
    return tag("div", tag("h3", _named(one)), chart)


def _documents(languages: Sequence[_Language]) -> Html | None:
    shown = [one for one in languages if one.documents][:WITH_TEXTS]
    if not shown:
        return None
    note = tag(
        "p",
        "Of each language's baseline the highest scores, and the documents just above and just "
        "below the cut, where the choice is least sure. At most the first 400 characters.",
        class_="note",
    )
    left = sum(1 for one in languages if one.documents) - len(shown)
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


def _document(one: ShownDocument) -> Html:
    head = tag(
        "header",
        tag("b", fixed(one.score, DIGITS)),
        tag("span", one.place),
        tag("bdi", one.id),
    )
    text = one.text + ("\u2026" if one.cut else "")
    # The text's own direction decides where its lines begin.
    return tag("li", head, tag("div", text, class_="excerpt", dir="auto"))


def _caveats(manifest: MixManifest) -> Html:
    notes = [
        (
            "A mixture shows nothing by itself.",
            "Whether the selected documents matter is shown by models trained on this mixture, "
            "on a baseline of the same size, over several seeds, and on mixtures selected at "
            "random (--select random).",
        ),
        (
            "Equal in one count only.",
            f"Budgets are equal in {manifest.unit}; documents with high scores are often shorter "
            "or longer than others, so "
            f"{'tokens' if manifest.unit == 'documents' else 'documents'} may differ.",
        ),
        (
            "The selection is one of rank.",
            "The share is taken of every language alike, whether or not it has documents that "
            "need the heads; read the texts at the cut.",
        ),
    ]
    if manifest.kind == "enhance":
        notes.append(
            (
                "Repetition is a change of its own.",
                "Models learn repeated documents by heart sooner; repeating as many random "
                "documents (--select random) is the control.",
            )
        )
    items = [tag("li", tag("strong", first), " ", rest) for first, rest in notes]
    return section("caveats", "What this mixture does not say", tag("ul", items, class_="caveats"))


def _named(one: _Language) -> Html:
    return tag("bdi", _words(one))


def _words(one: _Language) -> str:
    return one.code or "all documents"
