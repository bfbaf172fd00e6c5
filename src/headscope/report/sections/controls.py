"""What to keep in mind about one removal: its control heads, its data, its limits."""

from __future__ import annotations

from collections.abc import Iterable

from headscope.report.html import Html, tag
from headscope.report.parts import section
from headscope.report.records.outputs import MATCHED, RANDOM
from headscope.results.common import ReferenceText
from headscope.results.removal import Condition, RemovalResult, shared_heads
from headscope.shown.words import count, fixed, p_value

__all__ = ["limits_section"]

POOR = 25.0
"""chrF++ below which a model hardly translates, so that there is little to be lost."""

Note = tuple[str, str]


def limits_section(result: RemovalResult) -> Html:
    """Known limits in plain words: first what is special about this run, then the general ones."""
    notes = [
        *_draws(result),
        *_controls(result),
        _leakage(result),
        *_baseline(result),
        *_general(result),
    ]
    items = [tag("li", tag("strong", title), " ", text) for title, text in notes]
    return section("caveats", "What to keep in mind", tag("ul", items, class_="caveats"))


def _draws(result: RemovalResult) -> Iterable[Note]:
    draws = len(result.main_case.draws(RANDOM))
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


def _controls(result: RemovalResult) -> Iterable[Note]:
    if result.pool_note:
        yield "Random heads may be token alignment heads.", f"{result.pool_note.rstrip('.')}."
    elif result.pool == "outside":
        yield (
            "Random heads may be token alignment heads.",
            "They are drawn from all heads outside the highest ones, so the control may do some "
            "of the same harm, and the difference is smaller than it would be otherwise.",
        )
    case = result.main_case
    random, matched = case.draws(RANDOM), case.draws(MATCHED)
    if filled := _filled(random):
        yield (
            "The pool of random heads was too small.",
            f"It was filled up with token alignment heads in {filled}, which makes those draws "
            f"more harmful than they should be.{_alike(random)}",
        )
    repeated = bool(matched) and case.counted(MATCHED) < len(matched)
    if repeated:
        yield (
            "Some draws of the same layers are the same.",
            f"The layers leave so little choice that only {case.counted(MATCHED)} of "
            f"{count(len(matched), 'draw')} are different sets; the p-value over draws counts "
            f"each once.{_alike(matched)}",
        )
    if filled := _filled(matched):
        yield (
            "Some layers had too few heads to draw from.",
            f"In {filled} of the same layers, heads of the nearest layers, or token alignment "
            "heads, stand in for them; these draws match the layers only in part."
            + ("" if repeated else _alike(matched)),
        )
    if random and not matched:
        yield (
            "Random heads come from any layer.",
            "Heads drawn from the same layers would be a sterner control: depth alone could "
            "explain some of the difference.",
        )


def _alike(draws: tuple[Condition, ...]) -> str:
    """How many heads all draws have in common, where there are several."""
    if len(draws) < 2:
        return ""
    return f" All {len(draws)} share {shared_heads(draws)}."


def _filled(draws: tuple[Condition, ...]) -> str:
    filled = [one.filled_up for one in draws if one.filled_up]
    if not filled:
        return ""
    most = max(filled)
    return f"{len(filled)} of {count(len(draws), 'draw')}, with up to {count(most, 'head')}"


def _leakage(result: RemovalResult) -> Note:
    leakage = result.leakage
    if leakage is None or not leakage.known:
        return (
            "It is not known what the heads were found on.",
            "They came without a record of their sentences. If they were found on these same "
            "sentences, the effect looks larger than it is.",
        )
    pairs = count(leakage.of, "sentence pair")
    if leakage.overlap:
        return (
            f"{leakage.overlap} of {pairs} were used to find the heads.",
            "That was allowed for this run. Heads picked on the sentences they are tested on look "
            "better than they are.",
        )
    return (
        "The sentences are new to the heads.",
        f"None of the {pairs} was used to find the heads; that they come from the "
        "same kind of text is another matter.",
    )


def _baseline(result: RemovalResult) -> Iterable[Note]:
    if result.chrf is not None and result.chrf < POOR:
        yield (
            "The model hardly translates.",
            f"Untouched it reaches a chrF++ of {fixed(result.chrf, 1)}: there is little to "
            "lose, and little can be read from what is lost.",
        )
    weak = [
        name
        for name, part in result.directions.items()
        if part.chrf is not None and part.chrf < POOR
    ]
    if weak and len(result.directions) > len(weak):
        yield "Some directions start low.", f"Below {fixed(POOR, 0)} as is: {', '.join(weak)}."


def _general(result: RemovalResult) -> Iterable[Note]:
    if len(result.k) > 1:
        yield (
            "The figures speak of the largest number of heads.",
            f"That is {result.main[0]}; smaller numbers stand in the curves. They share their "
            "first heads, so they are no independent tests.",
        )
    if "mean" in result.ablations:
        reference = result.reference_text or ReferenceText()
        texts = count(reference.texts, "text") if reference.texts else ""
        told = ", ".join(filter(None, [texts, reference.source]))
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
    if "loss" in result.measures:
        yield (
            "The loss is a measure of its own.",
            "It asks how likely the reference is, word for word, given all of it before: a model "
            "that loses little by it may translate much worse, and the reverse.",
        )
    if "text" not in result.measures:
        return
    yield (
        "chrF++ is a measure of form.",
        "It counts shared character and word sequences with one reference. It cannot tell a wrong "
        "translation from none; read the sentences above.",
    )
