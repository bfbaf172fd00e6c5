"""What the report of a paper reads of a run: experiments with tables, figures and their runs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headscope.report.records.reading import naming, read_result
from headscope.report.records.told import (
    Figure,
    Table,
    optional,
    read_figure,
    read_list,
    read_table,
    text,
    words,
)

__all__ = ["STATES", "Experiment", "PaperRecord", "PaperRun", "read_paper", "slugs"]

KIND = "a paper's run"

#: The states of an experiment, and what they are called.
STATES = {
    "run": "run",
    "part": "run in part",
    "stored": "from stored results",
    "not run": "not run",
    "missing": "data missing",
}


@dataclass(frozen=True)
class PaperRun:
    """One of the runs behind an experiment: run, read from stored results, or not run."""

    step: str
    title: str
    run: str
    signature: str
    seconds: float | None
    state: str
    note: str


@dataclass(frozen=True)
class Experiment:
    """What stands for one or several tables and figures of the paper."""

    name: str
    elements: tuple[str, ...]
    title: str
    state: str
    why: str
    give: str
    runs: tuple[PaperRun, ...]
    tables: tuple[Table, ...]
    figures: tuple[Figure, ...]
    found: str
    sure: str
    coverage: Mapping[str, str] = field(default_factory=dict)

    @property
    def shown(self) -> bool:
        """Whether there is anything to show of it."""
        return self.state in ("run", "part", "stored")


@dataclass(frozen=True)
class PaperRecord:
    """The run of a paper on a model."""

    name: str
    title: str
    source: str
    question: str
    method: tuple[str, ...]
    model: Mapping[str, Any]
    command: str
    found: str
    sure: str
    notes: tuple[str, ...]
    experiments: tuple[Experiment, ...]
    failed: Mapping[str, str]
    seconds: float | None
    result: Mapping[str, Any] = field(repr=False)

    @property
    def runs(self) -> tuple[PaperRun, ...]:
        """Every run behind the experiments once, in their order."""
        return tuple({run.step: run for one in self.experiments for run in one.runs}.values())


def read_paper(path: Path) -> PaperRecord:
    """Read a finished run; InputError if it is damaged or of another shape."""
    result = read_result(path)
    with naming(path / "result.json", KIND):
        paper, answer = result["paper"], result["answer"]
        model = result["model"]
        return PaperRecord(
            name=str(paper["name"]),
            title=str(paper["title"]),
            source=str(paper["source"]),
            question=str(paper["question"]),
            method=words(paper["method"]),
            model=model if isinstance(model, Mapping) else {"name": model},
            command=str(result["command"]),
            found=text(answer["found"]),
            sure=text(answer["sure"]),
            notes=words(result.get("notes") or []),
            experiments=_experiments(result["experiments"]),
            failed={str(step): str(why) for step, why in (result.get("failed") or {}).items()},
            seconds=optional(result.get("seconds")),
            result=result,
        )


def slugs(names: Sequence[str], taken: Sequence[str] = ()) -> list[str]:
    """An identifier for each name, different from each other and from those that are taken."""
    used, made = set(taken), []
    for name in names:
        bare = re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-").lower() or "experiment"
        slug, number = bare, 2
        while slug in used:
            slug, number = f"{bare}-{number}", number + 1
        used.add(slug)
        made.append(slug)
    return made


def _experiments(value: Any) -> tuple[Experiment, ...]:
    made = tuple(_experiment(one) for one in read_list(value))
    if len({one.name for one in made}) < len(made):
        raise ValueError("two experiments have one name")
    return made


def _experiment(one: Mapping[str, Any]) -> Experiment:
    state = str(one["state"])
    if state not in STATES:
        raise ValueError(f"{one['name']}: there is no state {state!r}")
    return Experiment(
        name=str(one["name"]),
        elements=words(one["elements"]),
        title=str(one["title"]),
        state=state,
        why=text(one.get("why")),
        give=text(one.get("give")),
        runs=tuple(_run(run) for run in read_list(one["runs"])),
        tables=tuple(read_table(table) for table in read_list(one["tables"])),
        figures=tuple(read_figure(figure) for figure in read_list(one["figures"])),
        found=text(one["found"]),
        sure=text(one["sure"]),
        coverage={str(name): str(word) for name, word in (one.get("coverage") or {}).items()},
    )


def _run(run: Mapping[str, Any]) -> PaperRun:
    return PaperRun(
        step=str(run["step"]),
        title=str(run["title"]),
        run=text(run.get("run")),
        signature=text(run.get("signature")),
        seconds=optional(run.get("seconds")),
        state=str(run["state"]),
        note=text(run.get("note")),
    )
