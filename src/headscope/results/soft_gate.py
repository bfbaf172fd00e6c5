"""The result of `find soft-gate`: trained gates, and what the model answers with them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import nan
from typing import Any

from headscope.results.common import Leakage, Ranking
from headscope.results.head_scores import HeadsResult
from headscope.runs import Record, entry


@dataclass(frozen=True, kw_only=True)
class _OverSeeds(Record):
    """The bounds of a 95 % interval over questions, and what every seed gave."""

    low: float = nan
    high: float = nan
    sd: float | None = None
    by_seed: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class Measured(_OverSeeds):
    """A measure under one condition: its mean over seeds."""

    mean: float


@dataclass(frozen=True, kw_only=True)
class Changed(_OverSeeds):
    """A measure under one condition minus another: the mean over seeds."""

    value: float


@dataclass(frozen=True, kw_only=True)
class Measures(Record):
    """Shares answered, as they are and as SQuAD compares, and loss of the answer, nats a token."""

    accuracy: Measured
    normalized: Measured
    nll: Measured


@dataclass(frozen=True, kw_only=True)
class Difference(Record):
    """The measures under one condition minus those under another, question by question."""

    condition: str
    minus: str
    accuracy: Changed
    normalized: Changed
    nll: Changed


@dataclass(frozen=True)
class GatedHead(Record):
    """A head and its trained gate."""

    layer: int
    head: int
    gate: float

    @property
    def name(self) -> str:
        """Layer and head."""
        return f"{self.layer}.{self.head}"


@dataclass(frozen=True)
class Look(Record):
    """The loss on the pairs held out for stopping, after so many steps."""

    step: int
    nll: float


@dataclass(frozen=True, kw_only=True)
class Training(Record):
    """One training: gates of the best look, which is after `best_step`, and losses of all steps.

    `filled_up` counts random heads that are not from the requested layers.
    """

    heads: tuple[GatedHead, ...]
    filled_up: int
    steps: int
    best_step: int
    stopped_early: bool
    checks: tuple[Look, ...]
    loss: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class Seed(Record):
    """What was trained with one seed: the gates of the heads, and of random ones."""

    seed: int
    trained: Training
    random: Training
    random_layer_matched: Training | None = entry(name="random-layer-matched", absent=True)


@dataclass(frozen=True)
class PairCounts(Record):
    """Pairs that the first seed learned from and stopped on, that were tested on, and left out."""

    train: int
    stop: int
    test: int
    unanswerable: int
    shared_contexts: int
    cut: int


@dataclass(frozen=True, kw_only=True)
class SoftGateResult(HeadsResult, Ranking):
    """The result of `find soft-gate`; `accuracy` has all measures by condition.

    A head's score is how far its gate is from 1. `gate_seed` is the seed whose gate is kept.
    """

    selected: int
    seeds: tuple[Seed, ...]
    accuracy: Mapping[str, Measures]
    differences: tuple[Difference, ...]
    gate_seed: int
    pairs: PairCounts
    data: Mapping[str, Any] = field(default_factory=dict)
    template: str | None = None
    leakage: Leakage | None = None

    @property
    def gates(self) -> dict[str, tuple[float, ...]]:
        """The gate of each trained head under every seed."""
        by_seed = [{head.name: head.gate for head in seed.trained.heads} for seed in self.seeds]
        return {name: tuple(gates[name] for gates in by_seed) for name in by_seed[0]}
