"""How far repeated passes of a model over the same tokens lie apart.

On a CPU they give equal bits. On a GPU sums by atomics, and routers of experts after them, may not;
a second way to the same logits then cannot be asked for equal bits either, and is held to what
plain passes do.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence

import torch

#: How many times the noise of plain passes a pass may lie apart from one of them.
_SLACK = 4


@dataclasses.dataclass(frozen=True)
class Noise:
    """The noise of plain passes, in standard deviations of the logits.

    Attributes:
        typical: the largest `typical_change` between two passes.
        largest: the largest change of any logit between two passes; 0 if all bits are equal.
    """

    typical: float = 0.0
    largest: float = 0.0

    @classmethod
    def of(cls, passes: Sequence[torch.Tensor]) -> Noise:
        """The noise between passes over the same tokens: logits (tokens, vocabulary) of each."""
        changes = [_changes(a, b) for a, b in itertools.combinations(passes, 2)]
        return cls(
            max(float(change.median()) for change in changes),
            max(float(change.max()) for change in changes),
        )

    def allowed(self, tolerance: float = 0.0) -> float:
        """The `typical_change` that noise explains, or ``tolerance`` if that is more."""
        return max(tolerance, _SLACK * self.typical)

    def explains(self, plain: torch.Tensor, other: torch.Tensor) -> bool:
        """Whether a pass gives the logits of a plain one: equal bits where there is no noise."""
        if torch.equal(plain, other):
            return True
        return self.largest > 0 and typical_change(plain, other) <= self.allowed()


def typical_change(a: torch.Tensor, b: torch.Tensor) -> float:
    """Typical change between two sets of logits (tokens, vocabulary), in standard deviations.

    The median over tokens: in low precision a router of experts may send a single token elsewhere.
    """
    return float(_changes(a, b).median())


def _changes(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The largest change at each token."""
    spread = a.float().std().clamp_min(torch.finfo(torch.float32).tiny)
    return (a.float() - b.float()).abs().amax(dim=-1) / spread
