"""The experiments of a paper as a list, without running any of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from headscope.heads import Geometry
from headscope.papers.registry import ALL, PAPERS
from headscope.papers.reproduce import NOWHERE, Reproduce, planned
from headscope.studies.costs.reading import read_shape
from headscope.studies.inputs import POCKET, ModelChoice


def listing(config: Reproduce, out: Path | None = None) -> list[dict[str, Any]]:
    """One row an experiment: its paper, name, title, coverage, runs, and what is missing.

    `coverage` has one of the words of `COVERAGE` for each table and figure, as the command would
    leave it. `runs` is how many there are in all, `finished` how many of them lie below `out`
    or come with the package. `missing` says of what is not there why it is needed and what to give.
    """
    geometry, digest = _about(config.model)
    names = list(PAPERS) if config.paper == ALL else [config.paper]
    rows = []
    for name in names:
        folder = NOWHERE if out is None else (out / name if config.paper == ALL else out)
        paper, plan = planned(replace(config, paper=name), geometry, digest, folder)
        for each in plan.experiments:
            missing = [each.missing, *(one for _, one in each.coverage.values())]
            rows.append(
                {
                    "paper": paper.name,
                    "name": each.experiment.name,
                    "title": each.experiment.title,
                    "coverage": {element: word for element, (word, _) in each.coverage.items()},
                    "runs": len(each.steps),
                    "finished": sum(step.state in ("done", "stored") for step in each.steps),
                    "missing": [
                        {"coverage": one.coverage, "why": one.why, "give": one.give or None}
                        for one in dict.fromkeys(missing)
                        if one is not None
                    ],
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
