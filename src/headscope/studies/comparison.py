"""Selected heads beside the original model and random heads: how studies show and say it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, isnan, nan

from headscope.estimates import Against, Draws, Estimate, Mean, known
from headscope.shown.blocks import Bars, Cell, Row, Table, p_cell
from headscope.shown.words import between, count, enumeration, fixed, p_value, signed
from headscope.studies.shows import interval

#: The kinds of random heads in tables.
RANDOM = ("random", "random, same layers")
#: A score with or without its interval.
Level = Estimate | float | None


def compared(against: Against | None, examples: str, scale: Scale) -> str:
    """Selected minus random in words: difference (interval; draws; p over examples, over draws)."""
    if against is None or not against.difference.known:
        return "not compared with random heads"
    points = scale.points and f"\u00a0{scale.points}"
    words = interval(scale.of(against.difference), scale.digits, points).removesuffix(")")
    words += f"{'; ' if against.difference.bounded else ' ('}{count(against.distinct, 'draw')}"
    if against.p_examples is not None:
        words += f"; p\u00a0=\u00a0{p_value(against.p_examples)} over {examples}"
    if against.p_draws is not None:
        words += f", {p_value(against.p_draws)} over draws"
    return f"{words})"


def clear(gaps: Sequence[Estimate], one: str, several: str | None = None, sign: int = 1) -> str:
    """`3 of 4 tasks (95 % CI excludes zero in 2)`: the gaps above zero, or below it."""
    beyond = sum(sign * gap.value > 0 for gap in gaps)
    surely = sum((gap.low if sign > 0 else -gap.high) > 0 for gap in gaps)
    return f"{beyond} of {count(len(gaps), one, several)} (95\u00a0% CI excludes zero in {surely})"


@dataclass(frozen=True)
class Scale:
    """How a measure is written: what titles and, in a sentence, `said` call it, and its decimals.

    Numbers whose unit is % are shares; `to_100`: what is shown lies between 0 and 100.
    """

    words: str
    said: str = ""
    unit: str = "%"
    digits: int = 1
    to_100: bool = True

    @property
    def factor(self) -> float:
        """What a number is multiplied by."""
        return 100.0 if self.unit == "%" else 1.0

    @property
    def points(self) -> str:
        """The unit of a difference."""
        return "pp" if self.unit == "%" else self.unit

    @property
    def title(self) -> str:
        """The measure with its unit."""
        return f"{self.words}, {self.unit}" if self.unit else self.words

    def number(self, value: Level) -> str:
        """A level in words."""
        return fixed(self.of(value).value, self.digits) + (self.unit and f"\u00a0{self.unit}")

    def of(self, value: Level) -> Estimate:
        """A level as it is shown; its interval is unknown where it has none."""
        if not isinstance(value, Estimate):
            value = Estimate(nan if value is None else value)
        return Estimate(*(self.factor * end for end in (value.value, value.low, value.high)))

    def cell(self, value: Level) -> Cell:
        """A level in a table."""
        return Cell.of(self.of(value), self.digits, self.unit)

    def gap(self, difference: Estimate | Mean | None) -> Cell:
        """A difference in a table."""
        return Cell.of(difference, self.digits, self.points, self.factor)

    def against(self, against: Against | None) -> tuple[Cell, Cell, Cell]:
        """Selected minus random with its interval, p over examples, p over draws."""
        if against is None:
            return Cell(), Cell(), Cell()
        return self.gap(against.difference), p_cell(against.p_examples), p_cell(against.p_draws)


#: A score, and the single draws that it is the mean of.
Bar = tuple[Level, Sequence[float]]


def bars_of(
    title: str, groups: Mapping[str, Mapping[str, Bar]], scale: Scale, note: str = ""
) -> Bars:
    """Bars of a measure; no series that is known in no group."""
    low, high = (0.0, 100.0) if scale.to_100 else (-inf, inf)
    shown = {
        name: {series: (scale.of(level), draws) for series, (level, draws) in bars.items()}
        for name, bars in groups.items()
    }
    names = tuple(
        dict.fromkeys(
            name for bars in shown.values() for name, (level, _) in bars.items() if level.known
        )
    )
    nothing = (Estimate(), ())

    def numbers(end: str) -> tuple[tuple[float | None, ...], ...]:
        ends = [
            [getattr(bars.get(name, nothing)[0], end) for name in names] for bars in shown.values()
        ]
        return tuple(
            tuple(None if isnan(each) else min(high, max(low, each)) for each in row)
            for row in ends
        )

    return Bars(
        title,
        tuple(groups),
        names,
        numbers("value"),
        scale.title,
        numbers("low"),
        numbers("high"),
        scale.digits,
        note,
        draws=tuple(
            tuple(
                tuple(scale.factor * draw for draw in bars.get(name, nothing)[1]) for name in names
            )
            for bars in shown.values()
        ),
        start=low if scale.to_100 else None,
        end=high if scale.to_100 else None,
    )


@dataclass(frozen=True)
class Compared:
    """Selected heads by one measure, beside the original model and random heads.

    Attributes:
        scale: of the measure.
        change: from the original model.
        random: scores under random draws, free and of the same layers; without a `selected` score
            their changes.
        tests: selected minus random heads, likewise.
        more: other cells of the row, by column.
    """

    scale: Scale
    change: Estimate | None = None
    original: Level = None
    selected: Level = None
    random: tuple[Draws | None, Draws | None] = (None, None)
    tests: tuple[Against | None, Against | None] = (None, None)
    chance: float | None = None
    more: Mapping[str, Cell] = field(default_factory=dict)

    @property
    def means(self) -> list[float | None]:
        """The mean of each kind of draws."""
        return [None if draws is None else known(draws.mean) for draws in self.random]

    @property
    def bar(self) -> Estimate:
        """The score of the selected heads, else its change; with the interval of the change."""
        level, change = self.selected, self.change or Estimate()
        if level is None or isinstance(level, Estimate):
            return change if level is None else level
        base = self.original
        start = nan if base is None else base.value if isinstance(base, Estimate) else base
        return Estimate(level, start + change.low, start + change.high)


@dataclass(frozen=True)
class Comparison:
    """Selected and random heads, a row a language, a task or a direction."""

    rows: Mapping[str, Compared]
    examples: str = "sentences"
    random: str = "as many random heads"

    @property
    def distinct(self) -> int:
        """The fewest different draws that a row was tested against."""
        tests = [test for row in self.rows.values() for test in row.tests if test is not None]
        return min((test.distinct for test in tests), default=0)

    def table(self, title: str, note: str = "", levels: bool = True, tests: bool = True) -> Table:
        """Original, selected and random heads, and the tests; no column that no row fills."""
        more = tuple(dict.fromkeys(name for row in self.rows.values() for name in row.more))
        names: list[str] = []
        if levels:
            names += [*more, "chance", "original", "selected", "change", *RANDOM]
        if tests:
            p = f"p over {self.examples}", "p over draws"
            names += [name for kind in RANDOM for name in (f"\u2212 {kind}", *p)]

        def cells(row: Compared) -> list[Cell]:
            scale, entries = row.scale, list[Cell]()
            if levels:
                entries += [row.more.get(name, Cell()) for name in more]
                entries += map(scale.cell, (row.chance, row.original, row.selected))
                entries += [scale.gap(row.change), *map(scale.cell, row.means)]
            if tests:
                entries += [cell for test in row.tests for cell in scale.against(test)]
            return entries

        made = {name: cells(row) for name, row in self.rows.items()}
        filled = [
            at
            for at in range(len(names))
            if any(row[at].value is not None for row in made.values())
        ]
        rows = (Row(name, tuple(row[at] for at in filled)) for name, row in made.items())
        return Table(title, tuple(names[at] for at in filled), tuple(rows), note=note)

    def tables(self, title: str, expected: str, note: str = "") -> list[Table]:
        """What the heads do, and apart from it the tests; `expected` as in `tests_words`."""
        words = tests_words(self.examples, expected) if expected else ""
        tests = self.table(f"{title}: selected minus random heads", words, levels=False)
        return [self.table(title, note, tests=False), *([tests] if tests.columns else [])]

    def bars(self, title: str, note: str = "") -> Bars:
        """Original, selected and random heads with every draw; all rows are of one measure."""
        groups = {
            name: {
                "original": (row.original, ()),
                "selected": (row.bar, ()),
                **{
                    kind: (mean, draws.each if draws else ())
                    for kind, mean, draws in zip(RANDOM, row.means, row.random, strict=True)
                },
                "chance": (row.chance, ()),
            }
            for name, row in self.rows.items()
        }
        return bars_of(title, groups, next(iter(self.rows.values())).scale, note)

    def said(self, name: str, lead: str, measure: str = "", over: str = "") -> list[str]:
        """A row in words: selected, original and random heads, and what the tests say.

        `measure` is what the scale is called in this sentence, `over` counts the examples.
        """
        row = self.rows[name]
        scale, change = row.scale, row.scale.of(row.change)
        points = scale.points and f"\u00a0{scale.points}"
        step = scale.of(row.selected).value - scale.of(row.original).value
        gap = f"{signed(change.value if change.known else step, scale.digits)}{points}"
        if change.bounded:
            gap += f", 95\u00a0% CI {between(change.low, change.high, scale.digits)}"
        gap += f"; {over}" if over else ""
        before, after = scale.number(row.original), scale.number(row.selected)
        if row.selected is None:
            moved, is_now = "changes", "changes by"
        else:
            way = "falls" if step < 0 else "rises"
            moved, is_now = f"{way} from {before} to {after}", "is"
            moved = f"stays at {after}" if before == after else moved

        def level(mean: float) -> str:
            return signed(mean, scale.digits) if row.selected is None else scale.number(mean)

        against = [
            f"{level(mean)} with {self.random}{layers}"
            for layers, mean in zip(("", " of the same layers"), row.means, strict=True)
            if mean is not None
        ]
        random = f"it {is_now} {enumeration(against)}"
        if not against:
            random = f"there are no {self.random.removeprefix('as many ')} to compare with"
        tests = [
            f"{kind}{compared(test, self.examples, scale)}"
            for kind, test in zip(("", "same layers: "), row.tests, strict=True)
            if test is not None and test.difference.known
        ]
        words = f"{lead}, {measure or scale.said or scale.words} {moved} ({gap}); {random}."
        return [words, *([f"Selected minus random: {'; '.join(tests)}."] if tests else [])]


def tests_words(examples: str, expected: str) -> str:
    """What the p-values of a table mean; `expected` is tested, such as `a larger change`."""
    return (
        f"One-sided p for {expected} with selected than with random heads. p over {examples}: "
        f"{examples} swapped with those under a random draw. p over draws: rank among the random "
        "draws. Neither is corrected for the number of rows."
    )


def draws_words(distinct: int) -> str:
    """How many different random draws there are, and the least p over draws that they allow."""
    drawn = count(distinct, "random draw")
    return f"{drawn}: p over draws is at least {p_value(1 / (1 + distinct))}"


def draws_remedy(distinct: int, few: int = 19, wanted: int = 99) -> str:
    """The option for more draws, where there are fewer than `few`."""
    return f"--draws {wanted}" if distinct < few else ""
