"""Attribution of answers to heads by counterfactuals, in a run folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from headscope.errors import InputError
from headscope.find.attribution_scores import Attribution, attribution
from headscope.heads import HeadScores
from headscope.measure.baseline import Rules
from headscope.measure.intervals import resamples
from headscope.measure.ranking import rank_correlations
from headscope.progress import Progress, Steps
from headscope.results.head_scores import Correlation, ScoresResult
from headscope.runs import Run, decode
from headscope.settings import Nested, Settings
from headscope.shown.blocks import Section, Shown, method_section
from headscope.shown.words import enumeration, fixed
from headscope.studies.baseline import check_tasks
from headscope.studies.find.head_scores import Scored, scores_run
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
from headscope.studies.survey_plans import SurveyPlan
from headscope.studies.tasks import (
    TaskChoice,
    counterfactuals,
    first_prompts,
    found_on,
    read_tasks,
    resolved_tasks,
)

COMMAND = "find attribution"
#: What a score below 0 means.
AGAINST = "it makes the answer less likely"
#: Bootstrap draws of a correlation.
DRAWS = 1000
WHY = {
    "no_counterfactual": "without another input of as many tokens",
    "other_length": "whose corrupted input has another number of tokens",
    "same_tokens": "of which one answer begins the other",
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
class AttributionResult(ScoresResult):
    """The result of `find attribution`.

    `corruption` is how much worse what is measured (`loss` or `difference`) is with corrupted
    inputs; `patched` compares the scores with patching each head alone.
    """

    measure: str = ""
    corruption: float = 0.0
    patched: Correlation | None = None


def find_attribution(
    config: FindAttribution, out: Path | None = None, progress: Progress | None = None
) -> AttributionResult:
    """Score every head and return the command's result; what is done already is kept.

    Examples that `verify` tests on are left out, where the task has others. Raises `InputError` if
    several tasks are named.
    """
    seed, shots = config.attribution.seed, config.task.shots
    tasks = read_tasks(config.task, config.model.model, seed)
    if len(tasks) > 1:
        raise InputError(f"{len(tasks)} tasks are named; name one, whose answers have one scale")
    ((name, sides),) = tasks.items()
    task = sides.train or sides.test
    lm = config.model.load_for()
    config = replace(config, task=resolved_tasks(lm, config.task, config.model.model))
    works: dict[str, Any] = {"first_prompts": first_prompts(lm, tasks, shots, seed)}

    def score(run: Run, steps: Steps | None) -> HeadScores:
        works.update(check_tasks(lm, tasks, shots, seed, run, config.baseline, progress))
        run.write_json(FOUND_ON, found_on({name: replace(sides, train=task)}))
        others = counterfactuals(config.task, tasks, config.model.model, seed)[name]
        return attribution(lm, task, config.attribution, sides.pool, shots, run, steps, others)

    def complete(result: AttributionResult, scores: Scored) -> AttributionResult:
        assert isinstance(scores, HeadScores)
        about = {key: scores.config[key] for key in ("measure", "corruption")}
        return replace(result, patched=_patched(scores, seed), **about, **works)

    data = {f"task {name}": {"path": task.path, "digest": task.digest}}
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
    examples = result.examples or 0
    unit = " nats a token" if result.measure == "loss" else " in logits"
    cautions, said = few_caution(examples, "example"), [strongest(result.scored, unit, AGAINST)]
    if result.corruption <= 0:
        cautions.append(
            "Corrupted inputs do not make the answer less likely, so the scores have no meaning."
        )
    if result.patched is not None:
        known = fixed(result.patched.all.value, 2)
        said.append(f"Rank correlation with patching each head alone: {known}.")
    reasons = result.left_out if isinstance(result.left_out, Mapping) else {}
    if left := [f"{many} {WHY.get(why, why)}" for why, many in reasons.items() if many]:
        cautions.append(f"Examples left out: {enumeration(left)}.")
    cautions.append(
        "Scores are first-order effects without a chance level; verify circuit tests the heads "
        "against random ones."
    )
    (name,) = result.data
    return Shown(
        "Attribution",
        f"Which attention heads does the answer depend on ({name})?",
        said,
        spread(result.scored, f"{examples:,} examples"),
        more_examples(examples, run),
        cautions,
        [*model_facts(result.model_name, len(result.scored)), ("examples", f"{examples:,}")],
        [
            Section("Heads", [top_heads(result.scored)]),
            method_section(
                "(a(corrupted) \u2212 a(clean)) \u00b7 \u2202m/\u2202a, summed over tokens and "
                "channels: how far m would rise, to first order, if a head\u2019s output a before "
                "W_O were that of the corrupted input. m is the loss of the answer, nats a token, "
                "or the logit of the wrong answer minus that of the right one (here: "
                f"{result.measure}). Gradients are means over points between the two inputs "
                "(EAP-IG, Hanna et al. 2024), or those of the clean input (--steps 0)."
            ),
        ],
        head_table("Every head, strongest first", {name: result.scored}, signed=True),
    )


def _survey(plan: SurveyPlan) -> FindAttribution | str:
    if plan.quick and plan.judged is None:
        return "a first look has no gradients of answers: without --quick it is run"
    limit = None if plan.data.task else plan.pairs().limit
    task = replace(plan.task(pairs=True), shots=plan.data.shots, limit=limit)
    config = FindAttribution(plan.model, task, Attribution(seed=plan.data.seed))
    return plan.untasked(pairs=True) or config


command = Study(
    FindAttribution,
    find_attribution,
    result=AttributionResult,
    show=_show,
    measures="how much worse the answer would be with the head's output in a corrupted input",
    needs="a task of inputs and outputs",
    survey=_survey,
    usage="--task plural-de",
)
