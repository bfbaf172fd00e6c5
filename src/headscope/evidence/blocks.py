"""What any table of evidence shows: its tables and figures."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from math import isnan
from typing import Any

from headscope.estimates import Draws, Estimate
from headscope.evidence.rows import (
    ORIGINAL,
    SELECTED,
    WHOLE,
    Condition,
    Evidence,
    Scored,
)
from headscope.heads.geometry import spelled
from headscope.measure.sequence import draws_to_win
from headscope.measure.statistics import least_p
from headscope.shown.blocks import (
    AS_MUCH,
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
)


def places(evidence: Evidence, statistic: str) -> tuple[str | None, ...]:
    """Where the numbers of a statistic stand: over all parts (None), or in each where these have
    no mean."""
    parts = dict.fromkeys(row.part for row in evidence.levels if row.statistic == statistic)
    return (None,) if len(parts) == 1 or WHOLE in parts else tuple(parts)


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
            base, now = (evidence.level(name, each, part) for each in (None, condition))
            draws = evidence.draws(name, condition, control, part)
            shown = own.shown(Estimate(draws.mean, draws.low, draws.high))
            cells = (
                own.cell(_value(base)), own.cell(_value(now)), own.cell(draws.mean),
                Cell() if given else Cell(between(shown.low, shown.high, own.digits)),
                own.gap(test.difference), Cell(None if given else test.share_as_far or None),
                p_cell(test.p_examples), Cell.share(test.shared),
            )  # fmt: skip
            of = f"{named_part(evidence, part)}: " if part else ""
            rows.append(Row(f"{of}{own.words}: {condition.named()} \u2212 {control}", cells))
    columns = (
        evidence.original.of or ORIGINAL, SELECTED, "control", "range of sets", "difference",
        AS_MUCH, f"p over {examples}", "shared heads",
    )  # fmt: skip
    return Table(
        title,
        columns,
        tuple(rows),
        note=TESTS.format(examples=examples) + (FIRST if of_a_family(evidence) else BET),
    )


TESTS = (
    "Control: of random sets their mean. Intervals of differences are over {examples}, not over "
    "sets. How many random sets do as much alone says whether these heads are special. p over "
    "{examples}, one-sided: {examples} under the selected heads swapped with those under random "
    "ones. Sets drawn one after another end "
)
BET = "when a bet that fewer than 3 % of random sets do as much is won or lost"
FIRST = "at the first that does as much"


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
            given = evidence.reference(condition, control)
            cells |= {
                control: own.cell(mean),
                f"\u2212 {control}": own.gap(test.difference),
                f"{AS_MUCH}, {control}": Cell(None if given else test.share_as_far or None),
                f"p over {examples}, {control}": p_cell(test.p_examples),
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
        rows.append(Row(f"{draw.kind}, {draw.draw}", (*cells, Cell(spelled(draw.heads)))))
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
    examples: str = "examples",
) -> Forest | None:
    """Selected heads minus every control, by name, statistic, condition and part of a row; None
    where nothing was tested. The statistics have one unit.

    Of what was given instead of drawn no sets are counted. Intervals are over `examples`.
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
            draws = evidence.draws(measured, condition, control, part)
            given = evidence.reference(condition, control)
            base = evidence.level(measured, None, part)
            known = [None if each is None else own.shown(each).value
                     for each in (base, level, draws.mean)]  # fmt: skip
            levels = tuple(None if each is None or isnan(each) else each for each in known)
            strokes = tuple(own.factor * (level.value - draw) for draw in draws.each)
            sets = ((), "") if given else (strokes, test.share_as_far)
            gaps.append(Gap(control, gap.value, low, high, *sets, levels))
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
        over=examples,
    )


def forests_by_unit(
    evidence: Evidence,
    names: Iterable[str],
    conditions: Sequence[Condition],
    examples: str = "examples",
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
        if drawn := forest(evidence, rows, title, examples=examples):
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
