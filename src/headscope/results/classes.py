"""The three classes of heads, and what `compare classes` returns."""

from __future__ import annotations

from dataclasses import dataclass
from math import nan

from headscope.heads.scores import TRANSLATION_SCORE
from headscope.results.common import ScoredHead
from headscope.runs import Result


@dataclass(frozen=True)
class Classes:
    """Heads in each class: numbers (which need not be whole in a mean), or shares of all heads.

    NaN, in JSON null, of scores that have no classes.
    """

    token_alignment: float = nan
    low_activity: float = nan
    inactive: float = nan

    @property
    def each(self) -> tuple[float, float, float]:
        """All three in this order."""
        return self.token_alignment, self.low_activity, self.inactive


@dataclass(frozen=True, kw_only=True)
class ClassShares:
    """One model, or one direction of it, in the table.

    `counts` and `counts_above_chance` are numbers of heads (`counted_over` several directions, the
    mean of their counts, see `HeadScores.classes`), `shares` and `shares_above_chance` parts of
    `total`; those above chance (score − chance) are None where chance is not known at every head.
    Scores of another `method` than the translation score have no classes.
    `highest` is the first head by score.
    """

    name: str
    place: str = ""
    model: str
    direction: str | None = None
    method: str
    layers: int
    total: int
    counted_over: int = 1
    counts: Classes
    shares: Classes
    counts_above_chance: Classes | None = None
    shares_above_chance: Classes | None
    mean_score: float
    highest: ScoredHead

    @property
    def classified(self) -> bool:
        """Whether these are translation scores, which the classes are of."""
        return self.method == TRANSLATION_SCORE


@dataclass(frozen=True, kw_only=True)
class ClassesResult(Result):
    """Models in one table; the classes are cut at `threshold` and `inactive`."""

    threshold: float
    inactive: float = 0.0
    models: tuple[ClassShares, ...]
