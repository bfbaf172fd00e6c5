"""Blocks of a removal: measures under every condition, tests, doses, directions, draws."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import nan
from statistics import fmean
from typing import NamedTuple

from headscope.estimates import Against, Draws, Estimate
from headscope.results.common import REPLACED_BY
from headscope.results.removal import (
    Case,
    Condition,
    Kind,
    Label,
    Measured,
    Part,
    RemovalResult,
    Tested,
    Tokens,
)
from headscope.results.removal import Shown as Removed
from headscope.shown.blocks import (
    Bars,
    Block,
    Cell,
    Lines,
    NotMeasured,
    Row,
    Series,
    Table,
    table_of,
)
from headscope.shown.words import MEAN, between, count, direction_label, enumeration, number
from headscope.studies.comparison import RANDOM, Bar, Compared, Comparison, Scale, bars_of

DRAWN: dict[Kind, str] = {"random": RANDOM[0], "random-layer-matched": RANDOM[1]}
#: Measures of texts beside chrF++ and BLEU: shares of outputs, and scores of models.
RATES = {"off_target": "off target", "source_copy": "source copied", "empty": "empty"}
OTHERS = {"comet": "COMET", "bleurt": "BLEURT"}
#: Random swaps behind a p-value over sentences.
TRIALS = 9999


class Measure(NamedTuple):
    """chrF++ of translations, or the loss of references: where it stands in a result."""

    scale: Scale
    harm: int
    value: Callable[[Measured], float | None]
    than: Callable[[Condition, Kind], Against | None]
    draws: Callable[[Case, Kind], tuple[float, ...]]
    change: Callable[[Condition], Estimate | None]

    def worse(self, case: Case, kind: Kind) -> int:
        """How many draws did as much harm as the selected heads."""
        top = self.value(case.top)
        return sum(top is not None and self.harm * d >= self.harm * top
                   for d in self.draws(case, kind))  # fmt: skip

    def compared(self, part: Part, case: Case, more: Mapping[str, Cell] | None = None) -> Compared:
        """The selected heads of a case beside the original model and random heads."""
        ends = part.interval if self is CHRF else None
        value = self.value(part.baseline)
        free, matched = (Draws.of(values) if (values := self.draws(case, kind)) else None
                         for kind in DRAWN)  # fmt: skip
        tests = [self.than(case.top, kind) if self.draws(case, kind) else None for kind in DRAWN]
        return Compared(
            self.scale,
            self.change(case.top),
            value if value is None or ends is None else Estimate(value, *ends),
            self.value(case.top),
            (free, matched),
            (tests[0], tests[1]),
            more=more or {},
        )

    def as_harmful(self, case: Case, kind: Kind) -> Cell:
        """The same in a table; an empty cell without draws."""
        drawn = len(self.draws(case, kind))
        return Cell(f"{self.worse(case, kind)} of {drawn}" if drawn else None)


CHRF = Measure(Scale("chrF++", unit=""), -1, lambda measured: measured.chrf,
               Condition.than, Case.chrf, lambda condition: condition.change.chrf)  # fmt: skip
LOSS = Scale("loss", "the loss of the reference (NLL, nats a token)", "", 3, to_100=False)
NLL = Measure(LOSS, 1, lambda measured: measured.nll,
              Condition.loss_than, Case.nll, lambda condition: condition.change.nll)  # fmt: skip


def doing(gate: float, ablate: str = "zero") -> str:
    """What is done to heads, such as `removed`."""
    if gate == 0:
        return "removed" if ablate == "zero" else f"replaced by {REPLACED_BY[ablate]}"
    rest = "" if ablate == "zero" else f", the rest {REPLACED_BY[ablate]}"
    return f"at {gate:g} \u00d7 strength{rest}"


# ---- tables of all conditions ------------------------------------------------------------------
def _named(label: Label, words: str = "selected") -> str:
    return f"{label.k} {words}, {doing(label.gate, label.ablate)}"


def _cases(result: RemovalResult) -> list[Case]:
    """The cases of a result, the one that the page speaks of first."""
    main = result.main_case
    return [main, *(case for case in result.cases if case.top is not main.top)]


def texts_table(result: RemovalResult) -> Table:
    """Every measure of texts under every condition."""
    many = len(result.directions)
    mean = f"The plain mean over {many} directions. " if many > 1 else ""
    identifier = None if result.measuring is None else result.measuring.identifier
    by = f" (by {identifier})" if identifier else ""
    note = (
        f"{mean}chrF++ and BLEU from 0 to 100, intervals over sentences. Shares are of outputs: "
        f"off target, in another language than the target{by} or empty; source copied, close to "
        "the source and far from the reference"
    )
    known = [
        ("bleu", "BLEU", 1),
        *((name, words, 1) for name, words in RATES.items()),
        *((name, words, 3) for name, words in OTHERS.items()),
    ]
    measures = [row for row in known if getattr(result.baseline.text, row[0], None) is not None]
    return _conditions(result, CHRF, "Translations under every condition", note, measures)


def losses(result: RemovalResult, tokens: Tokens) -> list[Block]:
    """The loss of references under every condition, and of each kind of token beside random."""
    note = (
        f"NLL in nats a token, teacher-forced: the mean over {result.sentences or 0} sentences of "
        f"each one's mean over its tokens ({number(tokens.total)} in all); lower is better"
    )
    kinds = [table for case in _cases(result) for table in _kinds(case.top, tokens)]
    return [_conditions(result, NLL, "Loss of the reference", note), *kinds]


def _conditions(
    result: RemovalResult,
    measure: Measure,
    title: str,
    note: str,
    more: Sequence[tuple[str, str, int]] = (),
) -> Table:
    """A measure of the original model and under every condition, random draws as means.

    `more` are other measures of texts: their names, words and decimals.
    """
    digits, base = measure.scale.digits, measure.value(result.baseline)

    def others(of: Sequence[Measured]) -> list[Cell]:
        cells = []
        for name, _, decimals in more:
            known = [v for part in of if (v := getattr(part.text, name, None)) is not None]
            mean = fmean(known) if known else None
            cells.append(Cell.share(mean) if name in RATES else Cell(mean, digits=decimals))
        return cells

    loss = result.baseline.loss
    ends = result.interval if measure is CHRF else (loss.nll_low, loss.nll_high) if loss else None
    low, high = ends or (None, None)
    first = Cell(base, low, high, digits=digits)
    rows = [Row("original", (first, Cell(), Cell(), *others([result.baseline])))]
    for case in _cases(result):
        top = case.top
        if (value := measure.value(top)) is None:
            continue
        cells = Cell(value, digits=digits), Cell.of(measure.change(top), digits), Cell()
        rows.append(Row(_named(top.label), (*cells, *others([top]))))
        for kind, words in DRAWN.items():
            if values := measure.draws(case, kind):
                mean = fmean(values)
                row = (
                    Cell(mean, digits=digits),
                    Cell(None if base is None else mean - base, digits=digits),
                    Cell(between(min(values), max(values), digits)),
                    *others(case.draws(kind) if more else ()),
                )
                rows.append(Row(f"{_named(top.label, words)} ({len(values)})", row))
    name = "NLL" if measure is NLL else measure.scale.words
    columns = (name, "change", "range of draws", *(words for _, words, _ in more))
    return Table(
        title, columns, tuple(rows), note=f"{note}. Random heads: the mean of so many draws"
    )


def not_measured(result: RemovalResult) -> list[Block]:
    reasons = {} if result.measuring is None else result.measuring.not_measured
    words = {"chrf": "chrF++", "bleu": "BLEU", **RATES, **OTHERS}
    return [
        NotMeasured(word, reasons.get(name) or "the run does not say why")
        for name, word in words.items()
        if getattr(result.baseline.text, name, None) is None
    ]


def tests_table(result: RemovalResult, measures: Sequence[Measure]) -> Table:
    """Selected minus random in every condition."""
    rows = []
    for measure in measures:
        for case in _cases(result):
            for kind, words in DRAWN.items():
                than, harmful = measure.than(case.top, kind), measure.as_harmful(case, kind)
                if than is not None and harmful.value:
                    cells = (*measure.scale.against(than), harmful, Cell(than.distinct))
                    words = f"{measure.scale.words}: {_named(case.top.label)} \u2212 {words}"
                    rows.append(Row(words, cells))
    return Table(
        "Selected minus random",
        ("difference", "p over sentences", "p over draws", "draws as harmful", "different sets"),
        tuple(rows),
        note="Over sentences, outputs under the selected heads and under a random draw are "
        f"swapped at random, {number(TRIALS)} times. Over draws, p is how often random heads do "
        "at least as much harm: it alone asks whether these heads are special, and is at least "
        "1 / (different sets + 1)",
    )


def _kinds(top: Condition, tokens: Tokens) -> Iterator[Table]:
    """Selected minus random by kind of token; nothing without random heads."""

    def against(kind: Kind, name: str) -> Against | None:
        than, kinds = top.loss_than(kind), top.kinds_than(kind)
        if than is None or kinds is None or not than.distinct:
            return None
        test: Tested | None = getattr(kinds, name, None)
        if test is None:  # of all tokens
            return than
        return Against(test, test.p_sentences, test.p_draws, than.distinct)

    named = {
        "all tokens": ("total", tokens.total),
        "first token of a linked word": ("linked", tokens.linked),
        "later tokens of a linked word": ("linked_later", tokens.linked_later),
        "unlinked tokens": ("unlinked", tokens.unlinked),
        "first \u2212 unlinked": ("linked_minus_unlinked", None),
    }
    rows = {
        words: Compared(
            LOSS,
            tests=(against("random", name), against("random-layer-matched", name)),
            more={"tokens": Cell(many)},
        )
        for words, (name, many) in named.items()
    }
    if any(test for row in rows.values() for test in row.tests):
        note = (
            "Heads that align are needed at the first token of a linked word; its later tokens "
            "follow from it. First tokens are harder than others, so any greater harm may widen "
            "the last difference. Empty: no such tokens"
        )
        yield Comparison(rows).table(f"Loss by kind of token, {_named(top.label)}", note)


# ---- figures -----------------------------------------------------------------------------------
def chrf_bars(title: str, parts: Mapping[str, Part], main: tuple[int, float, str]) -> Bars:
    """chrF++ of the original model, with selected heads changed, and with random ones, by part.

    Bars of random heads have their single draws.
    """
    bars = _by_part(parts, main).bars(
        title, note="The interval of selected heads is that of their change"
    )
    kinds = [kind for kind, words in DRAWN.items() if words in bars.series]
    return replace(bars, series=_series(main, kinds))


def _by_part(parts: Mapping[str, Part], main: tuple[int, float, str]) -> Comparison:
    rows = {}
    for name, part in parts.items():
        more = {"sentences": Cell(part.sentences)}
        if (case := part.case(*main)) is None:
            ends = part.interval or (nan, nan)
            level = None if part.chrf is None else Estimate(part.chrf, *ends)
            row = Compared(CHRF.scale, original=level, more=more)
        else:
            more["draws as harmful"] = CHRF.as_harmful(case, "random")
            row = CHRF.compared(part, case, more)
        rows[direction_label(name, len(parts) - 1)] = row
    return Comparison(rows)


def _series(main: tuple[int, float, str], kinds: Sequence[Kind]) -> tuple[str, ...]:
    k, done = main[0], doing(*main[1:])
    return "original", *(f"{k} {words}, {done}" for words in ("selected", *map(DRAWN.get, kinds)))


def broken_outputs(result: RemovalResult) -> list[Block]:
    """Shares of broken outputs, those that occur at all."""
    case = result.main_case
    kinds = [kind for kind in DRAWN if case.draws(kind)]
    of: list[Sequence[Measured]] = [[result.baseline], [case.top], *map(case.draws, kinds)]
    shares = {
        words: [
            [share for made in each if (share := getattr(made.text, name, None)) is not None]
            for each in of
        ]
        for name, words in RATES.items()
    }
    known = {words: each for words, each in shares.items() if any(each)}
    groups: dict[str, dict[str, Bar]] = {
        words: {
            series: (fmean(values) if values else None, values if at > 1 else ())
            for at, (series, values) in enumerate(
                zip(_series(result.main, kinds), each, strict=True)
            )
        }
        for words, each in known.items()
        if any(map(any, each))
    }
    if not groups:
        return []
    never = [words for words in known if words not in groups]
    note = f"Under no condition: {enumeration(never)}" if never else ""
    return [bars_of("Broken outputs", groups, Scale("share of outputs"), note=note)]


def curves(result: RemovalResult) -> list[Block]:
    """chrF++ over k for each gate, and over gates for each k, where there are several."""
    made: list[Block] = []
    if len(result.k) > 1:
        for gate in (gate for gate in result.gates if gate != 1):
            doses = [(float(k), k, gate) for k in sorted(result.k)]
            done = doing(gate, result.ablate)
            made.append(
                _curve(result, f"chrF++ by number of heads {done}", doses, 0, f"heads {done}")
            )
    if len(result.gates) > 1:
        for k in result.k:
            doses = [(gate, k, gate) for gate in sorted(result.gates)]
            title = f"chrF++ by strength of {count(k, 'head')}"
            made.append(_curve(result, title, doses, 1, "strength (0: removed, 1: original)"))
    return made


def _curve(
    result: RemovalResult,
    title: str,
    doses: Sequence[tuple[float, int, float]],
    untouched: float,
    x: str,
) -> Lines:
    """Lines of selected and random heads over doses (x, heads, gate)."""
    sizes = len({k for _, k, _ in doses}) > 1
    note = "Larger sets hold the smaller ones, so points are no independent tests" if sizes else ""
    base, ring = result.chrf, result.interval
    start = [] if base is None else [(untouched, base, *(ring or (base, base)))]
    lines = {"selected": list(start)}
    for at, k, gate in doses:
        case = result.case(k, gate, result.ablate)
        if case is None:
            continue
        if (top := case.top.chrf) is not None:
            lines["selected"].append((at, top, *(result.interval_of(case.top) or (top, top))))
        for kind, words in DRAWN.items():
            if values := case.chrf(kind):
                point = (at, fmean(values), min(values), max(values))
                own = [] if base is None else [(untouched, base, base, base)]
                lines.setdefault(words, own).append(point)
    return Lines(
        title,
        tuple(
            Series(
                name,
                tuple((at, y) for at, y, *_ in sorted(points)),
                tuple(low for *_, low, _ in sorted(points)),
                tuple(high for *_, high in sorted(points)),
            )
            for name, points in lines.items()
        ),
        x,
        "chrF++",
        band="95\u00a0% intervals of the change (selected) and ranges of draws (random)",
        note=note,
    )


# ---- directions and draws ----------------------------------------------------------------------
def direction_blocks(
    result: Removed, main: tuple[int, float, str]
) -> tuple[tuple[Block, ...], str]:
    """chrF++ of every direction and their mean, as bars and as a table; and a sentence on them."""
    directions = result.directions
    parts: dict[str, Part] = {MEAN: result} if len(directions) > 1 else {}
    parts |= directions
    exact = replace(CHRF.scale, digits=2)
    rows = {name: replace(row, scale=exact) for name, row in _by_part(parts, main).rows.items()}
    title = "chrF++ by direction" if len(directions) > 1 else "chrF++"
    table = Comparison(rows).table(
        f"{title}: values and intervals",
        "Random: the mean of draws. Directions share heads and subjects, so they are no "
        "independent tests",
    )
    cases = [part.case(*main) for part in directions.values()]
    drawn = any(case is not None and case.chrf("random") for case in cases)
    beaten = sum(case is not None and CHRF.worse(case, "random") == 0 for case in cases)
    lead = (
        f"In {beaten} of {count(len(directions), 'direction')} the selected heads did more harm "
        "than every random draw."
        if drawn and len(directions) > 1
        else ""
    )
    return (chrf_bars(title, parts, main), table), lead


def draws_table(case: Case) -> Table:
    """The random draws of a case: their heads, and what they did."""
    columns: dict[str, Callable[[Condition], Cell | float | str | None]] = {
        "chrF++": lambda draw: Cell(draw.chrf, digits=2)
    }
    if any(draw.nll is not None for draw in case.drawn):
        columns["NLL"] = lambda draw: draw.nll
    columns["heads"] = lambda draw: " ".join(draw.heads or ())
    rows = [(f"{DRAWN[draw.label.kind]}, {draw.label.draw}", draw) for draw in case.drawn]
    return table_of("Random draws", rows, columns)
