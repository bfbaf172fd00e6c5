"""Causal head gating on a task, in a run folder, with what its roles predict put to the test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import not_
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from numpy.typing import NDArray

from headscope import options
from headscope.data.tasks import Task
from headscope.find.gating import (
    ROLES,
    CausalGates,
    CausalGating,
    fit_causal_gates,
    mean_losses,
    role_scores,
)
from headscope.heads import Gate, Geometry, HeadScores, HeadSet, save_scores
from headscope.heads.draws import draw_heads
from headscope.heads.store import Origin
from headscope.measure.baseline import Rules
from headscope.measure.intervals import bootstrap_mean
from headscope.measure.statistics import counted
from headscope.measure.trial import Group, Trial
from headscope.progress import Progress
from headscope.results.causal_gating import (
    CausalGatingResult,
    CheckedLoss,
    Fit,
    RoleCount,
    RolesCheck,
)
from headscope.runs import Run
from headscope.settings import UNSIGNED, Nested, Option, Settings
from headscope.shown.blocks import (
    Bars,
    Cell,
    Column,
    HeadMaps,
    HeadSets,
    HeadTable,
    Lines,
    Section,
    Series,
    Shown,
    Table,
    table_of,
)
from headscope.shown.words import count, enumeration
from headscope.studies.baseline import check_tasks
from headscope.studies.find.head_scores import describe
from headscope.studies.find.soft_gate import default_heads
from headscope.studies.leakage import FOUND_ON
from headscope.studies.models import PROMPTED, ModelChoice, run_with_model, steps_of
from headscope.studies.shows import head_map, head_table, interval, model_facts, places
from headscope.studies.study import Study
from headscope.studies.survey_plans import SurveyPlan
from headscope.studies.tasks import (
    TaskChoice,
    answers,
    found_on,
    read_tasks,
    resolved_tasks,
    task_inputs,
    training_task,
)

if TYPE_CHECKING:
    from headscope.lm import LanguageModel
    from headscope.lm.prompting import Answered

COMMAND = "find causal-gating"
METHOD = "causal-gating"
#: A role's score from which a head has the role (table 2 of the paper).
THRESHOLD = 0.5
#: Sets of random heads that are removed beside those of each role.
DRAWS = 10
SMALL = 256
#: Fewer held-out examples are few.
FEW = 30
#: What a role means for the gate.
MEANT = {
    "facilitating": "open even when pushed shut: the task needs the head",
    "interfering": "shut even when pushed open: the head is in the way",
    "irrelevant": "where it is pushed: the head does nothing for the task",
}
#: The gates of a seed.
GATES = ("free", "keep", "remove")
#: How gates were pushed, by the names of fits and of conditions.
PUSHES = {
    "none": ("gates free", "no push"),
    "keep": ("gates keep", "pushed open (G+)"),
    "remove": ("gates remove", "pushed shut (G\u2212)"),
}


def _changes(**values: Any) -> dict[str, Any]:
    """`--steps` are those of all three fits."""
    return values | ({"pushed_steps": values["steps"]} if "steps" in values else {})


@dataclass(frozen=True)
class FindCausalGating(Settings):
    """Fit soft gates of all heads to a task, pushed towards keeping and towards removing them.

    A head that stays open either way helps the task, one that stays closed hinders it, one that
    follows the push has no effect. Removal tests these roles. --steps, --seeds and --batch are 500,
    10 and 64 by default; in a model of fewer than 256 heads 150, 3 and 16.
    """

    model: Annotated[ModelChoice, PROMPTED] = field(default_factory=ModelChoice)
    task: TaskChoice = field(default_factory=TaskChoice)
    # In place of the paper's values, or those of `CausalGating.small`.
    changes: Annotated[Mapping[str, Any], Nested(of=CausalGating, make=_changes)] = field(
        default_factory=dict, metadata=UNSIGNED
    )
    # The task's prompt with its instruction, where it has one.
    instructed: Annotated[
        bool,
        Option(
            "Fit on the task without its instruction.",
            flag="--uninstructed",
            read=not_,
            default=False,
        ),
    ] = True
    batch_tokens: options.BatchTokens = field(default=8192, metadata=UNSIGNED)
    baseline: Annotated[Rules, Nested(without=("errors",))] = field(default_factory=Rules)


def find_causal_gating(
    config: FindCausalGating, out: Path | None = None, progress: Progress | None = None
) -> CausalGatingResult:
    """Fit the gates, write the run and return the command's result; what is done is kept.

    A head's score is its facilitation, the mean over seeds; `low` and `high` are the lowest and
    the highest of a seed. The run holds these scores with the other roles beside them, the gates
    of every seed as their statistics, and as `seeds/N/keep` and `seeds/N/remove`.
    """
    seed = _fit(config, SMALL).seed  # a slip is told before a model is loaded
    tasks = read_tasks(config.task, config.model.model, seed)
    task = training_task(config.task, tasks, seed)
    lm = config.model.load_for()
    config = replace(config, task=resolved_tasks(lm, config.task, config.model.model))
    fit = _fit(config, lm.geometry.total)
    learned = _samples(lm, task, config.instructed)
    tested = [
        sample for sides in tasks.values() for sample in _samples(lm, sides.test, config.instructed)
    ]
    data = {
        f"task {name}": {
            "path": sides.test.path,
            "digest": sides.test.digest,
            "examples": len(sides.test.examples) + len(sides.train.examples if sides.train else ()),
        }
        for name, sides in tasks.items()
    }

    def compute(run: Run) -> CausalGatingResult:
        steps = steps_of(progress, COMMAND)
        shots = config.task.shots
        works = check_tasks(lm, tasks, shots, fit.seed, run, config.baseline, progress)
        fits = [
            fit_causal_gates(
                lm, learned, fit, fit.seed + number, run, _part(steps, number, fit.seeds)
            )
            for number in range(fit.seeds)
        ]
        run.write_json(FOUND_ON, found_on(tasks))
        scores = _scores(lm.geometry, fits, fit, run, learned)
        _write_gates(run, lm.geometry, fits, fit)
        check = _check(lm, scores, fits, tested, config, fit.seed)
        save_scores(run.path, scores)
        return describe(
            CausalGatingResult,
            scores,
            **works,
            threshold=THRESHOLD,
            roles=_roles(scores),
            task=task.name,
            fits=tuple(
                Fit(fit.seed + number, {push: tuple(each) for push, each in fitted.losses.items()})
                for number, fitted in enumerate(fits)
            ),
            check=check,
            data=data,
        )

    settings, kind = {"settings": {"settings": config, "fit": fit}}, CausalGatingResult
    return run_with_model(
        lm, COMMAND, out, settings, task_inputs(tasks), compute, kind=kind, seed=fit.seed
    )


def _fit(config: FindCausalGating, heads: int) -> CausalGating:
    return (CausalGating if heads >= SMALL else CausalGating.small)(**config.changes)


def _samples(lm: LanguageModel, task: Task, instructed: bool) -> list[Answered]:
    rows = answers(lm, task, instructed and task.instruction is not None)
    return [
        replace(row, name=f"{task.path}, example {example.id} (line {example.line})")
        for row, example in zip(rows, task.examples, strict=True)
    ]


def _part(steps: Any, number: int, of: int) -> Any:
    """Progress of one fit as a part of all."""
    if steps is None:
        return None
    return lambda done, total: steps(number * total + done, of * total)


def _scores(
    geometry: Geometry,
    fits: Sequence[CausalGates],
    fit: CausalGating,
    run: Run,
    learned: Sequence[Answered],
) -> HeadScores:
    gates = {push: np.array([getattr(gates, push) for gates in fits]) for push in GATES}
    roles = role_scores(gates["keep"], gates["remove"])
    facilitating = roles["facilitating"]
    by_seed: dict[str, NDArray[Any]] = {role: roles[role] for role in ROLES}
    by_seed |= {name: gates[name] for name in ("keep", "remove")}
    return HeadScores(
        geometry,
        facilitating.mean(axis=0),
        METHOD,
        facilitating.min(axis=0),
        facilitating.max(axis=0),
        extra={name: values.mean(axis=0) for name, values in by_seed.items()},
        statistics=gates,
        config={
            "examples": len(learned),
            "tokens": sum(len(sample.ids) - sample.start for sample in learned),
            "seeds": fit.seeds,
        },
        provenance=run.provenance,
        signature=run.signature,
    )


def _write_gates(
    run: Run, geometry: Geometry, fits: Sequence[CausalGates], fit: CausalGating
) -> None:
    origin = Origin(METHOD, run.signature, {"weight": fit.weight}, run.provenance)
    for number, fitted in enumerate(fits):
        for name in ("keep", "remove"):
            folder = run.path / "seeds" / str(fit.seed + number) / name
            Gate(geometry, getattr(fitted, name), origin).save_pretrained(folder)


def _roles(scores: HeadScores) -> dict[str, RoleCount]:
    """How many heads have each role."""
    mask = scores.geometry.mask()
    roles = role_scores(scores.statistics["keep"], scores.statistics["remove"])
    return {
        role: RoleCount(
            int((values.mean(axis=0)[mask] >= THRESHOLD).sum()),
            int((values[:, mask] >= THRESHOLD).all(axis=0).sum()),
            int((values[:, mask] >= THRESHOLD).any(axis=0).sum()),
        )
        for role, values in roles.items()
    }


def _check(
    lm: LanguageModel,
    scores: HeadScores,
    fits: Sequence[CausalGates],
    tested: Sequence[Answered],
    config: FindCausalGating,
    seed: int,
) -> RolesCheck:
    """The loss on held-out examples: as is, under the fitted gates, and without heads of a role.

    Removing facilitating heads should raise it, irrelevant ones leave it, interfering ones lower
    it. Of each role the highest are removed, as many as soft gates are trained of by default, if
    so many have it; beside them as many random heads, whose mean over draws is told.
    """
    geometry = lm.geometry
    losses = {"untouched": _nll(lm, [Gate.identity(geometry)], tested, config)}
    for name in GATES:
        gates = [Gate(geometry, getattr(each, name)) for each in fits]
        losses[f"gates {name}"] = _nll(lm, gates, tested, config)
    k = default_heads(geometry)
    removed: dict[str, tuple[str, ...]] = {}
    for role in ROLES:
        ranked = HeadScores(geometry, scores.extra[role], METHOD)
        heads = HeadSet(geometry, ranked.select(THRESHOLD).heads[: len(ranked.top(k))])
        removed[role] = tuple(map(str, heads))
        if not len(heads):
            continue
        losses[f"without {role}"] = _nll(lm, [heads.removed()], tested, config)
        draws = [draw.heads.removed() for draw in draw_heads(heads, DRAWS, seed)]
        losses[f"random beside {role}"] = _nll(lm, draws, tested, config)
    return RolesCheck(removed, len(tested), conditions(losses, seed))


def _nll(
    lm: LanguageModel, gates: Sequence[Gate], tested: Sequence[Answered], config: FindCausalGating
) -> NDArray[np.float64]:
    """Losses (gates, examples)."""
    return np.array([mean_losses(lm, tested, gate, config.batch_tokens) for gate in gates])


def conditions(losses: Mapping[str, NDArray[np.float64]], seed: int) -> dict[str, CheckedLoss]:
    """Of losses (gates, examples) the mean of each condition and its change from the first.

    The first is the untouched model; intervals are over examples.
    """
    means = [each.mean(axis=0) for each in losses.values()]
    trial = Trial([Group(list(counted(means)), seed=seed)])
    return {
        name: CheckedLoss(
            nll=bootstrap_mean(means[at], seed),
            each=tuple(each.mean(axis=1).tolist()),
            change=trial.difference(at),
        )
        for at, (name, each) in enumerate(losses.items())
    }


def _show(result: CausalGatingResult, run: Path) -> Shown:
    check = result.check
    return Shown(
        "Causal head gating",
        f"Which heads of {result.model_name} help with {result.task}, which hinder it, and which "
        "have no effect?",
        _finding(result),
        *_stability(result),
        _cautions(result),
        [
            *model_facts(result.model_name, len(result.heads)),
            ("examples", str(result.examples)),
            ("held out", str(check.examples)),
            ("seeds", str(len(result.fits))),
        ],
        [
            Section("Roles", [_role_table(result)], brief=True),
            Section("Roles tested", [_changes_table(check)], brief=True),
            Section("Losses", _bars(check)),
            Section("Where the heads are", _maps(result)),
            Section("Every head", [_ranking(result)]),
            Section("Fits", [_fits(result.fits)]),
        ],
    )


def _finding(result: CausalGatingResult) -> list[str]:
    helping, hindering, idle = (result.roles[role].mean for role in ROLES)
    sentences = [
        f"Of {len(result.heads)} heads {helping} help with {result.task}, {hindering} hinder it "
        f"and {idle} have no effect (a role's score of {result.threshold:g} or above, mean over "
        f"{count(len(result.fits), 'seed')})."
    ]
    for role in ROLES:
        without = result.check.conditions.get(f"without {role}")
        random = result.check.conditions.get(f"random beside {role}")
        if without is not None and random is not None:
            sentences.append(
                f"Without {count(len(result.check.removed[role]), f'{role} head')} the loss "
                f"changes by {interval(without.change)} nats a token "
                f"({count(result.check.examples, 'held-out example')}); without as many random "
                f"heads by {interval(random.change)} "
                f"(mean of {count(len(random.each), 'draw')})."
            )
    return sentences


def _stability(result: CausalGatingResult) -> tuple[str, str]:
    """How far seeds agree, and the option that says more of it."""
    seeds = len(result.fits)
    if seeds == 1:
        return "One seed: another fit may give the roles to other heads.", "--seeds 3"
    agreeing = [f"{role} {each.always} of {each.any}" for role, each in result.roles.items()]
    words = (
        f"Heads with a role in every one of {seeds} seeds, of those with it in at least one: "
        f"{', '.join(agreeing)}."
    )
    return words, "--seeds 10" if seeds < 10 else ""


def _cautions(result: CausalGatingResult) -> list[str]:
    check, cautions = result.check, list[str]()
    if check.examples < FEW:
        cautions.append(f"Few held-out examples: {check.examples}.")
    unstable = [role for role, each in result.roles.items() if 2 * each.always < each.any]
    if unstable:
        cautions.append(
            f"Fewer than half of the {enumeration(unstable)} heads have the role in every seed: "
            "heads can stand in for each other."
        )
    helpful = check.conditions.get("without facilitating")
    if helpful is not None and helpful.change.low <= 0:
        cautions.append("Removal does not confirm that the task needs the facilitating heads.")
    nobody = [role for role, heads in check.removed.items() if not heads]
    if nobody:
        cautions.append(f"No head is clearly {' or '.join(nobody)}, so none of these is removed.")
    return cautions


def _role_table(result: CausalGatingResult) -> Table:
    removed = result.check.removed
    return table_of(
        "Heads by role",
        ((role, (role, heads)) for role, heads in result.roles.items()),
        {
            "heads, mean over seeds": lambda row: row[1].mean,
            "in every seed": lambda row: row[1].always,
            "in any seed": lambda row: row[1].any,
            "removed": lambda row: " ".join(removed.get(row[0], ())) or "none",
            "gate": lambda row: MEANT.get(row[0], ""),
        },
    )


def _named(check: RolesCheck) -> dict[str, str]:
    """Conditions in words, as far as there are some."""
    words = {"untouched": "original"}
    words |= {condition: f"gates, {push}" for condition, push in PUSHES.values()}
    for role in ROLES:
        words |= {f"without {role}": f"{role} heads removed"}
        words |= {f"random beside {role}": f"random heads removed, as many as {role}"}
    return {name: text for name, text in words.items() if name in check.conditions}


def _changes_table(check: RolesCheck) -> Table:
    return table_of(
        "Loss of the answers",
        ((words, (name, check.conditions[name])) for name, words in _named(check).items()),
        {
            "nats a token": lambda row: row[1].nll.value,
            "change": lambda row: None if row[0] == "untouched" else Cell.of(row[1].change),
        },
        f"{count(check.examples, 'held-out example')}. Predicted: a higher loss without "
        "facilitating heads, a lower one without interfering ones, no change without irrelevant "
        "ones",
    )


def _bars(check: RolesCheck) -> list[Bars]:
    """The losses by role, and of the fitted gates."""
    known, words = check.conditions, _named(check)

    def bars(title: str, groups: Mapping[str, Sequence[str]], *series: str, note: str = "") -> Bars:
        losses = [[known[name] for name in names] for names in groups.values()]
        return Bars(
            title,
            tuple(groups),
            series,
            tuple(tuple(loss.nll.value for loss in row) for row in losses),
            "nats a token",
            tuple(tuple(loss.nll.low for loss in row) for row in losses),
            tuple(tuple(loss.nll.high for loss in row) for row in losses),
            digits=3,
            note=note,
            draws=tuple(
                tuple(loss.each if len(loss.each) > 1 else () for loss in row) for row in losses
            ),
        )

    roles: dict[str, Sequence[str]] = {
        role: ("untouched", f"without {role}", f"random beside {role}")
        for role in ROLES
        if f"without {role}" in known
    }
    removed = ("original", "selected heads removed", "random heads removed")
    gates = [name for name in ("untouched", *(fit for fit, _ in PUSHES.values())) if name in known]
    fitted = bars(
        "Loss under the fitted gates",
        {"all heads": gates},
        *(words[name] for name in gates),
        note="Single draws are seeds",
    )
    return [*([bars("Loss without heads of a role", roles, *removed)] if roles else []), fitted]


def _maps(result: CausalGatingResult) -> list[HeadMaps | HeadSets]:
    threshold = result.threshold
    marked = {
        role: [head.place for head in result.heads if (head.number(role) or 0.0) >= threshold]
        for role in ROLES
    }
    maps = tuple(head_map(role, result.heads, marked[role], role) for role in ROLES)
    words = f"a score of {threshold:g} or above"
    return [
        HeadSets(
            "Heads of each role", {role: places(heads) for role, heads in marked.items()}, words
        ),
        HeadMaps("The three roles", maps, "score", high=1.0, marked=words),
    ]


def _ranking(result: CausalGatingResult) -> HeadTable:
    extra = (
        Column("interfering", "Interfering", "1 minus the gate pushed open"),
        Column("irrelevant", "Irrelevant", "gate pushed open, times 1 minus the gate pushed shut"),
        Column("keep", "G+", "the gate pushed open"),
        Column("remove", "G\u2212", "the gate pushed shut"),
    )
    score = Column("score", "Facilitating", "the gate pushed shut")
    return head_table(
        "Every head by facilitation",
        {result.task: result.heads},
        extra,
        score,
        band="range over seeds",
        note="Means over seeds; scores of Nam et al. 2025, table 1",
    )


def _fits(fits: Sequence[Fit]) -> Lines:
    series = []
    for push, (_, words) in PUSHES.items():
        losses = [fit.nll[push] for fit in fits]
        step = max(1, len(losses[0]) // 40)
        before = 0 if push == "none" else len(fits[0].nll["none"])
        points = []
        for at in range(0, len(losses[0]), step):
            some = [value for each in losses for value in each[at : at + step]]
            points.append((float(before + at), sum(some) / len(some)))
        series.append(Series(words, tuple(points)))
    return Lines(
        "Loss of the answers during the fits",
        tuple(series),
        "step",
        "nats a token",
        note="On the examples fitted to, without the push; means over seeds. Gates begin between 0 "
        "and 1. Both pushed fits go on from the end of the first",
    )


def _survey(plan: SurveyPlan) -> FindCausalGating | str:
    changes: dict[str, Any] = {"seed": plan.data.seed}
    if plan.quick:
        changes |= {"steps": 20, "pushed_steps": 20, "batch_size": 8, "seeds": 1}
    config = FindCausalGating(plan.model, plan.task(), changes=changes)
    return plan.missing(plan.data.task, "--task FILE") or config


command = Study(
    FindCausalGating, find_causal_gating, result=CausalGatingResult, show=_show, survey=_survey
)
