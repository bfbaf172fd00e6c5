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
from headscope.measure.intervals import bootstrap_difference, bootstrap_score
from headscope.runs import Run, configuration

__all__ = ["describe", "group_sums", "mean_of_sums", "write_gates"]

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
    """Heads, seeds, accuracies of every condition and their differences.

    Intervals are over contexts: questions on one context, or on one fact, are drawn together.
    """
    groups = [one.question.group for one in tested]
    values = {name: _values(answers, name) for name in _kinds(answers)}
    conditions = {name: _condition(measured, groups, seed) for name, measured in values.items()}
    differences = [
        _difference(one, other, values, groups, seed)
        for one, other in COMPARED
        if one in values and other in values
    ]
    seeds = [
        {
            "seed": seed + number,
            **{
                kind: _training(made[f"{kind}-{number}"], drawn[number])
                for kind, drawn in sets.items()
            },
        }
        for number in range(len(sets["trained"]))
    ]
    scores = _scores(geometry, heads, [made[f"trained-{n}"].gate for n in range(len(seeds))])
    return {
        "heads": scores.records(),
        "selected": len(heads),
        "seeds": seeds,
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
) -> dict[str, Any]:
    """Write scores, heads, gates and answers into the run; tells which seed's gate is `gate/`.

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
    return {"gate_seed": seeds[best]}


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


def _condition(
    measured: Mapping[str, NDArray[np.float64]], groups: Sequence[str], seed: int
) -> dict[str, Any]:
    """Mean over seeds with its interval over questions, and what each seed gave."""
    told: dict[str, Any] = {}
    for measure, values in measured.items():
        by_seed = values.mean(axis=1)
        interval = bootstrap_score(group_sums(values.mean(axis=0), groups), mean_of_sums, seed=seed)
        told[measure] = {
            "mean": float(by_seed.mean()),
            "low": float(interval.low),
            "high": float(interval.high),
            "sd": float(by_seed.std(ddof=1)) if len(by_seed) > 1 else None,
            "by_seed": by_seed.tolist(),
        }
    return told


def _difference(
    one: str,
    other: str,
    values: Mapping[str, Mapping[str, NDArray[np.float64]]],
    groups: Sequence[str],
    seed: int,
) -> dict[str, Any]:
    """The first condition minus the second, question by question, seed by seed."""
    told: dict[str, Any] = {"condition": one, "minus": other}
    for measure in MEASURES:
        first, second = values[one][measure], values[other][measure]
        found = bootstrap_difference(
            group_sums(first.mean(axis=0), groups),
            group_sums(second.mean(axis=0), groups),
            mean_of_sums,
            seed=seed,
        )
        by_seed = first.mean(axis=1) - second.mean(axis=1)
        told[measure] = {
            "value": found.value,
            "low": found.low,
            "high": found.high,
            "sd": float(by_seed.std(ddof=1)) if len(by_seed) > 1 else None,
            "by_seed": by_seed.tolist(),
        }
    return told


def group_sums(values: NDArray[np.float64], groups: Sequence[Hashable]) -> NDArray[np.float64]:
    """For each group the sum of its questions' values and how many there are, (groups, 2)."""
    places = {group: at for at, group in enumerate(dict.fromkeys(groups))}
    sums = np.zeros((len(places), 2))
    for group, value in zip(groups, values, strict=True):
        sums[places[group]] += (value, 1.0)
    return sums


def mean_of_sums(sums: NDArray[Any]) -> NDArray[np.float64]:
    """The mean over questions, from sums of what `_sums` gives."""
    means: NDArray[np.float64] = sums[..., 0] / sums[..., 1]
    return means


def _training(trained: Trained, draw: Draw) -> dict[str, Any]:
    """One training: its heads with their gates, and how the losses went."""
    return {
        "heads": [
            {"layer": head.layer, "head": head.head, "gate": trained.gate[head]}
            for head in draw.heads
        ],
        "filled_up": draw.filled_up,
        "steps": len(trained.losses),
        "best_step": trained.step,
        "stopped_early": trained.stopped,
        "checks": [{"step": step, "nll": loss} for step, loss in trained.checks],
        "loss": trained.losses.tolist(),
    }


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
