"""What any table of evidence shows: its verdict in words, tables, and figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from math import ceil, isnan
from typing import Any

from headscope.estimates import Draws, Estimate
from headscope.evidence.controls import FREE, MATCHED
from headscope.evidence.rows import (
    LEVEL,
    ORIGINAL,
    SELECTED,
    SHARE,
    WHOLE,
    Condition,
    Evidence,
    Scored,
    Tested,
)
from headscope.measure.sequence import draws_to_win
from headscope.measure.statistics import least_p
from headscope.shown.blocks import (
    Cell,
    Forest,
    Gap,
    Lines,
    Row,
    Section,
    Series,
    Table,
    p_cell,
)
from headscope.shown.words import (
    arrow,
    between,
    capitalised,
    count,
    enumeration,
    p_value,
)

#: Draws that allow a p of 0.01, where the model has so many sets.
WANTED = 99
#: So many parts are counted instead of listed.
MANY = 7
MORE, NO_MORE, OPEN = (
    "more than random heads",
    "not shown to do more than random heads",
    "cannot tell",
)


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
    option: str = "--draws",
) -> str:
    """Whether the selected heads do more than random ones, over all parts (or in one).

    A difference from random heads of any layer alone may be one of depth, and is said to be.
    `option` is what gives more draws.
    """
    tests = evidence.against(statistic, condition or evidence.main, part)
    random, matched = beside_random(tests)
    if random is None:
        return f"{OPEN}: no heads were drawn that rank beside the selected ones"
    words = evidence.controls[random.control].words if random.control not in FREE else ""
    free = holds(random, evidence.alpha)
    if free is None:
        return f"{OPEN}: {remedy(evidence, random, option)}"
    if words:
        return f"{'more' if free else 'not shown to do more'} than {words}"
    if not free:
        return NO_MORE
    if matched is None:
        return f"{MORE} at any depth"
    deep = holds(matched, evidence.alpha)
    if deep is None:
        return (
            f"{MORE}; against those of the same layers {OPEN}: {remedy(evidence, matched, option)}"
        )
    if not deep:
        return f"{MORE} at any depth, not shown to do more than those of the same layers"
    return MORE


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


def remedy(evidence: Evidence, test: Tested, option: str = "--draws") -> str:
    """What would decide a test over too few draws; more heads, where another control had more."""
    known = [
        known_test.draws for known_test in evidence.tests if known_test.statistic == test.statistic
    ]
    if test.ended == "open":
        return f"not decided after {count(test.draws, 'random draw')}"
    if test.draws < max(known):
        return f"more heads, which have only {count(test.draws, 'different set')} here"
    return f"{option} {max(WANTED, least_draws(evidence.alpha))}"


def verdicts(words: Mapping[str, str], joint: str = "in") -> str:
    """Verdicts of several parts in one line, equal ones together; many parts are counted."""
    if not words:
        return f"{OPEN}: no heads were changed"
    groups: dict[str, list[str]] = {}
    for name, sentence in words.items():
        groups.setdefault(sentence, []).append(name)
    if len(groups) == 1:
        return next(iter(groups))
    lines = []
    for sentence, names in groups.items():
        answer, colon, more = sentence.partition(":")  # the remedy comes last
        where = enumeration(names) if len(names) < MANY else f"{len(names)} of {len(words)}"
        lines.append(f"{answer} {joint} {where}{colon}{more}")
    return "; ".join(lines)


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
    option: str = "--draws",
) -> tuple[str, str]:
    """How many examples and random sets there are, what p over draws they allow, and what would
    help."""
    found = (
        beside_random(evidence.against(statistic, each, part))[0]
        for each, part in product(conditions, places(evidence, statistic))
    )
    tests = [test for test in found if test is not None]
    if not tests:
        return f"Intervals are over {examples}; there is no p over draws.", ""
    bounded = any(test.difference.bounded for test in tests)
    over = f"Intervals are over {examples}" if bounded else f"{examples}, no interval"
    fewest = min(tests, key=lambda test: test.draws)
    if fewest.ended:
        return f"{over}; {fewest.share_as_far} random draws do as much.", ""
    return (
        f"{over}; {draws_words(fewest.draws)}.",
        draws_remedy(fewest.draws, evidence.alpha, option),
    )


def places(evidence: Evidence, statistic: str) -> tuple[str | None, ...]:
    """Where the numbers of a statistic stand: over all parts (None), or in each where these have
    no mean."""
    parts = dict.fromkeys(row.part for row in evidence.levels if row.statistic == statistic)
    return (None,) if len(parts) == 1 or WHOLE in parts else tuple(parts)


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


def draws_remedy(draws: int, alpha: float = LEVEL, option: str = "--draws") -> str:
    """The option for more draws, where these are too few for a p of `alpha`."""
    few = least_draws(alpha)
    return f"{option} {max(WANTED, few)}" if draws < few else ""


def moved(
    evidence: Evidence,
    statistic: str,
    condition: Condition,
    lead: str = "",
    part: str | None = None,
) -> list[str]:
    """Where selected heads take a statistic from and to, in a sentence; nothing if not measured."""
    own, now, base = (
        evidence.statistics[statistic],
        evidence.level(statistic, condition, part),
        evidence.level(statistic, None, part),
    )
    if now is None or base is None or now.change is None:
        return []
    # Over the parts where the condition was measured, which the original model may exceed.
    before, after = own.number(now.value - now.change.value), own.number(now)
    words = f"{'falls' if now.change.value < 0 else 'rises'} from {before} to {after}"
    words = f"stays at {after}" if before == after else words
    if own.unit not in ("", SHARE):
        words += f" {own.unit}"
    if not lead:
        many = "" if condition.k == 1 else f"{condition.k or ''} ".lstrip()
        heads = f"the {many}selected head{'' if condition.k == 1 else 's'} {condition.done}"
        lead = f"With {condition.named() if condition.of else heads}"
    return [f"{lead}, {own.words} {words}."]


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


def in_cases(words: Sequence[str], case: str) -> str:
    """In how many of many cases each verdict holds; without the remedies."""
    counts = Counter(sentence.partition(":")[0] for sentence in words)
    if len(counts) == 1:
        return words[0]
    first, *others = (f"{cause} in {many}" for cause, many in counts.items())
    return "; ".join([f"{first} of {count(len(words), case)}", *others])


# ---- tables ------------------------------------------------------------------------------------
def levels_table(
    evidence: Evidence, names: Sequence[str], title: str, parts: Sequence[str | None] = (None,)
) -> Table:
    """Statistics under every condition, the first with its change; random draws as their mean.
    `parts` are those of statistics that have no mean over them."""
    own, none = [evidence.statistics[name] for name in names], Cell()
    rows: list[Row] = []
    if not names:
        return Table(title, (), ())

    def add(words: str, scores: Sequence[Scored], change: Cell = none, ends: Cell = none) -> None:
        if any(score is not None for score in scores):
            cells = [statistic.cell(score) for statistic, score in zip(own, scores, strict=True)]
            rows.append(Row(words, (cells[0], change, ends, *cells[1:])))

    def add_all(part: str | None) -> None:
        of = f"{named_part(evidence, part)}: " if part else ""
        base = [evidence.level(name, None, part) for name in names]
        add(of + (evidence.original.of or ORIGINAL), [*base[:1], *map(_value, base[1:])])
        for condition in (*evidence.references, *evidence.selected):
            scores = [evidence.level(name, condition, part) for name in names]
            selected = condition in evidence.selected
            change = own[0].gap(scores[0].change if scores[0] else None)
            words = condition.named() if selected else condition.id
            add(of + words, [*map(_value, scores)], change)
            for control in evidence.controls if selected else ():
                draws = [evidence.draws(name, condition, control, part) for name in names]
                if evidence.reference(condition, control):
                    continue
                step = ends = none
                if draws[0].each and base[0] is not None:
                    step = own[0].gap(Estimate(draws[0].mean - base[0].value))
                    shown = own[0].shown(Estimate(draws[0].mean, draws[0].low, draws[0].high))
                    ends = Cell(between(shown.low, shown.high, own[0].digits))
                words = f"{condition.named(control)} ({max(len(drawn.each) for drawn in draws)})"
                add(of + words, [drawn.mean if drawn.each else None for drawn in draws], step, ends)

    for part in parts:
        add_all(part)
    columns = own[0].title, "change", "range of draws", *(each.title for each in own[1:])
    note = "Random heads: the mean of draws" if evidence.controls else ""
    return Table(title, columns, tuple(rows), note=note)


def _value(score: Scored) -> float | None:
    return score.value if isinstance(score, Estimate) else score


def table_of_tests(
    evidence: Evidence,
    names: Sequence[str],
    examples: str = "examples",
    parts: Sequence[str | None] = (None,),
    title: str = "Selected minus random",
) -> Table:
    """Selected heads minus every control, in every condition and statistic that was tested."""
    rows = []
    for part, name, condition in product(parts, names, evidence.selected):
        for control, test in evidence.against(name, condition, part).items():
            own = evidence.statistics[name]
            given = evidence.reference(condition, control)
            cells = (
                own.gap(test.difference), p_cell(test.p_examples), p_cell(test.p_draws),
                Cell() if given else Cell(test.share_as_far), Cell.share(test.shared),
            )  # fmt: skip
            of = f"{named_part(evidence, part)}: " if part else ""
            rows.append(Row(f"{of}{own.words}: {condition.named()} \u2212 {control}", cells))
    return Table(
        title,
        ("difference", f"p over {examples}", "p over draws", "draws as far", "shared heads"),
        tuple(rows),
        note=TESTS.format(examples=examples) + (FIRST if of_a_family(evidence) else BET),
    )  # fmt: skip


TESTS = (
    "One-sided. p over {examples}: {examples} under the selected heads swapped with those under "
    "random ones. p over draws alone says whether these heads are special. With a fixed number of "
    "draws it is the share of sets, the selected one among them, that do as much; of draws one "
    "after another "
)
BET = "1 over the largest wealth of a bet that fewer than 3 % of random sets do"
FIRST = "1 over the number of the first that does as much, or over 1 more than all where none does"


def of_a_family(evidence: Evidence) -> bool:
    """Whether draws ended at the first that does as much, for one of several claims."""
    return any(
        test.at_most is not None
        and test.at_most >= draws_to_win(evidence.alpha)
        and test.least_p == least_p(test.at_most)
        for test in evidence.tests
    )


def parts_table(
    evidence: Evidence,
    statistic: str,
    condition: Condition,
    title: str,
    examples: str = "examples",
) -> Table:
    """A statistic by part: original, selected and random heads, and the tests; no column that no
    part fills. Their mean stands in the table of all conditions."""
    own, rows = evidence.statistics[statistic], dict[str, dict[str, Cell]]()
    for part in evidence.single:
        base, now = (evidence.level(statistic, compared, part) for compared in (None, condition))
        if base is None or now is None:
            continue
        cells = {evidence.original.of or ORIGINAL: own.cell(base), "selected": own.cell(now.value)}
        cells["change"] = own.gap(now.change)
        for control, test in evidence.against(statistic, condition, part).items():
            mean = evidence.draws(statistic, condition, control, part).mean
            cells |= {
                control: own.cell(mean),
                f"\u2212 {control}": own.gap(test.difference),
                f"p over {examples}, {control}": p_cell(test.p_examples),
                f"p over draws, {control}": p_cell(test.p_draws),
            }
        rows[named_part(evidence, part)] = cells
    columns = tuple(
        name
        for name in dict.fromkeys(name for cells in rows.values() for name in cells)
        if any(name in cells and cells[name].value is not None for cells in rows.values())
    )
    lines = (
        Row(name, tuple(cells.get(column, Cell()) for column in columns))
        for name, cells in rows.items()
    )
    note = "Random: the mean of draws" if evidence.controls else ""
    return Table(title, columns, tuple(lines), note=note)


def named_part(evidence: Evidence, part: str) -> str:
    """What tables and figures call a part."""
    return f"mean of {len(evidence.single)}" if part == WHOLE else arrow(part)


def draws_table(
    evidence: Evidence, names: Sequence[str], condition: Condition, title: str = "Random draws"
) -> Table:
    """Every random draw beside selected heads: what it did, and its heads."""
    draws = [
        draw
        for control in evidence.controls
        if evidence.reference(condition, control) is None
        for draw in evidence.of_control(condition, control)
    ]
    known = [name for name in names if any(evidence.level(name, draw) for draw in draws)]
    rows = []
    for draw in draws:
        cells = [evidence.statistics[name].cell(evidence.level(name, draw)) for name in known]
        rows.append(Row(f"{draw.kind}, {draw.draw}", (*cells, Cell(" ".join(draw.heads)))))
    columns = (*(evidence.statistics[name].title for name in known), "heads")
    return Table(title, columns, tuple(rows))


def tables(
    evidence: Evidence,
    names: Sequence[str],
    conditions: Sequence[Condition],
    examples: str = "examples",
) -> Section:
    """All numbers of some statistics: by part under `conditions`, over all parts under every one,
    tests and single draws; of parts without a mean in each of them."""
    known = [name for name in names if name in evidence.statistics]
    whole = [name for name in known if places(evidence, name) == (None,)]
    apart = [name for name in known if name not in whole]
    made, draws = list[Table](), list[Table]()
    for each in conditions:
        of = f", {each.named()}" if len(conditions) > 1 else ""
        for name in whole:
            if len({row.part for row in evidence.levels if row.statistic == name}) > 1:
                title = capitalised(evidence.statistics[name].title) + of
                made.append(parts_table(evidence, name, each, title, examples))
        if whole:
            draws.append(draws_table(evidence, whole, each, f"Random draws{of}"))
    made += [
        levels_table(evidence, whole, "Under every condition"),
        table_of_tests(evidence, whole, examples),
        *draws,
    ]
    parts = evidence.single
    made += [
        levels_table(evidence, apart, "Under every condition, by part", parts),
        table_of_tests(evidence, apart, examples, parts, "Selected minus random, by part"),
    ]
    return Section("Values and tests", [table for table in made if table.rows])


# ---- figures -----------------------------------------------------------------------------------
def forest(
    evidence: Evidence,
    rows: Iterable[tuple[str, str, Condition, str | None]],
    title: str,
    note: str = "",
) -> Forest | None:
    """Selected heads minus every control, by name, statistic, condition and part of a row; None
    where nothing was tested. The statistics have one unit.

    Of what was given instead of drawn there is no p.
    """
    drawn, statistic = [], None
    for name, measured, condition, part in rows:
        own = evidence.statistics[measured]
        level = evidence.level(measured, condition, part)
        gaps = []
        for control, test in evidence.against(measured, condition, part).items():
            if level is None or not test.difference.known:
                continue
            gap = own.shown(test.difference)
            low, high = (gap.low, gap.high) if gap.bounded else (None, None)
            draws = evidence.draws(measured, condition, control, part).each
            strokes = (
                ()
                if evidence.reference(condition, control)
                else tuple(own.factor * (level.value - draw) for draw in draws)
            )
            gaps.append(Gap(control, gap.value, low, high, strokes, test.p_draws))
        if gaps:
            statistic = statistic or own
            drawn.append((name, tuple(gaps)))
    if statistic is None:
        return None
    unit = statistic.points or statistic.unit
    sides = ("selected worse", "selected better")
    return Forest(
        title,
        tuple(drawn),
        f"Difference in {unit}" if unit else "Difference",
        sides if statistic.better == "higher" else sides[::-1],
        statistic.digits,
        note,
    )


def forests_by_unit(
    evidence: Evidence, names: Iterable[str], conditions: Sequence[Condition]
) -> Iterator[Forest]:
    """Several statistics in a forest for each unit, over all parts where they have a mean."""
    units: dict[tuple[Any, ...], list[tuple[str, str, Condition, str | None]]] = {}
    for name, each in product(names, conditions):
        own = evidence.statistics[name]
        for part in places(evidence, name):
            words = [capitalised(own.words)]
            words += [each.named()] if len(conditions) > 1 else []
            words += [named_part(evidence, part)] if part else []
            row = (", ".join(words), name, each, part)
            units.setdefault((own.unit, own.better, own.bounds), []).append(row)
    for rows in units.values():
        title = f"{rows[0][0] if len(rows) == 1 else 'Other measures'}: selected minus random heads"
        if drawn := forest(evidence, rows, title):
            yield drawn


def by_part(
    evidence: Evidence, statistic: str, condition: Condition
) -> list[tuple[str, str, Condition, str | None]]:
    """The rows of a forest for every part, the mean over them first."""
    return [(named_part(evidence, part), statistic, condition, part) for part in evidence.parts]


def dose_lines(evidence: Evidence, statistic: str, part: str | None = None) -> Iterator[Lines]:
    """A statistic over the number of heads at each gate, and over gates at each number, of the
    heads of which a page speaks."""
    base = evidence.level(statistic, None, part)
    if base is None:
        return
    own, main = evidence.statistics[statistic], evidence.main
    known = [
        condition
        for condition in evidence.selected
        if condition.gate is not None
        and (condition.of, condition.replacement) == (main.of, main.replacement)
        and evidence.level(statistic, condition, part) is not None
    ]

    def point(at: float, value: float, low: float, high: float) -> tuple[float, ...]:
        least, most = own.limits
        return at, *(own.factor * min(most, max(least, number)) for number in (value, low, high))

    for axis, fixed_, start, x in (("k", "gate", 0.0, "heads"), ("gate", "k", 1.0, "strength")):
        for value in dict.fromkeys(getattr(condition, fixed_) for condition in known):
            chosen = [condition for condition in known if getattr(condition, fixed_) == value]
            if len({getattr(condition, axis) for condition in chosen}) < 2:
                continue
            original = [point(start, base.value, base.value, base.value)]
            lines = {SELECTED: [*original]}
            for condition in chosen:
                at, now = (
                    float(getattr(condition, axis)),
                    evidence.level(statistic, condition, part),
                )
                change = now.change if now and now.change else Estimate()
                level = now.value if now else base.value
                ends = (level - change.value + end for end in (change.low, change.high))
                lines[SELECTED].append(point(at, level, *ends))
                for control in evidence.controls:
                    draws: Draws = evidence.draws(statistic, condition, control, part)
                    if draws.each and evidence.reference(condition, control) is None:
                        lines.setdefault(control, [*original]).append(
                            point(at, draws.mean, draws.low, draws.high)
                        )
            series = tuple(
                Series(
                    name,
                    tuple((p[0], p[1]) for p in sorted(points)),
                    tuple(p[2] for p in sorted(points)),
                    tuple(p[3] for p in sorted(points)),
                )
                for name, points in lines.items()
            )
            what = chosen[0].done if fixed_ == "gate" else f"{count(int(value), 'head')}, gates"
            yield Lines(
                f"{own.words} by {x} ({what})",
                series,
                f"{x} (0: removed, 1: original)" if axis == "gate" else x,
                own.axis,
                band="95\u00a0% intervals of the change (selected) and ranges of draws (random)",
                note="Larger sets hold the smaller ones, so points are no independent tests"
                if axis == "k"
                else "",
            )
