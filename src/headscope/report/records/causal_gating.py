"""What the report of causal head gating reads of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headscope.errors import InputError
from headscope.heads import HeadScores
from headscope.runs.reading import naming, read_result

__all__ = ["CausalGatingRecord", "Check", "Fit", "RoleCount", "read_causal_gating"]

KIND = "causal head gating"
ROLES = ("facilitating", "interfering", "irrelevant")
PUSHES = ("none", "keep", "remove")


@dataclass(frozen=True)
class RoleCount:
    """How many heads have a role: on average over seeds, in every seed, in at least one."""

    mean: int
    always: int
    any: int


@dataclass(frozen=True)
class Check:
    """The loss of one condition on held-out examples and its change from the untouched model."""

    nll: float
    each: tuple[float, ...]
    change: float
    low: float
    high: float


@dataclass(frozen=True)
class Fit:
    """The losses of one seed's three fits, step by step."""

    seed: int
    losses: dict[str, tuple[float, ...]]


@dataclass(frozen=True)
class CausalGatingRecord:
    """A run of `find causal-gating`; `removed` holds the heads that the check removed by role."""

    result: Mapping[str, Any]
    model: str
    task: str
    scores: HeadScores
    threshold: float
    roles: dict[str, RoleCount]
    fits: tuple[Fit, ...]
    examples: int
    held_out: int
    removed: dict[str, tuple[str, ...]]
    checks: dict[str, Check]


def read_causal_gating(path: Path) -> CausalGatingRecord:
    """Read a finished run; InputError if it holds no causal gating or is damaged."""
    result = read_result(path)
    scores = HeadScores.from_pretrained(path / "scores")
    if not set(ROLES) <= set(scores.extra):
        raise InputError(
            f"{path / 'scores'}: lacks the scores of a role; run the same command again"
        )
    with naming(path / "result.json", KIND):
        check = result["check"]
        return CausalGatingRecord(
            result=result,
            model=str(result["model"]["name"]),
            task=str(result["task"]),
            scores=scores,
            threshold=float(result["threshold"]),
            roles={
                role: RoleCount(*(int(result["roles"][role][name]) for name in _COUNTS))
                for role in ROLES
            },
            fits=tuple(
                Fit(
                    int(one["seed"]), {push: tuple(map(float, one["nll"][push])) for push in PUSHES}
                )
                for one in result["fits"]
            ),
            examples=int(result["examples"]),
            held_out=int(check["examples"]),
            removed={role: tuple(map(str, check["removed"][role])) for role in ROLES},
            checks={
                str(name): Check(
                    float(one["nll"]),
                    tuple(map(float, one["each"])),
                    *(float(one["change"][key]) for key in ("value", "low", "high")),
                )
                for name, one in check["conditions"].items()
            },
        )


_COUNTS = ("mean", "always", "any")
