"""The atlas of a model: the causal check beside the scores of its heads."""

from __future__ import annotations

from dataclasses import dataclass

from headscope.results.common import Ablation
from headscope.results.removal import Effect, Shown
from headscope.runs import Record

__all__ = ["AtlasCheck", "Mean"]


@dataclass(frozen=True)
class Mean(Record):
    """chrF++ over all directions; None where it was not computed."""

    chrf: float | None


@dataclass(frozen=True, kw_only=True)
class AtlasCheck(Ablation, Shown):
    """What the model does as it is, without its `k` top heads, and without as many random ones."""

    k: int
    draws: int
    heads: tuple[str, ...]
    random: tuple[tuple[str, ...], ...]
    top: Mean
    random_mean: Mean

    @property
    def whole(self) -> Effect | None:
        """The effect over all directions; None where it was not computed."""
        return self.effect(next(self.cases, None))

    @property
    def single(self) -> dict[str, Effect]:
        """The effects of directions, as far as they were computed."""
        found = {n: part.effect(next(part.cases, None)) for n, part in self.directions.items()}
        return {name: effect for name, effect in found.items() if effect is not None}
