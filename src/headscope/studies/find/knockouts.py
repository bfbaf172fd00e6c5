"""Head scores from random removals, in a run folder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import comb
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from headscope import options
from headscope.errors import InputError, OptionalPart
from headscope.evidence.rows import Condition
from headscope.executors import Execution
from headscope.find.knockouts_regression import METHOD, fitted, random_gates, told_apart
from headscope.heads import Amount, HeadScores, HeadSet
from headscope.heads.geometry import keys_of, read_amount
from headscope.measure.baseline import Rules
from headscope.progress import Progress
from headscope.results.common import ScoredHead
from headscope.results.removal import KnockoutsResult
from headscope.runs import Run
from headscope.runs.plain import plain
from headscope.settings import UNSIGNED, Nested, Option, Settings
from headscope.shown.blocks import Column, Section, Shown, method_section
from headscope.shown.words import MEAN, count, fixed
from headscope.studies.models import PROMPTED, ModelChoice
from headscope.studies.pairs import PairsChoice, read_directions
from headscope.studies.shows import (
    ablation_facts,
    by_luck,
    candidates,
    few_caution,
    head_sets,
    head_table,
    model_facts,
    significant,
    spread,
    strongest,
)
from headscope.studies.study import Study
from headscope.studies.survey_plans import SurveyPlan
from headscope.studies.verify.heads import removal_scores, removing, removing_parts
from headscope.studies.verify.reference import reference_number
from headscope.studies.verify.removal import measured_alone
from headscope.verify.removal_translations import Removal

COMMAND = "find knockouts"
#: Sentences of each direction of the pocket model, if no limit is given.
POCKET_LIMIT = 10
#: Random gates for each head, where no number is given.
GATES_A_HEAD = 4


def _removal(**values: Any) -> Removal:
    """By loss if nothing is said."""
    return Removal(**{"measure": ("loss",), **values})


@dataclass(frozen=True)
class FindKnockouts(Settings):
    """Score every head by a regression of the translation loss on heads removed at random.

    Or of chrF++ (--measure text). It finds what heads do beside others that are gone; for the heads
    that cost most alone it takes more passes than verify heads.
    """

    model: Annotated[ModelChoice, PROMPTED] = field(default_factory=ModelChoice)
    pairs: PairsChoice = field(default_factory=PairsChoice)
    gates: Annotated[
        int | None,
        Option(
            "How many, each a pass; without it four for every head.", flag="--random-gates", min=4
        ),
    ] = None
    remove: Annotated[
        Amount,
        Option(
            "Heads that a gate removes: a share such as 0.05 or 5% (each head by itself with that "
            "probability), or a number, exactly so many.",
            metavar="K",
            typed=str,
        ),
    ] = "5%"
    removal: Annotated[
        Removal,
        Nested(
            without=("gates", "draws", "controls", "loss_draws", "threshold"),
            changed={
                "measure": options.ONE_MEASURE,
                "ablate": replace(options.ABLATE, single=True),
            },
            make=_removal,
        ),
    ] = field(default_factory=_removal)
    baseline: Annotated[Rules, Nested(without=("errors",))] = field(default_factory=Rules)
    execution: Execution = field(default_factory=Execution, metadata=UNSIGNED)

    def parts(self) -> Iterator[OptionalPart]:
        """What links words, too."""
        yield from super().parts()
        yield from removing_parts(self)

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.removal.measure or ("text",)) != 1 or len(self.removal.ablate) != 1:
            raise InputError("knockouts have one measure and one kind of ablation; give one each")


def find_knockouts(
    config: FindKnockouts, out: Path | None = None, progress: Progress | None = None
) -> KnockoutsResult:
    """Remove heads at random, regress, and return the command's result.

    A run that was stopped goes on where it was; its scores keep the gates (`removed`).
    """
    seed, (ablate,), model = config.removal.seed, config.removal.ablate, config.model.model
    apart = reference_number(ablate)
    on = removing(config, read_directions(config.pairs, model, "dev", POCKET_LIMIT, seed, apart))
    lm, directions, removal, reference = on
    number = config.gates or GATES_A_HEAD * lm.geometry.total
    gates = random_gates(lm.geometry, number, config.remove, seed)
    told: dict[str, Any] = {
        "gates": len(gates), "remove": str(config.remove), "ablate": ablate, "explained": {},
    }  # fmt: skip

    def score(run: Run) -> dict[str, HeadScores]:
        planned = [
            Condition("random", "", len(heads), 0.0, ablate, at, keys_of(heads))
            for at, heads in enumerate(gates)
        ]
        _, told["statistic"], counted = measured_alone(
            lm, directions, planned, removal, run, reference.replacements(lm, removal), progress
        )
        mask, scores = lm.geometry.mask(), {}
        removed = np.array([HeadSet(lm.geometry, heads).removed().values == 0 for heads in gates])
        untold = ~told_apart(removed[:, mask])
        of_mask = lm.geometry.heads()
        told["untold"] = tuple(head.key for head, own in zip(of_mask, untold, strict=True) if own)
        for name, numbers in counted.items():
            arrays = np.full((3, *lm.geometry.shape), np.nan)
            *fit, explained = fitted(removed[:, mask], numbers, told["statistic"], seed)
            arrays[:, mask] = fit
            arrays[1:, mask] = np.where(untold, np.nan, arrays[1:, mask])
            told["explained"][name] = None if np.isnan(explained) else explained
            scores[name] = HeadScores(
                lm.geometry, arrays[0], METHOD, arrays[1], arrays[2],
                statistics={"removed": removed.astype(np.int8)},
                config={**plain(removal), "pair": name, "examples": len(numbers[0])},
                provenance=dict(run.provenance),
                signature=run.signature,
            )  # fmt: skip
        return scores

    return removal_scores(
        COMMAND, config, on, score, KnockoutsResult, lambda result, _: replace(result, **told),
        out, progress,
    )  # fmt: skip


def _show(result: KnockoutsResult, run: Path) -> Shown:
    statistic, heads = result.statistic, result.scored
    tested = [head for head in heads if head.place.key not in result.untold]
    parts: dict[str, Sequence[ScoredHead]] = {"knockouts": heads}
    if result.parts:
        parts = {MEAN: heads, **{name: part.scored for name, part in result.parts.items()}}
    fewest = min((data.examples or 0 for data in result.data.values()), default=0)
    shares = [share for share in result.explained.values() if share is not None]
    known = f"{fixed(100 * min(shares), 0)}\u00a0% of" if shares else "nothing, there is no"
    only = "; they are candidates" * candidates(tested, fewest)
    amount = read_amount(result.remove)
    number = int(amount[0]) if amount is not None and not amount[1] else None
    drawn = number is not None and comb(len(heads), number) <= result.gates
    untold = (
        f"{count(len(result.untold), 'head')} more: no gate tells them from others, so their "
        f"scores say nothing{'' if drawn else '; take more --random-gates'}."
    )
    worse = "rises" if statistic.better == "lower" else "falls"
    counted = (
        f"The {statistic.words} {worse} without {len(significant(heads))} of "
        f"{count(len(tested), 'head')} ({by_luck(tested)}{only})."
    )
    return Shown(
        "Knockouts",
        "How much worse is a translation without a head, beside others removed at random?",
        [
            *([counted] if any(head.low is not None for head in heads) else []),
            strongest(heads, f" {statistic.unit}" if statistic.unit else ""),
        ],
        f"{spread(heads, count(fewest, 'sentence'))} Sums of effects predict {known} variance "
        f"({count(result.gates, 'random gate')}).",
        "" if drawn else f"--random-gates {2 * result.gates}",
        [
            *few_caution(fewest, "sentence"),
            *([untold] if result.untold else []),
            "Intervals are per head and not corrected for the number of heads.",
        ],
        [
            *model_facts(result.model_name, len(heads)),
            ("directions", ", ".join(result.data)),
            ("heads that a gate removes", result.remove),
            *ablation_facts(result),
        ],
        [
            Section("Heads", [head_sets("Heads without which it is worse, best first",
                                        {name: significant(own) for name, own in parts.items()})]),
            method_section(
                f"Score: coefficient of the head in a ridge regression of the {statistic.title} on "
                "which heads are removed, over random gates; above 0 is harm. The penalty is that "
                "which predicts gates left out best, and the variance is that at gates left out. "
                "Intervals: sentences are resampled, and the error at each gate left out is given "
                "a random sign. Where all gates remove as many heads, scores have the mean 0."
            ),
        ],
        head_table(
            "Every head, strongest first", parts, (), Column("score", "Effect"),
            significant=True, signed=True,
        ),
    )  # fmt: skip


def _survey(plan: SurveyPlan) -> FindKnockouts | str:
    if plan.quick:
        return "it reads the sentences four times for every head: without --quick it is run"
    removal = _removal(seed=plan.data.seed, chat=plan.data.chat)
    config = FindKnockouts(plan.model, plan.pairs(), removal=removal)
    return plan.missing(plan.data.pairs, "--pairs en-de=FILE") or config


command = Study(
    FindKnockouts,
    find_knockouts,
    result=KnockoutsResult,
    show=_show,
    measures="how much worse translation is without a head, beside others removed at random",
    needs="sentence pairs",
    survey=_survey,
    usage="--pair en-de --limit 20",
)
