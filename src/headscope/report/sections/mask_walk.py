"""Heads removed by the weights of a mask: when the target comes first, beside random orders."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isfinite
from statistics import fmean

from headscope.report.charts import Series, line_chart
from headscope.report.html import Html, join, tag
from headscope.report.parts import figure, scroll, section, table
from headscope.results.one_by_one import OneByOneResult, RandomOrder
from headscope.shown.words import count, fixed, number, percent

__all__ = ["cut_line", "example_section", "mask_words", "switch_section"]

#: Texts of the example that are shown, and points of a line.
TEXTS, POINTS = 24, 160


def mask_words(result: OneByOneResult) -> Html | None:
    """A sentence on where the learned mask's cut lies, and what the model says there."""
    mask = result.mask
    if mask is None:
        return None
    words = f"The mask keeps {count(mask.kept, 'head')} and drops {mask.removed}. "
    if mask.cut_step is None or result.target_first is None:
        return tag("p", words, "This order does not pass through the mask itself.")
    share = result.target_first.share
    at = share[mask.cut_step]
    random = [one.target_first[mask.cut_step] for one in result.random_orders]
    beside = (
        f"; in random orders, after as many heads, of {percent(fmean(random))} on average"
        if random
        else ""
    )
    return tag(
        "p",
        words,
        f"After step {mask.cut_step} exactly its heads are left. The target\u2019s first token is "
        "then the likeliest one in ",
        tag("strong", f"{percent(at)} of the prompts"),
        f", of {percent(share[0])} before any head was removed{beside}.",
    )


def switch_section(result: OneByOneResult) -> Html | None:
    """The share of prompts whose target comes first, and the last layer\u2019s similarity."""
    first, random = result.target_first, result.random_orders
    if first is None or (result.mask is None and not random):
        return None
    own = first.share
    chart = line_chart(
        [
            *_lines(own, result.random_orders, lambda one: one.target_first),
            *cut_line(result, (0.0, 1.0)),
        ],
        "heads removed",
        "share of prompts",
        "Share of prompts whose target's first token is the likeliest, by heads removed: "
        f"{fixed(own[0], 2)} at first, at most {fixed(max(own), 2)}",
        y_range=(0, 1),
    )
    last = [row.similarity[-1] for row in result.states]
    ends = [value for value in last if isfinite(value)]
    ends += [value for one in random for value in one.last_similarity]
    similar = line_chart(
        [
            *_lines(last, random, lambda one: one.last_similarity),
            *cut_line(result, (min(0.0, *ends), max(ends))),
        ],
        "heads removed",
        "cosine",
        "Cosine of the last layer's output with the reference, by heads removed",
    )
    where = "In the median prompt" if result.sentences > 1 else "In this prompt"
    middle = (
        f"{where} it never is."
        if first.median is None
        else f"{where} it first is after step {number(first.median)}."
    )
    against = " under the instructed prompt" if result.reference else ""
    caption = join(
        tag("strong", "When the model begins to answer. "),
        f"Above: the share of {count(result.sentences, 'prompt')} in which the first token of the "
        f"target is the likeliest next token. {middle} Below: the cosine between the last "
        f"layer\u2019s output at the last input token and that of the whole model{against}. ",
        f"Beside it {count(len(random), 'random order')} of all heads. "
        if random
        else "No random order was walked. ",
        "Means over these prompts, without intervals." if result.sentences > 1 else "One prompt.",
    )
    return section(
        "switch", "When behaviour changes", figure("switch-figure", caption, chart, similar)
    )


def _lines(
    own: Sequence[float],
    random: Sequence[RandomOrder],
    pick: Callable[[RandomOrder], Sequence[float]],
) -> list[Series]:
    """This order, and random ones as their mean with the lowest and the highest as a band."""
    lines = [Series("this order", _points(own), "key-top")]
    if random:
        by_step = list(zip(*map(pick, random), strict=True))
        band = [(x, min(by_step[round(x)]), max(by_step[round(x)])) for x, _ in _points(own)]
        mean = _points([fmean(values) for values in by_step])
        lines.append(Series("random orders, mean and range", mean, "key-random", band))
    return lines


def _points(values: Sequence[float]) -> list[tuple[float, float]]:
    last = len(values) - 1
    places = sorted({round(at * last / (POINTS - 1)) for at in range(POINTS)})
    return [(float(at), values[at]) for at in places]


def cut_line(result: OneByOneResult, ends: tuple[float, float]) -> list[Series]:
    """An upright line at the step at which exactly the mask's heads are left, if there is one."""
    if result.mask is None or result.mask.cut_step is None:
        return []
    at = float(result.mask.cut_step)
    return [
        Series("the mask\u2019s own heads are left", [(at, ends[0]), (at, ends[1])], "key-base")
    ]


def example_section(result: OneByOneResult) -> Html | None:
    """One prompt in full: what it says along the way. None where that is shown anyway."""
    one = result.example
    if one is None or result.sentences == 1 or not one.texts:
        return None
    rows = [
        (
            str(text.step),
            text.head or "none, as it is",
            number(one.target_ranks[text.step]),
            tag("bdi", text.text.strip() or "(nothing)"),
        )
        for text in one.texts[:TEXTS]
    ]
    grid = table(
        "Texts where they change",
        ["removed", "head", "target\u2019s rank", "text"],
        rows,
        class_="texts",
    )
    left = len(one.texts) - len(rows)
    more = f" {left} further changes are in result.json of the run." if left else ""
    caption = join(
        tag("strong", "One prompt. "),
        "The continuation is shown wherever it changes, beside the rank of the target\u2019s "
        f"first token.{more} Prompt: ",
        tag("bdi", f"\u201c{one.prompt}\u201d"),
        " Target: ",
        tag("bdi", f"\u201c{one.target}\u201d"),
    )
    body = figure("example-figure", caption, scroll("Texts of one prompt", grid))
    return section("example", "One prompt", body)
