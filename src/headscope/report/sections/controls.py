"""What to keep in mind about one removal: its control heads, its data, its limits."""

from __future__ import annotations

from collections.abc import Iterable

from headscope.report.html import Html, tag
from headscope.report.parts import section
from headscope.report.records.outputs import MATCHED
from headscope.report.records.removal import Condition, RemovalRecord
from headscope.report.words import count, fixed, p_value

__all__ = ["limits_section"]

POOR = 25.0
"""chrF++ below which a model hardly translates, so that there is little to be lost."""

Note = tuple[str, str]


def limits_section(record: RemovalRecord) -> Html:
    """Known limits in plain words: first what is special about this run, then the general ones."""
    notes = [
        *_draws(record),
        *_controls(record),
        _leakage(record),
        *_baseline(record),
        *_general(record),
    ]
    items = [tag("li", tag("strong", title), " ", text) for title, text in notes]
    return section("caveats", "What to keep in mind", tag("ul", items, class_="caveats"))


def _draws(record: RemovalRecord) -> Iterable[Note]:
    draws = len(record.case.random)
    if not draws:
        yield (
            "There is no control.",
            "No random heads were removed, so this does not say that the heads are special.",
        )
    elif draws < 99:
        least = 1 / (1 + draws)
        yield (
            f"{count(draws, 'random draw').capitalize()} can show p\u00a0=\u00a0{p_value(least)} "
            "at best.",
            "More draws (--draws 199) make the p-value over draws as small as 0.005"
            + (
                "; with so few, even heads that no draw comes near stay above 0.05."
                if least > 0.05
                else "."
            ),
        )


def _controls(record: RemovalRecord) -> Iterable[Note]:
    note = record.result.get("pool_note")
    if note:
        yield "Random heads may be token alignment heads.", f"{str(note).rstrip('.')}."
    elif record.result.get("pool") == "outside":
        yield (
            "Random heads may be token alignment heads.",
            "They are drawn from all heads outside the highest ones, so the control may do some "
            "of the same harm, and the difference is smaller than it would be otherwise.",
        )
    case = record.case
    if filled := _filled(case.random):
        yield (
            "The pool of random heads was too small.",
            f"It was filled up with token alignment heads in {filled}, which makes those draws "
            f"more harmful than they should be.{_alike(case.random)}",
        )
    repeated = bool(case.matched) and case.counted(MATCHED) < len(case.matched)
    if repeated:
        yield (
            "Some draws of the same layers are the same.",
            f"The layers leave so little choice that only {case.counted(MATCHED)} of "
            f"{count(len(case.matched), 'draw')} are different sets; the p-value over draws counts "
            f"each once.{_alike(case.matched)}",
        )
    if filled := _filled(case.matched):
        yield (
            "Some layers had too few heads to draw from.",
            f"In {filled} of the same layers, heads of the nearest layers, or token alignment "
            "heads, stand in for them; these draws match the layers only in part."
            + ("" if repeated else _alike(case.matched)),
        )
    if case.random and not case.matched:
        yield (
            "Random heads come from any layer.",
            "Heads drawn from the same layers would be a sterner control: depth alone could "
            "explain some of the difference.",
        )


def _alike(draws: tuple[Condition, ...]) -> str:
    """How many heads all draws have in common, where there are several."""
    if len(draws) < 2:
        return ""
    return f" All {len(draws)} share {len(set.intersection(*(set(one.heads) for one in draws)))}."


def _filled(draws: tuple[Condition, ...]) -> str:
    filled = [one.filled_up for one in draws if one.filled_up]
    if not filled:
        return ""
    most = max(filled)
    return f"{len(filled)} of {count(len(draws), 'draw')}, with up to {count(most, 'head')}"


def _leakage(record: RemovalRecord) -> Note:
    leakage = dict(record.result.get("leakage") or {})
    of = int(leakage.get("of") or 0)
    if not leakage.get("known"):
        return (
            "It is not known what the heads were found on.",
            "They came without a record of their sentences. If they were found on these same "
            "sentences, the effect looks larger than it is.",
        )
    overlap = int(leakage.get("overlap") or 0)
    if overlap:
        return (
            f"{overlap} of {count(of, 'sentence pair')} were used to find the heads.",
            "That was allowed for this run. Heads picked on the sentences they are tested on look "
            "better than they are.",
        )
    return (
        "The sentences are new to the heads.",
        f"None of the {count(of, 'sentence pair')} was used to find the heads; that they come from "
        "the same kind of text is another matter.",
    )


def _baseline(record: RemovalRecord) -> Iterable[Note]:
    value = record.mean.baseline["chrf"]
    if value is not None and value < POOR:
        yield (
            "The model hardly translates.",
            f"Untouched it reaches a chrF++ of {fixed(value, 1)}: there is little to lose, and "
            "little can be read from what is lost.",
        )
    weak = [
        name
        for name, part in record.directions.items()
        if (chrf := part.baseline["chrf"]) is not None and chrf < POOR
    ]
    if weak and len(record.directions) > len(weak):
        yield "Some directions start low.", f"Below {fixed(POOR, 0)} as is: {', '.join(weak)}."


def _general(record: RemovalRecord) -> Iterable[Note]:
    if len(record.k) > 1:
        yield (
            "The figures speak of the largest number of heads.",
            f"That is {record.main[0]}; smaller numbers stand in the curves. They share their "
            "first heads, so they are no independent tests.",
        )
    if "mean" in record.kinds:
        reference = dict(record.result.get("reference_text") or {})
        source, texts = reference.get("source"), reference.get("texts")
        told = ", ".join(filter(None, [count(texts, "text") if texts else "", source or ""]))
        yield (
            "Mean ablation replaces heads by a constant.",
            "It is their mean output over reference text"
            + (f" ({told})" if told else "")
            + ", by class of position, which leaves the model nearer to what it was trained on "
            "than zero does.",
        )
    yield (
        "Removing many heads is rough.",
        "It takes the model away from what it was trained on, whichever heads they are; that is "
        "what the random heads are for.",
    )
    if "loss" in record.measures:
        yield (
            "The loss is a measure of its own.",
            "It asks how likely the reference is, word for word, given all of it before: a model "
            "that loses little by it may translate much worse, and the reverse.",
        )
    if "text" not in record.measures:
        return
    yield (
        "chrF++ is a measure of form.",
        "It counts shared character and word sequences with one reference. It cannot tell a wrong "
        "translation from none; read the sentences above.",
    )
