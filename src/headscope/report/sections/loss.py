"""What a removal does to the loss of reference translations, of all tokens and of each kind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from statistics import fmean

from headscope.estimates import Against, Estimate
from headscope.report.html import Html, join, tag
from headscope.report.parts import figure, scroll, section, table
from headscope.report.records.outputs import MATCHED, RANDOM
from headscope.report.sections.evidence import doing
from headscope.results.removal import Case, Kind, RemovalResult, Tested, TokenKinds, Tokens
from headscope.shown.words import between, count, fixed, number, p_value, signed

__all__ = ["loss_section", "loss_verdict"]

DRAWN: dict[Kind, str] = {RANDOM: "random", MATCHED: "random, same layers"}


def loss_verdict(result: RemovalResult) -> str:
    """In one sentence, what the selected heads cost beside random ones."""
    k, gate, ablate = result.main
    base, top = result.baseline, result.main_case.top
    text = (
        f"With the {k} selected heads {doing(gate, ablate)} the NLL of the reference translation "
        f"goes from {fixed(base.nll, 3)} to {fixed(top.nll, 3)} nats a token"
    )
    than, kinds = top.loss_than(RANDOM), top.kinds_than(RANDOM)
    if than is None or kinds is None:
        return f"{text}; there are no random heads to compare with."
    gap = kinds.linked_minus_unlinked
    text += f". Selected \u2212 random is {_estimate(Tested.told(than))}"
    if gap.known:
        text += f"; on first tokens of linked words less on unlinked tokens it is {_estimate(gap)}"
    return f"{text}; p over draws {_p(than.p_draws)} ({count(than.distinct, 'random set')})."


def loss_section(result: RemovalResult) -> Html | None:
    """The NLL under every condition, and selected − random by kind of token; None without."""
    tokens = result.reference_tokens
    if tokens is None:
        return None
    caption = join(
        tag("strong", "Loss of the reference translation. "),
        "NLL in nats a token, teacher-forced: the mean over ",
        count(result.sentences or 0, "sentence"),
        f" of each one\u2019s mean over its tokens ({number(tokens.total)} in all). Lower "
        "is better. Intervals are 95\u00a0% bootstrap intervals over sentences; those of random "
        "heads span single draws. The loss is a measure of its own and does not stand for chrF++.",
    )
    k, gate, _ = result.main
    done = {ablate: doing(gate, ablate) for ablate in result.ablations}
    found = {ablate: result.case(k, gate, ablate) for ablate in done}
    cases = {done[ablate]: case for ablate, case in found.items() if case is not None}
    header = ("Condition", "NLL", "Change", "95\u00a0% interval or range of draws", "Draws")
    shown = table("NLL by condition", header, _conditions(result, cases), class_="numbers")
    parts = [figure("loss-figure", caption, scroll("NLL by condition", shown))]
    if kinds := _kinds(cases, tokens):
        header = ("Tokens", "Number", "Selected \u2212 random", "p over sentences", "p over draws")
        shown = table("Selected \u2212 random by kind of token", header, kinds, class_="numbers")
        parts.append(figure("loss-kinds", _caption(cases), scroll("By kind", shown)))
    return section("loss", "Loss of the reference", *parts)


#: The main case of each kind of ablation, by what is done to heads, such as `removed`.
Cases = Mapping[str, Case]


def _conditions(result: RemovalResult, cases: Cases) -> Iterator[tuple[str, ...]]:
    base = result.baseline.loss
    if base is None:
        return
    yield ("original", fixed(base.nll, 3), "", between(base.nll_low, base.nll_high, 3), "")
    for done, case in cases.items():
        top, change = case.top, case.top.change.nll
        if top.loss is None or change is None:
            continue
        bounds = f"{signed(change.low, 3)} to {signed(change.high, 3)}"
        words = f"{top.label.k} selected {done}"
        yield (words, fixed(top.loss.nll, 3), signed(change.value, 3), bounds, "")
        for kind, name in DRAWN.items():
            if draws := case.nll(kind):
                mean, span = fmean(draws), between(min(draws), max(draws), 3)
                words, more = f"{top.label.k} {name}, {done}", signed(mean - base.nll, 3)
                yield (words, fixed(mean, 3), more, span, str(len(draws)))


def _kinds(cases: Cases, tokens: Tokens) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for done, kind, than, kinds in _tests(cases):
        against = f"{DRAWN[kind]}, {done}" if len(cases) > 1 else DRAWN[kind]
        rows += [
            (
                f"{name} (against {against})",
                str(numbers),
                _estimate(test) if test.known else "no such tokens",
                _p(test.p_sentences),
                _p(test.p_draws),
            )
            for name, numbers, test in (
                ("all tokens", tokens.total, Tested.told(than)),
                ("first token of a linked word", tokens.linked, kinds.linked),
                ("its later tokens", tokens.linked_later, kinds.linked_later),
                ("unlinked tokens", tokens.unlinked, kinds.unlinked),
                ("first \u2212 unlinked", "", kinds.linked_minus_unlinked),
            )
        ]
    return rows


def _caption(cases: Cases) -> Html:
    least = {
        kind: f"{DRAWN[kind].capitalize()}: {count(than.distinct, 'different set')}, which can "
        f"give a p over draws of {p_value(1 / (1 + than.distinct))} at best. "
        for _, kind, than, _ in _tests(cases)
    }
    return join(
        tag("strong", "Where the selected heads cost more than random ones. "),
        "If the heads serve alignment, their removal costs more on the first token of a word that "
        "is linked to the source than on tokens without a link; later tokens of a word follow "
        "from its first. The reverse does not follow: first tokens are harder than others, so any "
        "greater harm may widen this difference. P over draws asks whether these heads are "
        "special; p over sentences only whether other sentences would show the difference, and a "
        "random set that is a little worse than others gets a small one, too. ",
        *least.values(),
    )


def _tests(cases: Cases) -> Iterator[tuple[str, Kind, Against, TokenKinds]]:
    """The tests by kind of ablation and of random draws."""
    for done, case in cases.items():
        for kind in DRAWN:
            than, kinds = case.top.loss_than(kind), case.top.kinds_than(kind)
            if than is not None and kinds is not None:
                yield done, kind, than, kinds


def _estimate(change: Estimate) -> str:
    text = signed(change.value, 3)
    if not change.bounded:
        return f"{text} (in too few sentences for an interval)"
    return f"{text} ({between(change.low, change.high, 3)})"


def _p(value: float | None) -> str:
    return "\u2013" if value is None else p_value(value)
