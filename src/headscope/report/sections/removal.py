"""The quick causal check: what removing the top heads does, against as many random heads."""

from __future__ import annotations

from headscope.heads import rank_words
from headscope.report.charts import BarRow, bar_rows
from headscope.report.html import Html, join, tag
from headscope.report.parts import figure, scroll, section, table
from headscope.report.records.atlas import AtlasRecord
from headscope.report.sections.effects import (
    axis_end,
    effect_key,
    effect_rows,
    heads_list,
    is_crowded,
)
from headscope.report.sections.evidence import doing
from headscope.results.atlas import AtlasCheck
from headscope.results.removal import Effect
from headscope.shown.words import MEAN, count, direction_label, fixed, p_value, signed

__all__ = ["removal_section", "verdict"]


def removal_section(record: AtlasRecord) -> Html | None:
    """Bars for the mean, points for every direction and draw, and the numbers."""
    removal = record.removal
    if removal is None:
        return None
    effects, whole = removal.single, removal.whole
    if whole is not None and len(record.directions) > 1:
        effects = {MEAN: whole, **effects}
    parts: list[Html | None] = [
        heads_list(removal.k, removal.heads, {"Random draws": removal.random})
    ]
    if effects:
        label = len(record.directions)
        main = next(iter(effects))
        parts = [
            figure(
                "removal-figure",
                _caption(removal, effects[main], rank_words({"k": removal.k, **record.result})),
                _bars(effects[main], removal.k, doing(0.0, removal.ablate)),
                effect_key(many=any(map(is_crowded, effects.values()))),
                effect_rows(effects, label),
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


def verdict(effect: Effect, k: int, done: str = "removed") -> str:
    """In one sentence, what the top heads did against the random ones."""
    top, random = effect.top - effect.baseline, effect.random_mean - effect.baseline
    draws = count(len(effect.random), "draw")
    with_top, with_random = f"Without the {k} highest heads", "without as many random heads"
    if done != "removed":
        with_top = f"With the {k} highest heads {done}"
        with_random = f"with as many random heads {done}"
    text = (
        f"{with_top} chrF++ goes from {fixed(effect.baseline, 1)} to "
        f"{fixed(effect.top, 1)} ({signed(top)}); {with_random} it goes to "
        f"{fixed(effect.random_mean, 1)} ({signed(random)}, mean of {draws}), "
    )
    harmful = effect.at_least_as_harmful
    if harmful == 0 and top < 0:
        return text + "and no draw did as much harm."
    if top > random:
        return text + "so here the highest heads matter less than random ones."
    return text + f"and {harmful} of {draws} did as much harm, so this shows no special role."


def _caption(removal: AtlasCheck, effect: Effect, by: str | None) -> Html:
    single = removal.single
    beaten = sum(part.at_least_as_harmful == 0 for part in single.values())
    sentences = sum(part.sentences or 0 for part in removal.directions.values())
    draws = len(effect.random)
    least = 1 / (1 + draws)
    many = len(single)
    across = (
        f"In {beaten} of {many} directions the highest heads did more harm than every random draw. "
        if many > 1
        else ""
    )
    return join(
        tag("strong", "Translation quality with the heads in place and without them. "),
        verdict(effect, removal.k, doing(0.0, removal.ablate)),
        f" Highest are those by {by}. {_difference(removal)}{across}"
        f"How sure: {count(draws, 'random draw')} of heads can give a p-value over "
        f"draws of {p_value(least)} at best, so read this as a quick check, "
        f"on {count(sentences, 'sentence')} in all; more draws (--draws) make it surer, and heads "
        "drawn from the same layers would be a sterner control. A baseline near 0 would mean "
        "that the model does not translate, and then nothing can be read from this.",
    )


def _difference(removal: AtlasCheck) -> str:
    case = next(removal.cases, None)
    than = None if case is None else case.top.free
    if than is None or not than.difference.bounded:
        return ""
    gap = than.difference
    p = "" if than.p_examples is None else f"; p over sentences {p_value(than.p_examples)}"
    return (
        f"Against the mean draw that is {signed(gap.value)} (95\u00a0% interval from resampling "
        f"sentences {signed(gap.low)} to {signed(gap.high)}{p}). "
    )


def _bars(effect: Effect, k: int, done: str) -> Html:
    rows = [
        BarRow("as is", effect.baseline, "key-base"),
        BarRow(f"{k} random heads {done}", effect.random_mean, "key-random", effect.random),
        BarRow(f"{k} highest heads {done}", effect.top, "key-top"),
    ]
    return bar_rows(rows, axis_end(effect.values))


def _numbers(removal: AtlasCheck, effects: dict[str, Effect], directions: int) -> Html:
    draws = len(next(iter(effects.values())).random)
    sentences = {name: part.sentences or 0 for name, part in removal.directions.items()}
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
            str(sentences.get(name) or sum(sentences.values())),
            fixed(effect.baseline, 2),
            fixed(effect.top, 2),
            fixed(effect.random_mean, 2),
            *(fixed(draw, 2) for draw in effect.random),
        )
        for name, effect in effects.items()
    ]
    return table("chrF++ by direction and condition", header, rows, class_="numbers")
