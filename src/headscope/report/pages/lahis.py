"""The report of language heads: each language's, those of all, and how sure they are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import numpy as np

from headscope.errors import InputError
from headscope.heads import Head, HeadScores
from headscope.report.html import Child, Html, join, tag
from headscope.report.matrix import Axis, Cell, matrix, ramp_bar
from headscope.report.method_words import method_words
from headscope.report.page import Page
from headscope.report.pages.frame import about_run, masthead, simple_page
from headscope.report.parts import figure, ramp_class, scroll, section, table
from headscope.report.sections.head_scores import ranking_section, scores_of, ticks
from headscope.report.words import count, enumeration, fixed, number, percent
from headscope.results.lahis import LahisResult
from headscope.runs.reading import result_of

__all__ = ["page"]

COLUMNS = {"magnitude": "Mean gradient", "raising": "Share strengthening helps"}


def page(path: Path) -> Page:
    """The report of the run of `find lahis` in this folder."""
    result = result_of(path, LahisResult, "language heads")
    main, parts = scores_of(path)
    scores = parts or dict.fromkeys(result.languages, main)
    if not scores or scores.keys() != result.languages.keys():
        raise InputError(
            f"{path}: its files are not of one run; run the same command again into a new folder"
        )
    words = replace(method_words("find lahis"), extra=COLUMNS)
    geometry = main.geometry
    facts = [
        ("", result.model_name),
        ("", f"{count(geometry.total, 'head')} in {count(geometry.layers, 'layer')}"),
        ("", count(sum(read.documents for read in result.languages.values()), "document")),
        ("", ", ".join(result.languages)),
    ]
    return simple_page(
        f"{result.model_name} \u00b7 language heads",
        masthead(words.name, words.lead, facts, kicker="headscope find lahis"),
        [
            ("summary", "", _summary(result, scores)),
            ("languages", "Languages", _languages(result)),
            ("heads", "Heads", _maps(result, scores)),
            ("shared", "Shared", _shared(result)),
            ("layers", "Layers", _layers(result)),
            ("scores", "Scores", ranking_section(main, parts, words)),
            ("provenance", "Provenance", about_run(path)),
        ],
    )


def _summary(result: LahisResult, scores: Mapping[str, HeadScores]) -> Html:
    raising = np.array([part.extra["raising"] for part in scores.values()])
    middle = float(np.nanmedian(raising))
    parts: list[Child] = [
        tag(
            "p",
            "Every head is given a gate, a number by which its output is multiplied, and the "
            "gradient of each document's loss with respect to that gate is taken. A head is "
            "important for a language where these gradients are large, and the more so the more "
            "often strengthening the head would make the text likelier. A language's "
            f"important heads are those above the {fixed(result.quantile, 2)} quantile of these "
            "scores.",
        )
    ]
    if result.general_in is not None:
        parts.append(
            tag(
                "p",
                tag("strong", count(len(result.general), "head")),
                f" {'is' if len(result.general) == 1 else 'are'} important in at least "
                f"{result.general_in} of {len(result.languages)} languages and so called general; "
                f"of random sets of these sizes it would be {fixed(result.general_expected, 1)}. "
                "What is left of each language's heads is specific to it.",
            )
        )
        empty = [code for code, read in result.languages.items() if not read.specific]
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


def _languages(result: LahisResult) -> Html:
    rows: list[list[Child]] = []
    for code, read in result.languages.items():
        halves = "\u2013"
        if read.halves is not None:
            halves = f"{fixed(read.halves.jaccard, 2)} ({fixed(read.halves.expected, 2)})"
        rows.append(
            [
                tag("bdi", code),
                read.documents,
                read.tokens,
                fixed(read.loss, 3),
                read.important,
                halves,
                _names(read.specific_heads) or "none",
            ]
        )
    header = [
        "Language",
        "Documents",
        "Tokens",
        "Loss",
        "Important",
        "Two halves (chance)",
        "Specific heads, best first" if result.general_in is not None else "Important heads",
    ]
    left = sum(read.left_out for read in result.languages.values())
    fewer = [code for code, read in result.languages.items() if read.fewer_than_usual]
    caption = join(
        tag("strong", "What was read of each language, and what was found. "),
        "Loss is the mean over documents of the mean loss of their tokens, in nats. ",
        "\u201cTwo halves\u201d compares the important heads of every second document with those "
        "of the others: 1 if they are the same, and in brackets what random sets would give. "
        "Where it is far below 1, other documents would give other heads. ",
        f"{count(left, 'document')} of a single token left out. " if left else "",
        f"Fewer documents than the usual 1,000: {enumeration(fewer)}. " if fewer else "",
        "The gate was trained a step after each document, as published. "
        if result.update_gate
        else "",
    )
    body = table("Languages and their heads", header, rows, said=(6,), class_="numbers")
    return section(
        "languages",
        "Languages and their heads",
        figure("languages-figure", caption, scroll("Languages and their heads", body)),
    )


def _maps(result: LahisResult, parts: Mapping[str, HeadScores]) -> Html:
    geometry = next(iter(parts.values())).geometry
    highest = max(float(np.nanmax(scores.values)) for scores in parts.values())
    scale = highest if highest > 0 else 1.0
    pitch = max(9, min(28, (720 if len(parts) == 1 else 290) // geometry.width))
    wide = pitch * geometry.width + 48  # with the labels of the layers: all maps at one size
    figures: list[Child] = []
    for at, (code, scores) in enumerate(parts.items()):
        specific = result.languages[code].specific_heads
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


def _shared(result: LahisResult) -> Html | None:
    if result.general_in is None:
        return None
    codes = list(result.languages)
    cells = [Cell(at, at, "self") for at in range(len(codes))]
    for pair in result.overlap:
        jaccard, expected = pair.overlap.jaccard, pair.overlap.expected
        said = f"{pair.a} and {pair.b}: {fixed(jaccard, 2)}, by chance {fixed(expected, 2)}"
        for row, column in ((pair.a, pair.b), (pair.b, pair.a)):
            colour = ramp_class(jaccard, 1.0)
            cells.append(Cell(codes.index(row), codes.index(column), colour, words=said))
    mean = fmean(pair.overlap.jaccard for pair in result.overlap)
    chance = fmean(pair.overlap.expected for pair in result.overlap)
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
    rows: list[list[Child]] = [[str(head.place), head.languages] for head in result.general]
    general = [head.place for head in result.general]
    heads = table("General heads", ["Head", "Languages"], rows, class_="numbers") if rows else None
    return section(
        "shared",
        "General heads",
        tag("p", f"General heads, most shared first: {_names(general)}.")
        if result.general
        else tag("p", f"No head is important in {result.general_in} languages."),
        figure(
            "overlap-figure",
            caption,
            scroll("Overlap of languages", picture),
            ramp_bar("0", "1", chance, "chance"),
        ),
        scroll("General heads", heads) if heads is not None else None,
    )


def _layers(result: LahisResult) -> Html:
    codes = list(result.languages)
    layers = [(code, layer) for code, read in result.languages.items() for layer in read.layers]
    most = max((layer.important for _, layer in layers), default=0) or 1
    cells = [
        Cell(
            codes.index(code),
            layer.layer,
            ramp_class(layer.important, most),
            words=f"{code}, layer {layer.layer}: {layer.important} of {layer.heads} heads "
            f"important, {layer.specific} specific",
        )
        for code, layer in layers
    ]
    depth = len(layers) // len(codes)
    pitch = max(9, min(34, 640 // depth))
    picture = matrix(
        cells,
        Axis(codes),
        Axis(ticks(depth, pitch), "layer"),
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


def _names(heads: Iterable[Head]) -> str:
    return " ".join(map(str, heads))
