"""A paper of three experiments whose steps are quick, for the tests of the runner.

`counting` writes what it was asked, `second` reads the first step's folder, `long` is left to
`--full`, `broken` cannot use its data. Environment variable `DIE_IN`: a step that kills its own
process with SIGKILL after it has begun to write.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from headscope.errors import InputError
from headscope.papers.paper import Experiment, Missing, Paper, Setting, Step
from headscope.papers.show import Answer
from headscope.progress import Progress
from headscope.runs import Run, carry_out
from headscope.shown.blocks import Cell, Claim, Findings, Lines, Reference, Row, Series, Table
from headscope.studies.costs.estimate import Work

#: The steps that were really run, in order.
CALLS: list[str] = []
WORK = Work(forward=1000, length=10, rows=10)


def runs(name: str, value: Callable[[Setting], float]) -> Callable[..., dict[str, Any]]:
    def run(setting: Setting, out: Path, progress: Progress | None) -> dict[str, Any]:
        def compute(run: Run) -> dict[str, Any]:
            CALLS.append(name)
            if progress is not None:
                progress("counting", 1, 2)
            if os.environ.get("DIE_IN") == name:
                os.kill(os.getpid(), signal.SIGKILL)
            return {"seconds": 0.25, "value": value(setting)}

        return carry_out(f"small {name}", out, {"seed": setting.seed}, {}, compute)

    return run


def fails(setting: Setting, out: Path, progress: Progress | None) -> dict[str, Any]:
    raise InputError("numbers.tsv, line 3: is no number; write one")


def doubled(setting: Setting) -> float:
    found = setting.result("first")
    assert found is not None
    return 2 * float(found["value"])


FIRST = Step("first", "the first number", runs("first", lambda setting: 3.0 + setting.seed), WORK)
SECOND = Step("second", "its double", runs("second", doubled), WORK * 2, after=("first",))
LONG = Step("long", "a long one", runs("long", lambda setting: 5.0), WORK * 9, extended=True)
AFTER = Step("after", "after the long one", runs("after", lambda _: 7.0), WORK, after=("long",))
TRAINED = Step("trained", "trained", runs("trained", lambda _: 11.0), WORK, stored="small-trained")
BROKEN = Step("broken", "a broken one", fails, WORK)
BEHIND = Step("behind", "behind it", runs("behind", lambda _: 1.0), WORK, after=("broken",))


def show(*names: str) -> Callable[[Setting], Findings]:
    def told(setting: Setting) -> Findings:
        cells = []
        for name in names:
            found = setting.result(name)
            value = None if found is None else float(found["value"])
            why = "not run" if value is None else None
            cells.append(Cell(value, low=value, high=value, published=4.0, why=why))
        same = setting.model.model != "pocket"
        reference = Reference("Table 1", "M", same, "" if same else "not comparable: other model")
        table = Table("Numbers", tuple(names), (Row("ours", tuple(cells)),), reference)
        points = tuple((float(at), 1.0) for at in range(3))
        line = Lines("A line", (Series("one", points),), "x", "y")
        return Findings([table], [line], f"{len(names)} numbers", "exactly")

    return told


def experiment(name: str, elements: tuple[str, ...], *steps: Step) -> Experiment:
    names = [step.name for step in steps]
    return Experiment(name, elements, f"about {name}", lambda _: steps, show(*names))


def data_missing(setting: Setting) -> tuple[Step, ...] | Missing:
    return Missing("the paper's corpus is not here", "--documents de=FILE")


def answer(setting: Setting, told: Mapping[str, Findings]) -> Answer:
    claim = Claim(key="doubled", name="It is doubled", holds=True, by="-2 of 2", sure="arithmetic")
    return Answer(
        found=f"{len(told)} experiments tell something",
        sure="as sure as arithmetic",
        claims=(claim,),
    )


PAPER = Paper(
    "small",
    "A small paper",
    "Nobody, nowhere, 2026",
    "Can numbers be doubled?",
    ("One is taken.", "It is doubled.", "Both are told."),
    (
        experiment("table-1", ("Table 1", "Figure 2"), FIRST, SECOND),
        experiment("table-2", ("Table 2",), FIRST, LONG, AFTER),
        experiment("table-3", ("Table 3",), TRAINED),
        experiment("table-4", ("Table 4",), BROKEN, BEHIND, FIRST),
        Experiment("table-5", ("Table 5", "Figure 28"), "missing", data_missing, show()),
    ),
    answer,
)
