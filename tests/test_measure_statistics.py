"""Intervals, overlaps and tests against enumeration and closed forms."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import astuple
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headscope.errors import InputError
from headscope.measure import (
    bootstrap_difference,
    bootstrap_interval,
    bootstrap_score,
    chrf,
    chrf_from_statistics,
    intervals,
    overlap,
    p_draws,
    p_sentences,
    rate_interval,
    statistics,
    wilson_interval,
)
from headscope.measure.statistics import counted, shared_by_all

# Overlap


@given(st.integers(1, 8), st.data())
def test_overlap_by_enumeration(total: int, data: st.DataObject) -> None:
    heads = st.sets(st.integers(0, total - 1))
    a, b = data.draw(heads), data.draw(heads)
    found = overlap(a, b, total)
    every = [set(c) for c in combinations(range(total), len(b))]

    def jaccard(x: set[int], y: set[int]) -> float:
        return len(x & y) / len(x | y) if x | y else 1.0

    assert found.jaccard == jaccard(a, b)
    assert found.intersection == len(a & b)
    assert found.expected_exact == pytest.approx(sum(jaccard(a, c) for c in every) / len(every))
    as_large = sum(len(a & c) >= len(a & b) for c in every)
    assert found.p_value == pytest.approx(as_large / len(every))


@given(st.integers(1, 40), st.data())
def test_overlap_laws(total: int, data: st.DataObject) -> None:
    heads = st.sets(st.integers(0, total - 1))
    a, b = data.draw(heads), data.draw(heads)
    one, other = overlap(a, b, total), overlap(b, a, total)
    assert one.jaccard == other.jaccard
    assert one.expected == other.expected
    assert one.expected_exact == pytest.approx(other.expected_exact, abs=1e-14)
    assert one.p_value == pytest.approx(other.p_value, abs=1e-14)
    assert 0 <= one.p_value <= 1
    assert 0 <= one.expected_exact <= 1 + 1e-12
    # The ratio is convex in the intersection, so its mean is at least that at the mean.
    assert one.expected_exact >= one.expected - 1e-12


@given(st.data())
def test_what_all_sets_share_by_enumeration(data: st.DataObject) -> None:
    """Beside all families of three sets that have as many heads of each of two layers."""
    layers = [set(range(3)), set(range(3, data.draw(st.integers(4, 6))))]
    sets = [data.draw(st.sets(st.sampled_from(sorted(set.union(*layers))))) for _ in range(3)]
    for groups in (layers, [set.union(*layers)]):
        every = [
            [
                set().union(*parts)
                for parts in product(*(map(set, combinations(g, len(own & g))) for g in groups))
            ]
            for own in sets
        ]
        counts = [len(set.intersection(*family)) for family in product(*every)]
        found, common = shared_by_all(sets, groups), len(set.intersection(*sets))
        assert found.count == common
        assert found.expected == pytest.approx(sum(counts) / len(counts))
        as_many = sum(count >= common for count in counts)
        assert found.p_value == pytest.approx(as_many / len(counts))


def test_overlap_of_equal_whole_and_empty_sets() -> None:
    assert overlap({1}, {1}, 1).p_value == 1
    assert overlap(set(), set(), 5).jaccard == 1
    assert overlap(set(), set(), 5).expected == 1
    assert overlap(set(), {1}, 5).jaccard == 0
    assert overlap(range(5000), range(5000), 10_000).p_value == pytest.approx(0, abs=1e-300)
    with pytest.raises(InputError, match="more than the 3"):
        overlap({1, 2}, {3, 4}, 3)


# Bootstrap


def naive_interval(
    hits: np.ndarray, totals: np.ndarray, average: str, draws: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    hits, totals = hits[totals > 0], totals[totals > 0]
    n = len(totals)
    random = np.random.default_rng(seed)
    estimates = []
    for _ in range(draws):
        weights = random.multinomial(n, np.full(n, 1 / n))
        rows = np.repeat(np.arange(n), weights)
        if average == "macro":
            shaped = totals[rows].reshape(-1, *[1] * (hits.ndim - 1))
            estimates.append((hits[rows] / shaped).mean(axis=0))
        else:
            estimates.append(hits[rows].sum(axis=0) / totals[rows].sum())
    low, high = np.quantile(estimates, [0.025, 0.975], axis=0)
    return low, high


def example(sentences: int = 12) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(3)
    totals = random.integers(0, 9, sentences)
    hits = random.binomial(totals[:, None, None], 0.4, (sentences, 2, 3)).astype(np.uint16)
    return hits, totals


@pytest.mark.parametrize("average", ["macro", "micro"])
@pytest.mark.parametrize("block", [1, 7, 30, 8_000_000])
def test_bootstrap_equals_the_naive_one_whatever_the_block_size(
    average: str, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intervals, "BLOCK", block)
    hits, totals = example()
    found = bootstrap_interval(hits, totals, average, draws=50, seed=5)
    low, high = naive_interval(hits, totals, average, 50, 5)
    assert found.low.shape == (2, 3)
    np.testing.assert_allclose(found.low, low, atol=1e-12)
    np.testing.assert_allclose(found.high, high, atol=1e-12)


def test_bootstrap_of_many_draws_is_that_of_all_resamples() -> None:
    hits, totals = np.array([[0], [1], [3]]), np.array([2, 2, 4])
    ratios = hits[:, 0] / totals
    means = sorted(np.mean([ratios[i] for i in draw]) for draw in product(range(3), repeat=3))
    found = bootstrap_interval(hits, totals, draws=20_000, level=0.8)
    assert found.low[0] == pytest.approx(np.quantile(means, 0.1))
    assert found.high[0] == pytest.approx(np.quantile(means, 0.9))


def test_bootstrap_tells_nothing_where_nothing_varies_and_follows_its_seed() -> None:
    constant = np.full((5, 2), 2)
    constant[0, 1] = 3
    found = bootstrap_interval(constant, np.full(5, 8))
    assert np.isnan([found.low[0], found.high[0]]).all() and 0.25 <= found.low[1] < found.high[1]
    assert np.isnan(bootstrap_score(stats(0.1, 0.1, 0.1), mean_score)).all()
    same = bootstrap_difference(stats(1, 2, 3), stats(1, 2, 3), mean_score)
    assert same.value == 0 and np.isnan([same.low, same.high]).all()
    hits, totals = example()
    one, same, other = (bootstrap_interval(hits, totals, draws=9, seed=s) for s in (1, 1, 2))
    assert np.array_equal(one.low, same.low)
    assert not np.array_equal(one.low, other.low)


# Rates of hits


@pytest.mark.parametrize("average", ["macro", "micro"])
@pytest.mark.parametrize("block", [7, 8_000_000])
def test_bounds_of_a_rate_are_those_whose_test_just_fails(
    average: str, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By definition (rate - bound)² = t² bound (1 - bound) / n, with n of plain loops."""
    monkeypatch.setattr(intervals, "BLOCK", block)
    hits, totals = example()
    hits[:, 0, 0], hits[:, 0, 1] = 0, totals
    found = rate_interval(hits, totals, average)
    kept = [sentence for sentence, total in enumerate(totals) if total]
    every, number = sum(totals[kept]), len(kept)
    for at in product(range(2), range(3)):
        share = {s: 1 / number / totals[s] if average == "macro" else 1 / every for s in kept}
        own = {s: float(hits[(s, *at)]) for s in kept}
        rate = min(1.0, sum(share[s] * own[s] for s in kept))
        known = min(sum(own.values()), every - sum(own.values()))
        assumed = sum(share[s] ** 2 * totals[s] * (1 + (totals[s] - 1) * 0.2) for s in kept)
        inverse = assumed
        if 0 < rate < 1:
            seen = sum(share[s] ** 2 * (own[s] - rate * totals[s]) ** 2 for s in kept)
            seen *= number / (number - 1) / (rate * (1 - rate))
            inverse = (known * seen + 5 * assumed) / (known + 5)
        quantile = intervals.t_quantile(number - 1)
        for bound in (found.low[at], found.high[at]):
            assert (rate - bound) ** 2 == pytest.approx(
                quantile**2 * bound * (1 - bound) * inverse, abs=1e-12
            )
        assert 0 <= found.low[at] < found.high[at] <= 1
        assert found.low[at] - 1e-12 <= rate <= found.high[at] + 1e-12


def test_rates_cover_the_truth_as_often_as_they_say() -> None:
    """The tokens of a sentence are alike to a degree; bootstrap bounds covered 0.71 and 0.89.

    Sentences of 5 to 30 tokens, true rates 0.02 and 0.1; five standard deviations of 8,000 heads
    are 0.014.
    """
    random = np.random.default_rng(7)
    for sentences, rate, alike in product((16, 32, 100, 500), (0.02, 0.1), (0.0, 0.05, 0.1)):
        covered = []
        for _ in range(4):
            totals = random.integers(5, 31, size=sentences)
            chance = np.full((sentences, 2000), rate)
            if alike:
                both = np.array([rate, 1 - rate]) * (1 - alike) / alike
                chance = random.beta(*both, size=chance.shape)
            hits = random.binomial(totals[:, None], chance)
            low, high = rate_interval(hits, totals)
            assert (low < high).all()
            covered.append((low <= rate) & (rate <= high))
        assert 0.93 <= np.mean(covered) < 0.999, (sentences, rate, alike)


def test_a_rate_without_a_hit_has_a_width_and_a_single_sentence_none() -> None:
    low, high = rate_interval(np.zeros((200, 2), dtype=int), np.full(200, 15))
    # The 3,000 tokens are worth 3,000 / (1 + 14 × 0.2).
    assert low.tolist() == [0, 0]
    worth, square = 3000 / 3.8, intervals.t_quantile(199) ** 2
    assert high == pytest.approx(square / (worth + square))
    assert np.isnan(rate_interval([[3]], [5])).all()
    with pytest.raises(InputError, match="more than tokens"):
        rate_interval([[6], [1]], [5, 5])


def test_bootstrap_refuses_what_it_cannot_do() -> None:
    hits, totals = example()
    with pytest.raises(InputError, match="do not belong together"):
        bootstrap_interval(hits, totals[1:])
    with pytest.raises(InputError, match="no sentence"):
        bootstrap_interval(hits, np.zeros_like(totals))
    with pytest.raises(InputError, match="macro"):
        bootstrap_interval(hits, totals, "mean")
    with pytest.raises(InputError, match="between 0 and 1"):
        bootstrap_interval(hits, totals, level=95)
    with pytest.raises(InputError, match="no sentences"):
        bootstrap_score(np.zeros((0, 24)), chrf_from_statistics)


def test_bootstrap_of_a_corpus_score() -> None:
    outputs = ["the cat sleeps", "a dog", "two birds fly", "no"]
    references = ["the cat sleeps", "the dog", "three birds", "yes"]
    score = chrf(outputs, references)
    found = bootstrap_score(score.statistics, chrf_from_statistics, draws=40, seed=2)
    random = np.random.default_rng(2)
    values = []
    for _ in range(40):
        rows = np.repeat(np.arange(4), random.multinomial(4, [0.25] * 4))
        values.append(chrf([outputs[i] for i in rows], [references[i] for i in rows]).value)
    assert float(found.low) == pytest.approx(np.quantile(values, 0.025))
    assert float(found.high) == pytest.approx(np.quantile(values, 0.975))


def naive_difference(
    conditions: list[np.ndarray], controls: list[np.ndarray], draws: int, seed: int
) -> tuple[float, float, float]:
    """Resampled sentence by sentence, every corpus scored by itself."""
    chosen = [
        [
            np.repeat(np.arange(len(one)), weights)
            for weights in np.random.default_rng([seed, len(one)]).multinomial(
                len(one), np.full(len(one), 1 / len(one)), draws
            )
        ]
        for one in conditions
    ]

    def mean(rows: list[np.ndarray]) -> float:
        by_pair = []
        for one, several, at in zip(conditions, controls, rows, strict=True):
            below = [float(chrf_from_statistics(draw[at].sum(axis=0))) for draw in several]
            by_pair.append(float(chrf_from_statistics(one[at].sum(axis=0))) - np.mean(below))
        return float(np.mean(by_pair))

    every = [np.arange(len(one)) for one in conditions]
    estimates = [mean([by_pair[draw] for by_pair in chosen]) for draw in range(draws)]
    low, high = np.quantile(estimates, [0.025, 0.975])
    return mean(every), float(low), float(high)


def chrf_counts(sentences: int, seed: int, controls: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Counts of outputs and of their controls that chrF can be computed from."""
    random = np.random.default_rng(seed)
    totals = random.integers(0, 30, (1 + controls, sentences, 2, 8))
    matches = random.binomial(totals.min(axis=2), random.uniform(0.2, 0.9, (1 + controls, 1, 1)))
    counts = np.stack([totals[:, :, 0], totals[:, :, 1], matches], axis=-1).reshape(
        1 + controls, sentences, -1
    )
    return counts[0], counts[1:]


@pytest.mark.parametrize("block", [1, 90, 8_000_000])
def test_difference_equals_the_naive_one_whatever_the_block_size(
    block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intervals, "BLOCK", block)
    pairs = [chrf_counts(9, seed=1), chrf_counts(4, seed=2)]
    conditions, controls = [one for one, _ in pairs], [several for _, several in pairs]
    found = bootstrap_difference(conditions, controls, chrf_from_statistics, draws=30, seed=6)
    assert astuple(found) == pytest.approx(naive_difference(conditions, controls, 30, 6), abs=1e-9)


# Difference of a condition and its controls


def test_difference_of_many_draws_is_that_of_all_resamples() -> None:
    condition, control = stats(1, 5, 9), stats(2, 3, 1)
    apart = [-1, 2, 8]
    means = [np.mean([apart[i] for i in draw]) for draw in product(range(3), repeat=3)]
    found = bootstrap_difference(condition, control, mean_score, draws=20_000, level=0.8)
    assert found.value == pytest.approx(3)
    assert found.low == pytest.approx(np.quantile(means, 0.1))
    assert found.high == pytest.approx(np.quantile(means, 0.9))


def test_difference_covers_the_truth_as_often_as_it_says() -> None:
    random = np.random.default_rng(4)
    covered = 0
    for trial in range(200):
        apart = random.normal(1.0, 2.0, 60)
        base = random.normal(0.0, 5.0, 60)
        found = bootstrap_difference(
            stats(*(base + apart)), stats(*base), mean_score, draws=300, seed=trial, level=0.9
        )
        covered += found.low <= 1.0 <= found.high
    # Five standard deviations of 200 trials are 0.11.
    assert covered / 200 == pytest.approx(0.9, abs=0.11)


def test_difference_refuses_what_does_not_belong_together() -> None:
    with pytest.raises(InputError, match="same sentences"):
        bootstrap_difference(stats(1, 2), stats(1), mean_score)
    with pytest.raises(InputError, match="same pairs"):
        bootstrap_difference([stats(1)], [stats(1), stats(1)], mean_score)
    with pytest.raises(InputError, match="between 0 and 1"):
        bootstrap_difference(stats(1, 2), stats(2, 1), mean_score, level=95)


# Share


@pytest.mark.parametrize("level", [0.5, 0.95])
@pytest.mark.parametrize(("hits", "total"), [(0, 10), (7, 10), (190, 200), (10, 10)])
def test_wilson_bounds_are_the_shares_whose_test_just_fails(
    hits: int, total: int, level: float
) -> None:
    # By definition: (share - bound)² = z² bound (1 - bound) / total.
    z = {0.5: 0.6744897501960817, 0.95: 1.959963984540054}[level]
    share = hits / total
    for bound in wilson_interval(hits, total, level):
        assert (share - bound) ** 2 == pytest.approx(z**2 * bound * (1 - bound) / total, abs=1e-12)
    low, high = wilson_interval(hits, total, level)
    assert 0 <= low <= share <= high <= 1
    assert low < high


def test_wilson_refuses_what_is_no_share() -> None:
    for hits, total in ((1, 0), (3, 2), (-1, 2)):
        with pytest.raises(InputError, match="no share"):
            wilson_interval(hits, total)


@pytest.mark.parametrize(
    ("freedom", "level", "bound"),
    [
        (1, 0.95, 12.7062),
        (2, 0.95, 4.3027),
        (2, 0.99, 9.9248),
        (9, 0.95, 2.2622),
        (30, 0.9, 1.6973),
    ],
)
def test_students_t_has_its_printed_quantiles(freedom: int, level: float, bound: float) -> None:
    assert intervals.t_quantile(freedom, level) == pytest.approx(bound, abs=1e-4)


def test_intervals_of_few_trainings_cover_their_mean() -> None:
    drawn = np.random.default_rng(0).normal(3.0, 2.0, size=(4000, 3))
    covered = [low <= 3.0 <= high for low, high in map(intervals.t_interval, drawn)]
    assert np.mean(covered) == pytest.approx(0.95, abs=0.012)
    for too_few in ([], [1.0]):
        with pytest.raises(InputError, match="two of them"):
            intervals.t_interval(too_few)


# Approximate randomisation


def mean_score(sums: np.ndarray) -> np.ndarray:
    """A score whose statistics are (value, 1): the mean of the values."""
    return np.asarray(sums[..., 0] / sums[..., 1])


def stats(*values: float) -> np.ndarray:
    return np.stack([np.array(values, dtype=float), np.ones(len(values))], axis=1)


def exact_p(condition: np.ndarray, control: np.ndarray, two_sided: bool) -> float:
    differences = []
    for swap in product([False, True], repeat=len(condition)):
        mask = np.array(swap)[:, None]
        upper, lower = np.where(mask, condition, control), np.where(mask, control, condition)
        differences.append(float(mean_score(upper.sum(axis=0)) - mean_score(lower.sum(axis=0))))
    observed = differences[0]
    if two_sided:
        observed, differences = abs(observed), [abs(d) for d in differences]
    return float(np.mean([d >= observed - 1e-12 for d in differences]))


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=8))
@settings(max_examples=25)
def test_randomisation_approaches_the_exact_test(values: list[tuple[int, int]]) -> None:
    condition, control = (stats(*column) for column in zip(*values, strict=True))
    for alternative in ("lower", "two-sided"):
        exact = exact_p(condition, control, alternative == "two-sided")
        found = p_sentences(
            condition,
            control,
            mean_score,
            trials=4999,
            alternative=alternative,
        )
        # Five standard deviations of 4,999 trials are 0.035 at most.
        assert found == pytest.approx(exact, abs=0.036)


def naive_p(conditions: list[np.ndarray], controls: list[np.ndarray], trials: int) -> float:
    """The larger of the two shares by their definition: a loop over trials, pairs and sentences."""
    random = np.random.default_rng(11)
    draws = len(controls[0])
    score = chrf_from_statistics
    means = [several.mean(axis=0) for several in controls]

    def mean(parts: list[np.ndarray]) -> float:
        return float(np.mean([float(score(part.sum(axis=0))) for part in parts]))

    as_large = 0
    for _ in range(trials):
        lower, upper = [], []
        for one, other in zip(conditions, means, strict=True):
            low, high = one.copy(), other.copy()
            for sentence in range(len(one)):
                if random.random() < 0.5:
                    low[sentence], high[sentence] = other[sentence], one[sentence]
            lower.append(low)
            upper.append(high)
        as_large += mean(upper) - mean(lower) >= mean(means) - mean(conditions) - 1e-9
    swapped = (1 + as_large) / (1 + trials)

    slopes = []  # by pair, condition and sentence
    for one, several in zip(conditions, controls, strict=True):
        every = [one, *several]
        about = np.mean([part.sum(axis=0) for part in every], axis=0)
        slopes.append([[float(score(about + 0.02 * row) - score(about)) for row in part]
                       for part in every])  # fmt: skip

    def standardised(chosen: list[list[int]]) -> float:
        each = []
        for by_condition, places in zip(slopes, chosen, strict=True):
            for sentence, place in enumerate(places):
                column = [part[sentence] for part in by_condition]
                others = column[:place] + column[place + 1 :]
                each.append(float(np.mean(others)) - column[place])
        return sum(each) / sum(difference**2 for difference in each) ** 0.5

    observed = standardised([[0] * len(one) for one in conditions])
    as_large = 0
    for _ in range(trials):
        chosen = [random.integers(draws + 1, size=len(one)).tolist() for one in conditions]
        as_large += standardised(chosen) >= observed - 1e-9
    return max(swapped, (1 + as_large) / (1 + trials))


@pytest.mark.parametrize("seed", [0, 5, 8])
def test_randomisation_equals_the_naive_one_in_law(seed: int) -> None:
    pairs = [chrf_counts(8, seed=seed), chrf_counts(7, seed=seed + 100)]
    conditions, controls = [one for one, _ in pairs], [several for _, several in pairs]
    found = p_sentences(conditions, controls, chrf_from_statistics, trials=9999)
    # Five standard deviations of 1,500 and 9,999 trials together are 0.07 at most.
    assert found == pytest.approx(naive_p(conditions, controls, 1500), abs=0.07)


def share_below(
    drawn: Callable[[np.random.Generator], tuple[np.ndarray, np.ndarray]], repeats: int = 1500
) -> float:
    """How often p is at most 0.05 for means over sentences of a condition and its draws."""
    random, small = np.random.default_rng(3), 0
    for seed in range(repeats):
        own, draws = map(counted, drawn(random))
        small += p_sentences(own, draws, mean_score, trials=499, seed=seed) <= 0.05
    return small / repeats


def noisy(
    random: np.random.Generator, shift: float, levels: float, draws: int = 19
) -> tuple[np.ndarray, np.ndarray]:
    """60 sentences of unlike difficulty; draws lie about their mean, the condition below it."""
    common, level = random.normal(size=60), random.normal(scale=levels, size=(draws, 1))
    noise = random.normal(size=(draws + 1, 60))
    return common + noise[0] - shift, common + noise[1:] + level - level.mean()


@pytest.mark.parametrize("levels", [0.0, 0.5])
def test_p_over_sentences_is_small_as_often_as_it_says_and_sees_a_shift(levels: float) -> None:
    """Swapped with one draw at a time it was 0.01 under the null and 0.42 for the shift."""
    # Five standard deviations of 1,500 trials are 0.028 under the null and 0.06 for the shift.
    assert 0.03 < share_below(lambda random: noisy(random, 0.0, levels)) <= 0.055
    assert share_below(lambda random: noisy(random, 0.3, levels)) > 0.6


def test_p_over_sentences_is_not_small_where_one_of_its_tests_would_err() -> None:
    def rare(random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        happened = random.random((20, 60)) < 0.02
        return happened[0], happened[1:]

    def changed(random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Draws change nothing, the condition some sentences, for better as often as for worse."""
        common = random.normal(size=60)
        own = common + random.choice([-1, 0, 1], p=[0.05, 0.9, 0.05], size=60)
        return own, np.broadcast_to(common, (19, 60))

    def skewed(random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        values = random.lognormal(size=(20, 60))
        return values[0], values[1:]

    for drawn in (rare, changed, skewed):
        assert share_below(drawn, 1000) <= 0.055


def test_p_over_corpus_scores_is_small_as_often_as_it_says() -> None:
    random, small = np.random.default_rng(5), 0
    for seed in range(600):
        quality = np.clip(random.beta(4, 3, 30) + random.normal(0, 0.15, (10, 30)), 0.02, 0.98)
        totals = random.integers(10, 60, (10, 30, 2))
        parts = []
        for order in range(8):
            sizes = totals - order
            hits = random.binomial(sizes.min(axis=2), quality ** (1 + order / 3))
            parts += [sizes[..., 0], sizes[..., 1], hits]
        counts = np.stack(parts, axis=-1)
        p = p_sentences(counts[0], counts[1:], chrf_from_statistics, trials=299, seed=seed)
        small += p <= 0.05
    # Two standard deviations of 600 trials are 0.018.
    assert 0.03 < small / 600 < 0.068


@given(st.integers(1, 5), st.integers(1, 3), st.integers(0, 99))
@settings(max_examples=20, deadline=None)
def test_few_sentences_have_no_smaller_p_than_their_swaps(n: int, draws: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    own, others = -10 - random.random(n), random.random((draws, n))
    assert p_sentences(counted(own), counted(others), mean_score) == pytest.approx(0.5**n)


def test_randomisation_sees_harm_and_its_direction() -> None:
    low, high = stats(*range(40)), stats(*range(10, 50))
    assert p_sentences(low, high, mean_score, trials=999) == 1 / 1000
    assert p_sentences(high, low, mean_score, trials=999) == 1
    assert p_sentences(high, low, mean_score, trials=999, alternative="two-sided") == 1 / 1000
    assert p_sentences(low, low, mean_score, trials=99) == 1


def test_randomisation_does_not_depend_on_block_size_in_law(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    condition, control = stats(1, 5, 2, 8, 3, 1), stats(2, 4, 6, 9, 3, 4)
    exact = exact_p(condition, control, two_sided=False)
    for block in (1, 100):
        monkeypatch.setattr(statistics, "BLOCK", block)
        assert p_sentences(condition, control, mean_score, trials=2000) == pytest.approx(
            exact, abs=0.056
        )


def test_randomisation_within_pairs_takes_the_mean_over_pairs() -> None:
    # Sentences of the second pair count ten times as much, for it has one and the first has ten.
    many, one = stats(*[5.0] * 10), stats(0.0)
    control_many, control_one = stats(*[5.0] * 10), stats(9.0)
    found = p_sentences([many, one], [control_many, control_one], mean_score, trials=4999)
    # Only the swap of the one differing sentence matters.
    assert found == pytest.approx(0.5, abs=0.036)


def test_randomisation_against_several_draws() -> None:
    condition = stats(*range(30))
    draws = np.stack([stats(*range(10, 40)), stats(*range(12, 42))])
    assert p_sentences(condition, draws, mean_score, trials=999) == 1 / 1000
    same = np.stack([condition, condition])
    assert p_sentences(condition, same, mean_score, trials=99) == 1
    single = p_sentences(condition, draws[:1], mean_score, trials=99, seed=1)
    assert single == p_sentences(condition, draws[0], mean_score, trials=99, seed=1)


def test_randomisation_refuses_what_does_not_belong_together() -> None:
    with pytest.raises(InputError, match="same sentences"):
        p_sentences(stats(1, 2), stats(1), mean_score)
    with pytest.raises(InputError, match="same pairs"):
        p_sentences([stats(1)], [stats(1), stats(1)], mean_score)
    with pytest.raises(InputError, match="same pairs and draws"):
        p_sentences([stats(1)] * 2, [stats(1)[None], np.stack([stats(1)] * 2)], mean_score)
    with pytest.raises(InputError, match="sentences, features"):
        p_sentences(np.zeros(3), np.zeros(3), mean_score)
    with pytest.raises(InputError, match="two-sided"):
        p_sentences(stats(1), stats(1), mean_score, alternative="x")


# Draws


def test_p_draws() -> None:
    assert p_draws(10, [50, 60, 70]) == 0.25
    assert p_draws(60, [50, 60, 70]) == 0.75
    assert p_draws(90, [50, 60, 70]) == 1
    with pytest.raises(InputError, match="at least one draw"):
        p_draws(10, [])
