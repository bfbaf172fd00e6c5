"""The claims of a paper: one rule for both verdicts, and what may not change one."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from math import sqrt
from statistics import NormalDist, fmean
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headscope.estimates import Estimate
from headscope.evidence.rows import Condition, Evidence, Level, Tested
from headscope.measure.intervals import t_interval
from headscope.measure.sequence import draws_for
from headscope.papers.claims import (
    LEVEL,
    Effect,
    answer_of,
    either,
    jackknife,
    judged,
    minus,
    of_effects,
    of_heads,
)
from headscope.papers.published import NAMES, PublishedClaim, published_claims
from headscope.papers.registry import paper_named
from headscope.papers.show import Answer
from headscope.shown.blocks import Claim
from headscope.verify.removal_translations.evidence import STATISTICS
from paper_helpers import around

STATED = PublishedClaim("lahis", "own", "own", "A claim", "They say so.", "Abstract", "", ())
ENDS = NormalDist().inv_cdf(0.975)


def beside(difference: Estimate | None = None, **more: Any) -> Tested:
    """A test against random sets, none of which does as much."""
    about = {"part": "", "condition": "selected", "statistic": "chrf", "control": "random"}
    known = {"p_draws": 0.005, "least_p": 0.005, "draws": 199, "at_least_as_harmful": 0}
    return Tested(**{"difference": difference or around(-4.0, 1.0), **about, **known, **more})


def claim(*effects: Effect, draws: Tested | None = None, key: str = "own", note: str = "") -> Claim:
    return of_effects(replace(STATED, key=key), "3 of 4", effects, draws, sure="", note=note)


effects = st.builds(
    Effect,
    st.builds(around, st.floats(-5, 5), st.floats(0.1, 5)),
    st.sampled_from([1, -1]),
    st.floats(-1, 1),
)
families = st.lists(st.lists(effects, min_size=1, max_size=3), min_size=1, max_size=8)


@given(effects)
def test_p_is_at_most_five_per_cent_where_the_interval_excludes_it(effect: Effect) -> None:
    low, high = effect.estimate.low, effect.estimate.high
    above, below = low > effect.least, high < effect.least
    shown, short = (above, below) if effect.sign > 0 else (below, above)
    near = min(abs(low - effect.least), abs(high - effect.least)) < 1e-9
    assert near or tuple(p <= 0.05 for p in effect.p_values) == (shown, short)


def test_p_of_normal_and_student_s_t_by_their_definitions() -> None:
    for value, half in ((3.0, 1.0), (0.5, 2.0)):
        z = value / half * ENDS
        expected = 2 * (1 - NormalDist().cdf(z))
        assert Effect(around(value, half)).p_values[0] == pytest.approx(expected)
    # With two degrees of freedom the chance beyond t is 1 − t / sqrt(2 + t²).
    for values in ([1.0, 2.0, 4.0], [0.1, -0.2, 0.3]):
        t = fmean(values) / (np.std(values, ddof=1) / sqrt(3))
        span = Estimate(fmean(values), *t_interval(values))
        expected = 1 - t / sqrt(2 + t * t)
        assert Effect(span, units=3).p_values[0] == pytest.approx(expected, abs=1e-4)


@given(families)
def test_both_verdicts_follow_one_rule(family: list[list[Effect]]) -> None:
    """With every claim turned round those that one effect decides change places."""
    single = [claim(of[0], key=str(at)) for at, of in enumerate(family)]
    turned = [claim(replace(of[0], sign=-of[0].sign), key=str(at)) for at, of in enumerate(family)]
    verdicts, others = ([each.holds for each in judged(of)] for of in (single, turned))
    assert others == [None if holds is None else not holds for holds in verdicts]


@given(families)
def test_every_claim_needs_all_of_its_effects(family: list[list[Effect]]) -> None:
    together = judged([claim(*of, key=str(at)) for at, of in enumerate(family)])
    for each, of in zip(together, family, strict=True):
        alone = [judged([claim(effect)], len(family))[0].holds for effect in of]
        if each.holds:
            assert {effect.p_values[0] <= LEVEL for effect in of} == {True}
        if all(holds is True for holds in alone):
            assert each.holds is True  # Holm is no stricter than Bonferroni
        if each.holds is False:
            assert any(effect.p_values[1] <= LEVEL for effect in of)


@given(st.floats(0, 1), st.floats(0, 1))
def test_more_random_sets_that_do_as_much_help_no_claim(a: float, b: float) -> None:
    low, high = sorted((a, b))
    held = [
        judged([claim(Effect(around(4.0, 1.0)), draws=beside(p_draws=p, least_p=0.0))])[0].holds
        for p in (low, high)
    ]
    assert held[0] is True or held[1] is None
    assert held == [p <= LEVEL or None for p in (low, high)]


def test_what_is_no_claim_of_the_paper_decides_nothing() -> None:
    for draws in (None, beside(), beside(p_draws=0.5)):
        plain = judged([claim(Effect(around(4.0, 1.0)), draws=draws)])[0]
        noted = judged([claim(Effect(around(4.0, 1.0)), draws=draws, note="the same layers")])[0]
        assert (noted.holds, noted.decides) == (plain.holds, plain.decides)


@pytest.mark.parametrize("family", [1, 6, 8])
def test_a_claim_can_hold_with_as_many_draws_as_its_family_needs(family: int) -> None:
    needed = draws_for(family)
    for number, holds in ((needed - 1, None), (needed, True)):
        least = 1 / (1 + number)
        draws = beside(p_draws=least, least_p=least, draws=number)
        (found,) = judged([claim(Effect(around(4.0, 1.0)), draws=draws)], family)
        assert found.holds is holds and (str(needed) in found.decides) is (holds is None)


@pytest.mark.parametrize(
    ("span", "holds"),
    [
        (around(20, 5), True),  # the claimed 10 is not excluded
        (around(8, 5), True),
        (around(5, 3), False),  # there, and less than is claimed
        (around(-5, 3), False),
        (around(5, 12), None),
    ],
)
def test_a_claim_with_a_size_is_refuted_by_an_interval_without_it(
    span: Estimate, holds: bool | None
) -> None:
    assert judged([claim(Effect(span, claimed=10.0))])[0].holds is holds
    mirrored = Estimate(-span.value, -span.high, -span.low)
    assert judged([claim(Effect(mirrored, -1, claimed=-10.0))])[0].holds is holds


@pytest.mark.parametrize("span", [Estimate(4.0), Estimate(4.0, 4.0, 4.0)])
def test_what_is_always_the_same_decides_nothing(span: Estimate) -> None:
    assert judged([claim(Effect(span))])[0].holds is None


def test_the_best_of_many_counts_as_many_times() -> None:
    (best,) = judged([claim(Effect(around(1.2, 1.0), among=100))])
    assert best.p == pytest.approx(min(1.0, 100 * (Effect(around(1.2, 1.0)).p_values[0])))


def test_the_better_of_two_ways_counts_twice() -> None:
    good, bad = claim(Effect(around(3.0, 2.5))), claim(Effect(around(-3.0, 1.0)))
    one, both = judged([good])[0], judged([either(good, bad)])[0]
    assert one.holds is True and both.p == pytest.approx(2 * (one.p or 0)) and both.holds is True
    assert judged([either(bad, bad)])[0].holds is False
    drawn = claim(Effect(around(3.0)), draws=beside(p_draws=0.03, least_p=0.03))
    assert judged([drawn])[0].holds is True and judged([either(drawn, bad)])[0].holds is None


def table(test_of: Tested, change: Estimate) -> tuple[Evidence, Condition]:
    heads = Condition("selected", k=3, gate=0.0)
    levels = [
        Level(value=50.0 + gap, part="", condition=of.id, statistic="chrf", examples=9,
              change=change if of is heads else None)
        for of, gap in ((Condition(), 0.0), (heads, change.value))
    ]  # fmt: skip
    tests = [replace(test_of, condition=heads.id, control=name) for name in ("random", "outside")]
    made = Evidence(statistics={"chrf": STATISTICS["chrf"]}, conditions=(Condition(), heads),
                    levels=tuple(levels), tests=tuple(tests))  # fmt: skip
    return made, heads


@pytest.mark.parametrize(
    ("change", "gap", "more", "holds"),
    [
        (around(-20.0, 3.0), around(-15.0, 3.0), {}, True),
        (around(-20.0, 30.0), around(-15.0, 3.0), {}, None),
        (around(20.0, 3.0), around(-15.0, 3.0), {}, False),
        (around(-20.0, 3.0), around(15.0, 3.0), {}, False),
        # Few random sets, chosen since one of them does as much, refute nothing.
        (around(-20.0, 3.0), around(15.0, 3.0), {"ended": "given up"}, None),
        (around(-20.0, 3.0), around(-15.0, 3.0), {"p_draws": 0.2}, None),
    ],
)
def test_heads_by_change_difference_and_rank(
    change: Estimate, gap: Estimate, more: dict[str, Any], holds: bool | None
) -> None:
    evidence, heads = table(beside(gap, **more), change)
    for control in ("random", "outside"):
        made = of_heads(STATED, evidence, "chrf", heads, lambda *_: "f", control=control)
        assert judged([made])[0].holds is holds


@given(st.lists(st.floats(-10, 10), min_size=3, max_size=9, unique=True))
def test_the_jackknife_of_a_mean_is_student_s_interval(values: list[float]) -> None:
    by_name = {str(at): value for at, value in enumerate(values)}
    made = jackknife(lambda names: fmean(by_name[name] for name in names), list(by_name))
    assert (made.low, made.high) == pytest.approx(tuple(t_interval(values)), abs=1e-6)
    assert not jackknife(lambda names: 1.0, ["a", "b"]).bounded


def test_errors_of_independent_values_add_up_in_squares() -> None:
    found = minus(around(5.0, 3.0), around(1.0, 4.0))
    assert (found.value, found.low, found.high) == pytest.approx((4.0, -1.0, 9.0))


def test_all_claims_of_a_paper_are_listed_in_its_order() -> None:
    stated = published_claims("lahis")
    first, *others = stated.values()
    assert answer_of([], stated) == Answer()
    measured = of_effects(first, "f", [Effect(around(4.0, 1.0))], sure="an interval")
    answer = answer_of([measured], stated)
    assert [each.key for each in answer.claims] == list(stated)
    assert [each.verdict for each in answer.claims] == ["holds"] + ["not measured"] * len(others)


@pytest.mark.parametrize("name", NAMES)
def test_the_published_claims_name_their_experiments(name: str) -> None:
    stated = published_claims(name)
    experiments = [experiment.name for experiment in paper_named(name).experiments]
    used = list(chain.from_iterable(each.experiments for each in stated.values()))
    assert set(used) <= set(experiments)
    for each in stated.values():
        assert len(each.name.split()) <= 12 and len(each.short.split()) <= 3
        assert each.says.endswith(".") and each.place and each.changes and each.experiments
