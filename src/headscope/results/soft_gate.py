"""The result of `find soft-gate`: trained gates, and what the model answers with them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headscope.results.common import ComparedDetails, ComparedResult, OneHead
from headscope.results.head_scores import HeadsResult
from headscope.runs import Record


@dataclass(frozen=True)
class GatedHead(OneHead):
    """A head and its trained gate."""

    gate: float


@dataclass(frozen=True)
class Look(Record):
    """The loss on the pairs held out for stopping, after so many steps."""

    step: int
    nll: float


@dataclass(frozen=True, kw_only=True)
class Training(Record):
    """One training: gates of the best look, which is after `best_step`, and losses of all steps."""

    heads: tuple[GatedHead, ...]
    steps: int
    best_step: int
    stopped_early: bool
    checks: tuple[Look, ...]
    loss: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class Seed(Record):
    """What was trained with one seed: the gates of the heads, and of random ones by control."""

    seed: int
    trained: Training
    controls: Mapping[str, Training] = field(default_factory=dict)


@dataclass(frozen=True)
class PairCounts(Record):
    """Pairs that the first seed learned from and stopped on, that were tested on, and left out."""

    train: int = 0
    stop: int = 0
    test: int = 0
    unanswerable: int = 0
    shared_contexts: int = 0
    cut: int = 0


@dataclass(frozen=True, kw_only=True)
class SoftGateDetails(ComparedDetails):
    """What was trained, and on what.

    `by_seed`: by statistic the mean over questions with the selected heads of every seed.
    `gate_seed` is the seed whose gate is kept.
    """

    seeds: tuple[Seed, ...] = ()
    by_seed: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    gate_seed: int = 0
    pairs: PairCounts = PairCounts()
    template: str | None = None

    @property
    def gates(self) -> dict[str, tuple[float, ...]]:
        """The gate of each trained head under every seed."""
        by_seed = [
            {head.place.key: head.gate for head in seed.trained.heads} for seed in self.seeds
        ]
        return {name: tuple(gates[name] for gates in by_seed) for name in by_seed[0]}


@dataclass(frozen=True, kw_only=True)
class SoftGateResult(HeadsResult, ComparedResult):
    """The result of `find soft-gate`: a head's score is how far its gate is from 1.

    A condition without a gate is trained: that of the selected heads is the mean over seeds, and
    each draw of a control is one seed.
    """

    details: SoftGateDetails = field(default_factory=SoftGateDetails)
    data: Mapping[str, Any] = field(default_factory=dict)
