"""Draws of controls in rounds, until each test that the verdict rests on is decided.

What is measured together follows from the round, so that numbers do not depend on where a run was
stopped, nor on which heads are compared. The bet is on the draws in their order (see
`headscope.measure.sequence`), so that rounds only decide how many are measured beyond its end.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from typing import Any, TypeVar

from headscope.evidence.blocks import places
from headscope.evidence.rows import Condition, Evidence, Tested
from headscope.measure.sequence import MOST_DRAWS, bet_on, draws_to_win, wealth

#: The draws that there are after each round; 30 win a bet at level 0.05 if none does as much.
ROUNDS = (4, 8, 16, 30, 45, 65, 90, 120, 160, MOST_DRAWS)

Made = TypeVar("Made")
#: The draws of a control for the heads of one case.
Series = tuple[Any, ...]


def in_its_round(condition: Condition) -> Condition:
    """A draw with the round in which it is measured; another condition as it is."""
    draw = condition.draw
    return condition if draw is None else replace(condition, round=bisect(ROUNDS, draw))


def decided(
    planned: Collection[Condition],
    measure: Callable[[Callable[[Condition], bool]], tuple[Evidence, Made]],
    leads: Callable[[Evidence], Iterable[str]],
    level: float,
    in_sequence: bool = True,
    so_far: Callable[[Evidence, Made], None] = lambda found, made: None,
) -> tuple[Evidence, Made]:
    """What is measured under as many draws as decide, and its table, whose p follow from bets; if
    draws do not come in sequence, under all.

    Args:
        planned: all conditions that there may be, each in its round.
        measure: measures those of the planned conditions of which it is told that they are wanted.
        leads: the statistics by which draws are decided; the bets of others end with theirs.
        level: what p over draws may be at most for a verdict.
        so_far: is told what a round found that did not decide.
    """
    if not in_sequence:
        return measure(lambda condition: True)
    draws = [condition for condition in planned if condition.draw is not None]
    last: dict[Series, int] = {}
    for draw in draws:
        last[_series(draw)] = max(draw.round, last.get(_series(draw), 0))
    now = dict.fromkeys(last, 0)
    while True:
        found, made = measure(
            lambda condition: condition.draw is None or condition.round <= now[_series(condition)]
        )
        found = with_bets(found, planned, level)
        names = {condition.id: condition for condition in found.selected}
        leading = [*_leading(found, leads(found))]
        going = {
            _series(draw)
            for test in leading
            if test.ended == "open"
            for draw in draws
            if draw.kind == test.control and draw.controls(names[test.condition])
        }
        if not leading:  # measured later, as many draws as a bet needs may decide
            enough = bisect(ROUNDS, draws_to_win(level) - 1)
            going = {series for series in now if now[series] < enough}
        going = {series for series in going if now[series] < last[series]}
        if not going:
            return found, made
        so_far(found, made)
        for series in going:
            now[series] += 1


def with_bets(found: Evidence, planned: Collection[Condition], level: float) -> Evidence:
    """The table where p over draws follow from bets on these, of which so many are planned; where
    those could not win one, from the rank among all."""
    return replace(
        found, tests=tuple(_with_bet(found, test, planned, level) for test in found.tests)
    )


def _with_bet(
    found: Evidence, test: Tested, planned: Collection[Condition], level: float
) -> Tested:
    if test.p_draws is None:
        return test
    selected = next(each for each in found.selected if each.id == test.condition)
    most = len({draw.draw for draw in planned
                if draw.kind == test.control and draw.controls(selected)})  # fmt: skip
    if most < draws_to_win(level):
        shown = "shown" if test.p_draws <= level else "limit"
        return replace(test, ended="open" if test.draws < most else shown)
    own = found.level(test.statistic, selected, test.part)
    draws = found.draws(test.statistic, selected, test.control, test.part).each
    if own is None or not draws:
        return test
    sign = 1 if test.side == "higher" else -1
    bet = bet_on([sign * draw >= sign * own.value for draw in draws], level, most)
    return replace(
        test, p_draws=bet.p, ended=bet.ended, least_p=1 / wealth([False] * most, level)[-1]
    )


def _leading(found: Evidence, statistics: Iterable[str]) -> Iterable[Tested]:
    """The tests of selected heads by these, over all parts or, where there is no mean, in each."""
    for statistic in statistics:
        for condition in found.selected:
            for part in places(found, statistic):
                yield from found.against(statistic, condition, part).values()


def _series(draw: Condition) -> Series:
    return draw.kind, draw.of, draw.case
