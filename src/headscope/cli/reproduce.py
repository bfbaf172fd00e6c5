"""`headscope reproduce`: the experiments of a paper on a model, beside what was published."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from headscope.errors import InputError
from headscope.papers.reproduce import Reproduce, reproduce, reproduce_all
from headscope.settings import Option, Settings
from headscope.studies.inputs import Progress
from headscope.studies.study import Study

if TYPE_CHECKING:
    from headscope.papers.plan import Plan


@dataclass(frozen=True)
class Asked(Settings):
    reproduce: Reproduce
    show: Annotated[
        bool,
        Option(
            "List tables and figures: measured, --full, or what they need.",
            flag="--list",
        ),
    ] = False


Asked.__doc__ = Reproduce.__doc__


def _run(asked: Asked, out: Path | None, progress: Progress) -> dict[str, Any]:
    from headscope.papers import registry
    from headscope.papers.listing import listing

    config = asked.reproduce
    every = config.paper == registry.ALL
    if every and config.only:
        raise InputError("--only names experiments of one paper; name the paper instead of all")
    if asked.show:
        return {"experiments": listing(config, out)}
    if not every:
        registry.experiments_named(registry.paper_named(config.paper), config.only)
    run = reproduce_all if every else reproduce
    return run(config, out, progress, _announce)


def _failure(result: dict[str, Any]) -> str | None:
    failed = result.get("failed")
    if not failed:
        return None
    first, why = next(iter(failed.items()))
    return f"{len(failed)} of the runs could not be made ({first}: {why})"


def _announce(paper: str, plan: Plan) -> None:
    """How long it will take and in how much memory, before it begins."""
    due = plan.due
    ready = sum(one.state in ("done", "stored") for one in plan.steps)
    words = [f"{paper}: {_runs(len(plan.steps))}, {ready} finished or stored"]
    memory = "" if plan.memory is None else f", in {plan.memory / 1e6:,.0f} MB of memory"
    words.append(f"{len(due)} to be made{_about(plan.seconds())}{memory}")
    left = [one for one in plan.steps if one.state in ("left out", "blocked")]
    if left:
        time = _about(plan.seconds(("left out", "blocked")))
        words.append(f"{len(left)} left to --full{time}")
    print("; ".join(words), file=sys.stderr, flush=True)


def _about(seconds: float | None) -> str:
    if seconds is None:
        return ""
    if seconds < 90:
        return f", about {seconds:.0f} s"
    if seconds < 5400:
        return f", about {seconds / 60:.0f} min"
    return f", about {seconds / 3600:.1f} h"


def _list(rows: list[dict[str, Any]]) -> str:
    from headscope.report.sections.paper_parts import coverage_words

    lines = []
    for row in rows:
        lines.append(f"{row['paper']}  {row['name']:<14} {row['title']}")
        lines += [f"    {words}" for words in coverage_words(row["coverage"])]
        if row["runs"]:
            lines.append(f"    {_runs(row['runs'])}, {row['finished']} finished or stored")
        for one in row["missing"]:
            lines.append(f"    {'; '.join(each for each in (one['why'], one['give']) if each)}")
    return "\n".join(lines)


def _runs(number: int) -> str:
    return "1 run" if number == 1 else f"{number} runs"


def _summary(result: dict[str, Any]) -> str:
    from headscope.papers.results import NOT_ASKED

    if "totals" not in result:
        return _list(result["experiments"])
    lines = []
    if "papers" in result:
        for one in result["papers"]:
            lines += [f"{one['name']}: {one['answer']['found']}", ""]
    else:
        others = 0
        for one in result["experiments"]:
            if one["why"] == NOT_ASKED:
                others += 1
                continue
            lines.append(f"{one['name']:<16} {one['state']:<8} {one['found'] or one['why'] or ''}")
        lines += [f"{others} more were not asked for"] if others else []
        lines += ["", result["answer"]["found"]]
    totals = result["totals"]
    lines.append(
        f"the folder holds {_runs(totals['run'])} of {totals['seconds']:.0f} s in all; "
        f"{totals['stored']} stored, {totals['not_run']} not made"
    )
    lines.append(f"signature: {result['signature']}")
    lines.append(f"report: {result['report']}")
    return "\n".join(lines)


command = Study(Asked, _run, _summary, failure=_failure)
