"""What sorted failures show: shares of the kinds, the judge's beside them, and the cases."""

from __future__ import annotations

from collections.abc import Sequence
from math import nan
from pathlib import Path

from headscope.ablations import gives
from headscope.data.words import CHARACTERS
from headscope.estimates import Estimate
from headscope.evidence.blocks import Bar, bars_of
from headscope.evidence.rows import ORIGINAL, SELECTED, SHARE, Statistic
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
    HeadPlace,
    HeadSets,
    Reference,
    Row,
    Section,
    Sentence,
    Sentences,
    Shown,
    Table,
    grid,
    table_of,
)
from headscope.shown.words import arrow, between, count, enumeration, fixed, percent, sentence_of
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
    """Shares of the kinds, directions, the judge, and every case with the words that decided."""
    file = run / "cases.jsonl"
    with naming(file, "sorted failures"):
        cases = [decode(FailedText, row) for _, row in read_rows(file)]
    counted, links = _counted(result, cases), result.links
    subject = result.subject
    heads = named_places((subject and subject.heads) or ())
    given = gives(result.condition.replacement) if result.condition else ""
    sections = [
        Section("Shares of the kinds", [_shares(result)], brief=True),
        Section("First cases of each kind", _first(counted), brief=True),
        Section("Kinds of failure", [_bars(result)]),
        Section("By direction", _directions(result)),
        Section("Rules and judge", [] if result.judge is None else [_judge(result.judge)]),
        Section("Cases", _cases(counted)),
        Section("Kinds and rules", _rules(result, heads)),
    ]
    return Shown(
        "How translations fail",
        "Do failed outputs lack a translation, hallucinate, or miss details?",
        _finding(result),
        "The rules compare words and cannot see meaning: of 60 labelled translations in five "
        "languages they sort 49 correctly.",
        "" if result.judge else "--judge llm",
        _cautions(result),
        [
            ("model", (subject and subject.model and subject.model.name) or ""),
            ("run" if result.condition else "file", result.of),
            ("cases", str(result.counted)),
            ("removed heads give", f"their {given}" if given else ""),
            ("words linked by", "the data" if links == "given" else links or "nothing"),
            ("words cut by", result.segmenter or "spaces and signs"),
            ("languages identified by", result.identifier or "nothing"),
        ],
        [section for section in sections if section.blocks],
    )  # fmt: skip


def _counted(result: FailuresResult, cases: Sequence[FailedText]) -> list[FailedText]:
    """The cases that count, kind by kind, largest loss first."""
    counted = [case for case in cases if case.selected or result.condition is None]
    return sorted(counted, key=lambda case: (KINDS.index(case.kind), -case.evidence.loss))


def _finding(result: FailuresResult) -> list[str]:
    total, label, rule = result.counted, result.condition, result.rule
    selection = ""
    if label is not None:
        heads = label.kind if label.kind in (SELECTED, "random") else f"random, {label.kind},"
        selection = (
            f"A case is a sentence with a chrF++ of at least {rule.good:g} before that lost at "
            f"least {rule.loss:g} with {label.k} {heads} heads "
            f"{label.done}: "
            f"{result.selected} of {result.rows}."
        )
    if not total:
        return [
            "No sentence was good before and bad after, so there is nothing to sort.",
            selection,
        ]
    order: list[Kind] = sorted(KINDS, key=lambda kind: -result.counts[kind])
    low, high = wilson_interval(result.counts[order[0]], total)
    first = (
        f"{percent(result.shares[order[0]])} {order[0]} (95\u00a0% CI "
        f"{between(100 * low, 100 * high, 0)}\u00a0%)"
    )
    rest = [f"{percent(result.shares[kind])} {kind}" for kind in order[1:]]
    cases = count(total, "failed translation" if label else "output")
    return [f"Of {cases}: {enumeration([first, *rest])}.", *filter(None, [selection])]


def _cautions(result: FailuresResult) -> list[str]:
    cautions = []
    if 0 < result.counted < FEW:
        cautions.append(f"Fewer than {FEW} cases: the shares are uncertain.")
    if result.condition is not None and result.condition.kind == SELECTED:
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


def _share(result: FailuresResult, kind: Kind) -> Cell:
    """A share as per cent with its interval, and the paper's."""
    total = result.counted
    if not total:
        return Cell(why="no cases", published=PAPER.get(kind))
    low, high = wilson_interval(result.counts[kind], total)
    share = 100 * result.counts[kind] / total
    return Cell(share, 100 * low, 100 * high, PAPER.get(kind), digits=1, unit="%")


def _shares(result: FailuresResult) -> Table:
    judge = result.judge
    rows = []
    for kind in KINDS:
        judged = () if judge is None else (Cell.share(judge.shares[kind]),)
        rows.append(Row(kind, (_share(result, kind), Cell(result.counts[kind]), *judged)))
    columns = ("share", "cases", *([] if judge is None else ["judge"]))
    over = "all rows of the file" if result.condition is None else (
        f"{result.selected} of {result.rows} sentences, good before and bad after"
    )  # fmt: skip
    return Table(f"Shares over {over}", columns, tuple(rows), REFERENCE)


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
    judge, total = result.judge, result.counted
    groups: dict[str, dict[str, Bar]] = {}
    for kind in KINDS:
        share, ends = result.shares[kind], (nan, nan)
        if total:
            ends = wilson_interval(result.counts[kind], total)
        groups[kind] = {"rules": Bar(None if share is None else Estimate(share, *ends))}
        if judge is not None:
            groups[kind][f"judge {judge.model}"] = Bar(judge.shares[kind])
    return bars_of(Statistic("share of cases", unit=SHARE, digits=1), groups, "Kinds of failure")


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


def _rules(result: FailuresResult, heads: Sequence[HeadPlace]) -> list[Block]:
    meaning = table_of("What the kinds mean", MEANING.items(), {"an output counts if": str})
    if not heads:
        return [meaning]
    return [meaning, HeadSets("Heads of the condition", {"removed": tuple(heads)})]
