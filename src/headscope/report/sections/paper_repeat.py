"""How a paper's run is repeated, and which of its runs were not made, each for its reason."""

from __future__ import annotations

from collections.abc import Mapping
from shlex import quote
from typing import Any

from headscope.report.html import Child, Html, tag
from headscope.report.parts import section
from headscope.report.records.paper import Experiment, PaperRecord, PaperRun
from headscope.report.sections.paper_parts import span, with_flags
from headscope.shown.words import count

__all__ = ["left_section", "whole_command"]


def left_section(record: PaperRecord) -> Html:
    """How to repeat what was run, and what was left out."""
    parts: list[Child] = [
        tag(
            "p",
            "Not printed: rows without figures of ours, further rows of long tables, runs and "
            "provenance. They are on the page and in result.json.",
            class_="on-paper note",
        ),
        tag("p", "This page is made by"),
        tag("pre", whole_command(record.result), tabindex=0),
        tag(
            "p",
            f"It took {span(record.seconds)} of computing. Finished runs are read again, not "
            "repeated; the same command goes on where it was stopped.",
        ),
    ]
    failed = record.failed
    if failed:
        told = [tag("li", tag("bdi", step), ": ", *with_flags(why)) for step, why in failed.items()]
        parts += [tag("p", "These runs could not be made:"), tag("ul", told)]
    for why, runs in _left(record).items():
        said = tag("p", f"{count(len(runs), 'run')} {_are(len(runs))} ", *with_flags(why))
        which = tag("summary", "Which" if len(runs) == 1 else f"Which {len(runs)}")
        parts += [said, tag("details", which, tag("p", ", ".join(run.title for run in runs)))]
    return section("repeat", "How to repeat it", *parts)


def _are(number: int) -> str:
    return "is not made:" if number == 1 else "are not made:"


def _left(record: PaperRecord) -> dict[str, list[PaperRun]]:
    """The runs that were neither made nor failed, by why that is so."""
    found: dict[str, list[PaperRun]] = {}
    for run in record.runs:
        if run.state != "not run" or run.step in record.failed:
            continue
        needing = [one for one in record.experiments if run.step in _steps(one)]
        if any("--full" in one.why for one in needing):
            why = "left to --full, which makes all runs and says beforehand how long that takes."
        elif any(one.state == "missing" for one in needing):
            why = "data for them is missing."
        elif all("not asked for" in one.why for one in needing):
            why = "not asked for."
        else:
            why = "their experiments stopped at a run that could not be made, or are not finished."
        found.setdefault(why, []).append(run)
    return found


def _steps(one: Experiment) -> set[str]:
    return {run.step for run in one.runs}


def whole_command(result: Mapping[str, Any]) -> str:
    """The command of a run with the folder that it wrote."""
    command, folder = str(result["command"]), str(result.get("run") or "")
    if not folder or "--out" in command.split():
        return command
    return f"{command} --out {quote(folder)}"
