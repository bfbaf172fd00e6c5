"""How far sets of heads agree: what `compare overlap` returns, and other comparisons hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headscope.options import Amount
from headscope.results.common import Ranking
from headscope.runs import Result, entry


@dataclass(frozen=True)
class Conditional:
    """The share of one set's heads that the other holds too; None where the set is empty.

    `given_a` = |A ∩ B| / |A|, `given_b` = |A ∩ B| / |B|.
    """

    given_a: float | None
    given_b: float | None


@dataclass(frozen=True)
class Halves:
    """How far sets agree that were found on either half of the same examples.

    Attributes:
        examples: of both halves.
        jaccard: the mean Jaccard index over random splits.
        expected: its mean for random sets of these sizes.
    """

    examples: int
    jaccard: float
    expected: float


@dataclass(frozen=True)
class PairOverlap:
    """Two sets of heads of one geometry, A and B.

    Attributes:
        a, b: their names.
        jaccard: |A ∩ B| / |A ∪ B|, 1 for two empty sets.
        expected: the papers' ratio e / (|A| + |B| − e) with e = |A||B| / N.
        expected_exact: the mean Jaccard index of two random sets of these sizes.
        p_value: probability that such sets share at least as many heads (hypergeometric).
        intersection, size_a, size_b: numbers of heads.
        recall: |A ∩ B| / |B|, B being the reference; None if B is empty.
        conditional: the overlap given either set.
        rank_correlation: Spearman's over all heads, ties by mean rank; None unless both have
            scores that are not all equal.
        relation: of two directions, how they are related; None where a name is no direction.
        expected_within_layers, p_within_layers: `expected_exact` and `p_value` for random sets with
            as many heads of each layer as these two have; None in results of earlier versions.
        ceiling: how far sets of these agree that were found on two halves of the same examples,
            the geometric mean of both (see `Halves`); None where examples are not kept.
    """

    a: str
    b: str
    jaccard: float
    expected: float
    expected_exact: float
    p_value: float
    intersection: int
    size_a: int
    size_b: int
    recall: float | None
    conditional: Conditional
    rank_correlation: float | None
    relation: str | None = None
    expected_within_layers: float | None = None
    p_within_layers: float | None = None
    ceiling: float | None = None


@dataclass(frozen=True)
class Kernel:
    """The heads that all of three or more sets hold.

    Attributes:
        heads: as `LAYER.HEAD`.
        expected: how many random sets of these sizes share on average.
        p_value: probability that such sets share at least as many.
        expected_within_layers, p_within_layers: the same for random sets with as many heads of each
            layer as each of these has.
    """

    heads: tuple[str, ...]
    expected: float
    p_value: float
    expected_within_layers: float
    p_within_layers: float


@dataclass(frozen=True)
class GroupOverlap:
    """Means over a group of pairs of directions.

    Attributes:
        by: what the group has in common: `relation`, `source`, `target` or `pivot`.
        language: of a source, a target or a pivot.
        name: of the group.
        count: number of pairs.
        jaccard, expected, expected_exact: means, see `PairOverlap`.
        lowest, highest: of the Jaccard index.
        largest_p: the highest p-value.
        expected_within_layers, largest_p_within_layers: the same within layers.
    """

    by: str
    language: str | None
    name: str
    count: int
    jaccard: float
    expected: float
    expected_exact: float
    lowest: float
    highest: float
    largest_p: float
    expected_within_layers: float | None = None
    largest_p_within_layers: float | None = None


@dataclass(frozen=True, kw_only=True)
class ComparedSet(Ranking):
    """A set of heads that was compared, and where it comes from; `heads` as `LAYER.HEAD`.

    `note` says how scores of a file were read, where that is not plain. `ties`: so many heads
    outside the set score as much as its last one, None where there are none. `halves` where scores
    of single examples are kept.
    """

    name: str
    place: str
    method: str | None = None
    model: str | None = None
    signature: str | None = None
    direction: str | None = None
    ranked: bool = False
    size: int
    heads: tuple[str, ...]
    note: str | None = entry(absent=True)
    ties: int | None = entry(absent=True)
    halves: Halves | None = None


@dataclass(frozen=True, kw_only=True)
class OverlapResult(Ranking, Result):
    """The overlap of every two sets: the top `k` of scores or those above `threshold`.

    `kernel` is what all share, where there are three sets or more and none is empty. Results of
    earlier versions do not say what heads are ranked by: it was the score.
    """

    rank: str | None = "score"
    geometry: Mapping[str, Any]
    k: Amount | None
    threshold: float | None
    artifacts: tuple[ComparedSet, ...]
    pairs: tuple[PairOverlap, ...]
    groups: tuple[GroupOverlap, ...]
    kernel: Kernel | None = entry(absent=True)
