"""Tasks under removal: what a model without heads still can do, beside random heads and chance.

Token Alignment Heads (ICLR 2026) asks whether the heads that translate are needed elsewhere too,
by the same removal on tasks of lm-evaluation-harness. Every example's outcome is kept, so that
intervals and tests need no model.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from headscope.estimates import Floats, known
from headscope.measure.intervals import wilson_interval
from headscope.measure.statistics import counted
from headscope.measure.trial import Group, Side, Trial
from headscope.results.removal import CONTROLS
from headscope.results.tasks import Measured, Metric, TaskCondition
from headscope.verify.other_tasks.library import LoadedTask, quiet, seeded
from headscope.verify.translation import Condition

if TYPE_CHECKING:
    from headscope.lm import LanguageModel


@dataclass(frozen=True)
class Outcome:
    """A task under one condition.

    `metrics`: the harness's values by metric (`acc`; `exact_match,strict-match` where the task
    has several filters). `higher`: whether more is better. `rows`: for each example its `id`, the
    `metrics` that are numbers, and `responses` (the log-likelihood of each choice, or the text).
    `truncated`: prompts that lost their beginning, since they exceed the context.
    """

    metrics: dict[str, float]
    higher: dict[str, bool]
    rows: list[dict[str, Any]]
    truncated: int = 0


def run_task(
    lm: LanguageModel,
    loaded: LoadedTask,
    batch_tokens: int = 8192,
    seed: int = 0,
    limit: int | None = None,
    allow_code: bool = False,
    report: Callable[[int], None] | None = None,
) -> Outcome:
    """Run one task on the model as it is now; call it inside `lm.gated(…)` for a condition.

    `limit`, `seed` and `allow_code` are those that the task was loaded with. `report` is told how
    many requests each batch answered.
    """
    from headscope.verify.other_tasks.harness import HarnessModel

    model = HarnessModel(lm, batch_tokens, report)
    task = loaded.task
    with quiet(allow_code), seeded(seed):
        from lm_eval.evaluator import evaluate

        task.set_fewshot_seed(seed=seed)
        made: Any = evaluate(
            lm=model,
            task_dict={"tasks": {loaded.name: task}, "groups": {}, "group_map": {}},
            limit=limit,
            bootstrap_iters=0,
            log_samples=True,
        )
    higher = dict(made["higher_is_better"].get(loaded.name) or {})
    values: dict[str, float] = {}
    for key, value in made["results"][loaded.name].items():
        name, _, kind = key.partition(",")
        if kind and not name.endswith("_stderr") and isinstance(value, int | float):
            values[_named(name, kind)] = float(value)
    rows = _rows(made["samples"][loaded.name], loaded.task.OUTPUT_TYPE, values)
    better = {name: higher.get(name.partition(",")[0]) is not False for name in values}
    return Outcome(values, better, rows, model.truncated)


def _named(metric: str, kind: str) -> str:
    """A metric with the filter of answers it goes by, unless that is the plain one."""
    return metric if kind == "none" else f"{metric},{kind}"


def _rows(
    samples: Sequence[Mapping[str, Any]], output_type: str, values: Mapping[str, float]
) -> list[dict[str, Any]]:
    """The examples of one task, the metrics of every filter side by side."""
    rows: dict[int, dict[str, Any]] = {}
    for sample in samples:
        row = rows.setdefault(int(sample["doc_id"]), {"id": int(sample["doc_id"]), "metrics": {}})
        answers = sample["resps"]
        if output_type == "generate_until":
            row["responses"] = [str(answer[0]) for answer in answers]
        else:
            row["responses"] = [_first(answer[0]) for answer in answers]
        for name in sample["metrics"]:
            value, key = sample[name], _named(name, str(sample["filter"]))
            if key in values and isinstance(value, int | float | np.number | np.bool_):
                row["metrics"][key] = float(value)
    return [rows[number] for number in sorted(rows)]


def _first(answer: Any) -> float:
    """A log-likelihood, whether or not it comes with a verdict on greedy decoding."""
    return float(answer[0] if isinstance(answer, tuple | list) else answer)


def main_metric(loaded: LoadedTask, baseline: Outcome) -> str:
    """The metric that stands for the task: the first that its own list names."""
    listed = loaded.task.get_config("metric_list") or ()
    for entry in listed:
        name = entry.get("metric") if isinstance(entry, dict) else None
        for key in baseline.metrics:
            if key.partition(",")[0] == name:
                return key
    return next(iter(baseline.metrics))


def summarise(
    metric: str,
    chance: float | None,
    planned: Sequence[Condition],
    outcomes: Sequence[Outcome],
    seed: int = 0,
) -> Metric:
    """One metric of one task under every condition.

    `p_examples`: approximate randomisation that swaps single outcomes with those of a random draw
    (9,999 times).
    """
    values = [outcome.metrics[metric] for outcome in outcomes]
    singles = [_singles(outcome, metric) for outcome in outcomes]
    statistics = [None if single is None else counted(single) for single in singles]
    sets = [condition.heads for condition in planned]
    trial = Trial([Group(statistics, sets=sets, seed=seed, given=values, by_size=False)])
    labels = [condition.label for condition in planned]
    higher = outcomes[0].higher[metric]
    side: Side = "lower" if higher else "higher"
    plain = chance if metric.partition(",")[0] == "acc" else None

    def measured(at: int) -> dict[str, Any]:
        low, high = _interval(trial, at, singles[at])
        entry = {"value": values[at], "stderr": _stderr(singles[at]), "low": low, "high": high}
        if plain is not None and plain < 1:
            entry["above_chance"] = (values[at] - plain) / (1 - plain)
        return entry

    rows = []
    for at, condition in enumerate(planned[1:], 1):
        label = condition.label
        drawn = [label.draws(labels, kind) if label.kind == "top" else [] for kind in CONTROLS]
        free, matched = (trial.against(at, draws, side) if draws else None for draws in drawn)
        rows.append(
            TaskCondition(
                **measured(at),
                label=label,
                heads=tuple(map(str, condition.heads)),
                filled_up=condition.filled_up,
                change=trial.difference(at),
                free=free,
                matched=matched,
            )
        )
    return Metric(
        metric=metric,
        higher_is_better=higher,
        chance=plain,
        examples=len(outcomes[0].rows),
        baseline=Measured(**measured(0)),
        conditions=tuple(rows),
    )


def _singles(outcome: Outcome, metric: str) -> Floats | None:
    """The outcome of every example, if the metric is their mean."""
    values = [row["metrics"].get(metric) for row in outcome.rows]
    if any(value is None for value in values) or not values:
        return None
    array = np.asarray(values, dtype=np.float64)
    near = math.isclose(float(array.mean()), outcome.metrics[metric], rel_tol=1e-9, abs_tol=1e-9)
    return array if near else None


def _stderr(singles: Floats | None) -> float | None:
    if singles is None or len(singles) < 2:
        return None
    return float(singles.std(ddof=1) / math.sqrt(len(singles)))


def _interval(trial: Trial, at: int, singles: Floats | None) -> tuple[float | None, float | None]:
    """The 95 % interval of a mean over examples.

    Of a share of right answers Wilson's, which has a width where all are right or none is; of all
    else the bootstrap's.
    """
    if singles is not None and bool(np.isin(singles, (0, 1)).all()):
        return wilson_interval(int(singles.sum()), len(singles))
    level = trial.level(at)
    return known(level.low), known(level.high)
