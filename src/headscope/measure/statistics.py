"""Overlap of head sets against chance, and tests of the effect of a removal."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import comb
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from headscope.errors import InputError
from headscope.estimates import Floats
from headscope.measure.intervals import BLOCK, FromStatistics, paired_statistics

Alternative = Literal["lower", "two-sided"]
Ways = TypeVar("Ways", int, float)
#: Scores that differ by less, of their size or of one standard deviation, are a tie.
TIE = 1e-9


@dataclass(frozen=True)
class Overlap:
    """How far two sets of heads agree, against two random sets of their sizes among N heads.

    `jaccard` = |A ∩ B| / |A ∪ B|. `expected` = e / (|A| + |B| − e) with e = |A||B| / N, the ratio
    used in the papers. `expected_exact` is the mean of the Jaccard index itself when the size of
    the intersection follows the hypergeometric distribution, and `p_value` the probability of an
    intersection at least as large. Two empty sets are equal: their Jaccard index is 1.
    """

    jaccard: float
    expected: float
    expected_exact: float
    p_value: float
    intersection: int


def overlap(a: Collection[Any], b: Collection[Any], total: int) -> Overlap:
    """The overlap of two sets of heads of a model with `total` heads (see `Overlap`)."""
    set_a, set_b = set(a), set(b)
    if len(set_a | set_b) > total:
        raise InputError(
            f"the two sets hold {len(set_a | set_b)} different heads, more than the {total} of the "
            "model; give the number of heads of the model the sets belong to"
        )
    return _overlap(len(set_a & set_b), [(len(set_a), len(set_b), total)])


def overlap_within(
    a: Collection[Any], b: Collection[Any], groups: Sequence[Collection[Any]]
) -> Overlap:
    """The overlap of two sets of heads against random sets with as many heads of each group.

    `groups`, such as the layers of a model, hold each of its heads once. Heads that any method
    finds lie in the same layers, so that sets share more than random ones do for that reason alone:
    e is the sum over layers here, and the intersection a sum of hypergeometric numbers.
    """
    set_a, set_b, parts = set(a), set(b), [set(group) for group in groups]
    if not set_a | set_b <= set().union(*parts):
        raise InputError("a head of the two sets is in no group; give groups of all heads")
    sizes = [(len(set_a & part), len(set_b & part), len(part)) for part in parts]
    return _overlap(len(set_a & set_b), sizes)


def _overlap(common: int, sizes: Sequence[tuple[int, int, int]]) -> Overlap:
    """Of two sets that share `common` heads; by group the heads of either set, and of both."""
    size_a, size_b = (sum(group[at] for group in sizes) for at in (0, 1))

    def jaccard(shared: float) -> float:
        union = size_a + size_b - shared
        return shared / union if union else 1.0

    # Whole numbers throughout: each quotient below is exact to the last bit of a float.
    ways, every = {0: 1}, 1
    for in_a, in_b, total in sizes:
        ways, every = _summed(ways, dict(_drawn(in_a, in_b, total))), every * comb(total, in_b)
    return Overlap(
        jaccard=jaccard(common),
        expected=jaccard(sum(in_a * in_b / total for in_a, in_b, total in sizes if total)),
        expected_exact=sum(count / every * jaccard(i) for i, count in ways.items()),
        p_value=sum(count for i, count in ways.items() if i >= common) / every,
        intersection=common,
    )


@dataclass(frozen=True)
class Shared:
    """How many heads all of several sets hold, and random sets of their sizes: the mean number
    (`expected`), and the probability of at least as many (`p_value`)."""

    count: int
    expected: float
    p_value: float


def shared_by_all(sets: Sequence[Collection[Any]], groups: Sequence[Collection[Any]]) -> Shared:
    """The heads that all of the sets hold, against random sets with as many heads of each group.

    One group of all heads gives random sets of any layers. The number that all share is, set after
    set, hypergeometric given how many the sets before share.
    """
    first, *others = map(set, sets)
    common, chances = len(first.intersection(*others)), {0: 1.0}
    for part in map(set, groups):
        own = {len(part & first): 1.0}
        for members in others:
            size = len(part & members)
            drawn, every = dict[int, float](), comb(len(part), size)
            for shared, chance in own.items():
                for i, ways in _drawn(shared, size, len(part)):
                    drawn[i] = drawn.get(i, 0.0) + chance * (ways / every)
            own = drawn
        chances = _summed(chances, own)
    return Shared(
        common,
        sum(i * chance for i, chance in chances.items()),
        min(1.0, sum(chance for i, chance in chances.items() if i >= common)),
    )


def _summed(first: Mapping[int, Ways], other: Mapping[int, Ways]) -> dict[int, Ways]:
    """In how many ways, or how likely, two independent numbers have a sum."""
    summed: dict[int, Ways] = {}
    for i, ways in first.items():
        for j, more in other.items():
            summed[i + j] = summed[i + j] + ways * more if i + j in summed else ways * more
    return summed


def _drawn(shared: int, size: int, total: int) -> Iterator[tuple[int, int]]:
    """How many of `shared` heads are among `size` of `total`, and in how many ways."""
    i = max(0, shared + size - total)
    number = comb(shared, i) * comb(total - shared, size - i)
    while i <= min(shared, size):
        yield i, number
        more, fewer = (shared - i) * (size - i), (i + 1) * (total - shared - size + i + 1)
        number, i = number * more // fewer, i + 1


def p_sentences(
    condition: ArrayLike | Sequence[ArrayLike],
    control: ArrayLike | Sequence[ArrayLike],
    score: FromStatistics,
    trials: int = 9999,
    seed: int = 0,
    alternative: Alternative = "lower",
) -> float:
    """Randomisation test (Noreen 1989) over sentences of a condition against random draws.

    `condition` holds the statistics per sentence of the outputs under a removal, (sentences,
    features); `control` those of the same sentences under the removal of random heads, of the same
    shape, or (draws, sentences, features). Lists of such arrays are language pairs: the score is
    the plain mean over pairs, and swaps stay within a pair. Pairs of equal length are swapped
    alike: if they are of the same sentences they are no independent evidence, and if not, it makes
    no difference.

    The null is that over further sentences the condition scores as the mean of these draws. Two
    tests of it are made, and the larger p counts, since either alone errs in cases that occur:

    - Each sentence's statistics are swapped with the mean of the draws' with probability 1/2, and
      both corpus scores computed again. Alone it calls a rare event that did not happen to occur
      rarer than among many draws.
    - In each sentence another of the condition and the draws, all equally likely, takes the place
      of the condition. Corpus scores are taken as linear about their mean here, and the difference
      is divided by the root of its squares over sentences, so that draws that differ from each
      other do not count as noise. Alone it calls a condition that changes more than the draws do,
      for better as often as for worse, lower.

    With one control both are the same. p is the share of arrangements whose difference is at least
    the observed one: of all where those are at most `trials` + 1, else (1 + of random ones) / (1 +
    trials); never below 1 / 2 ** sentences. `lower` asks whether the condition scores lower than
    the control; `two-sided` takes absolute differences.

    It is a test over sentences, of these heads and these draws: read it beside `p_draws`, which
    asks whether random heads would do the same.
    """
    if alternative not in ("lower", "two-sided"):
        raise InputError(f"alternative is 'lower' or 'two-sided', not {alternative!r}")
    pairs = paired_statistics(condition, control)
    if all((treated == controls).all() for treated, controls in pairs):
        return 1.0  # nothing differs, as with what never happens
    sizes = list(dict.fromkeys(len(treated) for treated, _ in pairs))
    sided = np.abs if alternative == "two-sided" else np.positive
    means = [(treated, controls.mean(axis=0)) for treated, controls in pairs]

    def swapped(chosen: Mapping[int, NDArray[np.integer[Any]]]) -> Floats:
        differences = np.zeros(len(chosen[sizes[0]]))
        for treated, mean in means:
            moved = chosen[len(treated)].astype(np.float64) @ (mean - treated)
            lower, upper = treated.sum(axis=0) + moved, mean.sum(axis=0) - moved
            differences += score(upper) - score(lower)
        return np.asarray(sided(differences))

    p = _share_at_least(swapped, _Arrangements(sizes, 2, trials, seed))
    draws = len(pairs[0][1])
    if draws == 1:
        return p
    # By length of the pair, then sentence: what each condition adds to its distance from others.
    parts = {size: np.zeros((size, draws + 1)) for size in sizes}
    for treated, controls in pairs:
        every = _linear(np.concatenate([treated[None], controls]), score)
        parts[len(treated)] += every.mean(axis=1, keepdims=True) - every
    # What rounding leaves of nothing is no difference, however few sentences differ.
    least = 1e-9 * max(np.abs(part).max() for part in parts.values())
    parts = {size: np.where(np.abs(part) > least, part, 0.0) for size, part in parts.items()}

    def taken(chosen: Mapping[int, NDArray[np.integer[Any]]]) -> Floats:
        sums, squares = np.zeros((2, len(chosen[sizes[0]])))
        for size, part in parts.items():
            taken = part.ravel()[chosen[size] + (draws + 1) * np.arange(size)]
            sums += taken.sum(axis=1)
            squares += (taken**2).sum(axis=1)
        return np.asarray(sided(sums / np.sqrt(np.where(squares > 0, squares, 1))))

    return max(p, _share_at_least(taken, _Arrangements(sizes, draws + 1, trials, seed)))


def _linear(statistics: Floats, score: FromStatistics, step: float = 1e-3) -> Floats:
    """What a sentence under a condition adds to a score near that of the mean condition, (S, C).

    `statistics` is (C, S, features). Of plain means these are the values less the mean, over S.
    Central differences of two steps are extrapolated to none, so that equal sums are told as equal.
    """
    about = statistics.sum(axis=1).mean(axis=0)

    def slopes(size: float) -> Floats:
        slopes = [score(about + size * part) - score(about - size * part) for part in statistics]
        return np.stack(slopes, axis=1) / (2 * size)

    return (4 * slopes(step / 2) - slopes(step)) / 3


@dataclass(frozen=True)
class _Arrangements:
    """Which of the `options` each sentence takes, 0 being what was observed, in blocks.

    All ways there are where those are at most `trials` + 1, else random ones: for each length of a
    pair an array (ways, length).
    """

    sizes: Sequence[int]
    options: int
    trials: int
    seed: int

    @property
    def every(self) -> int | None:
        """How many there are, where all are gone through."""
        number = self.options ** sum(self.sizes)
        return number if number <= self.trials + 1 else None

    def __iter__(self) -> Iterator[Mapping[int, NDArray[np.integer[Any]]]]:
        number = self.every or self.trials
        step = max(1, BLOCK // sum(self.sizes))
        dtype = np.int8 if self.options <= 127 else np.int32
        streams = {size: np.random.default_rng([self.seed, size]) for size in self.sizes}
        places = np.split(np.arange(sum(self.sizes)), np.cumsum(self.sizes)[:-1])
        for start in range(0, number, step):
            ways = np.arange(start, min(start + step, number))
            if self.every is None:
                yield {
                    size: stream.integers(self.options, size=(len(ways), size), dtype=dtype)
                    for size, stream in streams.items()
                }
            else:
                yield {
                    size: ways[:, None] // self.options**at % self.options
                    for size, at in zip(self.sizes, places, strict=True)
                }


def _share_at_least(
    difference: Callable[[Mapping[int, NDArray[np.integer[Any]]]], Floats],
    arrangements: _Arrangements,
) -> float:
    """p: the share of arrangements whose difference is at least that of the observed one."""
    nothing = {size: np.zeros((1, size), dtype=np.int8) for size in arrangements.sizes}
    observed = float(difference(nothing)[0])
    # Equal sums may differ in their last bits: a tie counts as at least as large.
    tie = TIE * max(1.0, abs(observed))
    as_large = sum(
        int((difference(arrangement) >= observed - tie).sum()) for arrangement in arrangements
    )
    if arrangements.every is not None:
        return as_large / arrangements.every
    return (1 + as_large) / (1 + arrangements.trials)


def p_draws(condition: float, draws: ArrayLike) -> float:
    """(1 + draws that score at most as high as the condition) / (1 + draws).

    `draws` holds the scores under the removal of random heads, of which there is at least one; it
    is the probability of so low a score if the condition were one more random draw. The draws are
    different sets: one that is drawn again proves nothing more (see `least_p`).
    """
    scores = np.asarray(draws, dtype=np.float64)
    if scores.ndim != 1 or not scores.size:
        raise InputError("a comparison with random draws needs at least one draw; use --draws 1")
    return float((1 + (scores <= condition).sum()) / (1 + scores.size))


def least_p(draws: int) -> float:
    """The lowest value `p_draws` can have with so many different sets."""
    return 1 / (1 + draws)


def holm(p_values: Sequence[float]) -> list[float]:
    """The p-values of one family of tests after Holm's correction, in the same order.

    Holm 1979, "A simple sequentially rejective multiple test procedure": the i-th smallest of m is
    multiplied by m - i + 1, none may be below one before it, and none is above 1. All of those at
    most 0.05 may be called true with a chance of 0.05 that any of them is not.
    """
    order = sorted(range(len(p_values)), key=lambda at: p_values[at])
    corrected = [0.0] * len(p_values)
    largest = 0.0
    for place, at in enumerate(order):
        largest = max(largest, min(1.0, (len(order) - place) * p_values[at]))
        corrected[at] = largest
    return corrected


def max_t(selected: ArrayLike, draws: Sequence[ArrayLike]) -> list[float]:
    """The p-values of one family of tests after the step-down max-T correction, in the same order.

    Westfall and Young 1993, "Resampling-based multiple testing", algorithm 4.1. `selected` holds a
    score a test, (m,), more of which is claimed, and `draws` those of its random sets, (m, N). Each
    test is standardised over its draws and the selected heads together; draws are paired by their
    number. The p of a test is the share of the N + 1 columns whose largest value among this test
    and those that lie less far reaches its own (ties do), and at least that of any that lies
    farther; so it is at least 1/(1 + N).

    **Each test must have draws of its own, and selected heads or effects of its own.** Where tests
    with different heads share their random sets, all of them are high in the same columns, and the
    selected heads are not: the family-wise level is then 0.21 to 0.45 instead of 0.05. With the
    same heads and effects and few draws it can be 0.07 (`bench/draws.py`). Use `holm` there.

    Raises `InputError` for tests with different numbers of draws, without any, or with a score that
    is not known.
    """
    own, rows = np.asarray(selected, dtype=np.float64), [np.asarray(row) for row in draws]
    shapes = {row.shape for row in rows}
    if own.shape != (len(rows),) or len(shapes) != 1 or len(next(iter(shapes))) != 1:
        raise InputError(
            "max-T pairs the draws of several tests: give a score of each, and as many random "
            "draws for each; p over unequal numbers of draws can be corrected with holm"
        )
    scores = np.column_stack([own, np.asarray(rows, dtype=np.float64)])
    if scores.shape[1] == 1 or not np.isfinite(scores).all():
        raise InputError("every test needs at least one random draw, and scores that are known")
    # Equal sums may differ in their last bits: a tie counts as at least as large.
    about = scores - scores.mean(axis=1, keepdims=True)
    spread = about.std(axis=1, keepdims=True)
    alike = spread <= TIE * np.abs(scores).max(axis=1, keepdims=True)
    standard = np.where(alike, 0.0, about / np.where(alike, 1.0, spread))
    order = np.argsort(-standard[:, 0], kind="stable")
    # In every column the largest of a test and of those that lie less far.
    largest = np.maximum.accumulate(standard[order[::-1]], axis=0)[::-1]
    shares = (largest >= standard[order, :1] - TIE).mean(axis=1)
    corrected = np.empty_like(shares)
    corrected[order] = np.maximum.accumulate(shares)
    return [float(p) for p in corrected]


def counted(values: ArrayLike) -> NDArray[np.float64]:
    """Numbers of sentences (..., S) as statistics (..., S, 2), whose score is `counted_mean`."""
    numbers = np.asarray(values, dtype=np.float64)
    return np.stack([numbers, np.ones_like(numbers)], axis=-1)


def counted_mean(sums: NDArray[Any]) -> NDArray[np.float64]:
    """The mean of what `counted` made, from sums over sentences."""
    return np.asarray(sums[..., 0] / sums[..., 1], dtype=np.float64)
