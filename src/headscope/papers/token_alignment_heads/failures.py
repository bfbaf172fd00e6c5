"""How translations fail without the heads (Figures 10 to 12)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headscope.measure.intervals import wilson_interval
from headscope.papers.claims import with_claims
from headscope.papers.paper import Experiment, Setting
from headscope.papers.published import value
from headscope.papers.token_alignment_heads.cells import (
    cell,
    hundred,
    lines_of,
    sentence,
    text,
)
from headscope.papers.token_alignment_heads.setting import NAME, bound
from headscope.papers.token_alignment_heads.steps import failure_steps
from headscope.shown.blocks import Bars, Claim, Findings, Row, Table

KINDS = ("no translation", "missing details", "hallucination", "other")


def _tell_failures(setting: Setting) -> Findings:
    found = setting.result("failures")
    if found is None:
        return Findings()
    total, counts = found["selected"], found["counts"]
    rows = []
    for kind in KINDS:
        share = counts[kind] / total if total else None
        low, high = wilson_interval(counts[kind], total) if total else (None, None)
        rows.append(
            Row(
                kind,
                (
                    cell(counts[kind], digits=0),
                    hundred(
                        share, low, high, published=_published(kind), why="no translation failed"
                    ),
                ),
            )
        )
    table = Table(
        "How translations fail without the heads",
        ("sentences", "share %"),
        tuple(rows),
        bound(setting, "Section A.4"),
        sentence(
            f"Of {found['rows']} sentences those that are good as they are (chrF++ of at least "
            f"{found['rule']['good']:g}) and lose at least {found['rule']['loss']:g} points. "
            "Sorted by rules over words and links; how the paper sorted it does not say."
        ),
    )
    cases = _cases(setting)
    tables = (table,) if cases is None else (table, cases)
    figure = Bars(
        "Kinds of failure",
        KINDS,
        ("share",),
        tuple(
            (row.cells[1].value if isinstance(row.cells[1].value, float) else None,) for row in rows
        ),
        "share of failures, %",
        tuple((row.cells[1].low,) for row in rows),
        tuple((row.cells[1].high,) for row in rows),
    )
    said, sure = failure_words(found)
    return Findings(tables, (figure,) if total else (), said, sure, failure_claim(found))


def failure_claim(found: Mapping[str, Any]) -> dict[str, Any]:
    """That most failures are translations that were not made."""
    total, counts = found["selected"], found["counts"]
    if not total:
        return {}
    own, *others = (counts[kind] for kind in KINDS)
    most = max(KINDS, key=lambda kind: counts[kind])
    by = f"{own / total:.0%} of {total} failures; most frequent: {most}, {counts[most] / total:.0%}"
    # Of the failures of this kind and the most frequent other one, more than half are of this one.
    low, high = wilson_interval(own, own + max(others))
    holds = True if low > 0.5 else False if high < 0.5 else None
    claim = "without the heads the source is repeated more often than anything else"
    tested = "an interval of its share among its failures and those of the next kind"
    return with_claims(Claim(claim, holds, by, tested, decides="more failing translations"))


def _published(kind: str) -> float | None:
    """The paper's share of a kind; None for `other`, which it does not have."""
    return value(NAME, "Section A.4", model="any", row="failures", column=kind, measure="share")


def _cases(setting: Setting) -> Table | None:
    """One case of each kind, the first."""
    first: dict[str, Mapping[str, Any]] = {}
    for one in lines_of(setting.at("failures") / "cases.jsonl"):
        if one["selected"]:
            first.setdefault(one["kind"], one)
    if not first:
        return None
    rows = tuple(
        Row(
            f"{kind} ({first[kind]['direction']})",
            (
                *(text(first[kind][name]) for name in ("source", "before", "after")),
                text(first[kind]["evidence"]["because"]),
            ),
        )
        for kind in KINDS
        if kind in first
    )
    columns = ("source", "no heads removed", "heads removed", "because")
    return Table("The first case of each kind", columns, rows)


def failure_words(found: Mapping[str, Any]) -> tuple[str, str]:
    """How many failures are of each kind."""
    total, counts = found["selected"], found["counts"]
    if not total:
        return "No good translation fails without the heads, so there is nothing to sort.", ""
    order: Sequence[str] = sorted(KINDS, key=lambda kind: -counts[kind])
    listed = ", ".join(f"{kind} {counts[kind] / total:.0%}" for kind in order)
    low, high = wilson_interval(counts[order[0]], total)
    judged = found.get("judge")
    beside = (
        f"A language model agrees with {judged['agreement']:.0%} of the rules' kinds."
        if judged and judged.get("agreement") is not None
        else "Nobody read the outputs beside the rules."
    )
    return (
        f"Of {total} failing translations: {listed}.",
        f"{order[0].capitalize()} lies between {low:.0%} and {high:.0%}. {beside}",
    )


FAILURES = Experiment(
    "figure-10",
    ("Figure 10", "Figure 11", "Figure 12"),
    "How translations fail without these heads",
    failure_steps,
    _tell_failures,
)
