"""Conditions side by side: scores, changes, and what selected heads do that random ones do not.

A trial holds what was counted of the same examples under several conditions: the model as it is,
with selected heads changed, with random heads changed. Examples lie in groups, such as directions,
languages or tasks: a score is the plain mean over groups, and examples are resampled and swapped
within groups. Everything follows from stored numbers; no model takes part.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from headscope.estimates import CONSTANT, Against, Estimate, Floats
from headscope.measure.intervals import FromStatistics, resampled_scores, wilson_interval
from headscope.measure.statistics import counted_mean, least_p, p_sentences

#: Where the claim says that a score lies, compared with the control.
Side = Literal["lower", "higher", "two-sided"]


@dataclass(frozen=True, eq=False)
class Group:
    """Examples of one direction, language or task under all conditions of a trial.

    Attributes:
        statistics: of each condition numbers of every example, (examples, features); None where it
            was not run or measured. All groups of a trial have the same conditions.
        score: from sums over examples (..., features) to scores (...).
        sets: what each condition changes, such as its heads; equal sets are one draw.
        given: the scores, where they need not be means over examples.
        by_size: whether resamples follow from the seed and the number of examples, so that groups
            of equal size, which may be of the same examples, are resampled alike; else from the
            seed alone, as those of `bootstrap_score` do.
    """

    statistics: Sequence[NDArray[Any] | None]
    score: FromStatistics = counted_mean
    sets: Sequence[Hashable] = ()
    seed: int = 0
    given: Sequence[float] | None = None
    by_size: bool = True

    @property
    def examples(self) -> int:
        """How many examples there are; 0 where nothing is known of them."""
        return next((len(part) for part in self.statistics if part is not None), 0)

    @cached_property
    def scores(self) -> Floats:
        """The score of every condition, (C,); NaN where it is not known."""
        if self.given is not None:
            return np.asarray(self.given, dtype=np.float64)
        return np.array([np.nan if part is None else self._total(part) for part in self.statistics])

    @cached_property
    def estimates(self) -> Floats:
        """The scores in 1,000 resamples of the examples, (draws, C)."""
        seed = [self.seed, self.examples] if self.by_size else self.seed
        return resampled_scores(self.statistics, self.score, seed=seed)

    @cached_property
    def shares(self) -> bool:
        """Whether every number is 0 or 1, one an example: scores are shares of examples."""
        parts = [part for part in self.statistics if part is not None]
        return self.score is counted_mean and all(
            part.shape[1] == 2 and (part[:, 1] == 1).all() and np.isin(part[:, 0], (0, 1)).all()
            for part in parts
        )

    def values(self, at: int) -> Floats:
        """The number of each example under a condition, of plain means."""
        return np.asarray(self.statistics[at], dtype=np.float64)[:, 0]

    def _total(self, part: NDArray[Any]) -> float:
        return float(self.score(part.astype(np.float64).sum(axis=0)))


@dataclass(frozen=True, eq=False)
class Trial:
    """Conditions × examples × statistics; conditions go by their place, 0 is the original model."""

    groups: Sequence[Group]

    @cached_property
    def scores(self) -> Floats:
        """The score of every condition, (C,), the mean over groups; NaN where one lacks it."""
        return np.asarray(np.mean([group.scores for group in self.groups], axis=0))

    @cached_property
    def estimates(self) -> Floats:
        """The scores in 1,000 resamples of the examples within groups, (draws, C)."""
        return np.asarray(np.mean([group.estimates for group in self.groups], axis=0))

    def level(self, at: int) -> Estimate:
        """The score of a condition.

        The interval of a share of examples is Wilson's (1927), which has a width where all are
        alike, that of several groups whose examples are all alike too. Those of other groups are
        joined as Zou and Donner (2008) do: distances of the mean from its bounds are added as
        deviations are, those of groups of equal size, which may be of the same examples, with the
        correlation of their examples.
        """
        groups = self.groups
        if not (self._shares([at]) and all(group.examples > 1 for group in groups)):
            return Estimate.of(self.scores[at], self.estimates[:, at])
        values = [group.values(at) for group in groups]
        every = np.concatenate(values)
        if (every == every[0]).all():
            return Estimate(float(every[0]), *wilson_interval(int(every.sum()), len(every)))
        ends = np.array([wilson_interval(int(part.sum()), len(part)) for part in values])
        alike = np.array([[_correlation(first, second) for second in values] for first in values])
        away = np.abs(ends.T - [part.mean() for part in values]) / len(groups)
        below, above = np.sqrt(np.maximum(np.einsum("eg,gh,eh->e", away, alike, away), 0))
        value = float(self.scores[at])
        return Estimate(value, max(0.0, float(value - below)), min(1.0, float(value + above)))

    def difference(self, at: int | Sequence[int], others: Sequence[int] = (0,)) -> Estimate:
        """The score of a condition, or the mean of several, minus the mean of others.

        Paired, since examples are the same; NaN where there is no other. Of shares of examples
        that all differ by the same, such as 0 of n on both sides, the interval reaches as far as
        Wilson's bound for the share of examples that differ otherwise, of which there was none.
        """
        if not others:
            return Estimate(np.nan, np.nan, np.nan)
        own, other = np.ravel(at).tolist(), list(others)
        if self._shares([*own, *other]) and (reach := self._reach(own, other)) is not None:
            value = float(self.scores[own].mean() - self.scores[other].mean())
            return Estimate(value, max(-1.0, value - reach), min(1.0, value + reach))
        return Estimate.of(
            self.scores[own].mean() - self.scores[other].mean(),
            self.estimates[:, own].mean(axis=1) - self.estimates[:, other].mean(axis=1),
        )

    def _shares(self, places: Sequence[int]) -> bool:
        """Whether the scores of these conditions are known shares of examples."""
        return all(
            group.shares and all(group.statistics[at] is not None for at in places)
            for group in self.groups
        )

    def _reach(self, own: Sequence[int], others: Sequence[int]) -> float | None:
        """How far a difference of shares may lie from one that every example has; None where they
        have several. Groups of equal size may be of the same examples."""
        reach: dict[int, float] = {}
        for group in self.groups:
            mine, theirs = (
                np.mean([group.values(at) for at in places], axis=0) for places in (own, others)
            )
            if len(mine) < 2 or np.ptp(mine - theirs) > CONSTANT:
                return None
            share = wilson_interval(0, len(mine))[1] / len(self.groups)
            reach[len(mine)] = reach.get(len(mine), 0.0) + share
        return float(np.sqrt(sum(part**2 for part in reach.values())))

    def distinct(self, draws: Sequence[int]) -> list[int]:
        """Of draws the first of each set."""
        first: dict[tuple[Hashable, ...], int] = {}
        for at in draws:
            first.setdefault(tuple(group.sets[at] for group in self.groups), at)
        return list(first.values())

    def p_examples(self, at: int, others: Sequence[int], side: Side = "lower") -> float | None:
        """p over examples that a condition lies on that side of the mean of others (see
        `p_sentences`)."""
        treated = [group.statistics[at] for group in self.groups]
        controls = [[group.statistics[place] for place in others] for group in self.groups]
        if not others or not np.isfinite(self.scores[[at, *others]]).all():
            return None  # not known, or beyond what floats hold, as a perplexity may be
        if any(part is None for parts in ([*treated], *controls) for part in parts):
            return None
        sign = -1.0 if side == "higher" else 1.0
        return p_sentences(
            [part for part in treated if part is not None],
            [np.stack([part for part in parts if part is not None]) for parts in controls],
            lambda sums: sign * self.groups[0].score(sums),
            seed=self.groups[0].seed,
            alternative="two-sided" if side == "two-sided" else "lower",
        )

    def as_far(
        self, at: int, draws: Sequence[int], side: Side = "lower"
    ) -> NDArray[np.bool_] | None:
        """Of each distinct draw whether it lies at least as far on that side as a condition;
        two-sided: as far from the original model. None where a score is not known."""
        scores = self.scores
        if side == "two-sided":
            scores = -np.abs(scores - scores[0])
        elif side == "higher":
            scores = -scores
        if not draws or np.isnan(scores[[at, *draws]]).any():
            return None
        return np.asarray(scores[self.distinct(draws)] <= scores[at])

    def against(self, at: int, draws: Sequence[int], side: Side = "lower") -> Against:
        """A condition beside random draws; `side` is where the claim says that its score lies."""
        distinct, as_far = len(self.distinct(draws)), self.as_far(at, draws, side)
        return Against(
            self.difference(at, draws),
            self.p_examples(at, draws, side),
            None if as_far is None else (1 + int(as_far.sum())) / (1 + distinct),
            distinct,
            least_p(distinct),
            None if as_far is None else tuple(as_far.tolist()),
        )


def _correlation(first: Floats, second: Floats) -> float:
    """Of the examples of two groups: 0 if these are others, 1 where one group does not vary."""
    if len(first) != len(second):
        return 0.0
    if not np.ptp(first) or not np.ptp(second):
        return 1.0
    return float(np.corrcoef(first, second)[0, 1])
