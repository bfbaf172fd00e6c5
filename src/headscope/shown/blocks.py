"""What a run shows, as plain values: a finding, and sections of tables, maps, figures and texts.

A study makes them of its result; page, terminal and notebook draw them. A paper writes its tables
and figures into its result, so their fields are names in JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isnan
from typing import Any, TypeVar

from headscope.shown.words import count, fixed, in_power, power_of

Named = TypeVar("Named")

#: Of a field that results leave out where it has its default.
SPARED = {"spared": True}

#: The column that counts random sets which do at least as much as the selected heads.
AS_MUCH = "sets that do as much"

#: What stands in a cell whose run has not been made.
NOT_RUN = "not run"

#: Numbers, rows by columns; None where there is none.
Values = tuple[tuple[float | None, ...], ...]


@dataclass(frozen=True)
class Cell:
    """One figure of a table: ours with its 95 % interval, and the published one.

    `value` is a number, a word or a text, or None where there is none; `why` then says
    why (`not run`). `published` is the paper's figure for the table's reference model, and
    `difference` ours minus it where the two may be compared. `unit` follows the number, such as %;
    `link` is a file below the run folder that it names; a number below `least` is written as that
    bound, `< 0.001`.
    """

    value: float | str | None = None
    low: float | None = None
    high: float | None = None
    published: float | str | None = None
    why: str | None = None
    digits: int = 3
    difference: float | None = None
    unit: str = field(default="", metadata=SPARED)
    link: str = field(default="", metadata=SPARED)
    least: float | None = field(default=None, metadata=SPARED)

    @property
    def words(self) -> str:
        """The value as it is read; empty where there is none."""
        match self.value:
            case None:
                return ""
            case float() as number if self.least is not None and number < self.least:
                return f"< {self.least:g}"
            case str() as words:
                return words
            case number:
                return fixed(number, 0 if isinstance(number, int) else self.digits)

    def __post_init__(self) -> None:
        if self.value is not None:  # what is there needs no reason for its absence
            object.__setattr__(self, "why", None)

    @classmethod
    def of(cls, estimate: Any, digits: int = 3, unit: str = "", factor: float = 1.0) -> Cell:
        """Of what has a value (or a mean), `low` and `high`, each times `factor`; NaN is none.

        None gives an empty cell.
        """
        if estimate is None:
            return cls()
        value = getattr(estimate, "value", None)
        value = estimate.mean if value is None else value
        numbers = [
            None if number is None or isnan(number) else factor * number
            for number in (value, estimate.low, estimate.high)
        ]
        return cls(numbers[0], numbers[1], numbers[2], digits=digits, unit=unit)

    @classmethod
    def share(cls, share: float | None, digits: int = 1) -> Cell:
        """A share as per cent."""
        return cls(None if share is None else 100 * share, digits=digits, unit="%")


def p_cell(p: float | None) -> Cell:
    """A p-value; three decimals, or that it is below what they show."""
    return Cell(p, least=0.001)


@dataclass(frozen=True)
class Row:
    """A row: its name and its cells, one a column."""

    name: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Reference:
    """Where the published values of a table come from, and whether ours may be compared.

    `comparable` is whether model, data, prompt, decoding, measure and its tokenisation are the
    paper's; `why` says what differs otherwise, such as `not comparable: other model; our prompt`.
    """

    source: str
    model: str
    comparable: bool
    why: str = ""


@dataclass(frozen=True)
class Table:
    """A table: columns without that of the names, rows, and where published values come from."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    reference: Reference | None = None
    note: str = ""

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row.cells) != len(self.columns):
                raise ValueError(
                    f"{self.title}: the row {row.name!r} has {len(row.cells)} cells, "
                    f"and there are {len(self.columns)} columns"
                )


def in_powers(table: Table) -> Table:
    """The table with columns in powers of ten where their decimals would show zeros alone."""
    columns, rows = list(table.columns), [list(row.cells) for row in table.rows]
    for at, column in enumerate(columns):
        cells = [row[at] for row in rows]
        numbers = [
            abs(number)
            for cell in cells
            for number in (cell.value, cell.low, cell.high, cell.published)
            if isinstance(number, (float, int))
        ]
        digits = max((cell.digits for cell in cells), default=0)
        power = power_of(max(numbers, default=0.0), 0.5 * 10.0**-digits)
        if power and not any(cell.unit or cell.least for cell in cells):
            columns[at] = in_power(column, power)
            for row in rows:
                row[at] = _times(row[at], 10.0**-power)
    made = (replace(row, cells=tuple(cells)) for row, cells in zip(table.rows, rows, strict=True))
    return replace(table, columns=tuple(columns), rows=tuple(made))


def _times(cell: Cell, factor: float) -> Cell:
    value, published = (
        number * factor if isinstance(number, float) else number
        for number in (cell.value, cell.published)
    )
    low, high, difference = (
        None if number is None else number * factor
        for number in (cell.low, cell.high, cell.difference)
    )
    return Cell(value, low, high, published, cell.why, 3, difference, cell.unit, cell.link)


#: A cell, or what is in it.
Content = Cell | float | str | None


def table_of(
    title: str,
    rows: Iterable[tuple[str, Named]],
    columns: Mapping[str, Callable[[Named], Content]],
    note: str = "",
) -> Table:
    """A table with a row for each thing under its name; of each column what its cell holds."""

    def cell(value: Content) -> Cell:
        return value if isinstance(value, Cell) else Cell(value)

    made = (Row(name, tuple(cell(of(row)) for of in columns.values())) for name, row in rows)
    return Table(title, tuple(columns), tuple(made), note=note)


def one_column(
    title: str, column: str, rows: Iterable[tuple[str, Content]], note: str = ""
) -> Table:
    """A table of names with one thing each."""
    return table_of(title, rows, {column: lambda content: content}, note)


def grid(
    title: str,
    rows: Iterable[str],
    columns: Iterable[str],
    cell: Callable[[str, str], Cell],
    reference: Reference | None = None,
    note: str = "",
) -> Table:
    """A table whose cells follow from the names of their row and their column."""
    names = tuple(columns)
    made = tuple(Row(row, tuple(cell(row, column) for column in names)) for row in rows)
    return Table(title, names, made, reference, note)


@dataclass(frozen=True)
class Heatmap:
    """A field of numbers, rows by columns; None is left empty. `scale` names the number.

    `low` and `high` are the ends of the colours, `lowest` and `highest` the intervals of the cells.
    """

    title: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    values: Values
    scale: str
    row_axis: str = ""
    column_axis: str = ""
    low: float | None = None
    high: float | None = None
    diverging: bool = False
    digits: int = 2
    note: str = ""
    kind: str = field(default="heatmap", init=False)
    lowest: Values = field(default=(), metadata=SPARED)
    highest: Values = field(default=(), metadata=SPARED)

    def __post_init__(self) -> None:
        for values in (self.values, self.lowest or self.values, self.highest or self.values):
            _check_shape(self.title, values, self.rows, self.columns)


@dataclass(frozen=True)
class Series:
    """A line: (x, y) points, and an interval of each where there is one."""

    name: str
    points: tuple[tuple[float, float], ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()

    @property
    def band(self) -> tuple[tuple[float, float, float], ...]:
        """x with both ends of its interval; empty where there are none."""
        rows = zip(self.points, self.low, self.high, strict=False)
        return tuple((x, low, high) for (x, _), low, high in rows)

    @classmethod
    def of(cls, name: str, points: Iterable[tuple[float, Any]]) -> Series:
        """Of x and a mean with its `low` and `high` there."""
        known = list(points)
        return cls(
            name,
            tuple((x, mean.value if hasattr(mean, "value") else mean.mean) for x, mean in known),
            tuple(mean.low for _, mean in known),
            tuple(mean.high for _, mean in known),
        )

    def __post_init__(self) -> None:
        for ends in (self.low, self.high):
            if (self.low or self.high) and len(ends) != len(self.points):
                raise ValueError(f"{self.name}: {len(ends)} ends for {len(self.points)} points")


@dataclass(frozen=True)
class Lines:
    """Lines over one axis; x and y may be logarithmic. `labels` are words at some x.

    `references` are names and values of y that lines are compared with, such as chance.
    """

    title: str
    series: tuple[Series, ...]
    x: str
    y: str
    logarithmic: bool = False
    note: str = ""
    kind: str = field(default="lines", init=False)
    logarithmic_y: bool = field(default=False, metadata=SPARED)
    labels: tuple[tuple[float, str], ...] = field(default=(), metadata=SPARED)
    band: str = field(default="95\u00a0% intervals", metadata=SPARED)
    references: tuple[tuple[str, float], ...] = field(default=(), metadata=SPARED)


@dataclass(frozen=True)
class Bars:
    """Bars by group: `values[i][j]` is of group i and series j, with intervals where known.

    `draws[i][j]` are single values that the bar is the mean of, such as random draws; the axis goes
    from `start` to `end`, or as far as the values do.
    """

    title: str
    groups: tuple[str, ...]
    series: tuple[str, ...]
    values: Values
    y: str
    low: Values = ()
    high: Values = ()
    digits: int = 1
    note: str = ""
    kind: str = field(default="bars", init=False)
    draws: tuple[tuple[tuple[float, ...], ...], ...] = field(default=(), metadata=SPARED)
    start: float | None = field(default=None, metadata=SPARED)
    end: float | None = field(default=None, metadata=SPARED)

    def __post_init__(self) -> None:
        for values in (self.values, self.low or self.values, self.high or self.values):
            _check_shape(self.title, values, self.groups, self.series)


@dataclass(frozen=True)
class Gap:
    """Selected heads minus a control, with its 95 % interval, and minus each single draw of it.

    Of another difference, which the figure's title names, the control is empty.

    `as_far` is how many draws do at least as much, such as `0 of 19`; empty where none were
    counted. `levels` are the original, the selected heads and the mean of the draws; empty where
    the differences stand alone.
    """

    control: str
    value: float
    low: float | None = None
    high: float | None = None
    draws: tuple[float, ...] = ()
    as_far: str = ""
    levels: tuple[float | None, ...] = field(default=(), metadata=SPARED)


@dataclass(frozen=True)
class Forest:
    """Differences around a line at zero: rows with a name and a gap for each control.

    `x` names the number with its unit; `sides` are words for below and for above zero; `over` is
    what intervals are over.
    """

    title: str
    rows: tuple[tuple[str, tuple[Gap, ...]], ...]
    x: str
    sides: tuple[str, str] = ("", "")
    digits: int = 1
    note: str = ""
    kind: str = field(default="forest", init=False)
    over: str = field(default="examples", metadata=SPARED)

    @property
    def axis(self) -> str:
        """The number with its unit; what its intervals are over, if it has any, and what not."""
        gaps = [gap for _, row_gaps in self.rows for gap in row_gaps]
        if all(gap.low is None for gap in gaps):
            return self.x
        but = ", not over random sets" * any(gap.as_far and gap.draws for gap in gaps)
        return f"{self.x}; 95\u00a0% intervals over {self.over}{but}"

    @property
    def controls(self) -> tuple[str, ...]:
        """The controls, each once."""
        return tuple(dict.fromkeys(gap.control for _, gaps in self.rows for gap in gaps))


Figure = Heatmap | Lines | Bars | Forest

#: A head: its layer, and its index among the layer's query heads.
HeadPlace = tuple[int, int]


@dataclass(frozen=True)
class HeadMap:
    """One number for every head of a model: `values[layer][head]`, None where it is not known.

    `marked` heads carry a dot, `signs` a letter or two; `words` are said of a head by pointer,
    besides its number.
    """

    name: str
    values: Values
    marked: tuple[HeadPlace, ...] = ()
    signs: tuple[tuple[HeadPlace, str], ...] = ()
    words: tuple[tuple[HeadPlace, str], ...] = ()


@dataclass(frozen=True)
class HeadMaps:
    """Maps of all heads on one common scale, from `low` to `high` or as far as the values go.

    `scale` names the number, `marked` says what a dot means; `tick` is a value that is pointed out
    on the scale, with its word.
    """

    title: str
    maps: tuple[HeadMap, ...]
    scale: str
    low: float | None = 0.0
    high: float | None = None
    diverging: bool = False
    digits: int = 3
    marked: str = ""
    note: str = ""
    tick: tuple[float, str] | None = None


@dataclass(frozen=True)
class Column:
    """One number that a table of heads has of every head; `meaning` is said by pointer."""

    key: str
    title: str
    meaning: str = ""
    digits: int = 3


@dataclass(frozen=True)
class HeadTable:
    """Every head with its numbers: a map, a ranking that can be sorted, and means of layers.

    Attributes:
        heads: every head of the model, layer by layer.
        columns: what is known of a head; the first is drawn. The keys `low` and `high` are its
            interval, and `chance` what chance gives of a `score`; other keys mean nothing here.
        parts: what the numbers are of (a direction, a language, `mean`): `parts[name][key]` has a
            number or None for each head.
        ranked_by: the key of the column that heads are ranked by.
        threshold: heads above it in that column carry a dot; None: none do.
        significant: without a threshold, heads carry a dot whose interval lies above chance, or
            above 0 where chance is not known.
        classes: names of the classes of heads with the value above which a head is of the class,
            highest first; the last has none.
        high: the end of the colours, common to all parts; None: the highest value.
        band: what `low` and `high` are the ends of.
        signed: the first column is an effect of either sign, so heads are ranked by its size.
    """

    title: str
    heads: tuple[HeadPlace, ...]
    columns: tuple[Column, ...]
    parts: Mapping[str, Mapping[str, Sequence[float | None]]]
    ranked_by: str = "score"
    threshold: float | None = None
    significant: bool = False
    classes: tuple[tuple[str, float | None], ...] = ()
    high: float | None = None
    note: str = ""
    band: str = "95\u00a0% interval"
    signed: bool = False

    def dots(self, part: str) -> list[bool]:
        """Which heads of a part carry a dot."""
        numbers, none = self.parts[part], [None] * len(self.heads)
        if self.threshold is not None:
            return [(value or 0.0) > self.threshold for value in numbers[self.ranked_by]]
        if not self.significant:
            return [False] * len(self.heads)
        chance = numbers.get("chance", none) if self.beside_chance else none
        lows, highs = numbers.get("low", none), numbers.get("high", none)
        return [
            low is not None
            and (low > max(chance or 0.0, 0.0) or (self.signed and high is not None and high < 0))
            for low, high, chance in zip(lows, highs, chance, strict=True)
        ]

    def size(self, value: float | None) -> float:
        """What heads are ranked by, of their number in the column `ranked_by`."""
        return abs(value or 0.0) if self.signed else value or 0.0

    @property
    def beside_chance(self) -> bool:
        """Whether the first column is to be compared with chance, which is not yet taken off."""
        return self.columns[0].key == "score"

    def ranked(self, part: str | None = None) -> list[int]:
        """Indices of heads, highest first, ties in their order; of a part, or of the first."""
        values = self.parts[part or next(iter(self.parts))][self.ranked_by]
        return sorted(range(len(self.heads)), key=lambda at: -self.size(values[at]))


@dataclass(frozen=True)
class HeadSets:
    """Sets of heads by name, best first, to be copied as `--heads` takes them."""

    title: str
    sets: Mapping[str, Sequence[HeadPlace]]
    note: str = ""


@dataclass(frozen=True)
class Histogram:
    """How many examples lie between one edge and the next; `line` is an upright one: a cut."""

    name: str
    edges: tuple[float, ...]
    counts: tuple[int, ...]
    note: str = ""
    line: float | None = None


@dataclass(frozen=True)
class Histograms:
    """Histograms on common axes; `counted` is one of what they count."""

    title: str
    panels: tuple[Histogram, ...]
    x: str
    counted: str = "document"
    note: str = ""


@dataclass(frozen=True)
class LinkedWords:
    """Words of a source and of a text, in characters; `links` are pairs of places."""

    source: tuple[tuple[int, int], ...]
    other: tuple[tuple[int, int], ...]
    links: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Sentence:
    """A sentence, and by condition its output, its score where known, and its word links.

    `linked` may hold the condition `reference`, too. Where failures are sorted, sentences stand by
    `kind`, and `evidence` says in sentences why: words that are `made` stand in the
    last output and nothing backs them, `missing` ones stand in a good translation alone.
    """

    direction: str
    id: str
    source: str
    reference: str
    outputs: Mapping[str, str]
    chrf: Mapping[str, float] = field(default_factory=dict)
    linked: Mapping[str, LinkedWords] = field(default_factory=dict)
    kind: str = ""
    evidence: Sequence[str] = ()
    made: Sequence[str] = ()
    missing: Sequence[str] = ()


@dataclass(frozen=True)
class Sentences:
    """Sentences with outputs side by side, to be searched, sorted and read ten at a time.

    `labels` are the words of each condition, in order; the first two are before and after. `links`
    says who linked the words: an aligner, `reference` (as the reference's own), or None; `note`
    says more of them.
    """

    title: str
    sentences: tuple[Sentence, ...]
    labels: Mapping[str, str]
    links: str | None = None
    note: str = ""


@dataclass(frozen=True)
class PeakSentence:
    """A sentence pair, and where a head looks while it predicts (or reads) the target.

    Attributes:
        part: what the pair is of, such as a direction.
        words: spans of the source's words, in characters.
        tokens: spans of the target's tokens, in characters; empty for one that shows none.
        peaks: of each token the word that the head's peak lies on, -1 for none.
        hit: of each token whether that is a hit, None where it has no link that counts.
        hits, of: hits among the tokens that count.
    """

    part: str
    id: str
    source: str
    target: str
    words: tuple[tuple[int, int], ...]
    tokens: tuple[tuple[int, int], ...]
    peaks: tuple[int, ...]
    hit: tuple[bool | None, ...]
    hits: int
    of: int


@dataclass(frozen=True)
class HeadSentences:
    """Sentences of a few heads with their peaks; the page's chosen head is shown.

    `heads` are best first, and so are the sentences of each. `command` opens a head in the
    explorer: words before the name of the head, which ends it.
    """

    title: str
    heads: Mapping[HeadPlace, Sequence[PeakSentence]]
    command: str
    note: str = ""


@dataclass(frozen=True)
class KeyText:
    """A prompt and an answer, shaded by the attention that key words get at each step.

    Attributes:
        prompt: the text.
        words: the key words, each with its spans in the prompt, in characters.
        answer: the text that was written.
        steps: spans of the answer's tokens, in characters; empty: one step, no answer.
        heads: heads in the order of the arrays, best first.
        attention: (steps, heads, words); `mass` and `even`, (steps, heads): of all words together,
            and were attention spread evenly.
    """

    title: str
    prompt: str
    words: tuple[tuple[str, tuple[tuple[int, int], ...]], ...]
    answer: str
    steps: tuple[tuple[int, int], ...]
    heads: tuple[HeadPlace, ...]
    attention: Any
    mass: Any
    even: Any
    note: str = ""


@dataclass(frozen=True)
class Text:
    """Texts under names, as they are, such as a prompt and what was written.

    A page shows the first of many, or of `folded` ones none, before they are unfolded.
    """

    title: str
    texts: tuple[tuple[str, str], ...]
    note: str = ""
    folded: bool = False


@dataclass(frozen=True)
class NotMeasured:
    """What is missing, and why."""

    title: str
    why: str


Block = (
    Table
    | Figure
    | HeadMaps
    | HeadTable
    | HeadSets
    | Histograms
    | Sentences
    | HeadSentences
    | KeyText
    | Text
    | NotMeasured
)


@dataclass(frozen=True)
class Section:
    """Blocks under a heading.

    Attributes:
        title: the heading, with `kicker` above it.
        blocks: in order.
        lead: what they show, before them.
        brief: it is shown in the terminal, too.
        after: paragraphs below the blocks, such as what the figures rest on.
        traced: the runs behind it.
        compact: its blocks stand in two columns on paper, as those of a paper's experiment.
        folded: a page shows its title alone until it is opened, and does not lead to it.
    """

    title: str
    blocks: Sequence[Block]
    lead: str = ""
    brief: bool = False
    after: Sequence[str] = ()
    traced: str = ""
    kicker: str = ""
    compact: bool = False
    folded: bool = False


#: The section that says how it was measured, last on a page and folded.
METHOD = "Method"


def method_section(words: str) -> Section:
    """How it was measured, in words alone."""
    return Section(METHOD, (), words)


@dataclass(frozen=True)
class Next:
    """What decides what a run leaves open.

    Attributes:
        command: as it is typed.
        minutes: about how many it takes; None: not known.
    """

    command: str
    minutes: float | None = None

    @property
    def words(self) -> str:
        """What it is, with the time that it takes: `Next, about 6 minutes`."""
        if self.minutes is None:
            return "Next"
        if self.minutes < 1:
            return "Next, less than a minute"
        hours = self.minutes >= 90
        number = max(2, round(self.minutes / 60)) if hours else round(self.minutes)
        return f"Next, about {count(number, 'hour' if hours else 'minute')}"


#: The fact that says what prompts went through, which a terminal shows, too.
PROMPT = "prompt"


@dataclass(frozen=True)
class Shown:
    """What a run found, the answer first.

    Attributes:
        title: of the study.
        lead: the question, in a sentence.
        finding: the answer, and at most a sentence with its numbers; with `uncertainty` not more
            than 45 words.
        uncertainty: what the finding rests on, in one line, and what makes it small.
        remedy: the option that reduces it, such as `--limit 500`.
        next: the command that goes on where the finding is open.
        cautions: what makes the finding weak, a sentence each.
        facts: names and words next to the title.
        sections: all else, in order. On a page with a figure their tables are folded.
        figure: the one figure that shows the answer, beside it.
        warning: why nothing here may be worth much, before the answer.
        muted: nothing here is worth much, so answer and figure are drawn pale.
    """

    title: str
    lead: str
    finding: Sequence[str]
    uncertainty: str = ""
    remedy: str = ""
    cautions: Sequence[str] = ()
    facts: Sequence[tuple[str, str]] = ()
    sections: Sequence[Section] = ()
    figure: Block | None = None
    warning: str = ""
    muted: bool = False
    next: Next | None = None

    @property
    def blocks(self) -> Sequence[Block]:
        """All blocks, the figure first."""
        own = [] if self.figure is None else [self.figure]
        return [*own, *(block for section in self.sections for block in section.blocks)]


def _check_shape(title: str, values: Values, rows: Sequence[str], columns: Sequence[str]) -> None:
    """ValueError unless there is a value for each row and each column."""
    if [len(row) for row in values] != [len(columns)] * len(rows):
        raise ValueError(f"{title}: the values are not {len(rows)} rows of {len(columns)}")


#: What may be said of a claim.
VERDICTS = ("holds", "does not hold", "open", "not measured")


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A claim of a paper, and what became of it on this model.

    Attributes:
        key: its name in the paper's list of claims.
        short: what it is about, in three words at most.
        name: the claim.
        says: what the paper says, with its figures, in other words than its own.
        place: where it says so.
        changes: what might change the verdict.
        experiments: those that measure it, by name, in the order in which they are read.
        by: what was measured here; empty: nothing.
        holds: whether it holds here; None where the measurement leaves it open.
        sure: what was tested.
        p: that its effects are there, by their intervals, the largest; before Holm, as all p.
        p_against: that they fall short of what is claimed.
        p_draws: over random sets; None where the claim is about no heads.
        least_p: the least that it could be.
        rank: how many random sets do as much.
        note: what stricter controls say, which the paper has not and which decide nothing.
        decides: why it is open.
    """

    key: str
    short: str = ""
    name: str
    says: str = ""
    place: str = ""
    changes: str = ""
    experiments: tuple[str, ...] = ()
    by: str = ""
    holds: bool | None = None
    sure: str = ""
    p: float | None = None
    p_against: float | None = None
    p_draws: float | None = None
    least_p: float | None = None
    rank: str = ""
    note: str = ""
    decides: str = ""

    @property
    def measured(self) -> bool:
        """Whether anything was measured of it."""
        return bool(self.by)

    @property
    def verdict(self) -> str:
        """One of `VERDICTS`."""
        if not self.measured:
            return "not measured"
        return "open" if self.holds is None else VERDICTS[not self.holds]


@dataclass(frozen=True)
class Findings:
    """What an experiment shows on this model.

    `found` says it in one to three sentences with its figures, `sure` its uncertainty: intervals,
    controls, what was not controlled. Both are empty where nothing was run.
    """

    tables: Sequence[Table] = ()
    figures: Sequence[Figure] = ()
    found: str = ""
    sure: str = ""
    more: dict[str, Any] = field(default_factory=dict)
