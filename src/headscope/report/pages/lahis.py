"""The report of language heads: each language's, those of all, and how sure they are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from headscope.heads import Head
from headscope.report.html import Child, Html, join, tag
from headscope.report.matrix import Axis, Cell, matrix, ramp_bar
from headscope.report.method_words import method_words
from headscope.report.page import Page
from headscope.report.pages.frame import about_run, masthead, simple_page
from headscope.report.parts import figure, ramp_class, scroll, section, table
from headscope.report.records.lahis import LahisRecord, read_lahis
from headscope.report.sections.head_scores import ranking_section, ticks
from headscope.report.words import count, enumeration, fixed, number, percent

__all__ = ["page"]

COLUMNS = {"magnitude": "Mean gradient", "raising": "Share strengthening helps"}


def page(path: Path) -> Page:
    """The report of the run of `find lahis` in this folder."""
    record = read_lahis(path)
    base = record.base
    words = replace(method_words("find lahis"), extra=COLUMNS)
    geometry = base.main.geometry
    facts = [
        ("", base.model),
        ("", f"{count(geometry.total, 'head')} in {count(geometry.layers, 'layer')}"),
        ("", count(sum(one.documents for one in record.languages.values()), "document")),
        ("", ", ".join(record.languages)),
    ]
    return simple_page(
        f"{base.model} \u00b7 language heads",
        masthead(words.name, words.lead, facts, kicker="headscope find lahis"),
        [
            ("summary", "", _summary(record)),
            ("languages", "Languages", _languages(record)),
            ("heads", "Heads", _maps(record)),
            ("shared", "Shared", _shared(record)),
            ("layers", "Layers", _layers(record)),
            ("scores", "Scores", ranking_section(base.main, base.parts, words)),
            ("provenance", "Provenance", about_run(path)),
        ],
    )


def _summary(record: LahisRecord) -> Html:
    raising = np.array([one.extra["raising"] for one in record.scores.values()])
    middle = float(np.nanmedian(raising))
    parts: list[Child] = [
        tag(
            "p",
            "Every head is given a gate, a number by which its output is multiplied, and the "
            "gradient of each document's loss with respect to that gate is taken. A head is "
            "important for a language where these gradients are large, and the more so the more "
            "often strengthening the head would make the text likelier. A language's "
            f"important heads are those above the {fixed(record.quantile, 2)} quantile of these "
            "scores.",
        )
    ]
    if record.general_in is not None:
        parts.append(
            tag(
                "p",
                tag("strong", count(len(record.general), "head")),
                f" {'is' if len(record.general) == 1 else 'are'} important in at least "
                f"{record.general_in} of {len(record.languages)} languages and so called general; "
                f"of random sets of these sizes it would be {fixed(record.general_expected, 1)}. "
                "What is left of each language's heads is specific to it.",
            )
        )
        empty = [code for code, one in record.languages.items() if not one.specific]
        if empty:
            parts.append(
                tag("p", f"No head is specific to {enumeration(empty)}: all of theirs are general.")
            )
    else:
        parts.append(
            tag("p", "There is one language, so nothing can be said of which heads are its own.")
        )
    parts.append(
        tag(
            "p",
            f"For the median head, strengthening it would make {percent(middle)} of the documents "
            "likelier. Near one half the sign of the gradients hardly counts, and the scores say "
            "how much a text depends on a head rather than in which way.",
            class_="sure",
        )
    )
    return section("summary", "In short", *parts)


def _languages(record: LahisRecord) -> Html:
    rows: list[list[Child]] = []
    for code, one in record.languages.items():
        halves = "\u2013"
        if one.halves is not None:
            halves = f"{fixed(one.halves.jaccard, 2)} ({fixed(one.halves.expected, 2)})"
        rows.append(
            [
                tag("bdi", code),
                one.documents,
                one.tokens,
                fixed(one.loss, 3),
                one.important,
                halves,
                _names(one.specific) or "none",
            ]
        )
    header = [
        "Language",
        "Documents",
        "Tokens",
        "Loss",
        "Important",
        "Two halves (chance)",
        "Specific heads, best first" if record.general_in is not None else "Important heads",
    ]
    left = sum(one.left_out for one in record.languages.values())
    fewer = [code for code, one in record.languages.items() if one.fewer_than_usual]
    caption = join(
        tag("strong", "What was read of each language, and what was found. "),
        "Loss is the mean over documents of the mean loss of their tokens, in nats. ",
        "\u201cTwo halves\u201d compares the important heads of every second document with those "
        "of the others: 1 if they are the same, and in brackets what random sets would give. "
        "Where it is far below 1, other documents would give other heads. ",
        f"{count(left, 'document')} of a single token left out. " if left else "",
        f"Fewer documents than the usual 1,000: {enumeration(fewer)}. " if fewer else "",
        "The gate was trained a step after each document, as published. "
        if record.update_gate
        else "",
    )
    body = table("Languages and their heads", header, rows, said=(6,), class_="numbers")
    return section(
        "languages",
        "Languages and their heads",
        figure("languages-figure", caption, scroll("Languages and their heads", body)),
    )


def _maps(record: LahisRecord) -> Html:
    geometry = record.base.main.geometry
    highest = max(float(np.nanmax(one.values)) for one in record.scores.values())
    scale = highest if highest > 0 else 1.0
    pitch = max(9, min(28, (720 if len(record.scores) == 1 else 290) // geometry.width))
    wide = pitch * geometry.width + 48  # with the labels of the layers: all maps at one size
    figures: list[Child] = []
    for at, (code, scores) in enumerate(record.scores.items()):
        specific = record.languages[code].specific
        cells = [
            Cell(
                head.layer,
                head.head,
                ramp_class(scores[head], scale),
                index,
                f"head {head}\nscore {number(scores[head])}",
                marked=head in specific,
            )
            for index, head in enumerate(geometry.heads())
        ]
        picture = matrix(
            cells,
            Axis(ticks(geometry.layers, pitch), "layer"),
            Axis(ticks(geometry.width, pitch), "head"),
            pitch,
            f"Scores of {code}; specific heads: {_names(specific) or 'none'}.",
        )
        told = " Dots mark the specific heads; the ramp is the same for all." if at == 0 else ""
        caption = join(tag("strong", "Every head for ", tag("bdi", code), "."), told)
        drawn = figure(f"map-{at}", caption, scroll(f"Heads of {code}", picture))
        figures.append(tag("div", drawn, style=f"flex:0 1 {wide}px;min-width:0"))
    return section(
        "heads",
        "Where the heads are",
        tag("div", figures, style="display:flex;flex-wrap:wrap;gap:0 1.5rem"),
        ramp_bar("0", number(scale)),
    )


def _shared(record: LahisRecord) -> Html | None:
    if record.general_in is None:
        return None
    codes = list(record.languages)
    cells = [Cell(at, at, "self") for at in range(len(codes))]
    for (a, b), both in record.overlap.items():
        said = f"{a} and {b}: {fixed(both.jaccard, 2)}, by chance {fixed(both.expected, 2)}"
        for row, column in ((a, b), (b, a)):
            colour = ramp_class(both.jaccard, 1.0)
            cells.append(Cell(codes.index(row), codes.index(column), colour, words=said))
    means = [both.jaccard for both in record.overlap.values()]
    expected = [both.expected for both in record.overlap.values()]
    mean, chance = sum(means) / len(means), sum(expected) / len(expected)
    picture = matrix(
        cells,
        Axis(codes),
        Axis(codes, upright=True),
        max(12, min(34, 480 // len(codes))),
        f"Jaccard similarity of the important heads of {count(len(codes), 'language')}, mean "
        f"{fixed(mean, 2)}.",
    )
    caption = join(
        tag("strong", "The same important heads in every two languages? "),
        f"The Jaccard similarity is {fixed(mean, 2)} on average; random sets of these sizes would "
        f"have {fixed(chance, 2)}. Each set is one choice from one sample of documents: compare "
        "with the two halves of one language above.",
    )
    rows: list[list[Child]] = [[str(head), languages] for head, languages in record.general]
    heads = table("General heads", ["Head", "Languages"], rows, class_="numbers") if rows else None
    return section(
        "shared",
        "General heads",
        tag("p", f"General heads, most shared first: {_names([h for h, _ in record.general])}.")
        if record.general
        else tag("p", f"No head is important in {record.general_in} languages."),
        figure(
            "overlap-figure",
            caption,
            scroll("Overlap of languages", picture),
            ramp_bar("0", "1", chance, "chance"),
        ),
        scroll("General heads", heads) if heads is not None else None,
    )


def _layers(record: LahisRecord) -> Html:
    counts = record.base.main.geometry.counts
    most = max((i for one in record.languages.values() for i, _ in one.layers), default=0) or 1
    cells = [
        Cell(
            row,
            layer,
            ramp_class(float(important), float(most)),
            words=f"{code}, layer {layer}: {important} of {counts[layer]} heads important, "
            f"{specific} specific",
        )
        for row, (code, one) in enumerate(record.languages.items())
        for layer, (important, specific) in enumerate(one.layers)
    ]
    pitch = max(9, min(34, 640 // len(counts)))
    picture = matrix(
        cells,
        Axis(list(record.languages)),
        Axis(ticks(len(counts), pitch), "layer"),
        pitch,
        "How many important heads each language has in each layer.",
        row_pitch=max(18, pitch),
    )
    caption = join(
        tag("strong", "In which layers the important heads are. "),
        f"The darkest cell stands for {count(most, 'head')} of a layer. A count of few heads moves "
        "with the sample of documents.",
    )
    return section(
        "layers",
        "By layer",
        figure(
            "layers-figure", caption, scroll("Heads by layer", picture), ramp_bar("0", str(most))
        ),
    )


def _names(heads: tuple[Head, ...] | list[Head]) -> str:
    return " ".join(str(head) for head in heads)
