"""Training mixtures of a rated corpus: documents selected, shares kept."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from headscope import options
from headscope.errors import InputError
from headscope.progress import Progress
from headscope.results.mix import (
    Count,
    LanguageMix,
    MixedCorpus,
    MixManifest,
    MixSummary,
    ShownDocument,
)
from headscope.results.rate import ScoreHistogram
from headscope.runs import decode
from headscope.runs.reading import naming, read_object
from headscope.settings import Option, Settings
from headscope.shown.blocks import (
    Bars,
    Block,
    Cell,
    Histogram,
    Histograms,
    Section,
    Shown,
    Table,
    grid,
)
from headscope.shown.words import count, fixed, number, percent
from headscope.studies.study import Study
from headscope.studies.use.rate import DIGITS, empty_files, histograms, texts_section
from headscope.use.mixing.mixture import mix_in_run
from headscope.use.mixing.plan import Amount, MixPlan
from headscope.use.mixing.reading import LANGUAGE, rated_paths, read_lines

#: Languages whose documents a page shows.
WITH_TEXTS = 60


@dataclass(frozen=True)
class UseMix(Settings):
    """Make a training mixture of rated documents in which every language keeps its share.

    The documents of each language with the highest scores are selected. The mixture is shuffled, in
    documents/; manifest.json proves its shares. The same command resumes a stopped run.
    """

    rated: Annotated[
        tuple[str, ...],
        Option(
            "A run of headscope use rate; or files (JSON Lines, Parquet, …), or a folder of them, "
            "whose records have text, score and tokens.",
            metavar="RATED...",
            argument=True,
        ),
    ]
    plan: MixPlan
    size: Annotated[
        tuple[str, ...],
        Option(
            "How much of each language the mixture is made of, a number or a share such as 50%; "
            "the rest is the reserve that removed documents are replaced from. Without it all. "
            "With CODE for one language; repeatable.",
            metavar="[CODE=]AMOUNT",
        ),
    ] = ()
    language_column: options.LanguageColumn = None


def use_mix(
    config: UseMix, out: Path | None = None, progress: Progress | None = None
) -> MixedCorpus:
    """Make a mixture and return the command's result; see `headscope.use.mixing.mix`."""
    column = config.language_column
    if column is None and _has_language(config.rated):
        column = LANGUAGE
    plan = dataclasses.replace(config.plan, size=_size(config.size), language_column=column)
    return mix_in_run(config.rated, out, plan, progress)


def _size(words: Sequence[str]) -> Amount | dict[str, Amount] | None:
    if not words:
        return None
    if len(words) == 1 and "=" not in words[0]:
        return words[0]
    sizes: dict[str, Amount] = {}
    for word in words:
        code, equals, amount = word.partition("=")
        if not equals or code in sizes:
            raise InputError(
                f"--size {word} does not say one language's size, as the others do; give one "
                "amount for all languages, or CODE=AMOUNT once for each"
            )
        sizes[code] = amount
    return sizes


def _has_language(sources: Sequence[str]) -> bool:
    """Whether the first record tells its language; whatever is wrong with it is told later."""
    for path in rated_paths(sources):
        for _, line in read_lines(path):
            try:
                first = json.loads(line)
            except (ValueError, RecursionError):
                return True
            return not isinstance(first, dict) or LANGUAGE in first
    return False


TITLES = {
    "baseline": "A baseline mixture",
    "remove": "A mixture without the selected documents",
    "enhance": "A mixture with the selected documents repeated",
}


def _show(result: MixedCorpus, run: Path) -> Shown:
    files = run / "manifest.json", run / "summary.json"
    with naming(files[0], "a mixture"):
        manifest: MixManifest = decode(MixManifest, read_object(files[0]), "manifest")
    with naming(files[1], "a mixture"):
        summary: MixSummary = decode(MixSummary, read_object(files[1]), "summary")
        ordered = sorted(
            manifest.languages.items(), key=lambda item: (-item[1].share_before, item[0])
        )
        held = {_named(code): summary.languages[code] for code, _ in ordered}
    languages = {_named(code): mix for code, mix in ordered}
    cautions = empty_files((file["file"], file["documents"]) for file in manifest.inputs)
    if manifest.factor < 1:
        cautions.append(
            "The reserve is too small to replace all that was removed, so every language was cut "
            f"to {percent(manifest.factor, 3)} of its baseline. Compare with a baseline of that "
            "size."
        )
    other = "tokens" if manifest.unit == "documents" else "documents"
    cautions.append(f"Budgets are equal in {manifest.unit}; {other} may differ.")
    if manifest.kind == "enhance":
        cautions.append("Models memorise repeated documents sooner, whichever are repeated.")
    tokens = "" if manifest.tokens is None else f"{number(manifest.tokens)}"
    scores = _scores(languages, {code: each.scores for code, each in held.items()})
    return Shown(
        TITLES[manifest.kind],
        "Which documents does the mixture hold, and does every language keep its share?",
        _finding(manifest, languages),
        "Only models trained on it, on the baseline and on a random selection show whether the "
        "selection matters.",
        "" if manifest.random else "--select random",
        cautions,
        [
            ("documents", number(manifest.documents)),
            *([("tokens", tokens)] if tokens else []),
            ("languages", str(len(languages))),
            ("files", str(len(manifest.files))),
        ],
        [
            *([Section("Scores and the cut", [scores])] if scores else []),
            Section("Languages", [_languages(manifest, languages)], brief=True),
            Section("Where the documents come from", _budgets(manifest, languages)),
            *_texts({code: each.documents for code, each in held.items()}),
        ],
        _kinds(manifest, languages),
    )


def _named(code: str) -> str:
    return code or "all documents"


def _finding(manifest: MixManifest, languages: Mapping[str, LanguageMix]) -> list[str]:
    selected = sum(mix.selected.documents for mix in languages.values())
    base = sum(mix.baseline.documents for mix in languages.values())
    there = {
        "baseline": "stand in the mixture once",
        "remove": "are left out of the mixture",
        "enhance": f"stand in the mixture {count(int(manifest.plan['times']), 'time')}",
    }[manifest.kind]
    how = "drawn at random" if manifest.random else "those of the highest scores"
    difference = fixed(100 * manifest.largest_difference, 4)
    within = f" within {difference} pp of all {manifest.unit}" if float(difference) else ""
    some = f"{number(selected)} of {count(base, 'document')} of the baseline, {how},"
    if selected == base:
        some = f"All {count(base, 'document')} of the baseline"
    return [
        f"{some} {there}.",
        f"Every language keeps its share{within}.",
    ]


def _languages(manifest: MixManifest, languages: Mapping[str, LanguageMix]) -> Table:
    cells = {
        "baseline": lambda mix: Cell.share(mix.share_before, 3),
        "mixture": lambda mix: Cell.share(mix.share_after, 3),
        "difference, pp": lambda mix: Cell(100 * mix.share_difference, digits=4),
        "documents": lambda mix: Cell(mix.mixture.documents),
        "selected": lambda mix: Cell(mix.selected.documents),
        "selected, of baseline": lambda mix: Cell.share(mix.selected_share, 2),
        "in mixture": lambda mix: Cell(mix.copies * mix.selected.documents),
        "selected from": lambda mix: Cell(mix.threshold, digits=DIGITS, why="random"),
        "highest not selected": lambda mix: Cell(mix.next_score, digits=DIGITS),
    }
    return grid(
        f"Share of all {manifest.unit} by language, and what is selected",
        languages,
        cells,
        lambda code, name: cells[name](languages[code]),
    )


def _kinds(manifest: MixManifest, languages: Mapping[str, LanguageMix]) -> Bars:
    """What the baseline and the mixture hold, over all languages."""

    def total(name: str, copies: bool = False) -> int:
        return sum(
            (mix.copies if copies else 1) * getattr(mix, name).by(manifest.unit)
            for mix in languages.values()
        )

    selected = total("selected")
    parts = (
        (selected, total("baseline") - selected, 0),
        (total("selected", copies=True), total("kept"), total("refilled")),
    )
    return Bars(
        "Documents of the baseline and of the mixture by kind",
        ("baseline", "mixture"),
        ("selected", "others", "from the reserve"),
        tuple(tuple(100 * part / (sum(row) or 1) for part in row) for row in parts),
        f"% of all {manifest.unit}",
        start=0.0,
        end=100.0,
        note="Reserve: documents below the cut that the baseline does not have",
    )


def _budgets(manifest: MixManifest, languages: Mapping[str, LanguageMix]) -> list[Block]:
    names = {
        "corpus": "corpus",
        "baseline": "baseline",
        "selected": "selected",
        "others kept": "kept",
        "usable reserve": "reserve",
        "from the reserve": "refilled",
        "mixture": "mixture",
    }
    double = manifest.duplicates
    note = (
        "Selected documents count once. Usable reserve: below the cut, with a text that the "
        "baseline does not have, each text once. Documents whose text stands in an earlier one: "
        f"{number(double['baseline'])} in the baseline, {number(double['mixture'])} in the mixture"
    )
    if double["by_copies"]:
        note += f", and {number(double['by_copies'])} by repetition"

    def table(title: str, unit: str, note: str = "") -> Table:
        def cell(code: str, name: str) -> Cell:
            held: Count = getattr(languages[code], names[name])
            return Cell(held.documents if unit == "documents" else held.tokens)

        return grid(title, languages, names, cell, note=note)

    tokens = [table("Predicted tokens", "tokens")] if manifest.tokens is not None else []
    return [table("Documents", "documents", note), *tokens]


def _scores(
    languages: Mapping[str, LanguageMix], scores: Mapping[str, ScoreHistogram | None]
) -> Histograms | None:
    panels = []
    for code, held in scores.items():
        if held is not None and any(held.counts):
            cut = languages[code].threshold
            note = "" if cut is None else f"selected from {fixed(cut, DIGITS)}"
            panels.append(Histogram(code, held.edges, held.counts, note, cut))
    note = "Documents to the right of the upright line are selected"
    return histograms("Scores of the baseline", panels, note)


def _texts(documents: Mapping[str, Sequence[ShownDocument]]) -> list[Section]:
    texts = {
        code: [
            (
                f"{fixed(document.score, DIGITS)} \u00b7 {document.place} \u00b7 {document.id}",
                document.text + ("\u2026" if document.cut else ""),
            )
            for document in several
        ]
        for code, several in documents.items()
    }
    lead = (
        "The highest scores of each language's baseline, and the documents just above and below "
        "the cut, at most 400 characters each. The selection goes by rank, whether or not a "
        "language has documents that need the heads: read the texts at the cut."
    )
    return texts_section("Documents at the top and at the cut", texts, WITH_TEXTS, lead)


command = Study(
    UseMix,
    use_mix,
    result=MixedCorpus,
    show=_show,
    loads=False,
    usage="rated --kind enhance --share 5% --size 80% --out mixed",
)
