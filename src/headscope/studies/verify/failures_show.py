"""What sorted failures show: shares of the kinds, the judge's beside them, and the cases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean

from headscope.ablations import gives
from headscope.data.words import CHARACTERS
from headscope.estimates import Draws, Estimate
from headscope.evidence.rows import ORIGINAL, SELECTED
from headscope.measure.intervals import wilson_interval
from headscope.results.failures import (
    KINDS,
    FailedCase,
    FailedText,
    FailuresResult,
    Judging,
    Kind,
)
from headscope.runs import decode
from headscope.runs.reading import naming, read_rows
from headscope.shown.blocks import (
    Bars,
    Block,
    Cell,
    HeadSets,
    Reference,
    Row,
    Section,
    Sentence,
    Sentences,
    Shown,
    Table,
    grid,
    method_section,
    table_of,
)
from headscope.shown.words import arrow, between, count, fixed, number, percent, sentence_of
from headscope.studies.shows import named_places

MEANING: dict[Kind, str] = {
    "no translation": "it repeats the source, is empty, or stays in the source language",
    "hallucination": "most of it, or of what it adds, has no counterpart in a good translation",
    "missing details": "more of a good translation is missing than paraphrase explains",
    "other": "the rest, such as paraphrases and errors of grammar",
}
#: Token Alignment Heads (ICLR 2026), appendix A.4, where every case is one of three kinds, in %.
PAPER: dict[Kind, float] = {"no translation": 46, "missing details": 36, "hallucination": 18}
REFERENCE = Reference(
    "Token Alignment Heads (ICLR 2026), appendix A.4",
    "",
    False,
    "not comparable: other models and data; sorted by eye into three kinds",
)
#: Of fewer cases shares say little; and cases of a kind that the terminal shows.
FEW, FIRST = 30, 3


def show(result: FailuresResult, run: Path) -> Shown:
    """Shares of the kinds beside random heads, every case with what decided, and all numbers."""
    file = run / "cases.jsonl"
    with naming(file, "sorted failures"):
        cases = [decode(FailedText, row) for _, row in read_rows(file)]
    counted, links, subject = _counted(result, cases), result.links, result.subject
    condition = result.condition
    heads = named_places((subject and subject.heads) or ())
    given = gives(condition.replacement) if condition else ""
    removed = HeadSets("Heads of the condition", {condition.kind if condition else "": heads})
    sections = [
        Section("Heads", [removed] if heads else []),
        Section("First cases of each kind", _first(counted), brief=True),
        Section("Cases", _cases(counted)),
        Section(
            "Values",
            [
                _shares(result),
                *_directions(result),
                *([] if result.judge is None else [_judge(result.judge)]),
                table_of("What the kinds mean", MEANING.items(), {"an output counts if": str}),
            ],
        ),
    ]
    chosen = (
        f"A case is a sentence with a chrF++ of at least {result.rule.good:g} before that loses at "
        f"least {result.rule.loss:g}. Intervals of shares are Wilson's. "
        if condition
        else "Every row of the file is a case. Intervals of shares are Wilson's. "
    )
    return Shown(
        "How translations fail",
        "Do failed outputs lack a translation, hallucinate, or miss details?",
        _finding(result),
        "The rules cannot see meaning: they sort 49 of 60 labelled translations correctly.",
        "" if result.judge else "--judge llm",
        _cautions(result),
        [
            ("model", (subject and subject.model and subject.model.name) or ""),
            ("run" if condition else "file", result.of),
            ("removed heads give", f"their {given}" if given else ""),
            ("words linked by", "the data" if links == "given" else links or "nothing"),
            ("words cut by", result.segmenter or "spaces and signs"),
            ("languages identified by", result.identifier or "nothing"),
        ],
        [*(section for section in sections if section.blocks),
         method_section(f"{chosen}The rules compare words, languages and links between words.")],
        _bars(result) if result.counted else None,
    )  # fmt: skip


def _counted(result: FailuresResult, cases: Sequence[FailedText]) -> list[FailedText]:
    """The cases that count, kind by kind, largest loss first."""
    counted = [case for case in cases if case.selected or result.condition is None]
    return sorted(counted, key=lambda case: (KINDS.index(case.kind), -case.evidence.loss))


def _finding(result: FailuresResult) -> list[str]:
    """The most frequent kind, if one is; how many sentences fail, also with random heads."""
    total, condition = result.counted, result.condition
    what = "failed translations" if condition else "outputs"
    if not total:
        return [f"None of {count(result.rows, 'sentence')} was good before and bad after."]
    first, second, *_ = sorted(KINDS, key=lambda kind: -result.counts[kind])
    low, _ = wilson_interval(result.counts[first], result.counts[first] + result.counts[second])
    # Of the two most frequent kinds more than half are of the first.
    answer = "One kind is the most frequent" if low > 0.5 else "No kind is clearly most frequent"
    lines = [f"{answer} ({first}: {percent(result.shares[first])} of the {what})."]
    if condition is None:
        return [*lines, f"{count(total, 'output')}."]
    beside = ""
    if result.random:
        random = Draws.of([draw.selected for draw in result.random])
        ends = f"{number(random.mean)} (range of draws {between(random.low, random.high, 0)})"
        none = f"none in {count(len(random.each), 'draw')}"
        beside = f"; with random heads {ends if random.high else none}"
    heads = count(condition.k, f"{condition.kind} head")
    fail = f"{total} of {count(result.rows, 'sentence')} fail with {heads} {condition.done}"
    return [*lines, f"{fail}{beside}."]


def _cautions(result: FailuresResult) -> list[str]:
    cautions = []
    if 0 < result.counted < FEW:
        cautions.append(f"Fewer than {FEW} cases: the shares are uncertain.")
    if result.condition is not None and result.condition.kind == SELECTED and not result.random:
        cautions.append(
            "Failures without random heads are not sorted here, so the kinds may not be particular "
            "to the selected heads; --condition random sorts them."
        )
    if result.identifier is None:
        cautions.append(
            "No language identifier is installed: outputs in the source language may be missed."
        )
    if result.links is None:
        cautions.append("Words are not linked, so translations of single words are not recognised.")
    if result.segmenter == CHARACTERS:
        cautions.append(
            "Characters stand for words of scripts without spaces; kinds are less certain."
        )
    return cautions


def _shares(result: FailuresResult) -> Table:
    """Shares by kind with their intervals, those of random draws, the judge's and the paper's."""
    judge, random = result.judge, result.random or ()
    rows = []
    for kind in KINDS:
        own = _share(result.counts, kind)
        cells = [replace(own, published=PAPER.get(kind), why="no cases"), Cell(result.counts[kind])]
        if random:
            drawn = Draws.of([draw.counts[kind] for draw in random])
            cells += [Cell(drawn.mean, digits=1), Cell(between(drawn.low, drawn.high, 0))]
        if judge is not None:
            cells.append(_share(_judged(judge), kind))
        rows.append(Row(kind, tuple(cells)))
    columns = (
        "share", "cases",
        *(("random, mean", "range of draws") if random else ()),
        *(() if judge is None else ("judge",)),
    )  # fmt: skip
    over = "all rows of the file" if result.condition is None else (
        f"{result.selected} of {result.rows} sentences, good before and bad after"
    )  # fmt: skip
    return Table(f"Shares over {over}", columns, tuple(rows), REFERENCE)


def _share(counts: Mapping[Kind, int], kind: Kind) -> Cell:
    """The share of a kind as per cent with its interval; empty without cases."""
    total = sum(counts.values())
    if not total:
        return Cell()
    share = Estimate(counts[kind] / total, *wilson_interval(counts[kind], total))
    return Cell.of(share, 1, "%", 100)


def _judged(judge: Judging) -> dict[Kind, int]:
    """How many cases are of each kind by the judge."""
    return {kind: sum(row[kind] for row in judge.rules_and_judge.values()) for kind in KINDS}


def _first(cases: Sequence[FailedCase]) -> list[Block]:
    """The cases of each kind that lost most, with what decided."""
    rows = []
    for kind in KINDS:
        for case in [case for case in cases if case.kind == kind][:FIRST]:
            where = f"{arrow(case.direction)} {case.id}" if case.direction else case.id
            rows.append(Row(kind, (Cell(where), Cell(case.evidence.because))))
    title = "Cases that lost most, and what decided"
    return [Table(title, ("sentence", "because"), tuple(rows))] if rows else []


def _bars(result: FailuresResult) -> Bars:
    """The shares with their intervals, beside the judge's and those of every random draw."""
    label, judge = result.condition, result.judge
    columns = {label.kind if label else "outputs": [_share(result.counts, k) for k in KINDS]}
    if judge is not None:
        columns[f"judge {judge.model}"] = [_share(_judged(judge), kind) for kind in KINDS]
    drawn = [draw for draw in result.random or () if draw.selected]
    draws = [tuple(100 * (draw.shares[kind] or 0.0) for draw in drawn) for kind in KINDS]
    if drawn:
        columns["random"] = [Cell(fmean(each)) for each in draws]

    def numbers(name: str) -> tuple[tuple[float | None, ...], ...]:
        return tuple(zip(*([getattr(cell, name) for cell in own] for own in columns.values()),
                         strict=True))  # fmt: skip

    return Bars(
        "Kinds of failure",
        KINDS,
        tuple(columns),
        numbers("value"),
        "share of cases, %",
        numbers("low"),
        numbers("high"),
        draws=tuple((*[()] * (len(columns) - 1), each) for each in draws) if drawn else (),
        start=0.0,
        end=100.0,
    )


def _directions(result: FailuresResult) -> list[Block]:
    if len(result.directions) < 2:
        return []
    rows = tuple(
        Row(arrow(name), tuple(map(Cell, (part.rows, part.selected, *map(part.counts.get, KINDS)))))
        for name, part in result.directions.items()
    )
    return [Table("Cases by direction", ("sentences", "good before, bad after", *KINDS), rows)]


def _judge(judge: Judging) -> Table:
    agree = "" if judge.agreement is None else f"They agree on {percent(judge.agreement)}. "
    note = (
        f"{agree}{count(judge.cases, 'case')} answered, {judge.invalid} answers could not be read. "
        "Neither is the truth; where they differ, read the cases"
    )
    cells: dict[tuple[str, str], Cell] = {
        (ours, theirs): Cell(number)
        for ours, row in judge.rules_and_judge.items()
        for theirs, number in row.items()
    }
    title = f"Cases by the rules (rows) and the judge {judge.model} (columns)"
    return grid(title, KINDS, KINDS, lambda *kinds: cells[kinds], note=note)


def _cases(cases: Sequence[FailedText]) -> list[Block]:
    if not cases:
        return []
    shown = tuple(
        Sentence(
            case.direction or "",
            case.id,
            case.source,
            case.reference,
            {ORIGINAL: case.before, SELECTED: case.after},
            {ORIGINAL: case.evidence.chrf_before, SELECTED: case.evidence.chrf_after},
            kind=case.kind,
            evidence=_evidence(case),
            made=case.evidence.backing.unsupported_words,
            missing=case.evidence.backing.missing_words,
        )
        for case in cases
    )
    note = (
        "The largest losses of chrF++ come first, so the first ones are not typical. The marks are "
        "what the rules went by; words of form, such as articles, are left out of them"
    )
    return [Sentences("Cases by kind", shown, {ORIGINAL: "Before", SELECTED: "After"}, note=note)]


def _evidence(case: FailedText) -> list[str]:
    """What decided, what else was measured, and what a judge says."""
    evidence, backing = case.evidence, case.evidence.backing
    words = [sentence_of(evidence.because)]
    if not evidence.empty:
        measured = [
            f"language identified: {evidence.language or 'undecided'}",
            f"chrF to the source {fixed(evidence.chrf_source, 0)}",
        ]
        for share, what in (
            (backing.source_covered, "of the source's content translated"),
            (backing.output_covered, "of the output's content linked to the source"),
            (backing.missing, "of a good translation's content missing"),
            (backing.unsupported, "of its content backed by nothing"),
        ):
            if share is not None:
                measured.append(f"{percent(share)} {what}")
        words[0] = " ".join([words[0], sentence_of(" \u00b7 ".join(measured))])
    if case.verdict is not None:
        words.append(f"The judge says {case.verdict.kind}: {case.verdict.reason}")
    return words
