"""What the report of soft gates reads of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headscope.runs.reading import naming, read_result

__all__ = ["Change", "Condition", "GatedHead", "SoftGateRecord", "Training", "read_soft_gate"]

KIND = "soft gates"


@dataclass(frozen=True)
class Condition:
    """A measure of one condition: mean over seeds, interval over questions, each seed."""

    mean: float
    low: float
    high: float
    by_seed: tuple[float, ...]


@dataclass(frozen=True)
class Change:
    """One condition minus another, with its interval over questions and each seed."""

    condition: str
    minus: str
    value: float
    low: float
    high: float
    by_seed: tuple[float, ...]


@dataclass(frozen=True)
class GatedHead:
    """A head whose gate was trained: its gate under every seed."""

    name: str
    gates: tuple[float, ...]

    @property
    def mean(self) -> float:
        """The mean over seeds."""
        return sum(self.gates) / len(self.gates)


@dataclass(frozen=True)
class Training:
    """One training of the chosen heads: (step, loss) of every look, the best, and its end."""

    seed: int
    checks: tuple[tuple[int, float], ...]
    best: int
    steps: int
    stopped: bool


@dataclass(frozen=True)
class SoftGateRecord:
    """A run of `find soft-gate`; measures are by name, then by condition."""

    result: Mapping[str, Any]
    model: str
    measures: dict[str, dict[str, Condition]]
    changes: dict[str, tuple[Change, ...]]
    heads: tuple[GatedHead, ...]
    trainings: tuple[Training, ...]
    gate_seed: int
    pairs: dict[str, int]
    filled_up: int


def read_soft_gate(path: Path) -> SoftGateRecord:
    """Read a finished run; InputError if it holds no soft gates or is damaged."""
    result = read_result(path)
    with naming(path / "result.json", KIND):
        names = ("accuracy", "normalized", "nll")
        seeds = list(result["seeds"])
        order = [f"{one['layer']}.{one['head']}" for one in seeds[0]["trained"]["heads"]]
        gates = [
            {
                f"{one['layer']}.{one['head']}": float(one["gate"])
                for one in seed["trained"]["heads"]
            }
            for seed in seeds
        ]
        return SoftGateRecord(
            result=result,
            model=str(result["model"]["name"]),
            measures={
                name: {
                    kind: _condition(measured[name])
                    for kind, measured in result["accuracy"].items()
                }
                for name in names
            },
            changes={
                name: tuple(_change(one, name) for one in result["differences"]) for name in names
            },
            heads=tuple(GatedHead(name, tuple(one[name] for one in gates)) for name in order),
            trainings=tuple(_training(one) for one in seeds),
            gate_seed=int(result["gate_seed"]),
            pairs={
                name: int(result["pairs"][name])
                for name in ("train", "stop", "test", "unanswerable", "shared_contexts", "cut")
            },
            filled_up=max(
                (
                    int(one["random-layer-matched"]["filled_up"])
                    for one in seeds
                    if "random-layer-matched" in one
                ),
                default=0,
            ),
        )


def _condition(one: Mapping[str, Any]) -> Condition:
    return Condition(
        float(one["mean"]),
        float(one["low"]),
        float(one["high"]),
        tuple(float(value) for value in one["by_seed"]),
    )


def _change(one: Mapping[str, Any], measure: str) -> Change:
    found = one[measure]
    return Change(
        str(one["condition"]),
        str(one["minus"]),
        float(found["value"]),
        float(found["low"]),
        float(found["high"]),
        tuple(float(value) for value in found["by_seed"]),
    )


def _training(seed: Mapping[str, Any]) -> Training:
    one = seed["trained"]
    return Training(
        int(seed["seed"]),
        tuple((int(check["step"]), float(check["nll"])) for check in one["checks"]),
        int(one["best_step"]),
        int(one["steps"]),
        bool(one["stopped_early"]),
    )
