"""Models of any geometry in one table: what share of their heads is in each class.

Token Alignment Heads, appendix A.5 and A.6: the share of heads, not their number, is what can be
compared between models of different sizes.
"""

from __future__ import annotations

from headscope.compare.artifacts import Artifact
from headscope.errors import InputError
from headscope.results.classes import Classes, ClassShares
from headscope.results.common import ScoredHead


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
        counts=Classes(**counts),
        shares=_shares(counts, total),
        counts_above_chance=None if above is None else Classes(**above),
        shares_above_chance=None if above is None else _shares(above, total),
        mean_score=float(scores.values[scores.geometry.mask()].mean()),
        highest=ScoredHead.all_of(scores)[0],
    )


def _shares(counts: dict[str, float], total: int) -> Classes:
    return Classes(**{name: count / total for name, count in counts.items()})
