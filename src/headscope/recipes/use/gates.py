"""What commands put on a model or write into one: a gate by name, or heads and a number."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from headscope.errors import InputError
from headscope.heads import Amount, Geometry, Rank, resolve_heads
from headscope.heads.adaptation import Adaptation, heads_scaled, read_adaptation

__all__ = ["GateChoice", "about"]


@dataclass(frozen=True)
class GateChoice:
    """What is applied.

    Attributes:
        gate: a run that found a mask or soft gates, or a saved gate.
        heads: instead of it, heads that `resolve_heads` reads.
        k: the first so many of them.
        scale: number by which these heads are multiplied; None: 0, or 1 where `outside` is given.
        outside: of a mask, what takes the place of 0; of heads, the number by which all others
            are multiplied.
        rank: what scores are ranked by; what they were counts in the signature.
    """

    gate: str | None = field(default=None, metadata={"signature": False})
    heads: str | None = field(default=None, metadata={"signature": False})
    k: Amount | None = field(default=None, metadata={"signature": False})
    scale: float | None = None
    outside: float | None = None
    rank: Rank = field(default="above-chance", metadata={"signature": False})

    def check(self) -> None:
        """Raises `InputError` unless it says one thing to apply."""
        if (self.gate is None) == (self.heads is None):
            raise InputError(
                "what is to be applied is not clear; give either --gate RUN, or --heads, with "
                "--scale or --outside"
            )
        if self.gate is not None and (self.scale is not None or self.k is not None):
            raise InputError(
                "--scale and --k go with --heads; a gate says by itself which heads it multiplies "
                "by what, and --outside puts another number in place of a mask's 0"
            )

    def read(self, geometry: Geometry) -> Adaptation:
        """The numbers for a model of this geometry; `InputError` as its parts are read."""
        self.check()
        if self.gate is not None:
            found = read_adaptation(self.gate, geometry)
            return found if self.outside is None else found.outside(self.outside)
        heads = resolve_heads(str(self.heads), self.k, geometry, by=self.rank)
        scale, outside = self.scale, self.outside
        if scale is None:
            scale = 0.0 if outside is None else 1.0
        return heads_scaled(heads, scale, 1.0 if outside is None else outside)


def about(adaptation: Adaptation) -> dict[str, Any]:
    """What a result says about what was applied."""
    gate, parts = adaptation.gate, adaptation.feed_forward
    return {
        "name": adaptation.name,
        "on": adaptation.place,
        "mask": adaptation.is_mask,
        "heads": len(gate.changed_heads()),
        "removed": len(gate.removed_heads()),
        "of": gate.geometry.total,
        "feed_forward": 0 if parts is None else int((parts != 1).sum()),
        "applied": adaptation.as_dict(),
    }
