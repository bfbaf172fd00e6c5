"""What `find translation-score` returns, and of it what other commands return that score heads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headscope.results.classes import Classes
from headscope.results.common import Checked, Ranking
from headscope.results.head_scores import Scored, ScoredHeads
from headscope.runs import Result, entry


@dataclass(frozen=True, kw_only=True)
class TranslationScores(Ranking, ScoredHeads):
    """The scores of one direction, or the mean over `counted_over` directions.

    `counts` are the heads of each class by score, cut at `threshold` and `inactive`, and
    `counts_above_chance` by score − chance, None where chance is not known at every head; of
    several directions the means of their counts. `left_out` sentences have no aligned token.
    """

    signature: str = ""
    threshold: float = 0.1
    inactive: float = 0.0
    counted_over: int = 1
    counts: Classes
    counts_above_chance: Classes | None
    units: str | None = entry(absent=True)
    aligner: str | None = entry(absent=True)
    links_digest: str | None = entry(absent=True)


@dataclass(frozen=True, kw_only=True)
class TranslationResult(TranslationScores, Checked, Result, Scored):
    """The result of the command; of several directions the mean, and each of them."""

    directions: Mapping[str, TranslationScores] | None = entry(absent=True)
