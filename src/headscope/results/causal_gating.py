"""The result of `find causal-gating`: heads by role, the fits, and the test of the roles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headscope.results.common import ComparedResult
from headscope.results.head_scores import ScoresResult
from headscope.runs import Record


@dataclass(frozen=True)
class RoleCount(Record):
    """How many heads have a role: by the mean over seeds, in every seed, in at least one."""

    mean: int
    always: int
    any: int


@dataclass(frozen=True)
class Fit(Record):
    """The losses of one seed's fits step by step, nats a token, by how gates were pushed.

    `held_out` is the loss on held-out examples with each of its gates.
    """

    seed: int
    nll: Mapping[str, tuple[float, ...]]
    held_out: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class CausalGatingDetails(Record):
    """Heads by role, from `threshold` on, the fits, and how many examples are `held_out`."""

    threshold: float = 0.5
    roles: Mapping[str, RoleCount] = field(default_factory=dict)
    task: str = ""
    fits: tuple[Fit, ...] = ()
    held_out: int = 0
    draws: int = 0


@dataclass(frozen=True, kw_only=True)
class CausalGatingResult(ScoresResult, ComparedResult):
    """The result of `find causal-gating`.

    Its rows hold the loss under the fitted gates, the mean over seeds, and without heads of each
    role, which a condition's `of` names.
    """

    details: CausalGatingDetails = field(default_factory=CausalGatingDetails)
