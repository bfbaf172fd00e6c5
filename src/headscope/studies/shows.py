"""What the studies show alike: tables of heads, sets, controls, and what weakens a finding."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import floor, log10, nan
from statistics import fmean, median
from typing import Any

from headscope.estimates import Against, Draws, Estimate, known
from headscope.heads import Head
from headscope.results.common import Ablation, Leakage, ReferenceText, ScoredHead
from headscope.results.overlap import GroupOverlap, PairOverlap
from headscope.shown.blocks import (
    Bars,
    Cell,
    Column,
    HeadMap,
    HeadSets,
    HeadTable,
    Heatmap,
    Place,
    Row,
    Table,
    p_cell,
)
from headscope.shown.words import arrow, between, count, enumeration, fixed, number, p_value, signed

SCORE = Column("score", "Score")
CHANCE = Column("chance", "Chance", "what the score would be by chance")
ABOVE = Column("above_chance", "Score \u2212 chance", "the score, corrected for chance")
#: Heads whose intervals say how far scores are known.
HIGHEST = 10
ENDS = (Column("low", "low"), Column("high", "high"))
#: Intervals from fewer examples are too narrow.
FEW = 20
#: The kinds of random heads in tables.
RANDOM = ("random", "random, same layers")
#: A score with or without its interval.
Level = Estimate | float | None
#: Heads of a set that a page lists at most.
LISTED = 50


def head_table(
    title: str,
    parts: Mapping[str, Sequence[ScoredHead]],
    extra: Iterable[Column] = (),
    score: Column = SCORE,
    **more: Any,
) -> HeadTable:
    """Every head of scored parts (languages, directions; one: its name is not shown).

    The score, chance, the interval and the columns of `extra`, each as far as the heads have it;
    `more` goes to the block. Heads are ranked by their score corrected for chance where they have
    a chance and `ranked_by` does not say otherwise. Low scores are shown with more decimals.
    """
    heads = sorted({head.place for part in parts.values() for head in part})
    by_place = {name: {head.place: head for head in part} for name, part in parts.items()}

    def numbers(part: Mapping[Head, ScoredHead], key: str) -> list[float | None]:
        return [part[place].number(key) if place in part else None for place in heads]

    columns = tuple(
        column
        for column in (score, CHANCE, ABOVE, *extra, *ENDS)
        if any(head.number(column.key) is not None for part in parts.values() for head in part)
    )
    most = max((abs(head.score or 0.0) for part in parts.values() for head in part), default=0.0)
    digits = min(6, 2 - floor(log10(most))) if most else 3
    columns = tuple(
        replace(column, digits=max(column.digits, digits))
        if column.key in ("score", "chance", "above_chance")
        else column
        for column in columns
    )
    keys = [column.key for column in columns]
    more.setdefault("ranked_by", "above_chance" if "above_chance" in keys else score.key)
    return HeadTable(
        title,
        places(heads),
        columns,
        {name: {key: numbers(part, key) for key in keys} for name, part in by_place.items()},
        **more,
    )


def head_map(
    name: str, heads: Iterable[ScoredHead], marked: Iterable[Head] = (), key: str = "score"
) -> HeadMap:
    """The map of one number of scored heads."""
    known = {head.place: head.number(key) for head in heads}
    layers, width = 1 + max(h.layer for h in known), 1 + max(h.head for h in known)
    values = tuple(
        tuple(known.get(Head(layer, head)) for head in range(width)) for layer in range(layers)
    )
    return HeadMap(name, values, places(marked))


def highest(heads: Sequence[ScoredHead], unit: str = "", chance: str = "by chance") -> str:
    """`head 4.3 (0.70, 95 % CI 0.51 to 0.90; 0.1 by chance); mean over all 96 heads 0.02`.

    Of the first of these heads, as far as that is known.
    """
    best, mean = heads[0], sum(head.score or 0.0 for head in heads) / len(heads)
    words = f"head {best.place} ({number(best.score or 0.0)}{unit}"
    if best.low is not None and best.high is not None:
        to = "\u00a0to\u00a0" if best.low < 0 else "\u2009\u2013\u2009"
        words += f", 95\u00a0% CI {number(best.low)}{to}{number(best.high)}"
    level = best.number("chance")
    words += ")" if level is None else f"; {number(level)} {chance})"
    return f"{words}; mean over all {len(heads)} heads {number(mean)}"


def significant(heads: Iterable[ScoredHead]) -> list[ScoredHead]:
    """The heads whose interval lies above chance, or above 0 where chance is not known."""
    return [
        head
        for head in heads
        if head.low is not None and head.low > max(head.number("chance") or 0.0, 0.0)
    ]


def significant_sets(parts: Mapping[str, Sequence[ScoredHead]], than: str = "chance") -> HeadSets:
    """Of each part the heads above chance."""
    sets = {name: significant(heads) for name, heads in parts.items()}
    more = [f"{name}: {len(heads)}" for name, heads in sets.items() if len(heads) > LISTED]
    return HeadSets(
        f"Heads above {than}, best first",
        {name: places(head.place for head in heads[:LISTED]) for name, heads in sets.items()},
        f"the first {LISTED} of {enumeration(more)}" if more else "",
    )


def spread(heads: Sequence[ScoredHead], examples: str) -> str:
    """How wide intervals are; heads come highest first, `examples` counts what they are over."""
    best = heads[:HIGHEST]
    halves = [(h.high - h.low) / 2 for h in best if h.low is not None and h.high is not None]
    if not halves:
        return "These scores carry no interval."
    return (
        f"95\u00a0% interval of the {len(best)} highest heads: \u00b1{number(median(halves))} "
        f"(median), from a bootstrap over {examples}."
    )


def few_caution(
    examples: int | None, one: str, several: str | None = None, of: str = ""
) -> list[str]:
    """What it means that intervals are from few examples, `of` such as ` a direction`."""
    if examples is None or examples >= FEW:
        return []
    return [f"Bootstrap intervals over {count(examples, one, several)}{of} are too narrow."]


def places(heads: Iterable[Head]) -> tuple[Place, ...]:
    """Heads as blocks name them."""
    return tuple((head.layer, head.head) for head in heads)


def interval(estimate: Estimate | None, digits: int = 3, unit: str = "") -> str:
    """`0.42 (95 % CI 0.31 – 0.50)`; the value alone where there is no interval."""
    if estimate is None or not estimate.known:
        return "not measured"
    value = fixed(estimate.value, digits) + unit
    if not estimate.bounded:
        return value
    return f"{value} (95\u00a0% CI {between(estimate.low, estimate.high, digits)}{unit})"


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

    def gap(self, difference: Estimate | None) -> Cell:
        """A difference in a table."""
        return Cell.of(difference, self.digits, self.points, self.factor)

    def against(self, against: Against | None) -> tuple[Cell, Cell, Cell]:
        """Selected minus random with its interval, p over examples, p over draws."""
        if against is None:
            return Cell(), Cell(), Cell()
        return self.gap(against.difference), p_cell(against.p_examples), p_cell(against.p_draws)


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
    random: str = "random heads"

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
            scale, found = row.scale, list[Cell]()
            if levels:
                found += [row.more.get(name, Cell()) for name in more]
                found += map(scale.cell, (row.chance, row.original, row.selected))
                found += [scale.gap(row.change), *map(scale.cell, row.means)]
            if tests:
                found += [cell for test in row.tests for cell in scale.against(test)]
            return found

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

    def bars(self, title: str, y: str = "", note: str = "") -> Bars:
        """Original, selected and random heads with every draw; no bar that no row has.

        The rows are of one measure, which `y` names; shares and scores of texts go to 100.
        """
        scale = next(iter(self.rows.values())).scale
        ends = (0.0, 100.0) if scale.to_100 else (None, None)
        names = ("original", "selected", *RANDOM, "chance")
        levels = [
            [scale.of(each) for each in (row.original, row.bar, *row.means, row.chance)]
            for row in self.rows.values()
        ]
        drawn = [
            [[scale.factor * each for each in draws.each] if draws else [] for draws in row.random]
            for row in self.rows.values()
        ]
        shown = [at for at in range(len(names)) if any(row[at].known for row in levels)]

        def numbers(end: str) -> tuple[tuple[float | None, ...], ...]:
            return tuple(
                tuple(within(known(getattr(row[at], end))) for at in shown) for row in levels
            )

        def within(end: float | None) -> float | None:
            return min(100.0, max(0.0, end)) if end is not None and scale.to_100 else end

        return Bars(
            title,
            tuple(self.rows),
            tuple(names[at] for at in shown),
            numbers("value"),
            y or scale.title,
            numbers("low"),
            numbers("high"),
            scale.digits,
            note,
            draws=tuple(
                tuple(tuple(row[at - 2]) if at in (2, 3) else () for at in shown) for row in drawn
            ),
            start=ends[0],
            end=ends[1],
        )

    def said(self, name: str, lead: str, measure: str = "") -> list[str]:
        """A row in words: selected, original and random heads, and what the tests say.

        `measure` is what the scale is called in this sentence.
        """
        row = self.rows[name]
        scale, change = row.scale, row.scale.of(row.change)
        points = scale.points and f"\u00a0{scale.points}"
        step = scale.of(row.selected).value - scale.of(row.original).value
        gap = f"{signed(change.value if change.known else step, scale.digits)}{points}"
        if change.bounded:
            gap += f", 95\u00a0% CI {between(change.low, change.high, scale.digits)}"
        before, after = scale.number(row.original), scale.number(row.selected)
        if row.selected is None:
            moved, is_now = "changes", "changes by"
        else:
            way = "falls" if step < 0 else "rises"
            moved, is_now = f"{way} from {before} to {after}", "is"
            moved = f"stays at {after}" if before == after else moved

        def level(mean: float) -> str:
            return signed(mean, scale.digits) if row.selected is None else scale.number(mean)

        beside = [
            f"{level(mean)} with as many {self.random}{layers}"
            for layers, mean in zip(("", " of the same layers"), row.means, strict=True)
            if mean is not None
        ]
        random = f"it {is_now} {enumeration(beside)}"
        if not beside:
            random = f"there are no {self.random} to compare with"
        tests = [
            f"{kind}{compared(test, self.examples, scale)}"
            for kind, test in zip(("", "same layers "), row.tests, strict=True)
            if test is not None and test.difference.known
        ]
        words = f"{lead}, {measure or scale.said or scale.words} {moved} ({gap}); {random}."
        return [words, *([f"Selected \u2212 random {'; '.join(tests)}."] if tests else [])]


def tests_words(examples: str, expected: str) -> str:
    """What the p-values of a table mean; `expected` is tested, such as `a larger change`."""
    return (
        f"One-sided p, tested: {expected} with selected than with random heads. p over {examples}: "
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


def layer_labels(layers: Sequence[int]) -> tuple[tuple[float, str], ...]:
    """About a dozen layers as words on an axis."""
    return tuple((float(at), str(at)) for at in layers[:: max(1, len(layers) // 12)])


def leakage_caution(leakage: Leakage | None, examples: str = "sentence pairs") -> list[str]:
    """What it means that heads were found on the test data, or that this is not known."""
    if leakage is None or not leakage.known:
        return [
            f"The heads came without a record of the {examples} they were found on; if these are "
            "the same, the effect is overestimated."
        ]
    if leakage.overlap:
        return [
            f"{leakage.overlap} of {leakage.of} {examples} were used to find the heads, so the "
            "effect is overestimated."
        ]
    return []


def ablation_facts(result: Ablation) -> list[tuple[str, str]]:
    """What removed heads give, where that is not zero."""
    if result.ablate != "mean":
        return []
    reference = result.reference_text or ReferenceText()
    over = f" over {count(reference.texts, 'text')}" if reference.texts else ""
    source = f", {reference.source}" if reference.source else ""
    return [("removed heads give", f"their mean output by class of position{over}{source}")]


def named_places(heads: Iterable[str]) -> tuple[Place, ...]:
    """Heads that results name by words such as `5.3`."""
    return places(map(Head.parse, heads))


def model_facts(name: str, heads: int | None = None) -> list[tuple[str, str]]:
    """The model, and how many heads it has."""
    return [("model", name), *([("heads", str(heads))] if heads else [])]


def overlap_blocks(
    pairs: Sequence[PairOverlap], groups: Sequence[GroupOverlap] = ()
) -> tuple[Heatmap | Table, ...]:
    """Jaccard indices of every two sets as a map, the pairs with chance, and groups of pairs."""
    names = tuple(dict.fromkeys(name for pair in pairs for name in (pair.a, pair.b)))
    at = {(pair.a, pair.b): pair.jaccard for pair in pairs}
    at |= {(pair.b, pair.a): pair.jaccard for pair in pairs}
    labels = tuple(name if len(name) <= 28 else f"\u2026{name[-27:]}" for name in names)
    chance = fmean(pair.expected_exact for pair in pairs)
    below = round(0.05 * len(pairs))
    note = f"Random sets of these sizes: {fixed(chance, 2)} on average"
    shared = Heatmap(
        "Heads that two sets share",
        labels,
        labels,
        tuple(tuple(1.0 if a == b else at.get((a, b)) for b in names) for a in names),
        "Jaccard index",
        low=0.0,
        high=1.0,
        note=note,
    )
    columns = (
        "Jaccard",
        "by chance",
        "by chance, as a ratio",
        "p",
        "shared heads",
        "heads of A",
        "heads of B",
        "shared, of A",
        "shared, of B (recall)",
        "rank correlation",
    )
    rows = tuple(
        Row(
            f"{arrow(pair.a)} and {arrow(pair.b)}",
            (
                Cell(pair.jaccard),
                Cell(pair.expected_exact),
                Cell(pair.expected),
                p_cell(pair.p_value),
                Cell(pair.intersection),
                Cell(pair.size_a),
                Cell(pair.size_b),
                Cell(pair.conditional.given_a),
                Cell(pair.conditional.given_b),
                Cell(pair.rank_correlation),
            ),
        )
        for pair in pairs
    )
    many = f"; of {len(pairs)} pairs about {below} have p < 0.05 by chance alone" if below else ""
    table = Table(
        "Every two sets, A and B",
        columns,
        rows,
        note="By chance: the exact mean for random sets of these sizes, and the ratio of expected "
        "counts used in the literature. p: random sets share as many heads (hypergeometric)"
        f"{many}. Rank correlation: Spearman, over all heads",
    )
    return (shared, table, *([_overlap_groups(groups)] if groups else []))


def _overlap_groups(groups: Sequence[GroupOverlap]) -> Table:
    rows = tuple(
        Row(
            group.name,
            (
                Cell(group.count),
                Cell(group.jaccard),
                Cell(between(group.lowest, group.highest, 2)),
                Cell(group.expected_exact),
                Cell(group.expected),
                p_cell(group.largest_p),
            ),
        )
        for group in groups
    )
    columns = ("pairs", "mean Jaccard", "range", "by chance", "by chance, as a ratio", "largest p")
    note = "Pairs of a group share directions, so they are not independent"
    return Table("Groups of pairs of directions", columns, rows, note=note)
