"""How many heads of a model are of each class, by its translation scores."""

from __future__ import annotations

from headscope.compare.artifacts import Artifact
from headscope.errors import InputError
from headscope.heads.scores import TRANSLATION_SCORE
from headscope.results.classes import Classes, ClassShares
from headscope.results.common import ScoredHead


def class_shares(artifact: Artifact, threshold: float = 0.1, inactive: float = 0.0) -> ClassShares:
    """The classes of an artifact's translation scores; those of other scores are NaN.

    Token alignment heads score above `threshold`, inactive ones at most `inactive`. InputError for
    what has no scores.
    """
    scores = artifact.scores
    if scores is None:
        raise InputError(
            f"{artifact.place}: holds a set of heads without scores, and a set has no classes; "
            "name a run that scored heads or saved scores"
        )
    counts = above = None
    if scores.method == TRANSLATION_SCORE:
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
        counts=Classes() if counts is None else Classes(**counts),
        shares=Classes() if counts is None else _shares(counts, total),
        counts_above_chance=None if above is None else Classes(**above),
        shares_above_chance=None if above is None else _shares(above, total),
        mean_score=float(scores.values[scores.geometry.mask()].mean()),
        highest=ScoredHead.all_of(scores)[0],
    )


def _shares(counts: dict[str, float], total: int) -> Classes:
    return Classes(**{name: count / total for name, count in counts.items()})
