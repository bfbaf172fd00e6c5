"""Finished runs of papers, made by hand, and what their steps ask of their studies."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from headscope.estimates import Estimate
from headscope.heads import Geometry
from headscope.papers.claims import claims_of, judged
from headscope.papers.paper import Experiment, Missing, PaperData, Setting, Step, StudyRun
from headscope.papers.plan import make_plan
from headscope.papers.registry import paper_named
from headscope.runs import encode, file_digest
from headscope.shown.blocks import Findings
from headscope.studies.models import ModelChoice


def setting_of(folder: Path, model: str = "pocket", **changes: Any) -> Setting:
    """The bundled model, or one of the papers' size, with nothing given and nothing run."""
    heads = Geometry.uniform(6, 16) if model == "pocket" else Geometry.uniform(32, 32)
    return replace(Setting(ModelChoice(model), heads, "digest", PaperData(), folder), **changes)


def experiment(paper: str, name: str) -> Experiment:
    """The experiment of this name."""
    return next(each for each in paper_named(paper).experiments if each.name == name)


def words_of(paper: str, setting: Setting) -> dict[str, str]:
    """What becomes of each table and figure, in a word."""
    plan = make_plan(paper_named(paper).experiments, setting)
    return {name: word for one in plan.experiments for name, (word, _) in one.coverage.items()}


def steps_of(paper: str, name: str, setting: Setting) -> tuple[Step, ...]:
    """The steps of an experiment that can be run."""
    steps = experiment(paper, name).steps(setting)
    assert not isinstance(steps, Missing), steps
    return steps


def asked(setting: Setting, steps: Iterable[Step]) -> dict[str, Any]:
    """The settings that steps give to their studies, by the step's name."""
    return {
        step.name: step.run.settings(setting) for step in steps if isinstance(step.run, StudyRun)
    }


def put(setting: Setting, step: str, result: Any, command: str | None = None) -> Path:
    """A finished run of a command with this result; its folder."""
    folder = setting.at(step)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "result.json").write_text(json.dumps(encode(result)), encoding="utf-8")
    if command is not None:
        (folder / "run.json").write_text(json.dumps({"command": command}), encoding="utf-8")
    done = json.dumps({"format": 1, "result": file_digest(folder / "result.json")})
    (folder / "DONE.json").write_text(done, encoding="utf-8")
    return folder


def verdicts(**findings: Findings) -> dict[str, bool | None]:
    """Whether each claim holds, by its name, after Holm over all of them."""
    return {claim.name: claim.holds for claim in judged(claims_of(findings))}


def around(value: float, half: float = 0.01) -> Estimate:
    """A value with an interval that reaches so far to both sides."""
    return Estimate(value, value - half, value + half)
