"""What a removal did to the measures, how sure that is, and what random heads did."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean

from headscope.estimates import Against
from headscope.report.charts import BarRow, bar_rows
from headscope.report.html import Html, join, tag
from headscope.report.parts import figure, scroll, section, table
from headscope.report.records.outputs import MATCHED, RANDOM
from headscope.report.sections.effects import axis_end
from headscope.results.removal import Case, Kind, Part, RemovalResult, Texts
from headscope.shown.words import between, count, enumeration, fixed, number, p_value, signed

__all__ = ["DRAWN", "doing", "effect_section", "kinds_section", "tests_section"]

DRAWN: dict[Kind, str] = {RANDOM: "random heads", MATCHED: "random heads of the same layers"}
MARKS: dict[Kind, str] = {RANDOM: "key-random", MATCHED: "key-matched"}
TRIALS = 9999
"""Random swaps behind a p-value over sentences."""

NAMES = {
    "chrf": "chrF++",
    "bleu": "BLEU",
    "off_target": "Off target",
    "source_copy": "Source copied",
    "empty": "Empty",
    "comet": "COMET",
    "bleurt": "BLEURT",
}
RATES = ("off_target", "source_copy", "empty")
NEVER = dict(zip(RATES, ("off target", "a copy of the source", "empty"), strict=True))


def doing(gate: float, ablate: str = "zero") -> str:
    """What is done to heads, such as `removed`."""
    if gate == 0:
        return "removed" if ablate == "zero" else "replaced by their mean output"
    return f"at {gate:g} \u00d7 their strength"


def effect_section(result: RemovalResult) -> Html:
    """Bars of chrF++, shares of broken outputs, and the table of all measures."""
    case, k, done = result.main_case, result.main[0], doing(*result.main[1:])
    return section(
        "effect",
        "What removing them does",
        figure("effect-figure", _caption(result), _bars(result, case, k, done)),
        _rates(result, case, k, done),
        figure(
            "measures",
            _table_caption(result),
            scroll("Measures by condition", _table(result, case, k, done)),
        ),
    )


def tests_section(result: RemovalResult) -> Html:
    """How sure it is: differences to random heads with intervals, and p-values in words."""
    case = result.main_case
    rows = []
    for kind, words in DRAWN.items():
        if case.draws(kind):
            than = case.top.than(kind)
            ps = (None, None) if than is None else (than.p_examples, than.p_draws)
            rows.append((f"against {words}", _gap(than), *map(_p, ps), _drawn(case, kind)))
    header = ("Highest heads", "chrF++ lower by", "p over sentences", "p over draws", "Draws")
    shown = table("The highest heads against random ones", header, rows, class_="numbers")
    return section(
        "tests",
        "How sure it is",
        figure("tests-figure", _tests_caption(result), scroll("Tests", shown)),
    )


def kinds_section(result: RemovalResult) -> Html | None:
    """Zero ablation beside mean ablation, of the same heads and draws; None with one kind."""
    if len(result.ablations) < 2:
        return None
    k, gate, _ = result.main
    rows = []
    for ablate in result.ablations:
        case = result.case(k, gate, ablate)
        if case is None:
            continue
        than = case.top.than(RANDOM)
        against = (_gap(than), _p(None if than is None else than.p_draws))
        spans = [_span(case.chrf(kind)) for kind in DRAWN]
        rows.append((ablate, fixed(case.top.chrf, 1), *spans, *against, _drawn(case, RANDOM)))
    header = ("Heads give", f"{k} highest", *(words.capitalize() for words in DRAWN.values()))
    header += ("Lower than random heads by", "p over draws", "Draws")
    caption = join(
        tag("strong", "chrF++ by what a removed head gives. "),
        f"Zero, or its mean output over other examples; the same {count(k, 'head')} and the same "
        f"draws. As is: {fixed(result.chrf, 1)}. Random heads show their mean, "
        "with the lowest and highest draw. What zero destroys and the mean does not is an effect "
        "of leaving the range the model was trained in.",
    )
    shown = table("Zero and mean ablation", header, rows, class_="numbers")
    return section(
        "kinds", "Zero and mean", figure("kinds-figure", caption, scroll("Zero and mean", shown))
    )


def _span(values: Sequence[float]) -> str:
    if not values:
        return "not computed"
    return f"{fixed(fmean(values), 1)} ({between(min(values), max(values), 1)})"


def _bars(part: Part, case: Case, k: int, done: str) -> Html:
    rows = [BarRow("as is", part.chrf, "key-base", interval=part.interval)]
    for kind, mark in MARKS.items():
        if case.draws(kind):
            values = case.chrf(kind)
            mean = fmean(values) if values else None
            rows.append(BarRow(f"{k} {DRAWN[kind]} {done}", mean, mark, values))
    interval = part.interval_of(case.top)
    rows.append(BarRow(f"{k} highest heads {done}", case.top.chrf, "key-top", interval=interval))
    ends = [value for row in rows for value in (row.value, *row.points, *(row.interval or ()))]
    return bar_rows(rows, axis_end(value for value in ends if value is not None))


def _caption(result: RemovalResult) -> Html:
    case, many = result.main_case, len(result.directions)
    mean = f"the plain mean over {many} directions, " if many > 1 else ""
    on = f" on {count(result.sentences, 'sentence')}" if result.sentences else ""
    drawn = enumeration(
        [
            f"{count(len(case.draws(kind)), 'draw')} of {words}"
            for kind, words in DRAWN.items()
            if case.draws(kind)
        ]
    )
    change = case.top.change.chrf
    sure = ""
    if change is not None and change.bounded:
        sure = (
            f" The highest heads change chrF++ by {signed(change.value)} "
            f"(95\u00a0% interval {signed(change.low)} to {signed(change.high)})."
        )
    return join(
        tag("strong", "Translation quality with the heads in place and without them. "),
        f"chrF++ (0 to 100, higher is better), {mean}measured{on}.{sure} Whiskers are 95\u00a0% "
        "intervals from resampling sentences, for the highest heads that of the change; they say "
        "how far the figure depends on these sentences. ",
        f"Bars of random heads are the mean of {drawn}, every mark is one draw: how far they lie "
        "apart says how much it matters which heads are drawn."
        if drawn
        else "There are no random heads beside it, so nothing says that these heads are special.",
    )


def _rates(result: RemovalResult, case: Case, k: int, done: str) -> Html | None:
    blocks, never = [], list[str]()
    for name in RATES:
        rows = [BarRow("as is", _percent(result.baseline.text, name), "key-base")]
        for kind, mark in MARKS.items():
            values = [_percent(one.text, name) for one in case.draws(kind)]
            known = [value for value in values if value is not None]
            if known:
                rows.append(BarRow(f"{k} {DRAWN[kind]} {done}", fmean(known), mark, known))
        highest = _percent(case.top.text, name)
        rows.append(BarRow(f"{k} highest heads {done}", highest, "key-top"))
        shares = [share for row in rows for share in (row.value, *row.points) if share is not None]
        if shares and not any(shares):
            never.append(NEVER[name])
        elif shares:
            blocks.append(tag("div", tag("h3", NAMES[name]), bar_rows(rows, 100.0)))
    if not blocks and not never:
        return None
    identifier = None if result.measuring is None else result.measuring.identifier
    caption = join(
        tag("strong", "What the outputs turn into, in per cent of all outputs. "),
        "Off target: the language identified is not the target\u2019s, or there is no output"
        + (f" (identified by {identifier}, which errs on short sentences)" if identifier else "")
        + ". Source copied: the output is close to the source and far from the reference. "
        "Empty: there is no output at all. ",
        f"Under no condition was an output {' or '.join(never)}. " if never else None,
        "Marks on the bars are single draws; these shares carry no intervals.",
    )
    return figure("rates", caption, blocks)


def _percent(text: Texts | None, name: str) -> float | None:
    """A share as per cent."""
    share: float | None = getattr(text, name, None)
    return None if share is None else 100 * share


def _table(part: Part, case: Case, k: int, done: str) -> Html:
    rows: list[tuple[str, Sequence[Texts | None]]] = [("as is", [part.baseline.text])]
    for kind, words in DRAWN.items():
        if draws := case.draws(kind):
            rows.append((f"{k} {words} {done}, mean", [one.text for one in draws]))
    rows.append((f"{k} highest heads {done}", [case.top.text]))
    return table(
        "Every measure by condition",
        ("Condition", *NAMES.values()),
        [(words, *(_value(name, several) for name in NAMES)) for words, several in rows],
        class_="numbers",
    )


def _value(name: str, texts: Iterable[Texts | None]) -> str:
    known = [value for text in texts if (value := getattr(text, name, None)) is not None]
    if not known:
        return "not computed"
    if name in RATES:
        return f"{fixed(100 * fmean(known), 1)}\u00a0%"
    return fixed(fmean(known), 2 if name in ("chrf", "bleu") else 3)


def _table_caption(result: RemovalResult) -> Html:
    reasons = {} if result.measuring is None else result.measuring.not_measured
    missing = [name for name in NAMES if getattr(result.baseline.text, name, None) is None]
    told = [f"{NAMES[name]}: {reasons[name].rstrip('.')}." for name in missing if reasons.get(name)]
    untold = [NAMES[name] for name in missing if not reasons.get(name)]
    if untold:
        told.append(f"{enumeration(untold)}: the run does not say why.")
    return join(
        tag("strong", "Every measure. "),
        "BLEU (0 to 100) uses the tokeniser that suits each target language; rates are shares of "
        "outputs. Random heads show the mean of their draws. All come from one set of sentences: "
        "small differences are not worth much.",
        f" Not computed, which is no zero: {' '.join(told)}" if told else None,
    )


def _tests_caption(result: RemovalResult) -> Html:
    case, parts = result.main_case, []
    for kind, words in DRAWN.items():
        draws, than = case.draws(kind), case.top.than(kind)
        if not draws or than is None or than.p_draws is None:
            continue
        counted = case.counted(kind)
        beaten = round(than.p_draws * (1 + counted)) - 1
        parts.append(
            f"Of {count(counted, 'draw' if counted == len(draws) else 'different draw')} of "
            f"{words}, {beaten or 'none'} did at least as much harm, so p over draws is "
            f"{_p(than.p_draws)}; with so many draws it cannot be lower than "
            f"{p_value(1 / (1 + counted))}. "
        )
        if than.p_examples is not None:
            parts[-1] += f"Over sentences p is {_p(than.p_examples)}. "
    return join(
        tag("strong", "Whether random heads would have done the same. "),
        "\u201cLower by\u201d is how much lower chrF++ is than the mean of the random draws, with "
        "a 95\u00a0% interval from resampling sentences. The p-value over sentences asks whether "
        "these sentences could show such a difference by luck: outputs of the highest heads and of "
        f"a random draw are swapped at random, {number(TRIALS)} times",
        f" ({_least(result)}). The p-value over draws asks how "
        "often random heads do at least as much harm. ",
        *parts,
    )


def _least(result: RemovalResult) -> str:
    """How small the p-value over sentences can be: of few sentences there are few ways to swap."""
    lengths = {part.sentences for part in result.directions.values() if part.sentences}
    known = len(lengths) > 0 and all(part.sentences for part in result.directions.values())
    ways = 2 ** min(sum(lengths), 64)
    if not known or ways > TRIALS:
        return f"it cannot be lower than {p_value(1 / (1 + TRIALS))}"
    alike = "; directions with equally many sentences are swapped alike"
    return (
        f"so few sentences can be swapped in {number(ways)} ways only, so that it stays in the "
        f"order of {p_value(1 / ways)} whatever the heads do"
        + (alike if len(result.directions) > len(lengths) else "")
    )


def _drawn(case: Case, kind: Kind) -> str:
    draws, than = len(case.draws(kind)), case.top.than(kind)
    if than is None or than.distinct == draws:
        return str(draws)
    return f"{draws} ({than.distinct} different)"


def _gap(than: Against | None) -> str:
    if than is None or not than.difference.known:
        return "not computed"
    gap = than.difference
    return f"{fixed(-gap.value, 1)} ({between(-gap.high, -gap.low, 1)})"


def _p(value: float | None) -> str:
    return "not computed" if value is None else p_value(value)
