"""`headscope reproduce`: the experiments of a paper on a model, with what was published."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from headscope.errors import InputError
from headscope.heads import Geometry
from headscope.papers.registry import ALL, PAPERS, experiments_named, paper_named
from headscope.papers.reproduce import NOWHERE, Reproduce, planned, reproduce, reproduce_all
from headscope.papers.show import (
    Listed,
    PaperResult,
    PapersResult,
    Reproduced,
    show_listed,
    show_paper,
    show_papers,
)
from headscope.progress import Progress
from headscope.runs import decode
from headscope.settings import Option, Settings
from headscope.shown.blocks import Shown
from headscope.shown.words import count
from headscope.studies.costs.shapes import read_shape
from headscope.studies.models import POCKET, ModelChoice
from headscope.studies.study import Study

if TYPE_CHECKING:
    from headscope.papers.plan import Plan


@dataclass(frozen=True)
class ReproduceOrList(Settings):
    reproduce: Reproduce
    show: Annotated[
        bool,
        Option("List tables and figures: measured, --full, or what they need.", flag="--list"),
    ] = False


ReproduceOrList.__doc__ = Reproduce.__doc__


def _run(settings: ReproduceOrList, out: Path | None, progress: Progress) -> Reproduced | Listed:
    config = settings.reproduce
    every = config.paper == ALL
    if every and config.only:
        raise InputError("--only names experiments of one paper; name the paper instead of all")
    if settings.show:
        return Listed(experiments=tuple(listing(config, out)))
    result: Reproduced
    if every:
        result = decode(PapersResult, reproduce_all(config, out, progress, _announce))
    else:
        experiments_named(paper_named(config.paper), config.only)
        result = decode(PaperResult, reproduce(config, out, progress, _announce))
    return result


def listing(config: Reproduce, out: Path | None = None) -> list[dict[str, Any]]:
    """One row an experiment: its paper, name, title, coverage, runs, and what is missing.

    `coverage` has one of the words of `Coverage` for each table and figure, as the command would
    leave it. `runs` is how many there are in all, `finished` how many of them lie below `out`
    or come with the package. `missing` says of what is not there why it is needed and what to give.
    """
    geometry, digest = _about(config.model)
    every = config.paper == ALL
    rows = []
    for name in PAPERS if every else [config.paper]:
        folder = NOWHERE if out is None else (out / name if every else out)
        paper, plan = planned(replace(config, paper=name), geometry, digest, folder)
        for entry in plan.experiments:
            missing = [
                entry.missing,
                *(needed for _, needed in entry.coverage.values()),
            ]
            rows.append(
                {
                    "paper": paper.name,
                    "name": entry.experiment.name,
                    "title": entry.experiment.title,
                    "coverage": {element: word for element, (word, _) in entry.coverage.items()},
                    "runs": len(entry.steps),
                    "finished": sum(step.available for step in entry.steps),
                    "missing": [
                        {"coverage": need.coverage, "why": need.why, "give": need.give or None}
                        for need in dict.fromkeys(missing)
                        if need is not None
                    ],
                }
            )
    return rows


def _about(choice: ModelChoice) -> tuple[Geometry, str]:
    """The heads of the model, and the digest of its weights where that costs little."""
    if choice.model == POCKET:
        lm = choice.load_for()
        return lm.geometry, lm.digest
    shape = read_shape(choice.model)
    return Geometry.uniform(shape.layers, shape.query_heads), ""


def _announce(paper: str, plan: Plan) -> None:
    """How long it will take and in how much memory, before it begins."""
    ready = sum(step.available for step in plan.steps)
    left = [step for step in plan.steps if step.left]
    memory = "" if plan.memory is None else f", in {plan.memory / 1e6:,.0f} MB of memory"
    ends_early = any(entry.step.at_most for entry in plan.due)
    words = [
        f"{paper}: {count(len(plan.steps), 'run')}, {ready} finished or stored",
        f"{len(plan.due)} to be made{_time(plan.seconds(), 'at most ' * ends_early)}{memory}",
    ]
    if left:
        words.append(f"{len(left)} left to --full{_time(plan.seconds(('left out', 'blocked')))}")
    print("; ".join(words), file=sys.stderr, flush=True)


def _time(seconds: float | None, most: str = "") -> str:
    if seconds is None:
        return ""
    about = f", {most}about"
    if seconds < 90:
        return f"{about} {seconds:.0f} s"
    if seconds < 5400:
        return f"{about} {seconds / 60:.0f} min"
    return f"{about} {seconds / 3600:.1f} h"


def _failure(result: Reproduced | Listed) -> str | None:
    if isinstance(result, Listed) or not result.failed:
        return None
    first, why = next(iter(result.failed.items()))
    return f"{len(result.failed)} of the runs could not be made ({first}: {why})"


def _show(result: PaperResult | PapersResult | Listed, run: Path) -> Shown:
    if isinstance(result, Listed):
        return show_listed(result)
    if isinstance(result, PapersResult):
        return show_papers(result, run)
    return show_paper(result, run)


command = Study(ReproduceOrList, _run, show=_show, failure=_failure, usage="lahis --list")
#: How finished runs of one paper and of all are read again.
paper = replace(command, result=PaperResult)
papers = replace(command, result=PapersResult)
