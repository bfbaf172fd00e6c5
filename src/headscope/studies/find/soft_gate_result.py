"""What a run of soft gates says: accuracies, differences, gates, and the files that hold them."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from headscope.find.question_rows import Asked
from headscope.find.soft_gate import Answers, SoftGate, Trained
from headscope.heads import Gate, Geometry, HeadScores, HeadSet, save_scores
from headscope.heads.draws import Draw
from headscope.heads.store import Origin
from headscope.measure.intervals import bootstrap_score
from headscope.measure.statistics import counted_mean
from headscope.measure.trial import Group, Trial
from headscope.results.common import ScoredHead
from headscope.results.soft_gate import (
    Changed,
    Difference,
    GatedHead,
    Look,
    Measured,
    Measures,
    Seed,
    Training,
)
from headscope.runs import Run, configuration

#: What is measured on every question: answered, answered as SQuAD compares, loss of the answer.
MEASURES = ("accuracy", "normalized", "nll")
#: Differences that are told, the second subtracted from the first.
COMPARED = (
    ("trained", "untouched"),
    ("random", "untouched"),
    ("random-layer-matched", "untouched"),
    ("removed", "untouched"),
    ("random-removed", "untouched"),
    ("trained", "random"),
    ("trained", "random-layer-matched"),
    ("removed", "random-removed"),
)
#: Every measure of every question, by condition.
STATISTICS = "statistics.safetensors"


def describe(
    geometry: Geometry,
    heads: HeadSet,
    sets: Mapping[str, Sequence[Draw]],
    made: Mapping[str, Trained],
    answers: Mapping[str, Answers],
    tested: Sequence[Asked],
    seed: int,
) -> dict[str, Any]:
    """Heads, seeds, measures of every condition and their differences: fields of the result.

    Intervals are over contexts: questions on one context, or on one fact, are drawn together.
    """
    groups = [one.question.group for one in tested]
    values = {name: _values(answers, name) for name in _kinds(answers)}
    conditions, differences = effects(values, groups, seed)
    seeds = []
    for number in range(len(sets["trained"])):
        trainings: dict[str, Any] = {
            kind.replace("-", "_"): _training(made[f"{kind}-{number}"], drawn[number])
            for kind, drawn in sets.items()
        }
        seeds.append(Seed(seed=seed + number, **trainings))
    scores = _scores(geometry, heads, [made[f"trained-{n}"].gate for n in range(len(seeds))])
    return {
        "heads": ScoredHead.all_of(scores),
        "selected": len(heads),
        "seeds": tuple(seeds),
        "accuracy": conditions,
        "differences": differences,
    }


def write_gates(
    run: Run,
    heads: HeadSet,
    made: Mapping[str, Trained],
    tested: Sequence[Asked],
    answers: Mapping[str, Answers],
    seeds: Sequence[int],
    training: SoftGate,
) -> int:
    """Write scores, heads, gates and answers into the run; returns the seed whose gate is `gate/`.

    That is the seed whose training lowered the loss on its pairs held out for stopping the most:
    test questions take no part in the choice.
    """
    settings = {name: getattr(training, name) for name in ("learning_rate", "epochs")}
    origin = Origin("soft-gate", run.signature, configuration(settings), run.provenance)
    gates = [made[f"trained-{number}"] for number in range(len(seeds))]
    for seed, trained in zip(seeds, gates, strict=True):
        gate = Gate(heads.geometry, trained.gate.values, origin)
        gate.save_pretrained(run.path / "seeds" / str(seed) / "gate")
    best = max(range(len(gates)), key=lambda number: (_gain(gates[number]), -number))
    Gate(heads.geometry, gates[best].gate.values, origin).save_pretrained(run.path / "gate")
    HeadSet(heads.geometry, heads.heads, origin).save_pretrained(run.path / "heads")
    save_scores(run.path, _scores(heads.geometry, heads, [one.gate for one in gates], origin))
    for name, said in answers.items():
        run.write_jsonl(f"outputs/{name}.jsonl", _rows(said, tested))
    run.write_tensors(
        STATISTICS,
        {
            f"{measure}.{name}": values
            for name, measured in ((n, _values(answers, n)) for n in _kinds(answers))
            for measure, values in measured.items()
        },
    )
    return seeds[best]


def _kinds(answers: Mapping[str, Answers]) -> list[str]:
    """Conditions without the number of the seed, in the order made."""
    return list(dict.fromkeys(name.rpartition("-")[0] for name in answers))


def _values(answers: Mapping[str, Answers], kind: str) -> dict[str, NDArray[np.float64]]:
    """The measures of a condition, float64 (seeds, questions) each."""
    made = [said for name, said in answers.items() if name.rpartition("-")[0] == kind]
    columns = {
        "accuracy": [said.right for said in made],
        "normalized": [said.normalized for said in made],
        "nll": [said.losses for said in made],
    }
    return {name: np.array(rows, dtype=np.float64) for name, rows in columns.items()}


def effects(
    values: Mapping[str, Mapping[str, NDArray[np.float64]]], groups: Sequence[str], seed: int
) -> tuple[dict[str, Measures], tuple[Difference, ...]]:
    """The measures of each condition, and the differences of `COMPARED`.

    Means over seeds with their intervals over questions, and what each seed gave. Differences are
    the first condition minus the second, question by question, seed by seed.
    """
    places = {name: at for at, name in enumerate(values)}
    pairs = [pair for pair in COMPARED if set(pair) <= set(values)]
    conditions: dict[str, dict[str, Any]] = {name: {} for name in values}
    differences: dict[tuple[str, str], dict[str, Any]] = {pair: {} for pair in pairs}
    for measure in MEASURES:
        measured = [of[measure] for of in values.values()]
        sums = [group_sums(each.mean(axis=0), groups) for each in measured]
        trial = Trial([Group(sums, seed=seed)])
        for name, each, own in zip(values, measured, sums, strict=True):
            low, high = bootstrap_score(own, counted_mean, seed=seed)
            by_seed = each.mean(axis=1)
            conditions[name][measure] = Measured(
                mean=float(by_seed.mean()), low=float(low), high=float(high), **_by_seed(by_seed)
            )
        for a, b in pairs:
            found = trial.difference(places[a], [places[b]])
            by_seed = values[a][measure].mean(axis=1) - values[b][measure].mean(axis=1)
            differences[a, b][measure] = Changed(**vars(found), **_by_seed(by_seed))
    return (
        {name: Measures(**each) for name, each in conditions.items()},
        tuple(Difference(condition=a, minus=b, **differences[a, b]) for a, b in pairs),
    )


def _by_seed(values: NDArray[np.float64]) -> dict[str, Any]:
    """What every seed gave, as fields."""
    return {
        "sd": float(values.std(ddof=1)) if len(values) > 1 else None,
        "by_seed": tuple(values.tolist()),
    }


def group_sums(values: NDArray[np.float64], groups: Sequence[Hashable]) -> NDArray[np.float64]:
    """For each group the sum of its questions' values and how many there are, (groups, 2)."""
    places = {group: at for at, group in enumerate(dict.fromkeys(groups))}
    sums = np.zeros((len(places), 2))
    for group, value in zip(groups, values, strict=True):
        sums[places[group]] += (value, 1.0)
    return sums


def _training(trained: Trained, draw: Draw) -> Training:
    return Training(
        heads=tuple(GatedHead(head.layer, head.head, trained.gate[head]) for head in draw.heads),
        filled_up=draw.filled_up,
        steps=len(trained.losses),
        best_step=trained.step,
        stopped_early=trained.stopped,
        checks=tuple(Look(*check) for check in trained.checks),
        loss=tuple(trained.losses.tolist()),
    )


def _gain(trained: Trained) -> float:
    losses = [loss for _, loss in trained.checks]
    return losses[0] - min(losses)


def _scores(
    geometry: Geometry, heads: HeadSet, gates: Sequence[Gate], origin: Origin | None = None
) -> HeadScores:
    """How far each head's gate is from 1: mean, lowest and highest over seeds."""
    values: ArrayLike = [gate.values for gate in gates]
    stacked = np.array(values, dtype=np.float64)
    away = np.abs(stacked - 1)
    made = origin or Origin("soft-gate")
    return HeadScores(
        geometry,
        away.mean(axis=0),
        "soft-gate",
        away.min(axis=0),
        away.max(axis=0),
        extra={"gate": stacked.mean(axis=0), "selected": heads.mask().astype(np.float64)},
        statistics={"gates": stacked},
        config=made.config,
        provenance=made.provenance,
        signature=made.signature,
    )


def _rows(said: Answers, tested: Sequence[Asked]) -> list[dict[str, Any]]:
    return [
        {
            "id": one.question.id,
            "answers": one.question.answers,
            "text": text,
            "right": bool(right),
            "normalized": bool(normalized),
            "nll": float(loss),
        }
        for one, text, right, normalized, loss in zip(
            tested, said.texts, said.right, said.normalized, said.losses, strict=True
        )
    ]
