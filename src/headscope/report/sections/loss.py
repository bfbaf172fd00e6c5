"""What a removal does to the loss of reference translations, of all tokens and of each kind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from statistics import fmean
from typing import Any

from headscope.report.html import Html, join, tag
from headscope.report.parts import figure, scroll, section, table
from headscope.report.records.outputs import MATCHED, RANDOM
from headscope.report.sections.effects import signed
from headscope.report.words import between, count, fixed, number, p_value

__all__ = ["loss_section", "loss_verdict"]

DRAWN = {RANDOM: "random", MATCHED: "random, same layers"}
ENDINGS = {RANDOM: "", MATCHED: "_layer_matched"}
KINDS = {
    "linked": "first token of a linked word",
    "linked_later": "its later tokens",
    "unlinked": "unlinked tokens",
}
Row = Mapping[str, Any]
#: What is done to heads, by kind of ablation, such as `removed`; the first kind leads.
Done = Mapping[str, str]


def loss_verdict(result: Row, k: int, gate: float, done: Done) -> str:
    """In one sentence, what the selected heads cost beside random ones."""
    ablate, words = next(iter(done.items()))
    top, test = _top(result, k, gate, ablate), _test(result, k, gate, ablate, RANDOM)
    text = (
        f"With the {k} selected heads {words} the NLL of the reference translation goes from "
        f"{fixed(result['baseline']['nll'], 3)} to {fixed(top['nll'], 3)} nats a token"
    )
    if test is None:
        return f"{text}; there are no random heads to compare with."
    gap = test["linked_minus_unlinked"]
    text += f". Selected \u2212 random is {_estimate(test['all'])}"
    if gap["value"] is not None:
        text += f"; on first tokens of linked words less on unlinked tokens it is {_estimate(gap)}"
    p, sets = test["all"]["p_draws"], count(test["sets"], "random set")
    return f"{text}; p over draws {_p(p)} ({sets})."


def loss_section(result: Row, k: int, gate: float, done: Done) -> Html:
    """The NLL under every condition, and selected − random by kind of token."""
    tokens = result["reference_tokens"]
    caption = join(
        tag("strong", "Loss of the reference translation. "),
        "NLL in nats a token, teacher-forced: the mean over ",
        count(int(result["sentences"]), "sentence"),
        f" of each one\u2019s mean over its tokens ({number(sum(tokens.values()))} in all). Lower "
        "is better. Intervals are 95\u00a0% bootstrap intervals over sentences; those of random "
        "heads span single draws. The loss is a measure of its own and does not stand for chrF++.",
    )
    header = ("Condition", "NLL", "Change", "95\u00a0% interval or range of draws", "Draws")
    shown = table("NLL by condition", header, _conditions(result, k, gate, done), class_="numbers")
    parts = [figure("loss-figure", caption, scroll("NLL by condition", shown))]
    if kinds := _kinds(result, k, gate, done):
        header = ("Tokens", "Number", "Selected \u2212 random", "p over sentences", "p over draws")
        shown = table("Selected \u2212 random by kind of token", header, kinds, class_="numbers")
        parts.append(
            figure("loss-kinds", _caption(result, k, gate, done), scroll("By kind", shown))
        )
    return section("loss", "Loss of the reference", *parts)


def _conditions(result: Row, k: int, gate: float, done: Done) -> list[tuple[str, ...]]:
    base = result["baseline"]
    rows: list[tuple[str, ...]] = [
        ("original", fixed(base["nll"], 3), "", between(base["nll_low"], base["nll_high"], 3), "")
    ]
    for ablate, words in done.items():
        top = _top(result, k, gate, ablate)
        change = top["change"]["nll"]
        bounds = f"{signed(change['low'], 3)} to {signed(change['high'], 3)}"
        value = signed(change["value"], 3)
        rows.append((f"{k} selected {words}", fixed(top["nll"], 3), value, bounds, ""))
        for kind, name in DRAWN.items():
            draws = [one["nll"] for one in result["conditions"] if _is(one, kind, k, gate, ablate)]
            if draws:
                mean, span = fmean(draws), between(min(draws), max(draws), 3)
                change = signed(mean - base["nll"], 3)
                rows.append((f"{k} {name}, {words}", fixed(mean, 3), change, span, str(len(draws))))
    return rows


def _kinds(result: Row, k: int, gate: float, done: Done) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    tokens = result["reference_tokens"]
    numbers = {"all": sum(tokens.values()), **tokens}
    named = {"all": "all tokens", **KINDS, "linked_minus_unlinked": "first \u2212 unlinked"}
    for ablate, kind, test in _tests(result, k, gate, done):
        against = f"{DRAWN[kind]}, {done[ablate]}" if len(done) > 1 else DRAWN[kind]
        rows += [
            (
                f"{name} (against {against})",
                str(numbers.get(key, "")),
                _estimate(test[key]) if test[key]["value"] is not None else "no such tokens",
                _p(test[key]["p_sentences"]),
                _p(test[key]["p_draws"]),
            )
            for key, name in named.items()
        ]
    return rows


def _caption(result: Row, k: int, gate: float, done: Done) -> Html:
    least = {
        kind: f"{DRAWN[kind].capitalize()}: {count(test['sets'], 'different set')}, which can give "
        f"a p over draws of {p_value(1 / (1 + test['sets']))} at best. "
        for _, kind, test in _tests(result, k, gate, done)
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


def _tests(
    result: Row, k: int, gate: float, done: Done
) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """The tests by kind of ablation and of random draws."""
    for ablate in done:
        for kind in DRAWN:
            if test := _test(result, k, gate, ablate, kind):
                yield ablate, kind, test


def _test(result: Row, k: int, gate: float, ablate: str, kind: str) -> dict[str, Any] | None:
    """The tests against one kind of draws by kind of token, and how many sets were drawn."""
    top, matched = _top(result, k, gate, ablate), ENDINGS[kind]
    if f"classes{matched}" not in top:
        return None
    ending = matched + ("_loss" if len(result["measures"]) > 1 else "")
    whole = {name: top[f"{name}{ending}"] for name in ("p_sentences", "p_draws")}
    return {
        "all": {**top[f"against_random{ending}"], **whole},
        "sets": top[f"distinct_draws{ending}"],
        **top[f"classes{matched}"],
    }


def _top(result: Row, k: int, gate: float, ablate: str) -> Row:
    top: Row = next(one for one in result["conditions"] if _is(one, "top", k, gate, ablate))
    return top


def _is(one: Row, kind: str, k: int, gate: float, ablate: str) -> bool:
    return (one["kind"], one["k"], one["gate"], one["ablate"]) == (kind, k, gate, ablate)


def _estimate(one: Row) -> str:
    text = signed(one["value"], 3)
    if one["low"] is None:
        return f"{text} (in too few sentences for an interval)"
    return f"{text} ({between(one['low'], one['high'], 3)})"


def _p(value: float | None) -> str:
    return "\u2013" if value is None else p_value(value)
