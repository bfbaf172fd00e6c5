"""What a removal did to the measures, how sure that is, and what random heads did."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean

from headscope.report.charts import BarRow, bar_rows
from headscope.report.html import Html, join, tag
from headscope.report.parts import figure, scroll, section, table
from headscope.report.records.outputs import MATCHED, RANDOM
from headscope.report.records.removal import Case, Condition, Gap, Part, RemovalRecord
from headscope.report.sections.effects import axis_end, signed
from headscope.report.words import between, count, enumeration, fixed, number, p_value

__all__ = ["DRAWN", "doing", "effect_section", "kinds_section", "tests_section"]

DRAWN = {RANDOM: "random heads", MATCHED: "random heads of the same layers"}
ENDINGS = {RANDOM: "", MATCHED: "_layer_matched"}
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


def effect_section(record: RemovalRecord) -> Html:
    """Bars of chrF++, shares of broken outputs, and the table of all measures."""
    case, k = record.case, record.main[0]
    done = doing(record.main[1], str(record.result.get("ablate") or "zero"))
    reasons = dict(record.result.get("not_measured") or {})
    return section(
        "effect",
        "What removing them does",
        figure("effect-figure", _caption(record), _bars(record.mean, case, k, done)),
        _rates(record, case, k, done),
        figure(
            "measures",
            _table_caption(record, reasons),
            scroll("Measures by condition", _table(record.mean, case, k, done)),
        ),
    )


def tests_section(record: RemovalRecord) -> Html:
    """How sure it is: differences to random heads with intervals, and p-values in words."""
    case = record.case
    rows = []
    for kind, words in DRAWN.items():
        draws = case.draws(kind)
        if draws:
            rows.append(
                (
                    f"against {words}",
                    _gap(case.top.against.get(kind)),
                    _p(case.top.tests.get(f"p_sentences{ENDINGS[kind]}")),
                    _p(case.top.tests.get(f"p_draws{ENDINGS[kind]}")),
                    _drawn(case, kind),
                )
            )
    header = ("Highest heads", "chrF++ lower by", "p over sentences", "p over draws", "Draws")
    shown = table("The highest heads against random ones", header, rows, class_="numbers")
    return section(
        "tests",
        "How sure it is",
        figure("tests-figure", _tests_caption(record), scroll("Tests", shown)),
    )


def kinds_section(record: RemovalRecord) -> Html | None:
    """Zero ablation beside mean ablation, of the same heads and draws; None with one kind."""
    if len(record.kinds) < 2:
        return None
    k, gate = record.main
    rows = []
    for ablate, part in record.kinds.items():
        case = part.case(k, gate)
        if case is None:
            continue
        drawn = [[one.chrf for one in case.draws(kind)] for kind in DRAWN]
        against = (_gap(case.top.against.get(RANDOM)), _p(case.top.tests.get("p_draws")))
        spans = [_span(values) for values in drawn]
        rows.append((ablate, fixed(case.top.chrf, 1), *spans, *against, _drawn(case, RANDOM)))
    header = ("Heads give", f"{k} highest", *(words.capitalize() for words in DRAWN.values()))
    header += ("Lower than random heads by", "p over draws", "Draws")
    caption = join(
        tag("strong", "chrF++ by what a removed head gives. "),
        f"Zero, or its mean output over other examples; the same {count(k, 'head')} and the same "
        f"draws. As is: {fixed(record.mean.baseline['chrf'], 1)}. Random heads show their mean, "
        "with the lowest and highest draw. What zero destroys and the mean does not is an effect "
        "of leaving the range the model was trained in.",
    )
    shown = table("Zero and mean ablation", header, rows, class_="numbers")
    return section(
        "kinds", "Zero and mean", figure("kinds-figure", caption, scroll("Zero and mean", shown))
    )


def _span(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return "not computed"
    return f"{fixed(fmean(known), 1)} ({between(min(known), max(known), 1)})"


def _bars(part: Part, case: Case, k: int, done: str) -> Html:
    rows = [BarRow("as is", part.baseline["chrf"], "key-base", interval=part.interval)]
    for kind, mark in ((RANDOM, "key-random"), (MATCHED, "key-matched")):
        values = [one.chrf for one in case.draws(kind)]
        known = [value for value in values if value is not None]
        if values:
            mean = fmean(known) if known else None
            rows.append(BarRow(f"{k} {DRAWN[kind]} {done}", mean, mark, known))
    rows.append(
        BarRow(
            f"{k} highest heads {done}", case.top.chrf, "key-top", interval=_level(part, case.top)
        )
    )
    ends = [value for row in rows for value in (row.value, *row.points, *(row.interval or ()))]
    return bar_rows(rows, axis_end(value for value in ends if value is not None))


def _level(part: Part, top: Condition) -> tuple[float, float] | None:
    """The interval of the change, drawn around the level it leads to."""
    baseline, change = part.baseline["chrf"], top.change
    if baseline is None or change is None or change.low is None or change.high is None:
        return None
    return baseline + change.low, baseline + change.high


def _caption(record: RemovalRecord) -> Html:
    case, many = record.case, len(record.directions)
    mean = f"the plain mean over {many} directions, " if many > 1 else ""
    sentences = record.mean.sentences
    on = f" on {count(sentences, 'sentence')}" if sentences else ""
    drawn = enumeration(
        [
            f"{count(len(case.draws(kind)), 'draw')} of {words}"
            for kind, words in DRAWN.items()
            if case.draws(kind)
        ]
    )
    change = case.top.change
    sure = ""
    if change is not None and change.low is not None and change.high is not None:
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


def _rates(record: RemovalRecord, case: Case, k: int, done: str) -> Html | None:
    part = record.mean
    blocks, never = [], list[str]()
    for name in RATES:
        rows = [BarRow("as is", _percent(part.baseline[name]), "key-base")]
        for kind, mark in ((RANDOM, "key-random"), (MATCHED, "key-matched")):
            values = [one.measures[name] for one in case.draws(kind)]
            known = [100 * value for value in values if value is not None]
            if known:
                rows.append(BarRow(f"{k} {DRAWN[kind]} {done}", fmean(known), mark, known))
        rows.append(
            BarRow(f"{k} highest heads {done}", _percent(case.top.measures[name]), "key-top")
        )
        shares = [share for row in rows for share in (row.value, *row.points) if share is not None]
        if shares and not any(shares):
            never.append(NEVER[name])
        elif shares:
            blocks.append(tag("div", tag("h3", NAMES[name]), bar_rows(rows, 100.0)))
    if not blocks and not never:
        return None
    identifier = record.result.get("identifier")
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


def _percent(value: float | None) -> float | None:
    return None if value is None else 100 * value


def _table(part: Part, case: Case, k: int, done: str) -> Html:
    columns = [part.baseline]
    rows: list[tuple[str, Sequence[Mapping[str, float | None]]]] = [("as is", columns)]
    for kind, words in DRAWN.items():
        if case.draws(kind):
            rows.append((f"{k} {words} {done}, mean", [one.measures for one in case.draws(kind)]))
    rows.append((f"{k} highest heads {done}", [case.top.measures]))
    return table(
        "Every measure by condition",
        ("Condition", *NAMES.values()),
        [(words, *(_value(name, several) for name in NAMES)) for words, several in rows],
        class_="numbers",
    )


def _value(name: str, several: Iterable[Mapping[str, float | None]]) -> str:
    known = [value for one in several if (value := one[name]) is not None]
    if not known:
        return "not computed"
    if name in RATES:
        return f"{fixed(100 * fmean(known), 1)}\u00a0%"
    return fixed(fmean(known), 2 if name in ("chrf", "bleu") else 3)


def _table_caption(record: RemovalRecord, reasons: Mapping[str, object]) -> Html:
    missing = [name for name in NAMES if record.mean.baseline[name] is None]
    told = [
        f"{NAMES[name]}: {str(reasons[name]).rstrip('.')}." for name in missing if reasons.get(name)
    ]
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


def _tests_caption(record: RemovalRecord) -> Html:
    case, parts = record.case, []
    for kind, words in DRAWN.items():
        draws, tests = case.draws(kind), case.top.tests
        over, ending = tests.get(f"p_draws{ENDINGS[kind]}"), ENDINGS[kind]
        if not draws or over is None:
            continue
        counted = case.counted(kind)
        beaten = round(over * (1 + counted)) - 1
        parts.append(
            f"Of {count(counted, 'draw' if counted == len(draws) else 'different draw')} of "
            f"{words}, {beaten or 'none'} did at least as much harm, so p over draws is "
            f"{_p(over)}; with so many draws it cannot be lower than {p_value(1 / (1 + counted))}. "
        )
        if f"p_sentences{ending}" in tests:
            parts[-1] += f"Over sentences p is {_p(tests[f'p_sentences{ending}'])}. "
    return join(
        tag("strong", "Whether random heads would have done the same. "),
        "\u201cLower by\u201d is how much lower chrF++ is than the mean of the random draws, with "
        "a 95\u00a0% interval from resampling sentences. The p-value over sentences asks whether "
        "these sentences could show such a difference by luck: outputs of the highest heads and of "
        f"a random draw are swapped at random, {number(TRIALS)} times",
        f" ({_least(record)}). The p-value over draws asks how "
        "often random heads do at least as much harm. ",
        *parts,
    )


def _least(record: RemovalRecord) -> str:
    """How small the p-value over sentences can be: of few sentences there are few ways to swap."""
    lengths = {part.sentences for part in record.directions.values() if part.sentences}
    known = len(lengths) > 0 and all(part.sentences for part in record.directions.values())
    ways = 2 ** min(sum(lengths), 64)
    if not known or ways > TRIALS:
        return f"it cannot be lower than {p_value(1 / (1 + TRIALS))}"
    alike = "; directions with equally many sentences are swapped alike"
    return (
        f"so few sentences can be swapped in {number(ways)} ways only, so that it stays in the "
        f"order of {p_value(1 / ways)} whatever the heads do"
        + (alike if len(record.directions) > len(lengths) else "")
    )


def _drawn(case: Case, kind: str) -> str:
    draws, different = len(case.draws(kind)), case.top.distinct.get(kind)
    if different is None or different == draws:
        return str(draws)
    return f"{draws} ({different} different)"


def _gap(gap: Gap | None) -> str:
    if gap is None:
        return "not computed"
    if gap.low is None or gap.high is None:
        return fixed(-gap.value, 1)
    return f"{fixed(-gap.value, 1)} ({between(-gap.high, -gap.low, 1)})"


def _p(value: float | None) -> str:
    return "not computed" if value is None else p_value(value)
