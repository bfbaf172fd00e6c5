"""The report of `use adapt --steer`: answers in the wrong language, by factor of chosen heads."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headscope.report.charts import Series, line_chart
from headscope.report.html import Child, Html, join, tag
from headscope.report.page import Page
from headscope.report.pages.frame import about_run, masthead, simple_page
from headscope.report.parts import figure, scroll, section, table
from headscope.report.records.writing import MEAN, Effect, Part, WritingRecord, read_writing
from headscope.report.sections.writing import (
    Scale,
    examples_section,
    numbers_section,
    sure,
)
from headscope.report.words import between, count, enumeration, fixed, number, p_value
from headscope.runs.reading import naming

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
    record = read_writing(path, "languages", "language", KIND)
    with naming(path / "result.json", KIND):
        factors = [float(one) for one in record.result["factors"]]
        away = record.result["away"]
        kinds = {f"x{one:g}": f"heads times {one:g}" for one in factors}
        if away is not None:
            kinds["away x0"] = f"heads of {away} removed"
        heads = {str(code): [str(one) for one in found]
                 for code, found in record.result["heads"].items()}  # fmt: skip
        gate = record.result["gate"]
        missing = {str(name): str(why) for name, why in record.result["not_measured"].items()}
        facts = [
            ("heads", enumeration([f"{code} {len(found)}" for code, found in heads.items()])),
            ("random draws of each kind", str(record.result["draws"])),
            ("identified by", str(record.result["identifier"] or "")),
        ]
        before = [_before(code, one) for code, one in record.result["languages"].items()]
    lead = (
        f"Answers asked for in {enumeration(list(record.result['steer']))}, with the heads of "
        "that language multiplied by a factor: how many are in another language, beside as many "
        "random heads multiplied alike."
    )
    charts = [
        (f"by-factor-{measure}", title, _by_factor(record, factors, measure, title))
        for measure, title in (
            ("off_target", "Another language"),
            ("chrf", "Quality"),
            ("empty", "Empty"),
        )
    ]
    return simple_page(
        f"{record.model} \u00b7 {KIND}",
        masthead(record.model, lead, facts, kicker="headscope use adapt --steer"),
        [
            ("summary", "", _summary(record, kinds, gate, before, missing)),
            *charts,
            ("numbers", "Numbers", numbers_section(record, SCALES, kinds, "Language")),
            ("examples", "Answers", examples_section(record, kinds, "Language")),
            ("provenance", "Provenance", about_run(path)),
        ],
    )


def _before(code: str, one: Mapping[str, Any]) -> str | None:
    """What the model does without the gate that is on it throughout."""
    if "without_gate" not in one:
        return None
    off = one["without_gate"]["off_target"]
    return None if off is None else f"{fixed(100 * float(off), 1)}\u00a0% in {code}"


def _summary(
    record: WritingRecord,
    kinds: Mapping[str, str],
    gate: Mapping[str, Any] | None,
    before: list[str | None],
    missing: Mapping[str, str],
) -> Html:
    lines: list[Child] = []
    if gate is not None:
        known = [one for one in before if one is not None]
        text = f"{gate['name']} is on the model throughout ({gate['heads']} heads changed)"
        text += (
            f"; without it answers in another language are {enumeration(known)}." if known else "."
        )
        lines.append(text)
    lines.append(
        "An answer in the right language that says nothing is no success: read the share beside "
        "chrF++ and the empty answers. Each row is a comparison of its own; none is corrected for "
        "their number."
    )
    lines += [f"{capital(SCALES[name].words)} was not measured: {why}."
              for name, why in missing.items()]  # fmt: skip
    first = next(
        (one["off_target"] for one in record.whole.effects.values() if "off_target" in one), None
    )
    return section(
        "summary",
        "In short",
        [tag("p", line) for line in lines],
        _table(record, kinds),
        sure(first, record.whole),
    )


def _table(record: WritingRecord, kinds: Mapping[str, str]) -> Html | None:
    """Every condition in a row: answers in another language, tests, and quality."""
    rows: list[tuple[str, ...]] = []
    for kind, words in kinds.items():
        effects = record.whole.effects.get(kind, {})
        if "off_target" not in effects:
            continue
        one, chrf = effects["off_target"], effects.get("chrf")
        if not rows:
            rows.append(
                ("as is", fixed(100 * one.baseline, 1), *["\u2013"] * 6,
                 fixed(None if chrf is None else chrf.baseline, 1))
            )  # fmt: skip
        change = float(record.result["effects"][kind]["off_target"]["p_change"])
        _, low, high = one.change
        p_prompts, p_drawn, _ = one.tests.get("random", (None, None, 0))
        rows.append(
            (
                words,
                fixed(100 * one.value, 1),
                between(100 * low, 100 * high, 1),
                p_value(change),
                *(_percent(one.random.get(control)) for control in CONTROLS),
                p_value(p_prompts),
                p_value(p_drawn),
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


def _percent(share: float | None) -> str:
    return fixed(None if share is None else 100 * share, 1)


def capital(words: str) -> str:
    """With a capital letter, where it does not begin with a name."""
    return words if words.startswith("chrF") else words[:1].upper() + words[1:]


def _by_factor(
    record: WritingRecord, factors: list[float], measure: str, title: str
) -> Html | None:
    """A chart a language and of their mean: the measure by factor, random heads beside."""
    scale = SCALES[measure]
    parts = []
    for name, part in sorted(record.parts.items(), key=lambda item: item[0] != MEAN):
        chart = _chart(part, factors, measure, scale)
        if chart is not None:
            words = f"mean of {len(record.parts) - 1}" if name == MEAN else name
            note = tag("p", count(part.prompts, "prompt"), class_="note")
            parts.append(tag("div", tag("h3", tag("bdi", words)), note, chart))
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


def _chart(part: Part, factors: list[float], measure: str, scale: Scale) -> Html | None:
    found = {
        factor: effect
        for factor in factors
        if (effect := part.effects.get(f"x{factor:g}", {}).get(measure)) is not None
    }
    if not found:
        return None
    neutral = next(iter(found.values())).baseline * scale.times
    at_one = (NEUTRAL, neutral, neutral)

    def line(values: Mapping[float, float]) -> list[tuple[float, float]]:
        points = {NEUTRAL: neutral} | {at: value * scale.times for at, value in values.items()}
        return sorted(points.items())

    series = [
        Series(
            "heads of the language",
            line({factor: effect.value for factor, effect in found.items()}),
            "key-top",
            sorted([at_one, *(_around(factor, effect, scale) for factor, effect in found.items())]),
        )
    ]
    for control, (words, mark) in CONTROLS.items():
        drawn = {at: one for at, one in found.items() if one.draws.get(control)}
        if drawn:
            band = [at_one]
            for at, one in drawn.items():
                values = [value * scale.times for value in one.draws[control]]
                band.append((at, min(values), max(values)))
            means = line({at: one.random[control] for at, one in drawn.items()})
            series.append(Series(words, means, mark, sorted(band)))
    said = ", ".join(
        f"{number(at)}: {fixed(one.value * scale.times, scale.digits)}"
        for at, one in sorted(found.items())
    )
    top = (0.0, 100.0) if measure != "chrf" else None
    description = f"{scale.words} by factor; as is {fixed(neutral, scale.digits)}, {said}."
    return line_chart(series, "factor of the heads", scale.words, description, y_range=top)


def _around(factor: float, effect: Effect, scale: Scale) -> tuple[float, float, float]:
    """The interval of the change, around the value that it leads to."""
    _, low, high = effect.change
    ends = [(effect.baseline + end) * scale.times for end in (low, high)]
    return factor, max(0.0, ends[0]), min(100.0, ends[1])
