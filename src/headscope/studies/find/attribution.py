"""Attribution of answers to heads by counterfactuals, in a run folder."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np

from headscope.data.tasks import Task, few_shot
from headscope.find.counterfactuals import Attribution, attribution, corrupted
from headscope.heads import HeadScores, save_scores
from headscope.measure.baseline import Rules
from headscope.measure.intervals import resamples
from headscope.measure.ranking import rank_correlations
from headscope.progress import Progress
from headscope.results.common import Checked, ScoredHead
from headscope.results.head_scores import Correlation, HeadsResult, ScoredHeads
from headscope.runs import Run, decode
from headscope.settings import Nested, Settings
from headscope.shown.blocks import Section, Shown, method_section
from headscope.shown.words import enumeration, fixed
from headscope.studies.baseline import check_tasks
from headscope.studies.find.head_scores import describe, parts_of
from headscope.studies.leakage import FOUND_ON
from headscope.studies.models import PROMPTED, ModelChoice, run_with_model, steps_of
from headscope.studies.shows import (
    few_caution,
    head_sets,
    head_table,
    model_facts,
    more_examples,
    significant,
    spread,
    strongest,
)
from headscope.studies.study import Study
from headscope.studies.survey_plans import QUICK, SurveyPlan
from headscope.studies.tasks import (
    TaskChoice,
    TaskSides,
    found_on,
    read_tasks,
    resolved_tasks,
    task_inputs,
)

if TYPE_CHECKING:
    from headscope.lm import LanguageModel

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
class AttributedHeads(ScoredHeads):
    """The heads for one task.

    `measure` is `loss` or `difference`; `corruption` how far it is worse with the corrupted input;
    `patched` compares with patching each head alone.
    """

    measure: str = ""
    corruption: float = 0.0
    patched: Correlation | None = None


@dataclass(frozen=True, kw_only=True)
class AttributionResult(HeadsResult, Checked):
    """The result of `find attribution`; `tasks` has every task, `heads` their mean."""

    tasks: Mapping[str, AttributedHeads] = field(default_factory=dict)


def find_attribution(
    config: FindAttribution, out: Path | None = None, progress: Progress | None = None
) -> AttributionResult:
    """Score every head and return the command's result; what is done already is kept.

    The run holds `scores/`, of several tasks those of each and their mean. Examples that `verify`
    tests on are left out.
    """
    began, seed = time.monotonic(), config.attribution.seed
    tasks = read_tasks(config.task, config.model.model, seed)
    lm = config.model.load_for()
    config = replace(config, task=resolved_tasks(lm, config.task, config.model.model))

    def compute(run: Run) -> AttributionResult:
        works = check_tasks(lm, tasks, config.task.shots, seed, run, config.baseline, progress)
        scores = {}
        for name, sides in tasks.items():
            task, instructed = _asked(lm, sides, config)
            steps = steps_of(progress, name)
            scores[name] = attribution(lm, task, config.attribution, instructed, run, steps)
        run.write_json(FOUND_ON, found_on({n: _found(sides) for n, sides in tasks.items()}))
        save_scores(run.path, parts_of(scores))
        return AttributionResult(
            heads=ScoredHead.all_of(HeadScores.mean(scores)),
            examples=sum(own.config["examples"] for own in scores.values()),
            tokens=sum(own.config["tokens"] for own in scores.values()),
            tasks={
                name: describe(
                    AttributedHeads,
                    own,
                    measure=own.config["measure"],
                    corruption=own.config["corruption"],
                    patched=_patched(own, seed),
                )
                for name, own in scores.items()
            },
            **works,
        )

    return run_with_model(
        lm, COMMAND, out, {"settings": config}, task_inputs(tasks), compute, began,
        kind=AttributionResult, seed=seed,
    )  # fmt: skip


def _found(sides: TaskSides) -> TaskSides:
    """With what is scored on as what is trained on; all, where no example is held out."""
    return replace(sides, train=sides.train or sides.test)


def _asked(lm: LanguageModel, sides: TaskSides, config: FindAttribution) -> tuple[Task, bool]:
    """What a task is scored on, and whether its prompts are instructed: where it can be."""
    task = sides.train or sides.test
    instructed = task.instruction is not None
    if not config.task.shots:
        return task, instructed
    task = corrupted(lm, task, instructed, config.attribution.seed)
    return few_shot(task, sides.pool, config.task.shots, config.attribution.seed, instructed), False


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
    return decode(Correlation, {"ablate": "patching", "with": "attribution", **numbers})


def _show(result: AttributionResult, run: Path) -> Shown:
    tasks = result.tasks
    parts = {name: own.heads for name, own in tasks.items()}
    fewest = min(own.examples or 0 for own in tasks.values())
    cautions = few_caution(fewest, "example")
    said = []
    for name, own in tasks.items():
        if own.corruption <= 0:
            cautions.append(
                f"{name}: corrupted inputs do not make the answer less likely, so the scores have "
                "no meaning."
            )
        if (beside := own.patched) is not None:
            patched = fixed(beside.all.value, 2)
            said.append(f"Rank correlation with patching each head alone: {patched} ({name}).")
        reasons = own.left_out if isinstance(own.left_out, Mapping) else {}
        left = [f"{many} {WHY.get(why, why)}" for why, many in reasons.items() if many]
        if left:
            cautions.append(f"{name}: examples left out: {enumeration(left)}.")
    cautions.append(
        "Scores are first-order effects without a chance level; verify circuit tests the heads "
        "against random ones."
    )
    above = {name: significant(own)[:10] for name, own in parts.items()}
    return Shown(
        "Attribution",
        f"Which attention heads does the answer depend on in {enumeration(list(tasks))}?",
        [strongest(result.heads), *said],
        spread(result.heads, f"{fewest:,} examples" + " a task" * (len(tasks) > 1)),
        more_examples(fewest),
        cautions,
        [*model_facts(result.model_name, len(result.heads)), ("examples", f"{result.examples:,}")],
        [
            Section("Heads", [head_sets("Heads whose interval lies above 0, best first", above)]),
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
