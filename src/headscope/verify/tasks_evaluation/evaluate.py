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
from numpy.typing import NDArray

from headscope.estimates import Floats
from headscope.evidence.rows import SHARE, Better, Condition, Evidence, Statistic
from headscope.evidence.table import evidence
from headscope.measure.statistics import counted
from headscope.verify.tasks_evaluation.library import LoadedTask, quiet, seeded

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
    from headscope.verify.tasks_evaluation.harness import HarnessModel

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


#: The usual metrics of the harness, all shares, in plain words.
METRICS = {
    "acc": "share answered right",
    "acc_norm": "share answered right, choices weighted by their length",
    "exact_match": "share written exactly right",
    "f1": "words in common with the right answer",
}


def tasks_evidence(
    conditions: Sequence[Condition],
    outcomes: Mapping[str, Sequence[Outcome]],
    groups: Mapping[str, Sequence[str]],
    seed: int = 0,
) -> Evidence:
    """The table of tasks by every metric; means over the tasks of each group.

    Where a metric is no mean over examples, only its values and p over draws are known.
    """
    statistics: dict[str, Statistic] = {}
    counts: dict[str, dict[str, list[NDArray[Any] | None]]] = {}
    given: dict[str, dict[str, list[float]]] = {}
    for task, made in outcomes.items():
        for metric in made[0].metrics:
            share = metric.partition(",")[0] in METRICS
            better: Better = "higher" if made[0].higher[metric] else "lower"
            statistics.setdefault(
                metric,
                Statistic(metric, better, SHARE, 1) if share else Statistic(metric, better),
            )
            singles = [_singles(outcome, metric) for outcome in made]
            counts.setdefault(task, {})[metric] = [
                None if outcomes is None else counted(outcomes) for outcomes in singles
            ]
            given.setdefault(task, {})[metric] = [outcome.metrics[metric] for outcome in made]
    return evidence(conditions, counts, statistics, seed, by_size=False, given=given, means=groups)


def _singles(outcome: Outcome, metric: str) -> Floats | None:
    """The outcome of every example, if the metric is their mean."""
    values = [row["metrics"].get(metric) for row in outcome.rows]
    if any(value is None for value in values) or not values:
        return None
    array = np.asarray(values, dtype=np.float64)
    near = math.isclose(float(array.mean()), outcome.metrics[metric], rel_tol=1e-9, abs_tol=1e-9)
    return array if near else None
