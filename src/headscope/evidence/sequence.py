"""Draws of controls in rounds, until each test that the verdict rests on is decided.

What is measured together follows from the round, so that numbers do not depend on where a run was
stopped. Both rules, a bet and the first draw that does as much, are of the draws in their order
(see `headscope.measure.sequence`), so that rounds only decide how many are measured beyond the end.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, TypeVar

from headscope.evidence.blocks import places
from headscope.evidence.controls import FREE
from headscope.evidence.rows import Condition, Evidence, Tested
from headscope.measure.sequence import (
    MOST_DRAWS,
    Ended,
    Rule,
    bet_on,
    draws_to_win,
    until_first,
    wealth,
)
from headscope.measure.statistics import least_p

#: The draws that there are after each round; 30 win a bet at level 0.05 if none does as much.
ROUNDS = (4, 8, 16, 30, 45, 65, 90, 120, 160, MOST_DRAWS)
#: The round after which sets without a p, which give the size of an effect, are enough.
SIZED = 3

Made = TypeVar("Made")
#: The draws of a control for the heads of one case.
Series = tuple[Any, ...]


def in_its_round(condition: Condition) -> Condition:
    """A condition with the round in which it is measured; what is no draw is in the first."""
    draw = condition.draw
    return replace(condition, round=1 if draw is None else 1 + bisect(ROUNDS, draw))


def decided(
    planned: Mapping[str, Sequence[Condition]],
    measure: Callable[[Callable[[Condition], bool]], tuple[Evidence, Made]],
    leads: Callable[[Evidence], Iterable[str]],
    level: float,
    in_sequence: Rule | None = "bet",
    so_far: Callable[[Evidence, Made], None] = lambda found, made: None,
    whose: Collection[str] = (),
) -> tuple[Evidence, Made]:
    """What is measured under as many draws as decide, and its table, whose p follow from the rule;
    if draws do not come in sequence, under all.

    Args:
        planned: all conditions that there may be, by part or for all, each in its round.
        measure: measures those of the planned conditions of which it is told that they are wanted.
        leads: the statistics by which draws are decided; the tests of others end with theirs.
        level: what p over draws may be at most for a verdict.
        in_sequence: by what draws one after another end; None: their number is fixed.
        so_far: is told what a round found that did not decide.
        whose: of the heads that decide draws (see `Condition`); empty: all selected ones.
    """
    if in_sequence is None:
        return measure(lambda condition: True)
    last: dict[Series, int] = {}
    for condition in chain.from_iterable(planned.values()):
        if condition.draw is not None:
            series = _series(condition)
            last[series] = max(condition.round, last.get(series, 0))
    now = dict.fromkeys(last, 1)

    def series_of(test: Tested) -> set[Series]:
        return {_series(draw) for draws in _draws_of(test, found, planned) for draw in draws}

    def at_most(test: Tested) -> int:
        if all(now[series] == last[series] for series in series_of(test)):
            return test.draws  # some of those that were planned may not have been measured
        numbers = [{draw.draw for draw in draws} for draws in _draws_of(test, found, planned)]
        return len(set.intersection(*numbers))

    while True:
        found, made = measure(
            lambda condition: condition.draw is None or condition.round <= now[_series(condition)]
        )
        found = with_rule(found, at_most, level, in_sequence)
        leading = [*_leading(found, leads(found), whose)]
        # Heads that do no more than random ones need not be compared with those of their layers.
        lost = {
            _case(test)
            for test in leading
            if test.control in FREE and test.ended in ("given up", "limit")
        }
        undecided = [test for test in leading if test.ended == "open" and _case(test) not in lost]
        going = {series for test in undecided for series in series_of(test)}
        # Of sets that give the size of an effect alone there are some; where the deciding measure
        # is missing, it may be measured later.
        sized = {series for test in leading if test.p_draws is None for series in series_of(test)}
        going |= {series for series in sized if now[series] < SIZED}
        if not leading:
            enough = 1 + bisect(ROUNDS, draws_to_win(level) - 1)
            going = {series for series in now if now[series] < enough}
        going = {series for series in going if now[series] < last[series]}
        if not going:
            return found, made
        so_far(found, made)
        for series in going:
            now[series] += 1


def with_rule(
    found: Evidence, at_most: Callable[[Tested], int], level: float, rule: Rule = "bet"
) -> Evidence:
    """The table where p over draws follow from a rule, if there may be so many of them.

    Where too few may be to win a bet, they follow from the rank among all.
    """
    tests = (_with_rule(test, at_most, level, rule) for test in found.tests)
    return replace(found, tests=tuple(tests))


def _with_rule(test: Tested, at_most: Callable[[Tested], int], level: float, rule: Rule) -> Tested:
    if test.p_draws is None:
        return test
    most = at_most(test)
    if rule == "first":
        end, least = until_first(test.as_far, level, most), least_p(most)
    elif most >= draws_to_win(level):
        end, least = bet_on(test.as_far, level, most), float(1 / wealth([False] * most, level)[-1])
    else:
        by_rank: Ended = "shown" if test.p_draws <= level else "limit"
        return replace(test, ended="open" if test.draws < most else by_rank, at_most=most)
    return replace(test, p_draws=end.p, ended=end.ended, at_most=most, least_p=least)


def _draws_of(
    test: Tested, found: Evidence, planned: Mapping[str, Sequence[Condition]]
) -> list[list[Condition]]:
    """The planned draws of a test by the parts that it is over: its own, or all of its heads; none
    of a control that is not drawn, such as the instructed model."""
    (selected,) = (each for each in found.selected if each.id == test.condition)
    parts = [planned[test.part]] if test.part in planned else planned.values()
    return [
        [
            each
            for each in of_part
            if each.kind == test.control and each.draw is not None and each.controls(selected)
        ]
        for of_part in parts
        if any(each.id == selected.id for each in of_part)
    ]


def _leading(
    found: Evidence, statistics: Iterable[str], whose: Collection[str]
) -> Iterator[Tested]:
    """The tests of selected heads by these, over all parts or, where there is no mean, in each;
    heads of one part, such as a language, lead in that part alone."""
    selected = [each for each in found.selected if each.of in whose or not whose]
    for statistic in statistics:
        for condition in selected:
            for part in places(found, statistic):
                elsewhere = part is not None and part != condition.of
                if elsewhere and condition.of in found.single:
                    continue
                yield from found.against(statistic, condition, part).values()


def _case(test: Tested) -> tuple[str, str, str]:
    return test.part, test.condition, test.statistic


def _series(draw: Condition) -> Series:
    return draw.kind, draw.of, draw.case
