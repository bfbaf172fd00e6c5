"""The quick causal check: what removing the top heads does, against as many random heads."""

from __future__ import annotations

from math import ceil

from headscope.report.html import Html, join, tag
from headscope.report.parts import figure, legend, scroll, section, table, var_style
from headscope.report.record import AtlasRecord, Effect, Removal
from headscope.report.words import MEAN, count, direction_label, fixed

__all__ = ["removal_section", "verdict"]


def removal_section(record: AtlasRecord) -> Html | None:
    """Bars for the mean, points for every direction and draw, and the numbers."""
    removal = record.removal
    if removal is None:
        return None
    effects = dict(removal.directions)
    if removal.mean is not None and len(record.directions) > 1:
        effects = {MEAN: removal.mean, **effects}
    parts: list[Html | None] = [_heads(removal)]
    if effects:
        end = _axis_end(effects)
        label = len(record.directions)
        main = next(iter(effects))
        parts = [
            figure(
                "removal-figure",
                _caption(removal, effects[main]),
                _bars(effects[main], removal.k, end),
                _key(),
                tag(
                    "div",
                    _axis(end),
                    [_row(n, e, end, label) for n, e in effects.items()],
                    class_="dots",
                    aria_hidden="true",
                ),
            ),
            tag(
                "details",
                tag("summary", "The numbers"),
                scroll("chrF++ by direction and condition", _numbers(removal, effects, label)),
            ),
            *parts,
        ]
    else:
        parts.insert(0, tag("p", "chrF++ has not been computed for this run."))
    return section("removal", "What removing them does", *parts)


def verdict(effect: Effect, k: int) -> str:
    """In one sentence, what the top heads did against the random ones."""
    top, random = effect.top - effect.baseline, effect.random_mean - effect.baseline
    draws = count(len(effect.random), "draw")
    text = (
        f"Without the {k} highest heads chrF++ goes from {fixed(effect.baseline, 1)} to "
        f"{fixed(effect.top, 1)} ({_signed(top)}); without as many random heads it goes to "
        f"{fixed(effect.random_mean, 1)} ({_signed(random)}, mean of {draws}), "
    )
    harmful = effect.at_least_as_harmful
    if harmful == 0:
        return text + "and no draw did as much harm."
    if top > random:
        return text + "so here the highest heads matter less than random ones."
    return text + f"and {harmful} of {draws} did as much harm, so this shows no special role."


def _caption(removal: Removal, effect: Effect) -> Html:
    beaten = sum(part.at_least_as_harmful == 0 for part in removal.directions.values())
    sentences = sum(removal.sentences.values())
    draws = len(effect.random)
    least = 1 / (1 + draws)
    many = len(removal.directions)
    across = (
        f"In {beaten} of {many} directions the highest heads did more harm than every random draw. "
        if many > 1
        else ""
    )
    return join(
        tag("strong", "Translation quality with the heads in place and without them. "),
        verdict(effect, removal.k),
        f" {across}How sure: {count(draws, 'random draw')} of heads can give a p-value of "
        f"{fixed(least, 2)} at best, so read this as a quick check, on "
        f"{count(sentences, 'sentence')} in all; more draws (--draws) make it surer, and heads "
        "drawn from the same layers would be a sterner control. A baseline near 0 would mean "
        "that the model does not translate, and then nothing can be read from this.",
    )


def _bars(effect: Effect, k: int, end: float) -> Html:
    rows = [
        ("key-base", "as is", effect.baseline, ()),
        ("key-random", f"{k} random heads removed", effect.random_mean, effect.random),
        ("key-top", f"{k} highest heads removed", effect.top, ()),
    ]
    items = []
    for mark, words, value, draws in rows:
        points = [tag("u", style=var_style(v=draw / end)) for draw in draws]
        bar = tag(
            "span", tag("b", class_=mark), points, class_="bar", style=var_style(v=value / end)
        )
        items.append(tag("div", tag("dt", words), tag("dd", bar, tag("span", fixed(value, 1)))))
    return tag("dl", items, class_="bars")


def _row(name: str, effect: Effect, end: float, directions: int) -> Html:
    span = var_style(
        a=min(effect.top, effect.baseline) / end, z=max(effect.top, effect.baseline) / end
    )
    marks = [
        tag("b", style=span),
        [tag("u", style=var_style(v=draw / end)) for draw in effect.random],
        tag("i", class_="base", style=var_style(v=effect.baseline / end)),
        tag("i", class_="top", style=var_style(v=effect.top / end)),
    ]
    return tag(
        "div",
        tag("span", direction_label(name, directions), class_="name"),
        tag("span", marks, class_="track"),
        tag("span", _signed(effect.top - effect.baseline), class_="change"),
        class_="row mean" if name == MEAN else "row",
    )


def _axis(end: float) -> Html:
    step = 20 if end > 50 else 10 if end > 20 else 5
    ticks = [
        tag("span", tick, style=var_style(v=tick / end)) for tick in range(0, int(end) + 1, step)
    ]
    return tag(
        "div",
        tag("span", "chrF++", class_="name"),
        tag("span", ticks, class_="track"),
        tag("span", "change", class_="change"),
        class_="row axis",
    )


def _key() -> Html:
    return legend(
        ("dot-base", "as is"),
        ("dot-random", "random heads removed, one point a draw"),
        ("dot-top", "highest heads removed"),
    )


def _numbers(removal: Removal, effects: dict[str, Effect], directions: int) -> Html:
    draws = len(next(iter(effects.values())).random)
    header = [
        "Direction",
        "Sentences",
        "As is",
        "Highest removed",
        "Random removed, mean",
        *(f"Draw {number}" for number in range(draws)),
    ]
    rows = [
        (
            direction_label(name, directions),
            str(removal.sentences.get(name) or sum(removal.sentences.values())),
            fixed(effect.baseline, 2),
            fixed(effect.top, 2),
            fixed(effect.random_mean, 2),
            *(fixed(draw, 2) for draw in effect.random),
        )
        for name, effect in effects.items()
    ]
    return table("chrF++ by direction and condition", header, rows, class_="numbers")


def _heads(removal: Removal) -> Html:
    draws = [tag("li", tag("code", ", ".join(draw))) for draw in removal.random]
    return tag(
        "details",
        tag("summary", f"The {count(removal.k, 'head')} that were removed"),
        tag(
            "p",
            "Highest, ready to be given to ",
            tag("code", "--heads"),
            ": ",
            tag("code", ",".join(removal.heads), class_="heads"),
        ),
        tag("p", "Random draws:"),
        tag("ol", draws, start=0),
    )


def _axis_end(effects: dict[str, Effect]) -> float:
    highest = max(max(e.baseline, e.top, *e.random) for e in effects.values())
    return float(min(100, max(10, ceil(highest / 10) * 10)))


def _signed(change: float) -> str:
    text = fixed(change, 1)
    return f"+{text}" if change > 0 and float(f"{change:.1f}") != 0 else text
