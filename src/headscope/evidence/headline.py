"""The headline of a comparison: what selected heads do to what is measured, and whether that is
shown.

An effect has at most three numbers: the change from the original model, the difference from random
heads, and its 95 % interval. The verdict after it names no option: what goes on is a command of its
own (`headscope.shown.blocks.Next`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import ceil, isnan

from headscope.ablations import gives
from headscope.estimates import Estimate
from headscope.evidence.blocks import named_part, places
from headscope.evidence.controls import FREE, MATCHED
from headscope.evidence.rows import (
    KEPT,
    LEVEL,
    SHARE,
    Condition,
    Evidence,
    Statistic,
    Tested,
)
from headscope.measure.sequence import draws_to_win
from headscope.shown.words import count, enumeration, fixed, p_value

#: So many parts are counted instead of listed.
MANY = 7
SHOWN, LOST, NOT_SHOWN, OPEN, TOO_FEW, UNTESTED = (
    "shown",
    "given up",
    "not shown",
    "not decided yet",
    "cannot be decided",
    "not tested",
)
#: What is said of random sets after what is said of selected heads, by its first word.
RELATIONS = {"Without": "without", "Under": "under", "In": "in"}


# ---- effect ------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Case:
    """Selected heads in one statistic, over all parts or in one.

    Attributes:
        name: what tells it from other cases of the page, such as a language.
        lead: what is done to which heads, such as `Without 3 heads`; "": by the condition.
    """

    statistic: str
    condition: Condition
    part: str | None = None
    name: str = ""
    lead: str = ""


def headline(
    evidence: Evidence, cases: Sequence[Case], example: str, joint: str = "in", each: str = "case"
) -> str:
    """The effect and whether it is shown; of several cases the largest effect, and in which of them
    what is shown.

    `example` is what an example is called, `each` a case; `joint` stands before the cases' names.
    """
    if not cases:
        return f"{UNTESTED}: no heads were changed"
    names = {case.statistic for case in cases}
    if len(names) == 1 and (line := unmoved(evidence, cases[0].statistic, example)):
        return f"Nothing changes: {line[:1].lower() + line[1:] if line[1:2].islower() else line}"
    words = {
        case.name: verdict(evidence, case.statistic, case.condition, case.part) for case in cases
    }
    said = effect(evidence, largest(evidence, cases))
    if len(cases) > 1:
        said += f", the most of {count(len(cases), each)}"
    return f"{said}: {verdicts(words, joint, each)}"


def largest(evidence: Evidence, cases: Sequence[Case]) -> Case:
    """The case whose difference from random heads goes furthest as is claimed, in the unit of the
    first."""
    return max(cases, key=lambda case: _size(evidence, case, cases[0]))


def effect(evidence: Evidence, case: Case) -> str:
    """What selected heads do to a statistic, and how much more that is than what random heads do.

    `Without 3 heads NLL rises by 2.341 nats a token, 1.952 (1.470 to 2.424) more than without
    random heads`; with its level instead of a change where the original model has none.
    """
    own, condition = evidence.statistics[case.statistic], case.condition
    level = evidence.level(case.statistic, condition, case.part)
    lead = case.lead or changed(condition)
    where = f" in {named_part(evidence, case.part)}" if case.part else ""
    start = f"{lead}{' ' if lead.startswith('Without') else ', '}{_subject(own)}{where}"
    if level is None:
        return f"{start} was not measured"
    test = _compared(evidence, case)
    change = own.shown(level.change)
    if not change.known:
        said = f"{start} is {own.number(level)}{_unit(own.unit if own.unit != SHARE else '')}"
        return said + _beside(evidence, own, test, lead, 0)
    if not float(fixed(abs(change.value), own.digits)):
        return f"{start} stays at {own.number(level)}" + _beside(evidence, own, test, lead, 0)
    way = 1 if change.value > 0 else -1
    moves = "rises" if way > 0 else "falls"
    if test and (way > 0) != (test.side == "higher"):
        moves += " (worse)" if (way > 0) == (own.better == "lower") else " (better)"
    by = fixed(abs(change.value), own.digits)
    return f"{start} {moves} by {by}{_unit(own.points or own.unit)}" + _beside(
        evidence, own, test, lead, way
    )


def changed(condition: Condition) -> str:
    """What is done to which heads, at the beginning of a sentence: `Without 3 heads of de`."""
    number = len(condition.heads) or condition.k
    heads = count(number, "head") if number else "the selected heads"
    if condition.of and condition.of != KEPT:
        heads += f" of {condition.of}"
    removed = condition.gate == 0 and condition.of != KEPT and not gives(condition.replacement)
    return f"Without {heads}" if removed else f"With {heads} {condition.done}"


def _beside(evidence: Evidence, own: Statistic, test: Tested | None, lead: str, way: int) -> str:
    """The difference from random heads, in the direction of the change (`way`; 0: there is
    none)."""
    if test is None or not test.difference.known:
        return ""
    gap, turn = own.shown(test.difference), way or 1
    turn = turn if turn * gap.value >= 0 else -turn
    more = ("higher", "lower")[turn < 0] if not way else ("more", "less")[turn != way]
    unit = _unit(own.points or own.unit) if not way else ""
    relation = RELATIONS.get(lead.split(" ", 1)[0], "with")
    than = f"{relation} {evidence.controls[test.control].words}"
    return f", {turned(own, gap, turn)}{unit} {more} than {than}"


def turned(own: Statistic, gap: Estimate, turn: int) -> str:
    """A difference as it is shown, times 1 or \u22121, with its interval."""
    ends = sorted((turn * gap.low, turn * gap.high))
    value, low, high = (fixed(each, own.digits) for each in (turn * gap.value, *ends))
    return f"{value} ({low}\u00a0to\u00a0{high})" if gap.bounded else value


def _subject(own: Statistic) -> str:
    """A statistic as what rises or falls: shares of what is named in the plural are said so."""
    first = own.words.split(" ", 1)[0]
    plural = own.unit == SHARE and first.endswith("s") and not first.endswith("ss")
    return f"the share of {own.words}" if plural else own.words


def _unit(unit: str) -> str:
    return f" {unit}" if unit else ""


def _compared(evidence: Evidence, case: Case) -> Tested | None:
    """The test of which the effect speaks: that which the verdict rests on first, else any."""
    tests = evidence.against(case.statistic, case.condition, case.part)
    return beside_random(tests)[0] or next(iter(tests.values()), None)


def _size(evidence: Evidence, case: Case, first: Case) -> float:
    """How far an effect goes in the direction that is claimed, in the unit of the first."""
    own, test = evidence.statistics[case.statistic], _compared(evidence, case)
    level = evidence.level(case.statistic, case.condition, case.part)
    if own.unit != evidence.statistics[first.statistic].unit or level is None:
        return -float("inf")
    side = 1 if test and test.side == "higher" else -1 if test else own.sign
    size = test.difference.value if test else (level.change or Estimate()).value
    return -float("inf") if isnan(size) else side * size


def unmoved(evidence: Evidence, statistic: str, examples: str = "output") -> str:
    """A statistic that no condition changes in any part, in a sentence; empty where one does."""
    rows = [row for row in evidence.levels if row.statistic == statistic]
    if len({row.value for row in rows}) != 1:
        return ""
    own, row = evidence.statistics[statistic], max(rows, key=lambda row: row.examples)
    words, many = f"{own.words[:1].upper()}{own.words[1:]}", count(row.examples, examples)
    # Of other shares it need not be outputs that are counted.
    if own.unit != SHARE or row.value not in (0, 1):
        return f"{words}: {own.number(row)} in every condition ({many})."
    side, bound = ("lower", row.low) if row.value == 1 else ("upper", row.high)
    end = "" if isnan(bound) else f"; 95\u00a0% {side} bound {own.number(bound)}"
    return f"{words}: {round(row.value * row.examples)} of {many} in every condition{end}."


# ---- verdict -----------------------------------------------------------------------------------
def beyond(test: Tested) -> bool:
    """Whether the interval of a difference, or its value where it has none, lies on the side that
    is claimed."""
    ends = test.difference
    if test.side == "higher":
        return (ends.low if ends.bounded else ends.value) > 0
    return (ends.high if ends.bounded else ends.value) < 0


def holds(test: Tested, alpha: float = LEVEL) -> bool | None:
    """Whether selected heads do more than the draws of a control, p being at most `alpha`; None
    where few draws leave that open, or more are to come."""
    if test.ended == "open" and beyond(test):
        return None
    if test.p_draws is not None and test.p_draws <= alpha:
        return beyond(test)
    if test.least_p is not None and test.least_p > alpha and beyond(test):
        return None
    return False


def verdict(
    evidence: Evidence,
    statistic: str,
    condition: Condition | None = None,
    part: str | None = None,
) -> str:
    """Whether the selected heads do more than random ones, over all parts (or in one).

    It begins with what is shown or not; why stands after a colon. A difference from random heads of
    any layer alone may be one of depth, and is said to be.
    """
    tests = evidence.against(statistic, condition or evidence.main, part)
    random, matched = beside_random(tests)
    if random is None:
        return f"{UNTESTED}: no heads were drawn that rank beside the selected ones"
    free = _standing(evidence, random)
    if not free.startswith(SHOWN) or random.control not in FREE:
        return free
    if matched is None:
        return f"{SHOWN}, for heads of any layer alone"
    deep = _standing(evidence, matched)
    if deep == SHOWN:
        return f"{SHOWN}, also against those of the same layers"
    head, colon, why = deep.partition(":")
    return f"{SHOWN}; {head} against those of the same layers{colon}{why}"


def _standing(evidence: Evidence, test: Tested) -> str:
    """What a test against one control shows, and why not."""
    held, own = holds(test, evidence.alpha), evidence.controls[test.control]
    sets = "random sets" if test.control in (*FREE, *MATCHED) else own.words
    as_much = f"{test.share_as_far} {sets} do as much"
    if held:
        return SHOWN
    if held is None:
        if exhausted(evidence, test):
            return (
                f"{TOO_FEW} with these heads: only {count(test.draws, 'different set')} of as many "
                "can be drawn, of more heads there are more"
            )
        return f"{OPEN}: {as_much}"
    if test.ended == "given up":
        return f"{LOST}: {as_much}"
    # The interval may hold no difference although few or no draws do as much.
    ranked_high = test.p_draws is not None and test.p_draws <= evidence.alpha
    if ranked_high or not test.at_least_as_harmful:
        return f"{NOT_SHOWN}: the interval holds no difference, too"
    return f"{NOT_SHOWN}: {as_much}"


def exhausted(evidence: Evidence, test: Tested) -> bool:
    """Whether all different sets of a control that there are have been drawn."""
    if test.ended is not None:
        return test.ended != "open"
    (selected,) = (each for each in evidence.selected if each.id == test.condition)
    alike = (known.draws for known in evidence.tests if known.statistic == test.statistic)
    asked = max([evidence.asked, *alike])
    return max(test.draws, len(evidence.of_control(selected, test.control))) < asked


def beside_random(
    tests: Mapping[str, Tested],
) -> tuple[Tested | None, Tested | None]:
    """Of tests by control those beside random sets of any heads, and of the same layers.

    The first is another that has a p over draws, where no sets of any heads were drawn.
    """
    free, matched = (
        next((tests[name] for name in names if name in tests), None) for names in (FREE, MATCHED)
    )
    ranked = (test for test in tests.values() if test.least_p is not None)
    return free or next(ranked, None), matched


def verdicts(words: Mapping[str, str], joint: str = "in", each: str = "") -> str:
    """Verdicts of several cases in one line, equal ones together and without their reasons; of many
    cases (`each`: what they are called) their number."""
    if not words:
        return f"{UNTESTED}: no heads were changed"
    if len(words) == 1:
        return next(iter(words.values()))
    groups: dict[str, list[str]] = {}
    for name, sentence in words.items():
        groups.setdefault(sentence.partition(":")[0], []).append(name)
    if len(groups) == 1:
        (answer,) = groups
        return f"{answer} {joint} {'both' if len(words) == 2 else f'all {len(words)}'}"
    many = len(words) >= MANY
    where = (
        f"{len(names)} of {len(words)}" if many else enumeration(names) for names in groups.values()
    )
    return "; ".join(
        f"{answer} {joint} {place}" for answer, place in zip(groups, where, strict=True)
    )


def few_sets(evidence: Evidence, wanted: int) -> list[str]:
    """What it means that fewer different random sets exist than were asked for."""
    # Some statistics are measured under fewer draws than others, by choice.
    most: dict[tuple[str, ...], int] = {}
    for test in evidence.tests:
        by_rank = test.ended is None or test.draws < draws_to_win(evidence.alpha)
        if test.least_p is not None and by_rank and test.ended not in ("given up", "open"):
            case = test.control, test.part, test.condition
            most[case] = max(test.draws, most.get(case, 0))
    fewer: dict[str, int] = {}
    for (control, *_), draws in most.items():
        if draws < wanted:
            fewer[control] = min(draws, fewer.get(control, draws))
    if not fewer:
        return []
    words = [f"{draws} {evidence.controls[control].words}" for control, draws in fewer.items()]
    lowest = p_value(1 / (1 + min(fewer.values())))
    return [
        f"Fewer different sets exist than the {wanted} asked for: {enumeration(words)}. All of "
        f"them were used, so p over draws cannot be lower than {lowest} there."
    ]


def uncertainty(
    evidence: Evidence,
    statistic: str,
    conditions: Sequence[Condition],
    examples: str,
    said: str = "",
) -> str:
    """How many examples intervals are over, how many random sets there are, and how large an effect
    so many examples could show where none is shown; without the draws that the verdict has `said`.
    """
    found = (
        beside_random(evidence.against(statistic, each, part))[0]
        for each, part in product(conditions, places(evidence, statistic))
    )
    tests = [test for test in found if test is not None]
    if not tests:
        return f"Intervals are over {examples}; there is no p over draws."
    bounded = any(test.difference.bounded for test in tests)
    over = f"Intervals are over {examples}" if bounded else f"{examples}, no interval"
    fewest = min(tests, key=lambda test: test.draws)
    if not holds(fewest, evidence.alpha) and fewest.ended != "given up":
        over += seen(evidence, fewest)
    if fewest.share_as_far in said:
        if fewest.ended:
            return f"{over}."
        return f"{over}; p over draws is at least {p_value(1 / (1 + fewest.draws))}."
    if fewest.ended:
        return f"{over}; {fewest.share_as_far} random draws do as much."
    return f"{over}; {draws_words(fewest.draws)}."


def seen(evidence: Evidence, test: Tested) -> str:
    """The smallest difference whose 95 % interval would hold no zero, were it as wide as this one:
    half its width."""
    own, ends = evidence.statistics[test.statistic], test.difference
    if not ends.bounded:
        return ""
    half = own.shown(Estimate((ends.high - ends.low) / 2)).value
    size = f"{fixed(half, own.digits)}{_unit(own.points or own.unit)}"
    return f", enough to show a difference of {size} or more"


def examples_words(evidence: Evidence, statistic: str, example: str) -> str:
    """How many examples a statistic is over, of parts without a mean in each."""
    where = places(evidence, statistic)
    sizes = [
        row.examples
        for row in evidence.levels
        if row.statistic == statistic and (row.part in where or where == (None,))
    ]
    most = max(sizes, default=0)
    if where == (None,) or min(sizes, default=0) == most:
        return count(most, example) + ("" if where == (None,) else " each")
    return f"{min(sizes)} to {most} {example}s each"


def draws_words(draws: int) -> str:
    """How many different sets there are, and the least p over draws that they allow."""
    return f"{count(draws, 'random draw')}: p over draws is at least {p_value(1 / (1 + draws))}"


def least_draws(alpha: float) -> int:
    """The fewest draws that allow a p of `alpha`."""
    return ceil(1 / alpha - 1e-9) - 1 if alpha > 0 else 0
