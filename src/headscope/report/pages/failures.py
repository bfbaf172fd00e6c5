"""The report of `verify failures`: shares of the kinds beside the paper's, and every case."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from headscope.report.charts import BarRow, bar_rows
from headscope.report.drawing.sentences import STYLE
from headscope.report.html import Child, Html, join, tag
from headscope.report.page import Page
from headscope.report.pages.frame import ablated, about_run, masthead, simple_page
from headscope.report.parts import figure, legend, scroll, section, table
from headscope.report.sections.marked import marked
from headscope.runs.reading import naming, read_result, read_rows
from headscope.shown.words import arrow, count, enumeration, fixed, percent

__all__ = ["page"]

KINDS = ("no translation", "hallucination", "missing details", "other")
MEANING = {
    "no translation": "the source is repeated, or there is nothing, or it stays in its language",
    "hallucination": "most of it, or much beside a translation, is backed by no word of a good one",
    "missing details": "much of a good translation is missing, more than is put otherwise",
    "other": "the rest, such as other words for the same and faults of grammar",
}
#: Token Alignment Heads (ICLR 2026), appendix A.4, where every case is one of three kinds.
PAPER = {"no translation": 0.46, "missing details": 0.36, "hallucination": 0.18}
#: Cases of one kind that the page holds; the run holds all.
SHOWN = 60

Case = Mapping[str, Any]


def page(path: Path) -> Page:
    """The report of the run in this folder."""
    result = read_result(path)
    file = path / "cases.jsonl"
    rows = [row for _, row in read_rows(file)]
    with naming(path / "result.json", "a sorting of failures"):
        of_run = result["condition"] is not None
        total = result["selected"] if of_run else result["rows"]
        sections = [
            ("summary", "", _summary(result, total, of_run)),
            ("shares", "Shares", _shares(result, total, of_run)),
            ("directions", "Directions", _directions(result["directions"])),
            ("judge", "Judge", _judge(result["judge"])),
        ]
        model, heads = dict(result.get("model") or {}).get("name"), result.get("heads")
        facts = [
            ("model", str(model or "")),
            ("heads", " ".join(map(str, heads or ()))),
            ("run" if of_run else "file", str(result.get("of") or "")),
            ("", count(total, "case")),
            ablated(result["condition"] or {}),
            ("words linked by", _linked(result["links"])),
            ("words cut by", str(result.get("segmenter") or "spaces and signs")),
            ("languages identified by", str(result["identifier"] or "nothing")),
        ]
    with naming(file, "a sorting of failures"):
        counted = [row for row in rows if row["selected"] or not of_run]
        cases = _cases(counted)
    head = masthead(
        "How translations fail",
        "Outputs sorted by how they fail, with the words that speak for it.",
        facts,
        "headscope verify failures",
    )
    return simple_page(
        "How translations fail",
        head,
        [*sections, ("cases", "Cases", cases), ("provenance", "Provenance", about_run(path))],
        styles=(STYLE, "failures.css"),
    )


def _summary(result: Mapping[str, Any], total: int, of_run: bool) -> Html:
    known = {kind: share for kind, share in result["shares"].items() if share is not None}
    words: list[Html] = []
    if known:
        parts = [f"{percent(known[kind])} {kind}" for kind in KINDS if kind in known]
        words.append(join("Of ", tag("strong", count(total, "case")), f": {enumeration(parts)}."))
    else:
        words.append(
            join("No sentence was good before and bad after, so there is nothing to sort.")
        )
    if of_run:
        rule = result["rule"]
        words.append(
            join(
                f"A case is a sentence with a chrF++ of at least {fixed(rule['good'], 0)} before "
                f"that lost at least {fixed(rule['loss'], 0)} of it; "
                f"{result['selected']} of {result['rows']} sentences did."
            )
        )
    heading = tag("h2", "In short", id="summary-title", class_="unseen")
    body = [tag("p", one) for one in words]
    return tag("section", heading, body, id="summary", aria_labelledby="summary-title")


def _shares(result: Mapping[str, Any], total: int, of_run: bool) -> Html:
    judge = result["judge"]
    bars: list[BarRow] = []
    for kind in KINDS:
        bars.append(BarRow(kind, _percent(result["shares"][kind]), "key-top"))
        if judge:
            bars.append(BarRow(f"{kind}, judge", _percent(judge["shares"][kind]), "key-matched"))
        if kind in PAPER:
            bars.append(BarRow(f"{kind}, paper", 100 * PAPER[kind], "key-base"))
    key = [("key-top", "here"), ("key-base", "the paper, on other models and data")]
    if judge:
        key.insert(1, ("key-matched", f"the judge {judge['model']}, on the same cases"))
    over = "the sentences good before and bad after" if of_run else "all rows of the file"
    caption = (
        f"Shares of the kinds in per cent over {over} ({count(total, 'case')}). The rules hold the "
        "words of an output against its source and good translations. Of 60 labelled "
        "translations in five languages they sort 49 rightly: they cannot see meaning, so that "
        "one wrong word among right ones counts as put in other words. The paper sorted its cases "
        "by eye into three kinds."
    )
    meanings = [tag("div", tag("dt", kind), tag("dd", MEANING[kind])) for kind in KINDS]
    return section(
        "shares",
        "Shares of the kinds",
        figure("shares-figure", caption, bar_rows(bars, 100.0), legend(*key)),
        tag("dl", meanings, class_="facts kinds"),
    )


def _directions(directions: Mapping[str, Mapping[str, Any]]) -> Html | None:
    if len(directions) < 2:
        return None
    rows = [
        [
            tag("bdi", arrow(name)),
            str(one["rows"]),
            str(one["selected"]),
            *(str(one["counts"][kind]) for kind in KINDS),
        ]
        for name, one in directions.items()
    ]
    header = ["direction", "sentences", "good before, bad after", *KINDS]
    return section(
        "directions",
        "By direction",
        figure(
            "directions-figure",
            "How many sentences of each direction were tested, how many were good before and bad "
            "after, and how many of these are of each kind by the rules. Counts of few sentences: "
            "differences of a few cases between directions say little.",
            scroll(
                "Cases by direction",
                table("Number of cases by direction", header, rows, class_="numbers"),
            ),
        ),
    )


def _judge(judge: Mapping[str, Any] | None) -> Html | None:
    if judge is None:
        return None
    rows = [
        [kind, *(str(judge["rules_and_judge"][kind][other]) for other in KINDS)] for kind in KINDS
    ]
    agreement = judge["agreement"]
    told = "no answer could be read" if agreement is None else f"agree on {percent(agreement)}"
    return section(
        "judge",
        "Rules and judge",
        tag(
            "p",
            f"The rules and the language model {judge['model']}: {told} "
            f"({count(judge['answered'], 'case')} answered, {judge['invalid']} answers could not "
            "be read).",
        ),
        figure(
            "judge-figure",
            "Cases counted by the kind that the rules give (rows) and the kind that the judge "
            "gives (columns): both agree on the diagonal. Neither is a measure of the truth; where "
            "they differ, read the cases.",
            scroll(
                "Rules and judge",
                table(
                    "Cases by the rules (rows) and the judge (columns)",
                    ["rules \u2193  judge \u2192", *KINDS],
                    rows,
                    class_="numbers",
                ),
            ),
        ),
    )


def _cases(cases: Sequence[Case]) -> Html | None:
    if not cases:
        return None
    parts: list[Html] = []
    for kind in KINDS:
        chosen = [case for case in cases if case["kind"] == kind]
        if not chosen:
            continue
        chosen.sort(key=lambda case: _loss(case), reverse=True)
        shown = [_case(case) for case in chosen[:SHOWN]]
        left = len(chosen) - len(shown)
        more = tag("p", f"{left} more are in cases.jsonl of the run.") if left else None
        summary = tag("summary", f"{kind}: {count(len(chosen), 'case')}")
        parts.append(tag("details", summary, shown, more, open=not parts))
    note = (
        "The largest losses of chrF++ come first, so the first ones are not typical. Marked in the "
        "output after the change are the words that nothing backs, and in the reference and the "
        "output before it those that a good translation has and this one lacks. The marks are "
        "what the rules went by; words of form, such as articles, are left out of them."
    )
    key = legend(("key-made", "nothing backs it"), ("key-lost", "missing afterwards"))
    return section("cases", "Cases by kind", tag("p", note, class_="note"), key, *parts)


def _case(case: Case) -> Html:
    evidence = case["evidence"]
    made, lost = evidence["unsupported_words"] or (), evidence["missing_words"] or ()
    after: Child = marked(case["after"], made, "made") or tag("em", "(nothing)")
    texts = [
        ("source", "Source", case["source"]),
        ("reference", "Reference", marked(case["reference"], lost, "lost")),
        ("out base", "Before", marked(case["before"], lost, "lost")),
        ("out top", "After", after),
    ]
    shown = [
        tag("div", tag("dt", words), tag("dd", text, dir="auto"), class_=f"text {kind}")
        for kind, words, text in texts
    ]
    verdict = case.get("judge")
    judged = None
    if verdict:
        judged = tag("p", "The judge says ", verdict["kind"], ": ", verdict["reason"])
    before, now = (fixed(evidence[name], 0) for name in ("chrf_before", "chrf_after"))
    title = tag(
        "header",
        tag("bdi", arrow(case["direction"] or ""), class_="direction"),
        tag("bdi", case["id"], class_="id"),
        tag("span", "chrF++ ", tag("b", f"{before} \u2192 {now}")),
    )
    because = str(evidence["because"])
    told = tag("p", tag("strong", because[:1].upper() + because[1:], "."), *_because(evidence))
    return tag(
        "article", title, tag("dl", shown), tag("div", told, judged), class_="example of2 case"
    )


def _because(evidence: Mapping[str, Any]) -> Iterator[Child]:
    """What else was measured of an output, in words."""
    if evidence["empty"]:
        return
    said = [
        f"language identified: {evidence['language'] or 'undecided'}",
        f"chrF to the source {fixed(evidence['chrf_source'], 0)}",
    ]
    for name, words in (
        ("source_covered", "of the source\u2019s content translated"),
        ("output_covered", "of the output\u2019s content linked to the source"),
        ("missing", "of a good translation\u2019s content missing"),
        ("unsupported", "of its content backed by nothing"),
    ):
        if evidence[name] is not None:
            said.append(f"{percent(evidence[name])} {words}")
    yield " "
    yield tag("span", " \u00b7 ".join(said) + ".", class_="note")


def _loss(case: Case) -> float:
    return float(case["evidence"]["chrf_before"] - case["evidence"]["chrf_after"])


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def _linked(links: str | None) -> str:
    return {"given": "the data", "eflomal": "eflomal"}.get(links or "", "nothing")
