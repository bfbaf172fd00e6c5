"""Finished runs of papers, made by hand, and what their steps ask of their studies."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

from headscope.estimates import Estimate
from headscope.evidence.controls import CONTROLS
from headscope.evidence.rows import Condition, Evidence, Level, Statistic, Tested
from headscope.heads import Geometry
from headscope.heads.store import RUN_FORMAT
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
    done = json.dumps({"format": RUN_FORMAT, "result": file_digest(folder / "result.json")})
    (folder / "DONE.json").write_text(done, encoding="utf-8")
    return folder


INSTRUCTED = Condition("instructed")


class Row(NamedTuple):
    """Selected heads in one part, as made up: a statistic in the original model, with them changed,
    with random heads and in what they are compared with besides; and their tests.

    `half` of every interval; `p_draws` against random heads, `p_same` those of the same layers.
    """

    part: str
    condition: Condition
    statistic: str
    base: float | None
    value: float | None
    half: float
    random: float | None
    examples: int = 7
    draws: int = 99
    p_draws: float = 0.02
    p_same: float = 0.02
    p_examples: float = 0.001
    side: Literal["higher", "lower"] = "higher"
    reference: float | None = None
    least_p: float | None = None


def evidence(
    statistics: Mapping[str, Statistic],
    rows: Iterable[Row],
    controls: Sequence[str] = ("random", "same layers"),
    reference: Condition = INSTRUCTED,
) -> Evidence:
    """A table that holds these rows."""
    conditions = {"original": Condition()}
    levels, tests = dict[tuple[str, ...], Level](), list[Tested]()
    for row in rows:
        own, known = row.condition, {"part": row.part, "statistic": row.statistic}

        def gap(other: float | None, row: Row = row) -> Estimate | None:
            if other is None or row.value is None:
                return None
            return around(row.value - other, row.half)

        values = {Condition(): row.base, own: row.value, reference: row.reference}
        values |= {replace(own, kind=control, draw=0): row.random for control in controls}
        conditions[own.id] = own
        for each, value in values.items():
            if value is not None:
                conditions[each.id] = each
                change = gap(row.base) if each is own else None
                levels[row.part, each.id, row.statistic] = Level(
                    **vars(around(value)), condition=each.id, change=change,
                    examples=row.examples, **known,
                )  # fmt: skip
        known |= {"condition": own.id, "side": row.side}
        least = 1 / (1 + row.draws) if row.least_p is None else row.least_p
        for control, p in zip(controls, (row.p_draws, row.p_same), strict=True):
            if (difference := gap(row.random)) is not None:
                tests.append(
                    Tested(control=control, difference=difference, p_draws=p, draws=row.draws,
                           least_p=least, p_examples=row.p_examples, **known)
                )  # fmt: skip
        if (difference := gap(row.reference)) is not None:
            tests.append(Tested(control=reference.kind, difference=difference, **known))
    names = (*controls, reference.kind)
    return Evidence(
        statistics=dict(statistics),
        controls={name: CONTROLS[name] for name in names if name in CONTROLS},
        conditions=tuple(conditions.values()),
        levels=tuple(levels.values()),
        tests=tuple(tests),
    )


def verdicts(**findings: Findings) -> dict[str, bool | None]:
    """Whether each claim holds, by its name, after Holm over all of them."""
    return {claim.name: claim.holds for claim in judged(claims_of(findings))}


def around(value: float, half: float = 0.01) -> Estimate:
    """A value with an interval that reaches so far to both sides."""
    return Estimate(value, value - half, value + half)
