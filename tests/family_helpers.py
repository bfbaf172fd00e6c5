"""Draws that end at the first that does as much, beside all of them at once."""

from __future__ import annotations

from headscope.evidence.rows import Evidence, Tested
from headscope.measure.sequence import until_first


def equal_up_to_the_first(ended: Evidence, fixed: Evidence) -> list[Tested]:
    """Asserts that p of every test follows from the first draws of the fixed number, in order.

    Returns those that ended before all were drawn.
    """
    conditions, early = {each.id: each for each in fixed.conditions}, list[Tested]()
    assert ended.tests
    for test in ended.tests:
        whole = fixed.against(test.statistic, conditions[test.condition], test.part)[test.control]
        as_far = whole.as_far[: test.draws]
        assert test.as_far == as_far
        if test.p_draws is None:  # of a control that is not drawn, or has no null
            continue
        first = until_first(as_far, most=whole.draws)
        assert (test.p_draws, test.ended) == (first.p, first.ended)
        assert (test.at_most, test.least_p) == (whole.draws, whole.least_p)
        early += [test] if test.draws < whole.draws else []
    return early
