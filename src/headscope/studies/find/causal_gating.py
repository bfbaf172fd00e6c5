"""Causal head gating on a task, in a run folder, with what its roles predict put to the test."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import nextafter
from operator import not_
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from numpy.typing import NDArray

from headscope import options
from headscope.data.tasks import Task
from headscope.estimates import Floats
from headscope.evidence.blocks import forest, tables
from headscope.evidence.controls import DEFAULT, Controlled, Draws, drawn
from headscope.evidence.headline import UNTESTED, Case, few_sets, headline, resolution, uncertainty
from headscope.evidence.rows import SELECTED, Basis, Condition, Evidence, Statistic
from headscope.evidence.table import evidence
from headscope.find.causal_gating_scores import (
    ROLES,
    CausalGates,
    CausalGating,
    fit_causal_gates,
    role_scores,
)
from headscope.find.gate_descent import mean_losses
from headscope.heads import Gate, Geometry, HeadScores, HeadSet, save_scores
from headscope.heads.geometry import keys_of
from headscope.heads.store import Origin
from headscope.measure.baseline import Rules
from headscope.measure.statistics import counted
from headscope.progress import Progress, steps_of
from headscope.results.causal_gating import (
    CausalGatingDetails,
    CausalGatingResult,
    Fit,
    RoleCount,
)
from headscope.runs import Run
from headscope.settings import UNSIGNED, Nested, Option
from headscope.shown.blocks import (
    Column,
    HeadPlace,
    HeadSets,
    HeadTable,
    Lines,
    Section,
    Series,
    Shown,
    Table,
    table_of,
)
from headscope.shown.words import count, enumeration, sentence_of, tasks_of
from headscope.studies.baseline import check_tasks
from headscope.studies.find.head_scores import describe
from headscope.studies.find.soft_gate import default_heads
from headscope.studies.going_on import Spent, going_on
from headscope.studies.leakage import FOUND_ON
from headscope.studies.models import PROMPTED, ModelChoice, run_with_model
from headscope.studies.shows import head_table, model_facts, places
from headscope.studies.study import Study
from headscope.studies.survey_plans import SurveyPlan
from headscope.studies.tasks import (
    TaskChoice,
    answers,
    first_prompts,
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
#: How gates were pushed, by the names of fits: the names of gates, and words.
PUSHES = {
    "none": ("free", "no push"),
    "keep": ("keep", "pushed open (G+)"),
    "remove": ("remove", "pushed shut (G\u2212)"),
}
PART, FITTED = "held out", "fitted gates"
MEASURES = {"nll": Statistic("the loss of the answers", "lower", "nats a token")}
PREDICTED = (
    "Predicted: a higher loss without facilitating heads, a lower one without interfering ones, no "
    "change without irrelevant ones."
)


def _changes(**values: Any) -> dict[str, Any]:
    """`--steps` are those of all three fits."""
    return values | ({"pushed_steps": values["steps"]} if "steps" in values else {})


@dataclass(frozen=True)
class FindCausalGating(Controlled):
    """Fit soft gates of all heads to a task, pushed towards keeping and towards removing them.

    A head that stays open either way may help the task, one that stays closed may hinder it, one
    that follows the push may have no effect. Removal tests these roles. --steps, --seeds and
    --batch are 500, 10 and 64 by default; in a model of fewer than 256 heads 150, 3 and 16.
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
    draws: options.Draws = 10
    controls: options.Controls = DEFAULT
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
        began = time.monotonic()
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
        inputs = ([each.input for each in sides.test.examples] for sides in tasks.values())
        basis = Basis.on(lm, inputs)
        ready = time.monotonic()
        losses = _check(lm, scores, fits, tested, config, fit.seed, basis)
        save_scores(run.path, scores)
        details = CausalGatingDetails(
            threshold=THRESHOLD,
            roles=_roles(scores),
            task=task.name,
            held_out=len(tested),
            draws=config.draws,
            fits=tuple(
                Fit(
                    fit.seed + number,
                    {push: tuple(each) for push, each in fitted.losses.items()},
                    {
                        each.of: float(own[number].mean())
                        for each, own in losses.items()
                        if each.kind == FITTED
                    },
                )
                for number, fitted in enumerate(fits)
            ),
        )
        result = describe(
            CausalGatingResult,
            scores,
            **works,
            first_prompts=first_prompts(lm, tasks, shots, fit.seed),
            evidence=table(losses, fit.seed),
            details=details,
            data=data,
        )
        asked = replace(result.evidence, asked=config.draws)
        spent = Spent.by(run, asked, began, ready)
        following = going_on(COMMAND, run, FindCausalGating, asked, _cases(asked), spent)
        return concluded(replace(result, evidence=asked, next=following))

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
    basis: Basis,
) -> dict[Condition, Floats]:
    """Losses (gates, examples) on held-out examples: as is, under the fitted gates of every seed,
    and without heads of a role.

    Removing facilitating heads should raise the loss, irrelevant ones leave it, interfering ones
    lower it. Of each role the highest are removed, as many as soft gates are trained of by default,
    if so many have it.
    """
    geometry = lm.geometry
    gates = {Condition(): [Gate.identity(geometry)]}
    for name in GATES:
        fitted = Condition(FITTED, of=name, gate=None)
        gates[fitted] = [Gate(geometry, getattr(each, name)) for each in fits]
    how = Draws(config.draws, config.controls, seed)
    k = len(HeadScores(geometry, scores.values, METHOD).top(default_heads(geometry)))
    for role in ROLES:
        ranked = HeadScores(geometry, scores.extra[role], METHOD)
        heads = HeadSet(geometry, ranked.select(THRESHOLD).heads[:k])
        if not len(heads):
            continue
        own = Condition(SELECTED, role, len(heads), 0.0, heads=keys_of(heads))
        for each in (own, *drawn(own, heads, how, basis)):
            gates[each] = [each.in_model(geometry).removed()]
    return {
        condition: np.array([mean_losses(lm, tested, gate, config.batch_tokens) for gate in own])
        for condition, own in gates.items()
    }


def table(losses: Mapping[Condition, Floats], seed: int) -> Evidence:
    """The table of losses (gates, examples): the mean over the gates of a condition.

    The loss is said to fall without interfering heads, and to rise without others.
    """
    counts = {"nll": list(counted([each.mean(axis=0) for each in losses.values()]))}
    return evidence(
        list(losses), {PART: counts}, MEASURES, seed, helps=lambda each: each.of == "interfering"
    )


def without(table: Evidence, role: str) -> Condition | None:
    """The heads of a role, if some were removed."""
    return next((each for each in table.selected if each.of == role), None)


def _cases(table: Evidence) -> list[Case]:
    """The heads of every role."""
    return [
        Case("nll", each, name=each.of, lead=f"Without {count(len(each.heads), f'{each.of} head')}")
        for each in table.selected
    ]


def concluded(result: CausalGatingResult) -> CausalGatingResult:
    """The result with its verdict and what weakens it, which follow from its rows."""
    table = result.evidence
    cases = _cases(table)
    words = headline(table, cases, "held-out example", "for", "role")
    if not cases:
        words = f"{UNTESTED} (no head has a role)"
    cautions = (*_cautions(result), *resolution(table, cases, "held-out example"))
    return replace(result, verdict=words, cautions=cautions)


def _show(result: CausalGatingResult, run: Path) -> Shown:
    details, table = result.details, result.evidence
    rows = [(each.of, "nll", each, None) for each in table.selected]
    title = "Loss without heads of a role: selected minus random heads"
    effect = forest(table, rows, title, examples="held-out examples")
    by_gates = enumeration([f"{each.mean} {role}" for role, each in details.roles.items()])
    examples = count(details.held_out, "held-out example")
    return Shown(
        "Causal head gating",
        f"Which heads of {result.model_name} does {tasks_of([details.task])} need, which are in "
        "its way, and which have no effect?",
        [sentence_of(result.verdict)],
        uncertainty(table, _cases(table), examples, result.verdict) if table.selected else "",
        cautions=[*result.cautions, *_one_seed(details)],
        facts=[
            *model_facts(result.model_name, len(result.scored)),
            ("candidates by gates", by_gates),
            ("examples", str(result.examples)),
            ("held out", str(details.held_out)),
            ("seeds", str(len(details.fits))),
        ],
        sections=[
            Section("Heads", [_sets(result)]),
            Section("Roles", [_role_table(result)], brief=True),
            *(
                [replace(tables(table, ["nll"], [table.main]), lead=PREDICTED)]
                if table.selected
                else []
            ),
            *([Section("Every head", [_ranking(result)])] if effect else []),
            Section("Training", [_fits(details.fits)]),
        ],
        figure=effect or _ranking(result),
        next=result.next,
    )


def _one_seed(details: CausalGatingDetails) -> list[str]:
    one = "One seed: another fit may give the roles to other heads (--seeds 3)."
    return [one] if len(details.fits) == 1 else []


def _cautions(result: CausalGatingResult) -> Iterator[str]:
    details, table = result.details, result.evidence
    if details.held_out < FEW:
        yield f"Few held-out examples: {details.held_out}."
    unstable = [role for role, each in details.roles.items() if 2 * each.always < each.any]
    if unstable:
        yield (
            f"Fewer than half of the {enumeration(unstable)} heads have the role in every seed: "
            "heads can stand in for each other."
        )
    for each in table.selected:
        level = table.level("nll", each)
        change = level.change if level else None
        if change and each.of == "facilitating" and not change.low > 0:
            yield "Removal does not confirm that the task needs the facilitating heads."
        if change and each.of == "interfering" and not change.high < 0:
            yield "Removal does not confirm that the interfering heads are in the way."
    yield from few_sets(table, details.draws)
    nobody = [role for role in ROLES if without(table, role) is None]
    if nobody:
        yield f"No head is clearly {' or '.join(nobody)}, so none of these is removed."


def _role_table(result: CausalGatingResult) -> Table:
    return table_of(
        "Heads by role",
        result.details.roles.items(),
        {
            "heads, mean over seeds": lambda heads: heads.mean,
            "in every seed": lambda heads: heads.always,
            "in any seed": lambda heads: heads.any,
        },
        "; ".join(f"{role}: gate {meant}" for role, meant in MEANT.items()),
    )


def _sets(result: CausalGatingResult) -> HeadSets:
    threshold = result.details.threshold
    marked: dict[str, tuple[HeadPlace, ...]] = {
        role: places(
            head.place for head in result.scored if (head.number(role) or 0.0) >= threshold
        )
        for role in ROLES
    }
    return HeadSets("Candidates of each role", marked, f"a score of {threshold:g} or above")


def _ranking(result: CausalGatingResult) -> HeadTable:
    extra = (
        Column("interfering", "Interfering", "1 minus the gate pushed open"),
        Column("irrelevant", "Irrelevant", "gate pushed open, times 1 minus the gate pushed shut"),
        Column("keep", "G+", "the gate pushed open"),
        Column("remove", "G\u2212", "the gate pushed shut"),
    )
    score = Column("score", "Facilitating", "the gate pushed shut")
    heads = result.scored
    if len(result.details.fits) == 1:  # one seed has no range
        heads = tuple(replace(head, low=None, high=None) for head in heads)
    return head_table(
        "Every head by facilitation",
        {result.details.task: heads},
        extra,
        score,
        threshold=nextafter(result.details.threshold, 0),
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
    return plan.untasked() or config


command = Study(
    FindCausalGating,
    find_causal_gating,
    result=CausalGatingResult,
    show=_show,
    survey=_survey,
    usage="--task plural-en --steps 50",
)
