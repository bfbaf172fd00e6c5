"""The headline of a comparison: what selected heads do to what is measured, and whether that is
shown.

An effect is the change from the original model, the difference from random heads with its 95 %
interval, and that from every other control that was tested. The verdict after it says of each
whether that is shown, and how many random sets do as much. It names no option: what goes on is a
command of its own (`headscope.shown.blocks.Next`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
from headscope.measure.statistics import least_p
from headscope.shown.words import count, enumeration, fixed

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
RELATIONS = {"Without": "without", "In": "in"}


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
    """The effect and whether it is shown; of several cases one effect, and in which of them what is
    shown.

    `example` is what an example is called, `each` a case; `joint` stands before the cases' names.
    """
    if not cases:
        return f"{UNTESTED} (no heads were changed)"
    if not all(case.statistic in evidence.statistics for case in cases):
        return f"{UNTESTED} (what decides was not measured)"
    names = {case.statistic for case in cases}
    if len(names) == 1 and (line := unmoved(evidence, cases[0].statistic, example)):
        return f"Nothing changes. {line}"
    main = spoken_of(evidence, cases)
    # Of several cases the figure has the other controls, one by one.
    said, answer = effect(evidence, main, len(cases) == 1), verdict_of(evidence, main)
    if len(cases) == 1:
        return f"{said}: {answer}"
    others = {case.name: verdict_of(evidence, case) for case in cases if case is not main}
    said += f", most of {count(len(cases), each)}" if len(cases) > 2 else ""
    return f"{said}: {_and_others(answer, others, joint)}"


def _and_others(answer: str, others: Mapping[str, str], joint: str) -> str:
    """A verdict, and in which other cases it is the same or another, of many their number; without
    reasons."""
    first = without_reason(answer)
    groups: dict[str, list[str]] = {first: []}
    for name, other in others.items():
        groups.setdefault(without_reason(other), []).append(name)
    if len(groups) == 1:
        return f"{first} {joint} {'both' if len(others) == 1 else f'all {1 + len(others)}'}"
    if len(others) > 1:
        joint = joint.split(" ")[0]
        parts = [f"{each} {joint} {len(names) + (each == first)}" for each, names in groups.items()]
    else:
        parts = [first, *(f"{each} {joint} {name}" for each, names in groups.items()
                          for name in names)]  # fmt: skip
    return "; ".join(parts)


def spoken_of(evidence: Evidence, cases: Sequence[Case]) -> Case:
    """The first of two cases; of more that whose difference from random heads goes furthest as is
    claimed, in the unit of the first."""
    if len(cases) <= 2:
        return cases[0]
    return max(cases, key=lambda case: _size(evidence, case, cases[0]))


def effect(evidence: Evidence, case: Case, every: bool = True) -> str:
    """What selected heads do to a statistic, and how much more that is than what random heads do,
    and those of `every` other control that was tested.

    `Without 3 heads, NLL rises by 2.341 nats a token, 1.952 (1.470 to 2.424) more than without
    random heads, of the same layers 1.412`; with its level where the original model has none, so
    that nothing changes, or the change is too small to be seen. A change against the claim is said
    to be better or worse.
    """
    own, condition = evidence.statistics[case.statistic], case.condition
    level = evidence.level(case.statistic, condition, case.part)
    lead = case.lead or changed(condition)
    where = f" in {named_part(evidence, case.part)}" if case.part else ""
    start = f"{lead}, {_subject(own)}{where}"
    start += "," if ", " in own.words else ""
    if level is None:
        return f"{start} was not measured"
    test = _compared(evidence, case)
    change = own.shown(level.change)
    if not change.known:
        said = f"{start} is {own.number(level)}{_unit(own.unit if own.unit != SHARE else '')}"
        return said + _beside(evidence, case, test, lead, 0, every=every)
    if not float(f"{change.value:.{own.digits}f}"):
        return f"{start} stays at {own.number(level)}" + _beside(
            evidence, case, test, lead, 0, every=every
        )
    way = 1 if change.value > 0 else -1
    moves = "rises" if way > 0 else "falls"
    if test and (way > 0) != (test.side == "higher"):
        moves += " (worse)" if (way > 0) == (own.better == "lower") else " (better)"
    by = fixed(abs(change.value), own.digits)
    return f"{start} {moves} by {by}{_unit(own.points or own.unit)}" + _beside(
        evidence, case, test, lead, way, by, every
    )


def changed(condition: Condition) -> str:
    """What is done to which heads, at the beginning of a sentence: `Without 3 heads of de`."""
    number = len(condition.heads) or condition.k
    heads = count(number, "head") if number else "the selected heads"
    if condition.of and condition.of != KEPT:
        heads += f" of {condition.of}"
    removed = condition.gate == 0 and condition.of != KEPT and not gives(condition.replacement)
    return f"Without {heads}" if removed else f"With {heads} {condition.done}"


def _beside(
    evidence: Evidence,
    case: Case,
    test: Tested | None,
    lead: str,
    way: int,
    by: str = "",
    every: bool = True,
) -> str:
    """The difference from random heads, in the direction of the change (`way`; 0: there is none),
    which is as large as `by`, and those from `every` other control."""
    if test is None or not test.difference.known:
        return ""
    own = evidence.statistics[case.statistic]
    gap, turn = own.shown(test.difference), way or 1
    turn = turn if turn * gap.value >= 0 else -turn
    more = ("higher", "lower")[turn < 0] if not way else ("more", "less")[turn != way]
    unit = "" if way else _unit(own.points or own.unit)
    random = evidence.controls[test.control].words
    relation = "under" if "masks" in random else RELATIONS.get(lead.split(" ", 1)[0], "with")
    size, said = turned(own, gap, turn, unit), {fixed(turn * gap.value, own.digits): "as much"}
    if more == "more" and size.split(" ")[0] == by:  # random heads change nothing that is seen
        size, said = size.replace(by, "all of that", 1), {by: "as much"}
    others = ""
    for other in evidence.against(case.statistic, case.condition, case.part).values():
        value = own.shown(other.difference).value
        if every and other is not test and not isnan(value):
            number = fixed(turn * value, own.digits)
            others += f", {_apart(evidence, other.control, random)} {said.get(number, number)}"
    return f", {size} {more} than {relation} {random}{others}"


def _apart(evidence: Evidence, control: str, first: str = "random heads") -> str:
    """What tells the sets of a control from those of `first`: `of the same layers`."""
    return evidence.controls[control].words.removeprefix(f"{first} ")


def turned(own: Statistic, gap: Estimate, turn: int, unit: str = "") -> str:
    """A difference as it is shown, times 1 or \u22121, with its interval."""
    ends = sorted((turn * gap.low, turn * gap.high))
    value, low, high = (fixed(each, own.digits) for each in (turn * gap.value, *ends))
    return f"{value}{unit} ({low}\u00a0to\u00a0{high})" if gap.bounded else f"{value}{unit}"


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


def verdict_of(evidence: Evidence, case: Case) -> str:
    """Whether the selected heads of a case do more than random ones, against every control of
    which sets were ranked; in brackets how many sets do as much.

    A difference from random heads of any layer alone may be one of depth, and is said to be.
    """
    tests = ranked(evidence, case)
    if not tests:
        return f"{UNTESTED} (no heads were drawn that rank beside the selected ones)"
    first, *others = tests
    said = answer = _standing(evidence, first)
    reasons = [_reason(evidence, first, answer)]
    # Heads that do no more than random ones need not do more than others.
    if answer == SHOWN and first.control in FREE and not others:
        said = f"{SHOWN} for heads of any layer alone"
    elif answer == SHOWN:
        further = [(_those(evidence, each, first), each, _standing(evidence, each))
                   for each in others]  # fmt: skip
        alike = [kind for kind, _, standing in further if standing == SHOWN]
        said += f", also against {enumeration(alike)}" if alike else ""
        for kind, test, standing in further:
            if standing != SHOWN:
                said += f"; {standing} against {kind}"
                reason = _reason(evidence, test, standing)
                reasons.append(reason and f"against {kind} {reason}")
    brackets = "; ".join(filter(None, [*reasons, as_much(evidence, tests)]))
    return f"{said} ({brackets})" if brackets else said


def _those(evidence: Evidence, test: Tested, first: Tested) -> str:
    """The sets of a control after those of the first were named: `those of the same layers`."""
    kind = _apart(evidence, test.control, evidence.controls[first.control].words)
    return f"those {kind}" if kind.startswith("of ") else kind


def without_reason(answer: str) -> str:
    """A verdict without what stands in brackets at its end."""
    return answer.partition(" (")[0]


def decisive(evidence: Evidence, case: Case) -> tuple[Tested | None, Tested | None]:
    """The tests that the verdict of a case rests on (see `beside_random`)."""
    return beside_random(evidence.against(case.statistic, case.condition, case.part))


def ranked(evidence: Evidence, case: Case) -> list[Tested]:
    """The tests of a case among whose sets the selected heads rank, those that its verdict rests on
    first; none where there is no first."""
    tests = evidence.against(case.statistic, case.condition, case.part)
    first, matched = beside_random(tests)
    further = [matched, *(test for test in tests.values() if test.least_p is not None)]
    leading = [] if first is None else [first]
    return leading + [
        test
        for at, test in enumerate(further)
        if leading and test is not None and test is not first and test not in further[:at]
    ]


def as_much(evidence: Evidence, tests: Sequence[Tested], named: bool = False) -> str:
    """How many random sets of each control do at least as much: `0 of 30 random sets do as much, 1
    of the same layers`; equal numbers once, and of which controls only if these are to be `named`.
    """
    known = [test for test in tests if test.at_least_as_harmful is not None]
    if not known:
        return ""
    first, *others = known
    random = evidence.controls[first.control].words
    kinds = {test.control: _apart(evidence, test.control, random) for test in others}
    said = f"{first.share_as_far} random sets do as much"
    if {test.share_as_far for test in others} <= {first.share_as_far}:
        return f"{said}, also {enumeration([*kinds.values()])}" if named and others else said
    for test in others:
        of = "" if test.draws == first.draws else f"of {test.draws} "
        said += f", {test.at_least_as_harmful} {of}{kinds[test.control]}"
    return said


def _standing(evidence: Evidence, test: Tested) -> str:
    """What a test against one control shows."""
    held = holds(test, evidence.alpha)
    if held:
        return SHOWN
    if held is None:
        return TOO_FEW if exhausted(evidence, test) else OPEN
    return LOST if test.ended == "given up" else NOT_SHOWN


def _reason(evidence: Evidence, test: Tested, standing: str) -> str:
    """Why a test shows nothing, where the number of sets that do as much does not say so."""
    if standing == TOO_FEW:
        many = count(test.draws, "different set")
        return f"only {many} of so many heads; another number may have more"
    if standing == LOST:
        return "more sets would hardly change it"
    # The interval may hold no difference although few draws, or none, do as much.
    ranked_high = test.p_draws is not None and test.p_draws <= evidence.alpha
    if standing == NOT_SHOWN and (ranked_high or not test.at_least_as_harmful):
        return "the interval includes zero"
    return ""


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


def verdicts(words: Mapping[str, str], joint: str = "in") -> str:
    """Answers of several cases in one line, equal ones together; of many cases their number."""
    groups: dict[str, list[str]] = {}
    for name, sentence in words.items():
        groups.setdefault(sentence, []).append(name)
    if len(groups) == 1:
        return next(iter(groups))
    many = len(words) >= MANY

    def place(names: Sequence[str]) -> str:
        return f"{len(names)} of {len(words)}" if many else enumeration(names)

    return "; ".join(f"{answer} {joint} {place(names)}" for answer, names in groups.items())


def few_sets(evidence: Evidence, wanted: int) -> list[str]:
    """What it means that fewer different random sets exist than were asked for."""
    # Some statistics are measured under fewer draws than others, by choice.
    most: dict[tuple[str, ...], int] = {}
    for test in evidence.tests:
        by_rank = test.least_p == least_p(test.draws)
        if by_rank and test.ended not in ("given up", "open"):
            case = test.control, test.part, test.condition
            most[case] = max(test.draws, most.get(case, 0))
    fewer: dict[str, int] = {}
    for (control, *_), draws in most.items():
        if draws < wanted:
            fewer[control] = min(draws, fewer.get(control, draws))
    if not fewer:
        return []
    words = [f"{draws} {evidence.controls[control].words}" for control, draws in fewer.items()]
    few = min(fewer.values()) < least_draws(evidence.alpha)
    return [
        f"Fewer different sets exist than the {wanted} asked for: {enumeration(words)}. All of "
        f"them were used{', too few to show a difference' * few}."
    ]


def uncertainty(evidence: Evidence, cases: Sequence[Case], examples: str, said: str = "") -> str:
    """How many examples intervals are over, and how many random sets do as much as the selected
    heads in the case that is spoken of, without what the verdict has `said`."""
    main = spoken_of(evidence, cases) if cases else None
    tests = ranked(evidence, main) if main else []
    if main is None or not tests:
        return f"Intervals are over {examples}; no set was drawn that ranks beside these heads."
    over = f"Intervals are over {examples}"
    if not tests[0].difference.bounded:
        over = f"{examples}, no interval"
    # Of several cases the verdict names no control.
    counts = as_much(evidence, tests, len(cases) > 1)
    return f"{over}." if counts in said or not counts else f"{over}; {counts}."


def resolution(evidence: Evidence, cases: Sequence[Case], example: str) -> list[str]:
    """Of an effect that is not shown how large one could have been shown: half the width of the
    interval of the difference, the least that it would have to be for zero to lie outside."""
    if not cases:
        return []
    main = spoken_of(evidence, cases)
    test = decisive(evidence, main)[0]
    level = evidence.level(main.statistic, main.condition, main.part)
    if test is None or level is None or not test.difference.bounded:
        return []
    if holds(test, evidence.alpha) or test.ended == "given up":
        return []
    own, ends = evidence.statistics[main.statistic], test.difference
    half = fixed(own.shown(Estimate((ends.high - ends.low) / 2)).value, own.digits)
    return [
        f"With {count(level.examples, example)} a difference of {half}"
        f"{_unit(own.points or own.unit)} or more could be shown."
    ]


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


def least_draws(alpha: float) -> int:
    """The fewest draws that allow a p of `alpha`."""
    return ceil(1 / alpha - 1e-9) - 1 if alpha > 0 else 0
