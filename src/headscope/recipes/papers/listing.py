"""The experiments of a paper as a list, without running any of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from headscope.heads import Geometry
from headscope.recipes.costs.reading import read_shape
from headscope.recipes.inputs import POCKET, ModelChoice
from headscope.recipes.papers.plan import Planned
from headscope.recipes.papers.registry import ALL, PAPERS
from headscope.recipes.papers.reproduce import NOWHERE, Reproduce, planned

__all__ = ["listing"]


def listing(config: Reproduce, out: Path | None = None) -> list[dict[str, Any]]:
    """One row an experiment: its paper, name, elements, title, state, runs, why and what to give.

    `state` is `finished`, `part`, `stored`, `to run`, `full` (left to `--full`) or `missing`. Runs
    are looked for below `out`; without it none are. `runs` is how many there are in all.
    """
    geometry, digest = _about(config.model)
    names = list(PAPERS) if config.paper == ALL else [config.paper]
    rows = []
    for name in names:
        folder = NOWHERE if out is None else (out / name if config.paper == ALL else out)
        paper, plan = planned(replace(config, paper=name), geometry, digest, folder)
        for each in plan.experiments:
            rows.append(
                {
                    "paper": paper.name,
                    "name": each.experiment.name,
                    "elements": list(each.experiment.elements),
                    "title": each.experiment.title,
                    "state": _state(each),
                    "runs": len(each.steps),
                    "why": each.missing.why if each.missing else None,
                    "give": (each.missing.give or None) if each.missing else None,
                }
            )
    return rows


def _about(choice: ModelChoice) -> tuple[Geometry, str]:
    """The heads of the model, and the digest of its weights where that costs little."""
    if choice.model == POCKET:
        lm = choice.load()
        return lm.geometry, lm.digest
    shape = read_shape(choice.model)
    return Geometry.uniform(shape.layers, shape.query_heads), ""


def _state(one: Planned) -> str:
    if one.missing is not None:
        return "missing"
    states = {step.state for step in one.steps}
    if states <= {"done", "stored"}:
        return "stored" if states == {"stored"} else "finished"
    if "due" in states:
        return "to run"
    return "part" if states & {"done", "stored"} else "full"
