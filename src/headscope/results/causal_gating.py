"""The result of `find causal-gating`: heads by role, the fits, and the test of the roles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headscope.estimates import Estimate
from headscope.results.common import Checked
from headscope.results.head_scores import ScoresResult
from headscope.runs import Record, entry


@dataclass(frozen=True)
class RoleCount(Record):
    """How many heads have a role: by the mean over seeds, in every seed, in at least one."""

    mean: int
    always: int
    any: int


@dataclass(frozen=True)
class Fit(Record):
    """The losses of one seed's fits step by step, nats a token, by how gates were pushed."""

    seed: int
    nll: Mapping[str, tuple[float, ...]]


@dataclass(frozen=True, kw_only=True)
class CheckedLoss(Record):
    """The loss on held-out examples under a condition, nats a token, with intervals over examples.

    `each` has the loss of every seed or draw, `change` is from the untouched model.
    """

    nll: Estimate = entry(flat="", names={"value": "nll"})
    each: tuple[float, ...]
    change: Estimate


@dataclass(frozen=True)
class RolesCheck(Record):
    """What removal does on so many held-out `examples`; `removed` has the heads of each role."""

    removed: Mapping[str, tuple[str, ...]]
    examples: int
    conditions: Mapping[str, CheckedLoss]


@dataclass(frozen=True, kw_only=True)
class CausalGatingResult(ScoresResult, Checked):
    """The result of `find causal-gating`; a head has a role from `threshold` on."""

    threshold: float
    roles: Mapping[str, RoleCount]
    task: str
    fits: tuple[Fit, ...]
    check: RolesCheck
