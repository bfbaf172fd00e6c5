"""The report of `verify removal`: what a model does without some heads, beside controls."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean

from headscope.heads import rank_words
from headscope.report.drawing.sentences import SCRIPT, STYLE, Browser, browser, browser_section
from headscope.report.html import Html, join, tag
from headscope.report.page import Page
from headscope.report.pages.frame import about_run, masthead, simple_page
from headscope.report.parts import figure, scroll, section, table
from headscope.report.records.outputs import BASELINE, MATCHED, RANDOM, TOP, read_sentences
from headscope.report.sections.controls import limits_section
from headscope.report.sections.curves import curves_section
from headscope.report.sections.effects import (
    effect_key,
    effect_rows,
    heads_list,
    is_crowded,
)
from headscope.report.sections.evidence import (
    DRAWN,
    doing,
    effect_section,
    kinds_section,
    tests_section,
)
from headscope.report.sections.loss import loss_section, loss_verdict
from headscope.report.sections.removal import verdict
from headscope.results.removal import Case, Kind, Part, RemovalResult, removal_of
from headscope.runs.reading import naming, read_object
from headscope.shown.words import MEAN, count, direction_label, fixed, languages_of, p_value, signed

__all__ = ["page"]

#: How lists of the heads of random draws are called.
DRAWS: dict[Kind, str] = {RANDOM: "Random draws", MATCHED: "Draws of the same layers"}


def page(path: Path) -> Page:
    """The report of the removal run in this folder."""
    result = removal_of(path)
    with naming(path / "result.json", "a removal"):
        texts, case = "text" in result.measures, result.main_case
    k, gate, ablate = result.main
    done = doing(gate, ablate)
    shown = _browser(path, result)
    name = (result.model and result.model.name) or "model"
    languages = {part for one in result.directions for part in languages_of(one) if part}
    ended = read_object(path / "provenance.json").get("ended")
    head = masthead(
        name,
        f"What {'its translations lose' if texts else 'the reference translations cost it'} with "
        f"{k} chosen attention heads {done}, beside as many random ones.",
        [
            ("", count(len(result.directions), "direction")),
            ("", count(len(languages), "language")),
            ("", str(ended or "")[:10]),
        ],
        kicker="headscope verify removal",
    )
    return simple_page(
        f"{name} \u00b7 removal",
        head,
        [
            ("summary", "", _summary(result, case) if texts else _loss_summary(result)),
            ("effect", "Effect", effect_section(result) if texts else None),
            ("tests", "Tests", tests_section(result) if texts else None),
            ("loss", "Loss", loss_section(result)),
            ("kinds", "Zero and mean", kinds_section(result) if texts else None),
            ("curves", "Doses", curves_section(result) if texts else None),
            ("directions", "Directions", _directions(result, case) if texts else None),
            ("examples", "Sentences", _sentences(result, shown) if texts else None),
            ("caveats", "Caveats", limits_section(result)),
            ("provenance", "Provenance", about_run(path)),
        ],
        scripts=(SCRIPT,),
        styles=(STYLE,),
        data={"sentences": shown.data} if shown else {},
    )


def _browser(path: Path, result: RemovalResult) -> Browser | None:
    """The sentences under the conditions that the page speaks of."""
    k, gate, ablate = result.main
    done = doing(gate, ablate)
    labels = {
        BASELINE: "As is",
        TOP: f"Highest {done}",
        RANDOM: f"Random {done}",
        MATCHED: f"Random of the same layers {done}",
    }
    places = {BASELINE: 0}
    texts = [one.label for one in result.conditions if one.text is not None]
    for place, label in enumerate(texts, 1):
        if (label.k, label.gate, label.ablate) == result.main:
            places.setdefault(label.kind, place)
    return browser(read_sentences(path, k, gate, places, ablate), labels)


def _loss_summary(result: RemovalResult) -> Html:
    return tag(
        "section",
        tag("h2", "In short", id="summary-title", class_="unseen"),
        tag("p", tag("strong", loss_verdict(result))),
        id="summary",
        aria_labelledby="summary-title",
    )


def _summary(result: RemovalResult, case: Case) -> Html:
    """Tiles and the verdict, in one sentence made from the figures."""
    k, effect, done = result.main[0], result.effect(case), doing(*result.main[1:])
    by, draws = rank_words(vars(result)), len(case.draws(RANDOM))
    tiles: list[tuple[str, str]] = []
    if effect is not None:
        as_is = fixed(effect.baseline, 1)
        tiles += [
            (f"{as_is} \u2192 {fixed(effect.top, 1)}", f"chrF++ with the {k} highest {done}"),
            (f"{as_is} \u2192 {fixed(effect.random_mean, 1)}", f"chrF++ with {k} random {done}"),
        ]
    than = case.top.than(RANDOM)
    if than is not None and than.p_examples is not None:
        tiles.append((p_value(than.p_examples), "p over sentences"))
    if than is not None and than.p_draws is not None:
        many = f"{count(draws, 'random draw')}, the least they can give"
        words = many if than.p_draws == 1 / (1 + draws) else "random draws"
        tiles.append((p_value(than.p_draws), f"p over {words}"))
    if effect is None:
        said = "chrF++ has not been computed for this run, or it has no random heads beside it."
        if result.chrf is not None and case.top.chrf is not None:
            said = (
                f"With the {k} highest heads {done} chrF++ goes from "
                f"{fixed(result.chrf, 1)} to {fixed(case.top.chrf, 1)}; there are "
                "no random heads to compare with."
            )
    else:
        said = verdict(effect, k, done)
    return tag(
        "section",
        tag("h2", "In short", id="summary-title", class_="unseen"),
        tag("dl", [tag("div", tag("dt", w), tag("dd", n)) for n, w in tiles], class_="tiles"),
        tag("p", tag("strong", said)),
        tag("p", f"The heads are the highest by {by}.") if by else None,
        tag("p", tag("span", _sure(result, case), class_="sure")),
        id="summary",
        aria_labelledby="summary-title",
    )


def _sure(result: RemovalResult, case: Case) -> str:
    text = "How sure: measured"
    text += f" on {count(result.sentences, 'sentence')}" if result.sentences else ""
    than = case.top.than(RANDOM)
    if than is not None and than.difference.bounded:
        gap = than.difference
        text += (
            f"; the difference to random heads is {fixed(-gap.value, 1)} points of chrF++ "
            f"(95\u00a0% interval {fixed(-gap.high, 1)} to {fixed(-gap.low, 1)})"
        )
    draws = len(case.draws(RANDOM))
    if draws:
        text += (
            f"; {count(draws, 'random draw')} can give a p-value over draws of "
            f"{p_value(1 / (1 + draws))} at best"
        )
    return f"{text}."


def _directions(result: RemovalResult, case: Case) -> Html | None:
    several: dict[str, Part] = {MEAN: result} if len(result.directions) > 1 else {}
    parts = {**several, **result.directions}
    found = {name: part.effect(part.case(*result.main)) for name, part in parts.items()}
    effects = {name: effect for name, effect in found.items() if effect is not None}
    draws = {
        words: [one.heads or () for one in case.draws(kind)]
        for kind, words in DRAWS.items()
        if case.draws(kind)
    }
    heads = heads_list(result.main[0], result.heads, draws)
    if not effects:
        return section("directions", "Direction by direction", heads)
    many = len(result.directions)
    single = [effect for name, effect in effects.items() if name in result.directions]
    beaten = sum(effect.at_least_as_harmful == 0 for effect in single)
    caption = join(
        tag("strong", "chrF++ of every direction. "),
        "The change is that of the highest heads. ",
        f"In {beaten} of {count(many, 'direction')} they did more harm than every random draw. ",
        "Directions share their sentences\u2019 subjects and the heads, so they are no independent "
        "tests; one direction alone rests on fewer sentences than the mean, and is less sure.",
    )
    header = ["Direction", "Sentences", "As is", "Highest", "95\u00a0% interval of the change"]
    header += [f"{words.capitalize()}, mean" for words in DRAWN.values()]
    header += ["p over sentences", "p over draws"]
    rows = [
        (direction_label(name, many), *_numbers(part, part.case(*result.main)))
        for name, part in parts.items()
    ]
    numbers = table("chrF++ by direction", header, rows, class_="numbers")
    matched = any(effect.matched for effect in effects.values())
    key = effect_key(matched, any(map(is_crowded, effects.values())))
    return section(
        "directions",
        "Direction by direction",
        figure("by-direction", caption, key, effect_rows(effects, many)),
        tag(
            "details",
            tag("summary", "The numbers"),
            scroll("chrF++ by direction", numbers),
        ),
        heads,
    )


def _numbers(part: Part, case: Case | None) -> tuple[str, ...]:
    """A direction's sentences, chrF++ of every kind of condition, and tests."""
    change = case.top.change.chrf if case else None
    interval = "\u2013"
    if change is not None and change.bounded:
        interval = f"{signed(change.low)} to {signed(change.high)}"
    drawn = [case.chrf(kind) if case else () for kind in DRAWN]
    than = case.top.than(RANDOM) if case else None
    tests = (None, None) if than is None else (than.p_examples, than.p_draws)
    return (
        str(part.sentences or "\u2013"),
        fixed(part.chrf, 2),
        fixed(case.top.chrf if case else None, 2),
        interval,
        *(fixed(fmean(values), 2) if values else "\u2013" for values in drawn),
        *("\u2013" if p is None else p_value(p) for p in tests),
    )


def _sentences(result: RemovalResult, shown: Browser | None) -> Html:
    if shown is None:
        lost = "No sentences can be shown: outputs.jsonl of the run folder is missing or empty."
        return section("examples", "Sentences", tag("p", lost, class_="note"))
    reason = (
        "Words are not linked, so none light up: the data have no word links, and no aligner "
        "was installed when the run was made."
    )
    return browser_section(shown, result.linked_by, reason)
