"""`headscope reproduce`: the experiments of a paper on a model, beside what was published."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from headscope.errors import InputError
from headscope.papers.reproduce import Reproduce, reproduce, reproduce_all
from headscope.papers.show import (
    PaperResult,
    PapersResult,
    Reproduced,
    coverage_words,
    show_paper,
    show_papers,
)
from headscope.runs import Result, decode
from headscope.settings import Option, Settings
from headscope.shown.blocks import Cell, Row, Section, Shown, Table
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


@dataclass(frozen=True, kw_only=True)
class Listed(Result):
    """The result of `reproduce PAPER --list`."""

    experiments: tuple[Mapping[str, Any], ...]


def _run(asked: Asked, out: Path | None, progress: Progress) -> Reproduced | Listed:
    from headscope.papers import registry
    from headscope.papers.listing import listing

    config = asked.reproduce
    every = config.paper == registry.ALL
    if every and config.only:
        raise InputError("--only names experiments of one paper; name the paper instead of all")
    if asked.show:
        return Listed(experiments=tuple(listing(config, out)))
    if not every:
        registry.experiments_named(registry.paper_named(config.paper), config.only)
    if every:
        written = reproduce_all(config, out, progress, _announce)
        all_papers: PapersResult = decode(PapersResult, written)
        return all_papers
    one_paper: PaperResult = decode(PaperResult, reproduce(config, out, progress, _announce))
    return one_paper


def _failure(result: Reproduced | Listed) -> str | None:
    if isinstance(result, Listed) or not result.failed:
        return None
    first, why = next(iter(result.failed.items()))
    return f"{len(result.failed)} of the runs could not be made ({first}: {why})"


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


def _listed(result: Listed) -> Shown:
    """Every experiment: what becomes of its tables and figures, and what it needs."""
    rows = []
    for row in result.experiments:
        needs = [
            "; ".join(each for each in (one["why"], one["give"]) if each) for one in row["missing"]
        ]
        runs = f"{row['finished']} of {_runs(row['runs'])}" if row["runs"] else ""
        cells = (row["title"], "; ".join(coverage_words(row["coverage"])), runs, " ".join(needs))
        rows.append(Row(f"{row['paper']} {row['name']}", tuple(map(Cell, cells))))
    columns = ("about", "coverage", "finished or stored", "needs")
    table = Table("Tables and figures", columns, tuple(rows))
    words = [f"{len(rows)} experiments."]
    return Shown("Experiments", "", words, sections=[Section("Experiments", [table], brief=True)])


def _runs(number: int) -> str:
    return "1 run" if number == 1 else f"{number} runs"


def _show(result: PaperResult | PapersResult | Listed, run: Path) -> Shown:
    if isinstance(result, Listed):
        return _listed(result)
    if isinstance(result, PapersResult):
        return show_papers(result, run)
    return show_paper(result, run)


command = Study(Asked, _run, show=_show, failure=_failure)
#: How finished runs of one paper and of all are read again.
paper = replace(command, result=PaperResult)
papers = replace(command, result=PapersResult)
