"""Models of any geometry in one table: what share of their heads is in each class.

Token Alignment Heads, appendix A.5 and A.6: the share of heads, not their number, is what can be
compared between models of different sizes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headscope.compare.artifacts import Artifact
from headscope.errors import InputError

__all__ = ["ClassShares", "Shares", "class_shares"]


@dataclass(frozen=True)
class Shares:
    """Shares of all heads, from 0 to 1, that add up to 1."""

    token_alignment: float
    low_activity: float
    inactive: float


@dataclass(frozen=True)
class ClassShares:
    """One model, or one direction of it, in the table.

    `counts` and `counts_above_chance` are numbers of heads (`counted_over` several directions, the
    mean of their counts, see `HeadScores.classes`), `shares` and `shares_above_chance` parts of
    `total`; those above chance (score − chance) are None where chance is not known at every head.
    `highest` is the first head by score with its score and bounds.
    """

    name: str
    place: str
    model: str
    direction: str | None
    method: str
    layers: int
    total: int
    counted_over: int
    counts: dict[str, float]
    shares: Shares
    counts_above_chance: dict[str, float] | None
    shares_above_chance: Shares | None
    mean_score: float
    highest: dict[str, Any]


def class_shares(artifact: Artifact, threshold: float = 0.1, inactive: float = 0.0) -> ClassShares:
    """The classes of an artifact's scores; InputError if it has none.

    Token alignment heads score above `threshold`, inactive ones at most `inactive`.
    """
    scores = artifact.scores
    if scores is None:
        raise InputError(
            f"{artifact.place}: holds a set of heads without scores, and a set has no classes; "
            "name a run that scored heads or saved scores"
        )
    counts = scores.classes(threshold, inactive)
    above = scores.classes_above_chance(threshold, inactive)
    total = scores.geometry.total
    return ClassShares(
        name=artifact.name,
        place=artifact.place,
        model=str(scores.provenance.get("model") or ""),
        direction=artifact.direction,
        method=scores.method,
        layers=scores.geometry.layers,
        total=total,
        counted_over=scores.counted_over,
        counts=counts,
        shares=_shares(counts, total),
        counts_above_chance=above,
        shares_above_chance=None if above is None else _shares(above, total),
        mean_score=float(scores.values[scores.geometry.mask()].mean()),
        highest=scores.records()[0],
    )


def _shares(counts: dict[str, float], total: int) -> Shares:
    return Shares(**{name: count / total for name, count in counts.items()})
