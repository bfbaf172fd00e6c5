"""Attribution of answers to heads by counterfactuals, in a run folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from headscope.find.counterfactuals import Attribution, attribution
from headscope.heads import HeadScores
from headscope.measure.baseline import Rules
from headscope.measure.intervals import resamples
from headscope.measure.ranking import rank_correlations
from headscope.progress import Progress, Steps
from headscope.results.common import Checked
from headscope.results.head_scores import Correlation, ScoresResult
from headscope.runs import Record, Run, decode
from headscope.settings import Nested, Settings
from headscope.shown.blocks import Section, Shown, method_section
from headscope.shown.words import enumeration, fixed
from headscope.studies.baseline import check_tasks
from headscope.studies.find.head_scores import Scored, parts_of, scores_run
from headscope.studies.leakage import FOUND_ON
from headscope.studies.models import PROMPTED, ModelChoice
from headscope.studies.shows import (
    few_caution,
    head_table,
    model_facts,
    more_examples,
    spread,
    strongest,
    top_heads,
)
from headscope.studies.study import Study
from headscope.studies.survey_plans import QUICK, SurveyPlan
from headscope.studies.tasks import TaskChoice, found_on, read_tasks, resolved_tasks

COMMAND = "find attribution"
#: Bootstrap draws of a correlation.
DRAWS = 1000
WHY = {
    "no_counterfactual": "without another input of as many tokens",
    "other_length": "whose corrupted input has another number of tokens",
    "same_tokens": "whose answers are the same tokens",
}


@dataclass(frozen=True)
class FindAttribution(Settings):
    """Score every head by what its output in a corrupted input would do to the answer.

    By gradients, for all heads at once (attribution patching, EAP-IG). Examples are of a file with
    columns clean, corrupted, answer and wrong, of --task ioi, or of any task or direction, where
    another input of as many tokens is the corrupted one.
    """

    model: Annotated[ModelChoice, PROMPTED] = field(default_factory=ModelChoice)
    task: TaskChoice = field(default_factory=TaskChoice)
    attribution: Attribution = field(default_factory=Attribution)
    baseline: Annotated[Rules, Nested(without=("errors",))] = field(default_factory=Rules)


@dataclass(frozen=True, kw_only=True)
class Attributed(Record):
    """One task: what was measured (`loss` or `difference`), how much worse it is with the corrupted
    input, and the scores beside patching each head alone."""

    measure: str
    corruption: float
    left_out: Mapping[str, int]
    patched: Correlation | None = None


@dataclass(frozen=True, kw_only=True)
class AttributionResult(ScoresResult, Checked):
    """The result of `find attribution`."""

    tasks: Mapping[str, Attributed] = field(default_factory=dict)


def find_attribution(
    config: FindAttribution, out: Path | None = None, progress: Progress | None = None
) -> AttributionResult:
    """Score every head and return the command's result; what is done already is kept.

    The run holds `scores/`, of several tasks those of each. Examples that `verify` tests on are
    left out, where a task has others.
    """
    seed, shots = config.attribution.seed, config.task.shots
    read = read_tasks(config.task, config.model.model, seed)
    tasks = {name: replace(own, train=own.train or own.test) for name, own in read.items()}
    if not all((own.train or own.test).names_wrong for own in tasks.values()):
        # One measure of all, whose mean has a meaning.
        measure = config.attribution.measure or "loss"
        config = replace(config, attribution=replace(config.attribution, measure=measure))
    lm = config.model.load_for()
    config = replace(config, task=resolved_tasks(lm, config.task, config.model.model))
    works: dict[str, Any] = {}

    def score(run: Run, steps: Steps | None) -> Scored:
        works.update(check_tasks(lm, tasks, shots, seed, run, config.baseline, progress))
        run.write_json(FOUND_ON, found_on(tasks))
        return parts_of(
            {
                name: attribution(
                    lm, own.train or own.test, config.attribution, own.pool, shots, run, steps
                )
                for name, own in tasks.items()
            }
        )

    def complete(result: AttributionResult, scores: Scored) -> AttributionResult:
        parts = scores if isinstance(scores, dict) else dict.fromkeys(tasks, scores)
        about = ("measure", "corruption", "left_out")
        told = {
            name: Attributed(**{key: own.config[key] for key in about}, patched=_patched(own, seed))
            for name, own in parts.items()
        }
        return replace(result, tasks=told, left_out=None, **works)

    data = {name: {"path": own.test.path, "digest": own.test.digest} for name, own in tasks.items()}
    return scores_run(
        COMMAND, config, lm, data, out, score, progress, AttributionResult, complete, seed
    )


def _patched(scores: HeadScores, seed: int) -> Correlation | None:
    """How well the scores rank heads as patching does, on the examples that were patched."""
    effects = scores.statistics.get("patched")
    if effects is None:
        return None
    mask = scores.geometry.mask()
    both = effects[:, mask], scores.statistics["products"][: len(effects)][:, mask]
    drawn = np.zeros((2, DRAWS, int(mask.sum())))
    for at, weights in resamples(len(effects), DRAWS, np.random.default_rng(seed), drawn.shape[2]):
        drawn[:, at] = [weights @ own / len(effects) for own in both]
    first, other = (own.mean(axis=0, dtype=np.float64) for own in both)
    numbers = rank_correlations(
        first, other, np.nonzero(mask)[0], drawn[0], seed=seed, resampled_others=drawn[1]
    )
    found: Correlation = decode(
        Correlation, {"ablate": "patching", "with": "attribution", **numbers}
    )
    return found


def _show(result: AttributionResult, run: Path) -> Shown:
    tasks, several = result.tasks, result.parts or {}
    parts = {name: own.heads for name, own in several.items()} or {next(iter(tasks)): result.heads}
    examples = [own.examples or 0 for own in several.values()] or [result.examples or 0]
    cautions, said = few_caution(min(examples), "example"), []
    for name, own in tasks.items():
        if own.corruption <= 0:
            cautions.append(
                f"{name}: corrupted inputs do not make the answer less likely, so the scores have "
                "no meaning."
            )
        if own.patched is not None:
            known = fixed(own.patched.all.value, 2)
            said.append(f"Rank correlation with patching each head alone: {known} ({name}).")
        left = [f"{many} {WHY.get(why, why)}" for why, many in own.left_out.items() if many]
        if left:
            cautions.append(f"{name}: examples left out: {enumeration(left)}.")
    cautions.append(
        "Scores are first-order effects without a chance level; verify circuit tests the heads "
        "against random ones."
    )
    return Shown(
        "Attribution",
        f"Which attention heads does the answer depend on in {enumeration(list(tasks))}?",
        [strongest(result.heads), *said],
        spread(result.heads, f"{min(examples):,} examples" + " a task" * (len(tasks) > 1)),
        more_examples(min(examples)),
        cautions,
        [*model_facts(result.model_name, len(result.heads)), ("examples", f"{sum(examples):,}")],
        [
            Section("Heads", [top_heads(result.heads)]),
            method_section(
                "(a(corrupted) \u2212 a(clean)) \u00b7 \u2202m/\u2202a, summed over tokens and "
                "channels: how far m would rise, to first order, if a head\u2019s output a before "
                "W_O were that of the corrupted input. m is the loss of the answer, nats a token, "
                "or the logit of the wrong answer minus that of the right one "
                f"({enumeration([f'{name}: {own.measure}' for name, own in tasks.items()])}). "
                "Gradients are means over points between the two inputs (EAP-IG, Hanna et al. "
                "2024), or those of the clean input (--steps 0)."
            ),
        ],
        head_table("Every head, highest first", parts),
    )


def _survey(plan: SurveyPlan) -> FindAttribution | str:
    task = replace(plan.task(), limit=QUICK if plan.quick else None)
    config = FindAttribution(plan.model, task, Attribution(seed=plan.data.seed))
    return plan.missing(plan.data.task, "--task FILE") or config


command = Study(
    FindAttribution,
    find_attribution,
    result=AttributionResult,
    show=_show,
    survey=_survey,
    measures="how much worse the answer would be with the head's output in a corrupted input",
    needs="a task of inputs and outputs",
)
