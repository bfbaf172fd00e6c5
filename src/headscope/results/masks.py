"""The result of `compare masks`: learned masks against each other, and a base model's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headscope.estimates import Mean
from headscope.results.overlap import GroupOverlap, PairOverlap
from headscope.runs import Result

#: σ(M) of one mask by layer, then head; None where the model has no head.
Opening = tuple[tuple[float | None, ...], ...]


@dataclass(frozen=True)
class LayerShare:
    """How many heads of a layer a mask keeps; the share is None where the layer has none."""

    layer: int
    kept: int
    share: float | None


@dataclass(frozen=True)
class KeyGroups:
    """Groups of query heads, sharing keys, that a mask drops as a whole, against random masks.

    Attributes:
        groups: how many there are.
        dropped: how many lose all their query heads.
        kept: how many keep all of them.
        expected: mean number dropped under random masks of the same size.
        expected_by_layer: likewise under random masks that keep as many heads in each layer.
        p_value: probability that a random mask of the same size drops at least as many.
        kept_in_groups: how many query heads each group keeps, by layer.
    """

    groups: int
    dropped: int
    kept: int
    expected: float
    expected_by_layer: float
    p_value: float
    kept_in_groups: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class ComparedMask:
    """A learned mask, its run, and the heads it keeps; `base` says whether it is a base model's.

    `start` is the sign of its weights at the beginning; `groups` is None where it is not known
    which heads share keys.
    """

    name: str
    place: str
    model: str | None
    task: str | None
    start: str | None
    base: bool
    selected: int
    kept_share: float
    layers: tuple[LayerShare, ...]
    groups: KeyGroups | None


@dataclass(frozen=True, kw_only=True)
class BasePair(PairOverlap):
    """A mask and the base model's mask of its task."""

    task: str | None


@dataclass(frozen=True)
class BaseComparison:
    """Masks against the base model's, means over tasks: `mean` by measure, `above_chance` of the
    Jaccard index."""

    pairs: tuple[BasePair, ...]
    mean: Mapping[str, Mean]
    above_chance: Mean


@dataclass(frozen=True)
class HeadCount:
    """How many masks keep a head."""

    layer: int
    head: int
    masks: int


@dataclass(frozen=True)
class KeyGroup:
    """A group of query heads that share keys, by its layer and its place there."""

    layer: int
    group: int


@dataclass(frozen=True, kw_only=True)
class MasksResult(Result):
    """Learned masks of one geometry.

    Attributes:
        key_value_heads: by layer, None where it is not known which heads share keys; then
            `always_dropped_groups`, of which no mask keeps a head, are None too.
        masks: with those of a base model, which stand last.
        maps: every mask's weights.
        kept_by: every head, the one that most masks keep first.
        removed: pairs of the heads that masks remove, where `pairs` are of those they keep; empty
            in results of earlier versions.
    """

    geometry: Mapping[str, Any]
    key_value_heads: tuple[int, ...] | None
    masks: tuple[ComparedMask, ...]
    pairs: tuple[PairOverlap, ...]
    groups: tuple[GroupOverlap, ...]
    base: BaseComparison | None
    maps: Mapping[str, Opening]
    kept_by: tuple[HeadCount, ...]
    always_dropped_groups: tuple[KeyGroup, ...] | None
    removed: tuple[PairOverlap, ...] = ()

    @property
    def own(self) -> tuple[ComparedMask, ...]:
        """The masks that are no base model's."""
        return tuple(mask for mask in self.masks if not mask.base)
