"""What the report of a paper reads of a run: experiments with tables, figures and their runs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from headscope.runs import decode
from headscope.runs.reading import naming, read_result
from headscope.shown.blocks import Figure, Table

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


@dataclass(frozen=True, kw_only=True)
class PaperRun:
    """One of the runs behind an experiment: run, read from stored results, or not run."""

    step: str
    title: str
    run: str = ""
    signature: str = ""
    seconds: float | None = None
    state: str
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """What stands for one or several tables and figures of the paper."""

    name: str
    elements: tuple[str, ...]
    title: str
    state: Literal["run", "part", "stored", "not run", "missing"]
    why: str = ""
    give: str = ""
    runs: tuple[PaperRun, ...]
    tables: tuple[Table, ...]
    figures: tuple[Figure, ...]
    found: str = ""
    sure: str = ""
    coverage: Mapping[str, str] = field(default_factory=dict)

    @property
    def shown(self) -> bool:
        """Whether there is anything to show of it."""
        return self.state in ("run", "part", "stored")


@dataclass(frozen=True, kw_only=True)
class PaperRecord:
    """The run of a paper on a model."""

    name: str
    title: str
    source: str
    question: str
    method: tuple[str, ...]
    model: Mapping[str, Any]
    command: str
    found: str = ""
    sure: str = ""
    notes: tuple[str, ...] = ()
    experiments: tuple[Experiment, ...]
    failed: Mapping[str, str] = field(default_factory=dict)
    seconds: float | None = None
    result: Mapping[str, Any] = field(repr=False)

    def __post_init__(self) -> None:
        if len({one.name for one in self.experiments}) < len(self.experiments):
            raise ValueError("two experiments have one name")

    @property
    def runs(self) -> tuple[PaperRun, ...]:
        """Every run behind the experiments once, in their order."""
        return tuple({run.step: run for one in self.experiments for run in one.runs}.values())


def read_paper(path: Path) -> PaperRecord:
    """Read a finished run; InputError if it is damaged or of another shape."""
    result = read_result(path)
    with naming(path / "result.json", KIND):
        model = result["model"]
        own = {"model": model if isinstance(model, Mapping) else {"name": model}, "result": result}
        read: PaperRecord = decode(
            PaperRecord, {**result, **result["paper"], **result["answer"], **own}
        )
        return read


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
