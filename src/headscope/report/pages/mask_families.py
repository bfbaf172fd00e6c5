"""The report of `verify families`: heads that several masks share, removed."""

from __future__ import annotations

from pathlib import Path

from headscope.report.html import Child, Html, join, tag
from headscope.report.page import Page
from headscope.report.pages.frame import about_run, masthead, simple_page
from headscope.report.parts import figure, scroll, section, table
from headscope.report.records.mask_tests import (
    FamilyRow,
    MaskTests,
    Row,
    TaskTests,
    read_mask_tests,
)
from headscope.report.sections.mask_tests import gap_words
from headscope.report.words import count, enumeration, fixed, p_value

__all__ = ["page"]

CONTROLS = {"random": "random heads", "random-layer-matched": "random heads of the same layers"}


def page(path: Path) -> Page:
    """The report of the run of `verify families` in this folder."""
    record = read_mask_tests(path)
    masks = len(dict(record.result.get("masks") or {}))
    lead = (
        f"What {record.model}, told what to do, loses without the heads that {masks} learned "
        "masks have in common, and without those that none of them keeps."
    )
    facts = [
        ("tasks", str(len(record.tasks))),
        ("draws of random heads", str(record.draws)),
    ]
    return simple_page(
        f"{record.model} \u00b7 shared heads",
        masthead("Shared heads", lead, facts, kicker="headscope verify families"),
        [
            ("summary", "", _summary(record)),
            ("losses", "Losses", _losses(record)),
            ("sets", "Sets of heads", _sets(record)),
            ("provenance", "Provenance", about_run(path)),
        ],
    )


def _words(family: FamilyRow) -> str:
    if family.name == "unused":
        return "in no mask"
    if family.name == "all":
        return "in every mask"
    return f"in every mask of {family.name}"


def _summary(record: MaskTests) -> Html:
    parts: list[Child] = [
        tag(
            "p",
            "Every mask keeps the heads that one task was found to need. Removing heads that all "
            "masks keep, and heads that none keeps, shows whether they matter to tasks the model "
            "is told to do: the loss says how unlikely the right outputs are, in nats a token.",
        )
    ]
    for family in record.families:
        if not family.tested:
            which = "no head" if not family.removed else "every head"
            parts.append(tag("p", f"There is {which} {_words(family)}, so nothing was tested."))
            continue
        worse = [gap for task in record.tasks for gap in _gaps(task, family)]
        up = sum(gap > 0 for gap in worse)
        parts.append(
            tag(
                "p",
                tag("strong", f"{count(family.removed, 'head')} {_words(family)}"),
                f": without them the loss is higher than without as many random heads in {up} of "
                f"{count(len(worse), 'task')}.",
            )
        )
    parts.append(
        tag(
            "p",
            "Masks are outcomes of single training runs; which heads they share may differ from "
            "seed to seed.",
            class_="sure",
        )
    )
    return section("summary", "In short", *parts)


def _gaps(task: TaskTests, family: FamilyRow) -> list[float]:
    row = _removed(task, family)
    gap = None if row is None else row.against.get("random", {}).get("nll")
    return [] if gap is None else [gap.value]


def _removed(task: TaskTests, family: FamilyRow) -> Row | None:
    return next((row for row in task.of_kind("removed") if row.name == family.name), None)


def _losses(record: MaskTests) -> Html:
    header: list[Child] = ["condition", "heads left", *(tag("bdi", t.name) for t in record.tasks)]
    base = [fixed(task.rows[0].values["nll"], 3) for task in record.tasks]
    rows: list[list[Child]] = [["model as it is", str(record.heads), *base]]
    for family in record.families:
        if not family.tested:
            continue
        left = str(record.heads - family.removed)
        cells: list[Child] = []
        for task in record.tasks:
            row = _removed(task, family)
            cells.append(fixed(None if row is None else row.values["nll"], 3))
        rows.append([join("without heads ", _words(family)), left, *cells])
        for kind, words in CONTROLS.items():
            means = [_mean(task.of_kind(kind, family.name)) for task in record.tasks]
            rows.append([f"without {words}, mean", left, *means])
    grid = table("Loss of the instructed tasks", header, rows, class_="numbers")
    caption = join(
        tag("strong", "Loss of instructed tasks without shared heads. "),
        "Nats a token, the mean over held-out examples of the mean over tokens; random heads are "
        f"means over {count(record.draws, 'draw')} of as many.",
    )
    tests = table(
        "Differences",
        ["heads", "task", "to the model as it is", "to random heads", "p over draws"],
        _tests(record),
        said=(1,),
        class_="numbers",
    )
    words = (
        "Intervals are 95\u00a0%, over examples. p is (1 + draws of random heads that do at least "
        "as much harm) / (1 + draws); for heads in no mask, draws that do at most as much."
    )
    return section(
        "losses",
        "Losses",
        figure("losses-table", caption, scroll("Losses", grid)),
        scroll("Differences", tests),
        tag("p", words),
    )


def _mean(rows: tuple[Row, ...]) -> str:
    values = [row.values["nll"] for row in rows]
    known = [value for value in values if value is not None]
    return fixed(sum(known) / len(known) if known else None, 3)


def _tests(record: MaskTests) -> list[list[Child]]:
    found: list[list[Child]] = []
    for family in record.families:
        for task in record.tasks:
            row = _removed(task, family)
            if row is None:
                continue
            against = row.against.get("random", {}).get("nll")
            p = row.p_draws.get("random", {}).get("nll")
            found.append(
                [
                    _words(family),
                    tag("bdi", task.name),
                    gap_words(row.against["change"]["nll"], 3),
                    "\u2013" if against is None else gap_words(against, 3),
                    "\u2013" if p is None else p_value(p),
                ]
            )
    return found


def _sets(record: MaskTests) -> Html:
    pools = {"outside": "heads outside the set", "all": "all heads of the model"}
    rows = [
        [
            _words(family),
            str(family.removed),
            enumeration(family.tasks) if family.name not in ("all", "unused") else "all",
            pools.get(family.pool, family.pool),
        ]
        for family in record.families
    ]
    grid = table(
        "Sets of heads",
        ["heads", "number", "masks", "random ones come from"],
        rows,
        said=(2, 3),
        class_="numbers",
    )
    return section("sets", "Sets of heads", scroll("Sets of heads", grid))
