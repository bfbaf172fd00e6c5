"""Draws one after another: the wealth against its definition, and the level in simulations."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, special, stats

from headscope.measure.sequence import LOST, MOST_DRAWS, bet_on, draws_to_win, wealth

DRAWS = st.lists(st.booleans(), min_size=1, max_size=MOST_DRAWS)


def naive(done: int, draws: int, share: float) -> float:
    """How much likelier the draws are if a share of sets, uniform up to `share`, does as much, than
    if every rank is equally likely."""
    seen = integrate.quad(
        lambda p: p**done * (1 - p) ** (draws - done) / share, 0, share, epsabs=0, epsrel=1e-10
    )
    return float(seen[0] / special.beta(done + 1, draws - done + 1))


@given(DRAWS, st.sampled_from([0.01, 0.05, 0.1]))
def test_wealth_is_the_likelihood_ratio(as_far: list[bool], level: float) -> None:
    worth = wealth(as_far, level)
    assert len(worth) == len(as_far)
    done = sum(as_far)
    assert worth[-1] == pytest.approx(naive(done, len(as_far), 0.6 * level), rel=1e-6, abs=1e-12)
    survival = stats.binom.sf(done, len(as_far) + 1, 0.6 * level) / (0.6 * level)
    assert worth[-1] == pytest.approx(survival, rel=1e-9, abs=1e-12)


@given(DRAWS, st.lists(st.booleans(), max_size=50))
def test_what_follows_the_end_changes_nothing(as_far: list[bool], more: list[bool]) -> None:
    bet = bet_on(as_far)
    assert bet.draws <= len(as_far) and bet.as_far == sum(as_far[: bet.draws])
    assert bet.p == min(1, 1 / max(1, *wealth(as_far[: bet.draws])))
    if bet.ended in ("shown", "given up"):
        assert bet_on([*as_far, *more]) == bet
    assert (bet.ended == "shown") == (bet.p <= 0.05)
    assert (bet.ended == "given up") == (wealth(as_far)[bet.draws - 1] < LOST)


@given(st.integers(0, 40))
def test_the_mean_wealth_stays_where_every_rank_is_equally_likely(draws: int) -> None:
    """After t draws of which g do as much the next does with (g + 1) / (t + 2)."""
    for done in range(draws + 1):
        as_far = [True] * done + [False] * (draws - done)
        chance = (done + 1) / (draws + 2)
        now = wealth(as_far)[-1] if as_far else 1.0
        after = [wealth([*as_far, more])[-1] for more in (False, True)]
        assert (1 - chance) * after[0] + chance * after[1] == pytest.approx(now, rel=1e-9)


def test_known_values() -> None:
    assert draws_to_win(0.05) == 30
    won = bet_on([False] * 40)
    assert (won.ended, won.draws, won.as_far) == ("shown", 30, 0)
    assert won.p == pytest.approx(0.03 / (1 - 0.97**31))
    lost = bet_on([True])
    assert (lost.ended, lost.draws, lost.p) == ("given up", 1, 1.0)
    assert bet_on([False] * 29).ended == "open"
    assert bet_on([False] * 29, most=29).ended == "limit"
    assert bet_on([]) == bet_on([], 0.01)
    assert draws_to_win(0.01) <= MOST_DRAWS < draws_to_win(0.005)


def test_the_level_holds_with_ties_and_any_reason_to_stop() -> None:
    generator = np.random.default_rng(0)
    shown = 0
    for _ in range(4000):
        scores = generator.integers(0, 30, MOST_DRAWS + 1)  # many are equal
        stop = 1 + int(generator.integers(MOST_DRAWS) if scores[1] > 15 else scores[2])
        shown += bet_on(scores[1 : 1 + stop] <= scores[0]).p <= 0.05
    assert shown / 4000 <= 0.05 + 3 * (0.05 * 0.95 / 4000) ** 0.5
