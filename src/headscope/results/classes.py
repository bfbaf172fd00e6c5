"""The three classes of heads, and what `compare classes` returns."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Classes"]


@dataclass(frozen=True)
class Classes:
    """Heads in each class: numbers (which need not be whole in a mean), or shares of all heads."""

    token_alignment: float
    low_activity: float
    inactive: float

    @property
    def each(self) -> tuple[float, float, float]:
        """All three in this order."""
        return self.token_alignment, self.low_activity, self.inactive
