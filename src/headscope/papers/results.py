"""What a reproduction tells: the finished steps of every experiment, as plain JSON."""

from __future__ import annotations

import re
from collections.abc import Mapping, Set
from dataclasses import replace
from typing import Any

from headscope.papers.paper import Failed, Missing, Paper, Setting, decided
from headscope.papers.plan import Plan, Planned, PlannedStep
from headscope.runs import encode
from headscope.shown.blocks import Cell, Figure, Findings, Row, Table

#: The answer of a run that has none.
UNANSWERED = "What was run does not answer the paper's question."
SIGN = re.compile(r"(?<![\w)\].\u2212/-])-(?=\.?\d)")
EXPONENT = re.compile(r"(?<=\de)-0?(?=\d)")
PERCENT = re.compile(r"(?<=\d)[ \u00a0\u202f]?%")


def typeset(words: str) -> str:
    """Words of ours with one minus sign before numbers, and one form of per cent."""
    return PERCENT.sub("\u00a0%", SIGN.sub("\u2212", EXPONENT.sub("\u2212", words)))


#: Why an experiment was not run, if nothing else is in the way.
NOT_ASKED = "it was not asked for"


def describe(
    paper: Paper, plan: Plan, setting: Setting, asked: Set[str], failed: Mapping[str, Failed]
) -> dict[str, Any]:
    """The paper, its experiments and the answer, from the steps that are finished.

    `plan` is of all the paper's experiments, after the run; `asked` are those that were to be run;
    `failed` says why steps could not be.
    """
    told: dict[str, Findings] = {}
    rows: list[dict[str, Any]] = []
    for one in plan.experiments:
        state, why, give = _state(one, one.experiment.name in asked, failed)
        if state in ("run", "part", "stored"):
            told[one.experiment.name] = one.experiment.tell(setting)
        shown = told.get(one.experiment.name, Findings())
        rows.append(
            {
                "name": one.experiment.name,
                "elements": list(one.experiment.elements),
                "coverage": _coverage(one, setting, failed),
                "title": one.experiment.title,
                "state": state,
                "why": why,
                "give": give,
                "runs": [_run(step, setting) for step in one.steps],
                "tables": [_table(table) for table in shown.tables],
                "figures": [_figure(figure) for figure in shown.figures],
                "found": typeset(shown.found),
                "sure": typeset(shown.sure),
                "more": dict(shown.more),
            }
        )
    found, sure = paper.answer(setting, told)
    if chosen := decided(setting):
        own = f"Decided for this run instead of the paper: {', '.join(chosen)}."
        sure = " ".join(part for part in (sure, own) if part)
    if not found:
        found = UNANSWERED if told else "Nothing that answers the question was run."
    runs = [_run(step, setting) for step in plan.steps]
    seconds = sum(run["seconds"] or 0.0 for run in runs if run["state"] == "run")
    return {
        "paper": {
            "name": paper.name,
            "title": paper.title,
            "source": paper.source,
            "question": paper.question,
            "method": list(paper.method),
        },
        "answer": {"found": typeset(found), "sure": typeset(sure)},
        "notes": [typeset(note) for note in paper.notes(setting)],
        "experiments": rows,
        "totals": {
            "experiments": len(rows),
            "elements": sum(len(row["elements"]) for row in rows),
            "runs": len(runs),
            "run": sum(run["state"] == "run" for run in runs),
            "stored": sum(run["state"] == "stored" for run in runs),
            "not_run": sum(run["state"] == "not run" for run in runs),
            "seconds": seconds,
        },
        "seconds": seconds,
    }


def _state(
    one: Planned, asked: bool, failed: Mapping[str, Failed]
) -> tuple[str, str | None, str | None]:
    """State of an experiment, why it is so where that is not plain, and what to give."""
    if one.missing is not None:
        return "missing", one.missing.why, one.missing.give or None
    states = [step.state for step in one.steps]
    there = [state for state in states if state in ("done", "stored")]
    # Runs that others asked for may be a part of it.
    if not asked and (one.experiment.apart or len(there) < len(states)):
        return "not run", NOT_ASKED, None
    why = next((failed[step.step.name][0] for step in one.steps if step.step.name in failed), None)
    if len(there) < len(states) and why is None:
        why = _left(one)
    if not there and states:
        return "not run", why, None
    if len(there) < len(states):
        return "part", why, None
    return ("stored" if states and set(states) == {"stored"} else "run"), None, None


def _coverage(one: Planned, setting: Setting, failed: Mapping[str, Failed]) -> dict[str, str]:
    """What became of each table and figure; nothing of those that were not asked for.

    Nothing either where a step of its own failed for another reason than what it was given.
    """
    steps = [step.step for step in one.steps]
    if any(step.state == "due" and step.step.name not in failed for step in one.steps):
        return {}
    found: dict[str, str] = {}
    for element, (word, missing) in one.coverage.items():
        needed = missing or one.experiment.needs(setting, element, steps)
        own = () if isinstance(needed, Missing) else steps if needed is None else needed
        broken = [failed[step.name][1] for step in own if step.name in failed]
        told = broken[0] if broken else word
        found |= {element: told} if told else {}
    return found


def _left(one: Planned) -> str:
    names = [step.step.title for step in one.steps if step.state in ("left out", "blocked")]
    if not names:
        return "its runs are not finished"
    shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    return f"left to --full: {shown}"


def _run(one: PlannedStep, setting: Setting) -> dict[str, Any]:
    found = setting.result(one.step.name) or {}
    state = {"done": "run", "stored": "stored"}.get(one.state, "not run")
    if state == "not run":
        found = {}
    # A stored result may have been worked out again from runs that took longer.
    seconds = found.get("seconds_of_the_first_run", found.get("seconds"))
    return {
        "step": one.step.name,
        "title": one.step.title,
        "run": f"runs/{one.step.name}" if state == "run" else None,
        "signature": found.get("signature"),
        "seconds": seconds,
        "state": state,
        "note": found.get("note") if state == "stored" else None,
    }


def _table(table: Table) -> dict[str, Any]:
    rows = table.rows
    if table.reference is not None and table.reference.comparable:
        rows = tuple(
            Row(row.name, tuple(replace(cell, difference=_difference(cell)) for cell in row.cells))
            for row in rows
        )
    typed = replace(table, title=typeset(table.title), note=typeset(table.note), rows=rows)
    written: dict[str, Any] = encode(typed)
    return written


def _figure(figure: Figure) -> dict[str, Any]:
    written: dict[str, Any] = encode(figure)
    return written | {"title": typeset(figure.title), "note": typeset(figure.note)}


def _difference(cell: Cell) -> float | None:
    ours, theirs = cell.value, cell.published
    if isinstance(ours, str) or isinstance(theirs, str) or ours is None or theirs is None:
        return None
    return ours - theirs
