"""The report of `use adapt --steer`: answers in the wrong language, by factor of chosen heads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from headscope.report.charts import Series, line_chart
from headscope.report.html import Child, Html, join, tag
from headscope.report.page import Page
from headscope.report.pages.frame import about_run, masthead, simple_page
from headscope.report.parts import figure, scroll, section, table
from headscope.report.sections.writing import (
    Scale,
    examples_section,
    named,
    not_measured,
    numbers_section,
    sure,
)
from headscope.results.writing import Comparison, Steering
from headscope.runs.reading import result_of
from headscope.shown.words import between, count, enumeration, fixed, number, p_value

__all__ = ["page"]

KIND = "steered answers"
SCALES = {
    "off_target": Scale("answers in another language, %", 100.0),
    "empty": Scale("empty answers, %", 100.0),
    "chrf": Scale("chrF++ to the references"),
}
CONTROLS = {
    "random": ("random heads, mean", "key-random"),
    "random-layer-matched": ("random heads of the same layers, mean", "key-matched"),
}
#: The model as it is stands among the factors.
NEUTRAL = 1.0


def page(path: Path) -> Page:
    """The report of a run of `use adapt --steer` in this folder."""
    result = result_of(path, Steering, KIND)
    kinds = {f"x{factor:g}": f"heads times {factor:g}" for factor in result.factors}
    if result.away is not None:
        kinds["away x0"] = f"heads of {result.away} removed"
    facts = [
        ("heads", enumeration([f"{code} {len(own)}" for code, own in result.heads.items()])),
        ("random draws of each kind", str(result.draws)),
        ("identified by", result.identifier or ""),
    ]
    lead = (
        f"Answers asked for in {enumeration(result.steer)}, with the heads of "
        "that language multiplied by a factor: how many are in another language, beside as many "
        "random heads multiplied alike."
    )
    charts = [
        (f"by-factor-{measure}", title, _by_factor(result, measure, title))
        for measure, title in (
            ("off_target", "Another language"),
            ("chrf", "Quality"),
            ("empty", "Empty"),
        )
    ]
    return simple_page(
        f"{result.model_name} \u00b7 {KIND}",
        masthead(result.model_name, lead, facts, kicker="headscope use adapt --steer"),
        [
            ("summary", "", _summary(result, kinds)),
            *charts,
            ("numbers", "Numbers", numbers_section(result, SCALES, kinds, "Language")),
            ("examples", "Answers", examples_section(path, kinds, "language")),
            ("provenance", "Provenance", about_run(path)),
        ],
    )


def _summary(result: Steering, kinds: Mapping[str, str]) -> Html:
    lines: list[Child] = []
    if (gate := result.gate) is not None:
        without = [
            f"{fixed(100 * off, 1)}\u00a0% in {code}"
            for code, part in result.groups.items()
            if (off := (part.without_gate or {}).get("off_target")) is not None
        ]
        text = f"{gate.name} is on the model throughout ({gate.heads} heads changed)"
        text += (
            f"; without it answers in another language are {enumeration(without)}."
            if without
            else "."
        )
        lines.append(text)
    lines.append(
        "An answer in the right language that says nothing is no success: read the share beside "
        "chrF++ and the empty answers. Each row is a comparison of its own; none is corrected for "
        "their number."
    )
    lines += map(capital, not_measured(result.not_measured, SCALES))
    effects = (result.whole.effect(kind, "off_target") for kind in result.whole.effects)
    first = next((effect for effect in effects if effect is not None), None)
    return section(
        "summary",
        "In short",
        [tag("p", line) for line in lines],
        _table(result, kinds),
        sure(first, result.whole),
    )


def _table(result: Steering, kinds: Mapping[str, str]) -> Html | None:
    """Every condition in a row: answers in another language, tests, and quality."""
    rows: list[tuple[str, ...]] = []
    for kind, words in kinds.items():
        effect, chrf = result.whole.effect(kind, "off_target"), result.whole.effect(kind, "chrf")
        if effect is None:
            continue
        if not rows:
            rows.append(
                ("as is", fixed(100 * effect.baseline, 1), *["\u2013"] * 6,
                 fixed(None if chrf is None else chrf.baseline, 1))
            )  # fmt: skip
        change, tests = effect.change, effect.free.against if effect.free else None
        rows.append(
            (
                words,
                fixed(100 * effect.value, 1),
                between(100 * change.low, 100 * change.high, 1),
                p_value(effect.p_change),
                *(
                    fixed(None if control is None else 100 * control.draws.mean, 1)
                    for control in (effect.free, effect.matched)
                ),
                p_value(tests.p_examples if tests else None),
                p_value(tests.p_draws if tests else None),
                fixed(None if chrf is None else chrf.value, 1),
            )
        )
    if not rows:
        return None
    header = ["Heads", "Other language, %", "95\u00a0% interval of the change", "p of the change"]
    header += ["Random heads, %", "Same layers, %", "p over prompts", "p over draws", "chrF++"]
    shown = table("Answers in another language", header, rows, class_="numbers")
    note = (
        "p of the change: a paired test of the answers with and without, two-sided. p over "
        "prompts and over draws: fewer answers in another language than with random heads."
    )
    return join(scroll("Answers in another language", shown), tag("p", note, class_="note"))


def capital(words: str) -> str:
    """With a capital letter, where it does not begin with a name."""
    return words if words.startswith("chrF") else words[:1].upper() + words[1:]


def _by_factor(result: Steering, measure: str, title: str) -> Html | None:
    """A chart a language and of their mean: the measure by factor, random heads beside."""
    scale = SCALES[measure]
    parts = []
    for name, part in result.parts.items():
        chart = _chart(part, result.factors, measure, scale)
        if chart is not None:
            note = tag("p", count(part.prompts, "prompt"), class_="note")
            heading = tag("h3", tag("bdi", named(name, result)))
            parts.append(tag("div", heading, note, chart))
    if not parts:
        return None
    caption = join(
        tag("strong", f"{capital(scale.words)} by the factor of the heads. "),
        "At 1 the model is as it is. The band around the line is the 95\u00a0% interval of the "
        "change over prompts; the bands around random heads reach from the lowest to the highest "
        "single draw. The identifier errs on short texts.",
    )
    identifier = f"by-factor-{measure}"
    return section(identifier, title, figure(f"{identifier}-figure", caption, parts))


def _chart(part: Comparison, factors: Sequence[float], measure: str, scale: Scale) -> Html | None:
    found = {
        factor: effect
        for factor in factors
        if (effect := part.effect(f"x{factor:g}", measure)) is not None
    }
    if not found:
        return None
    neutral = next(iter(found.values())).baseline * scale.times
    at_one = (NEUTRAL, neutral, neutral)

    def line(values: Mapping[float, float]) -> list[tuple[float, float]]:
        points = {NEUTRAL: neutral} | {at: value * scale.times for at, value in values.items()}
        return sorted(points.items())

    around = [at_one]
    for factor, effect in found.items():
        low, high = (end * scale.times for end in effect.span)
        around.append((factor, max(0.0, low), min(100.0, high)))
    values = line({factor: effect.value for factor, effect in found.items()})
    series = [Series("heads of the language", values, "key-top", sorted(around))]
    for kind, (words, mark) in CONTROLS.items():
        band, means = [at_one], {}
        for factor, effect in found.items():
            drawn = part.draws(f"x{factor:g}", kind, measure)
            if kind in effect.controls and drawn:
                band.append((factor, min(drawn) * scale.times, max(drawn) * scale.times))
                means[factor] = effect.controls[kind].draws.mean
        if means:
            series.append(Series(words, line(means), mark, sorted(band)))
    said = ", ".join(
        f"{number(at)}: {fixed(effect.value * scale.times, scale.digits)}"
        for at, effect in sorted(found.items())
    )
    top = (0.0, 100.0) if measure != "chrf" else None
    description = f"{scale.words} by factor; as is {fixed(neutral, scale.digits)}, {said}."
    return line_chart(series, "factor of the heads", scale.words, description, y_range=top)
