"""The result of `compare states`: hidden states of a masked and an instructed model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import nan
from typing import Any

from headscope.estimates import Mean
from headscope.results.common import ComparedDetails, ComparedResult
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
    """What the states of so many samples, in so many layers, show by layer.

    `controls` are cosines of random masks' states with the instructed model's, the mean over draws,
    by control. `nearer` is how much nearer the masked model is to the instructed one than another,
    by what it is compared with: "original" or a control. `target_ranks` is by condition, the
    embedding first.
    """

    samples: int
    layers: int
    pairs: tuple[Pair, ...]
    controls: Mapping[str, ByPlace]
    nearer: Mapping[str, ByPlace]
    shared_top: tuple[SharedTop, ...]
    target_ranks: Mapping[str, tuple[Rank, ...]]


@dataclass(frozen=True)
class KeptHeads(Record):
    """How many heads a mask keeps, and their share of all."""

    kept: int
    kept_share: float


@dataclass(frozen=True, kw_only=True)
class StatesDetails(ComparedDetails):
    """Mask and task of `compare states`, what the states show by layer, and one sample's lens;
    `draws` random masks of each kind were requested."""

    task: str
    prompts: Mapping[str, str | None]
    data: Mapping[str, Any]
    mask: KeptHeads
    states: StatesFound = entry(flat="")
    lens: Lens


@dataclass(frozen=True, kw_only=True)
class ComparedStates(ComparedResult):
    """The result of `compare states`: cosines with the instructed model's states, over the later
    half of the layers."""

    details: StatesDetails
