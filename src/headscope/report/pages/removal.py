"""The report of `verify removal`: what a model does without some heads, beside controls."""

from __future__ import annotations

from pathlib import Path

from headscope.heads import rank_words
from headscope.report.html import Html, join, tag
from headscope.report.page import Page
from headscope.report.pages.frame import about_run, masthead, simple_page
from headscope.report.parts import figure, scroll, section, table
from headscope.report.records.outputs import BASELINE, MATCHED, RANDOM, TOP
from headscope.report.records.removal import RemovalRecord, read_removal
from headscope.report.sections.controls import limits_section
from headscope.report.sections.curves import curves_section
from headscope.report.sections.effects import (
    effect_key,
    effect_rows,
    heads_list,
    is_crowded,
    signed,
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
from headscope.report.sections.sentences import SCRIPT, STYLE, Browser, browser, browser_section
from headscope.report.words import count, direction_label, fixed, languages_of, p_value

__all__ = ["page"]


def page(path: Path) -> Page:
    """The report of the removal run in this folder."""
    record = read_removal(path)
    texts = "text" in record.measures
    k, gate = record.main
    done = doing(gate, _ablate(record))
    labels = {
        BASELINE: "As is",
        TOP: f"Highest {done}",
        RANDOM: f"Random {done}",
        MATCHED: f"Random of the same layers {done}",
    }
    shown = browser(record.sentences, labels)
    name = str(dict(record.result.get("model") or {}).get("name") or "model")
    languages = {part for one in record.directions for part in languages_of(one) if part}
    head = masthead(
        name,
        f"What {'its translations lose' if texts else 'the reference translations cost it'} with "
        f"{k} chosen attention heads {done}, beside as many random ones.",
        [
            ("", count(len(record.directions), "direction")),
            ("", count(len(languages), "language")),
            ("", str(record.provenance.get("ended") or "")[:10]),
        ],
        kicker="headscope verify removal",
    )
    return simple_page(
        f"{name} \u00b7 removal",
        head,
        [
            ("summary", "", _summary(record) if texts else _loss_summary(record)),
            ("effect", "Effect", effect_section(record) if texts else None),
            ("tests", "Tests", tests_section(record) if texts else None),
            ("loss", "Loss", _loss(record)),
            ("kinds", "Zero and mean", kinds_section(record) if texts else None),
            ("curves", "Doses", curves_section(record) if texts else None),
            ("directions", "Directions", _directions(record) if texts else None),
            ("examples", "Sentences", _sentences(record, shown) if texts else None),
            ("caveats", "Caveats", limits_section(record)),
            ("provenance", "Provenance", about_run(path)),
        ],
        scripts=(SCRIPT,),
        styles=(STYLE,),
        data={"sentences": shown.data} if shown else {},
    )


def _ablate(record: RemovalRecord) -> str:
    return str(record.result.get("ablate") or "zero")


def _loss(record: RemovalRecord) -> Html | None:
    if "loss" not in record.measures:
        return None
    return loss_section(record.result, *record.main, _done(record))


def _done(record: RemovalRecord) -> dict[str, str]:
    return {ablate: doing(record.main[1], ablate) for ablate in record.kinds}


def _loss_summary(record: RemovalRecord) -> Html:
    said = loss_verdict(record.result, *record.main, _done(record))
    return tag(
        "section",
        tag("h2", "In short", id="summary-title", class_="unseen"),
        tag("p", tag("strong", said)),
        id="summary",
        aria_labelledby="summary-title",
    )


def _summary(record: RemovalRecord) -> Html:
    """Tiles and the verdict, in one sentence made from the figures."""
    k, gate = record.main
    case, effect = record.case, record.mean.effect(k, gate)
    done, by = doing(gate, _ablate(record)), rank_words(record.result)
    tiles: list[tuple[str, str]] = []
    if effect is not None:
        as_is = fixed(effect.baseline, 1)
        tiles += [
            (f"{as_is} \u2192 {fixed(effect.top, 1)}", f"chrF++ with the {k} highest {done}"),
            (f"{as_is} \u2192 {fixed(effect.random_mean, 1)}", f"chrF++ with {k} random {done}"),
        ]
    for name, words in (("p_sentences", "sentences"), ("p_draws", "random draws")):
        p = case.top.tests.get(name)
        if p is not None:
            least = name == "p_draws" and p == 1 / (1 + len(case.random))
            many = f"{count(len(case.random), 'random draw')}, the least they can give"
            tiles.append((p_value(p), f"p over {many if least else words}"))
    if effect is None:
        said = "chrF++ has not been computed for this run, or it has no random heads beside it."
        if record.mean.baseline["chrf"] is not None and case.top.chrf is not None:
            said = (
                f"With the {k} highest heads {done} chrF++ goes from "
                f"{fixed(record.mean.baseline['chrf'], 1)} to {fixed(case.top.chrf, 1)}; there are "
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
        tag("p", tag("span", _sure(record), class_="sure")),
        id="summary",
        aria_labelledby="summary-title",
    )


def _sure(record: RemovalRecord) -> str:
    case, sentences = record.case, record.mean.sentences
    text = "How sure: "
    text += f"measured on {count(sentences, 'sentence')}" if sentences else "measured"
    gap = case.top.against.get(RANDOM)
    if gap is not None and gap.low is not None and gap.high is not None:
        text += (
            f"; the difference to random heads is {fixed(-gap.value, 1)} points of chrF++ "
            f"(95\u00a0% interval {fixed(-gap.high, 1)} to {fixed(-gap.low, 1)})"
        )
    draws = len(case.random)
    if draws:
        text += (
            f"; {count(draws, 'random draw')} can give a p-value over draws of "
            f"{p_value(1 / (1 + draws))} at best"
        )
    return f"{text}."


def _directions(record: RemovalRecord) -> Html | None:
    k, gate = record.main
    parts = record.parts
    found = {name: part.effect(k, gate) for name, part in parts.items()}
    effects = {name: effect for name, effect in found.items() if effect is not None}
    draws = {
        words: [one.heads for one in record.case.draws(kind)]
        for kind, words in (("random", "Random draws"), (MATCHED, "Draws of the same layers"))
        if record.case.draws(kind)
    }
    heads = heads_list(k, record.heads, draws)
    if not effects:
        return section("directions", "Direction by direction", heads)
    many = len(record.directions)
    single = [effect for name, effect in effects.items() if name in record.directions]
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
    rows = [_numbers(name, record, many) for name in parts]
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


def _numbers(name: str, record: RemovalRecord, many: int) -> tuple[Html | str, ...]:
    part = record.parts[name]
    case = part.case(*record.main)
    change = case.top.change if case else None
    interval = "\u2013"
    if change is not None and change.low is not None and change.high is not None:
        interval = f"{signed(change.low)} to {signed(change.high)}"
    means: list[str] = []
    for kind in DRAWN:
        values = [one.chrf for one in case.draws(kind)] if case else []
        known = [value for value in values if value is not None]
        means.append(fixed(sum(known) / len(known), 2) if known else "\u2013")
    tests = case.top.tests if case else {}
    return (
        direction_label(name, many),
        str(part.sentences or "\u2013"),
        fixed(part.baseline["chrf"], 2),
        fixed(case.top.chrf if case else None, 2),
        interval,
        *means,
        *(p_value(tests[p]) if p in tests else "\u2013" for p in ("p_sentences", "p_draws")),
    )


def _sentences(record: RemovalRecord, shown: Browser | None) -> Html:
    if shown is None:
        lost = "No sentences can be shown: outputs.jsonl of the run folder is missing or empty."
        return section("examples", "Sentences", tag("p", lost, class_="note"))
    method = dict(record.result.get("links") or {}).get("method")
    reason = (
        "Words are not linked, so none light up: the data have no word links, and no aligner "
        "was installed when the run was made."
    )
    return browser_section(shown, method, reason)
