"""The result of `compare states`: hidden states of a masked and an instructed model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import nan
from typing import Any

from headscope.estimates import Mean
from headscope.results.common import Checked, Leakage, ModelResult
from headscope.runs import Record, entry


@dataclass(frozen=True, kw_only=True)
class ByPlace(Record):
    """Means over samples by layer, after its attention and after the whole layer."""

    after_attention: tuple[Mean, ...]
    after_layer: tuple[Mean, ...]


@dataclass(frozen=True, kw_only=True)
class Pair(ByPlace):
    """Cosines of the states under two conditions; `kind` says whether the paper compares them."""

    a: str
    b: str
    kind: str


@dataclass(frozen=True, kw_only=True)
class StateControl(ByPlace):
    """Cosines of a shuffled mask's states with the instructed model's, the mean over draws.

    `later_half_of_draws` has each draw's mean over the later half of the layers.
    """

    kind: str
    draws: int
    distinct_draws: int | None = entry(absent=True)
    least_p: float | None = None
    later_half_of_draws: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class Nearer(ByPlace):
    """How much nearer the masked model is to the instructed one than another is, by cosine.

    `later_half` is the mean over the later half of the layers. Against a shuffled mask there is p
    over its draws and over samples.
    """

    later_half: Mean
    p_draws: float | None = entry(absent=True)
    p_examples: float | None = entry(absent=True)


@dataclass(frozen=True)
class SharedTop(Record):
    """The share of likeliest tokens that two conditions have in common, the embedding first."""

    a: str
    b: str
    layers: tuple[Mean, ...]


@dataclass(frozen=True)
class Rank(Record):
    """The rank of the answer's first token, 1 the likeliest: over samples, with an interval."""

    median: float
    geometric_mean: float
    low: float = nan
    high: float = nan


@dataclass(frozen=True)
class LensRow(Record):
    """What a layer (None: the embedding) would say: the likeliest tokens, the answer's rank."""

    layer: int | None
    tokens: tuple[str, ...]
    logits: tuple[float, ...]
    target_rank: int


@dataclass(frozen=True)
class Lens(Record):
    """One sample through the lens, by condition."""

    id: str
    input: str
    output: str
    conditions: Mapping[str, tuple[LensRow, ...]]


@dataclass(frozen=True, kw_only=True)
class StatesFound(Record):
    """What the states of so many samples, in so many layers, show.

    `nearer` is by what the masked model is compared with: "as is" or a kind of shuffled mask;
    `target_ranks` is by condition, the embedding first.
    """

    samples: int
    layers: int
    pairs: tuple[Pair, ...]
    controls: tuple[StateControl, ...]
    nearer: Mapping[str, Nearer]
    shared_top: tuple[SharedTop, ...]
    target_ranks: Mapping[str, tuple[Rank, ...]]


@dataclass(frozen=True)
class KeptHeads(Record):
    """How many heads a mask keeps, and their share of all."""

    kept: int
    kept_share: float


@dataclass(frozen=True, kw_only=True)
class ComparedStates(ModelResult, Checked):
    """The result of `compare states`: mask, task, what the states show, one sample's lens."""

    task: str
    prompts: Mapping[str, str | None]
    data: Mapping[str, Any]
    mask: KeptHeads
    leakage: Leakage
    states: StatesFound = entry(flat="")
    lens: Lens
