"""What is shown of answers steered to a language: shares in another one by factor of its heads."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from headscope.results.writing import MEAN, Comparison, Effect, Steering
from headscope.shown.blocks import Block, HeadSets, Lines, Section, Series, Shown
from headscope.shown.words import enumeration
from headscope.studies.comparison import RANDOM, Scale
from headscope.studies.shows import named_places
from headscope.studies.use.gates import factors_section
from headscope.studies.verify.writing import CONTROLS, Writing, said

OTHER = {"off_target": Scale("Answers in another language", "the share in another language")}
REST = {
    "empty": Scale("Empty answers", "the share of empty answers"),
    "chrf": Scale("chrF++ to the references", "chrF++", unit=""),
}
#: The factor of the original model, which stands among the others.
NEUTRAL = 1.0


def show_steered(result: Steering, run: Path) -> Shown:
    """Answers in another language under every factor, with tests, charts, heads and answers."""
    kinds = {f"x{factor:g}": f"heads \u00d7 {factor:g}" for factor in result.factors}
    if result.away is not None:
        kinds["away x0"] = f"heads of {result.away} removed"
    cautions = [
        "An answer in the right language that says nothing is no success: look at chrF++ and empty "
        "answers, too.",
    ]
    if len(kinds) > 1:
        cautions.append(
            f"The condition with the fewest such answers was selected from {len(kinds)} on these "
            "same answers; p is not corrected for that."
        )
    expected = "fewer answers in another language, more empty ones, a higher chrF++"
    sets = {code: named_places(heads) for code, heads in result.heads.items()}
    return Writing(result, kinds, OTHER, REST, expected, result.not_measured).shown(
        run,
        "Steering the language of answers",
        "Are fewer answers in another language than asked for if a language's heads are scaled?",
        _finding(result, kinds),
        cautions,
        [
            *_by_factor(result),
            Section("The heads", [HeadSets("Heads of each language", sets)]),
            *(factors_section(result.model, result.gate.applied) if result.gate else []),
        ],
        [("identified by", result.identifier)] if result.identifier else [],
    )


def _finding(result: Steering, kinds: Mapping[str, str]) -> list[str]:
    """The share under every condition, and the lowest against random heads."""
    scale, whole = OTHER["off_target"], result.whole
    found = {
        kind: effect for kind in kinds if (effect := whole.effect(kind, "off_target")) is not None
    }
    if not found:
        return ["The languages of the answers were not identified."]
    best = min(found, key=lambda kind: found[kind].value)
    shares = [f"{kinds[kind]} {scale.number(effect.value)}" for kind, effect in found.items()]
    original = scale.number(found[best].baseline)
    more = [
        *said(whole, f"With {kinds[best]}", best, "off_target", scale),
        *said(whole, f"With {kinds[best]}", best, "chrf", REST["chrf"]),
    ]
    if (gate := result.gate) is not None:
        without = [
            f"{scale.number(off)} in {code}"
            for code, part in result.groups.items()
            if (off := (part.without_gate or {}).get("off_target")) is not None
        ]
        words = f"{gate.name} is on the model throughout ({gate.heads} heads changed)"
        more.append(f"{words}{'; without it ' if without else ''}{enumeration(without)}.")
    return [f"Answers in another language: original {original}, {enumeration(shares)}.", *more]


def _by_factor(result: Steering) -> list[Section]:
    blocks: list[Block] = []
    for measure, scale in {**OTHER, **REST}.items():
        for name, part in result.parts.items():
            title = f"mean of {len(result.groups)}" if name == MEAN else name
            found = {
                factor: effect
                for factor in result.factors
                if (effect := part.effect(f"x{factor:g}", measure)) is not None
            }
            if found:
                blocks.append(_lines(f"{scale.words}, {title}", part, found, measure, scale))
    lead = "At 1 the model is the original one. The identifier errs on short texts."
    return [Section("By factor", blocks, lead)] if blocks else []


def _lines(
    title: str, part: Comparison, found: Mapping[float, Effect], measure: str, scale: Scale
) -> Lines:
    """The measure by factor: selected heads with intervals, random ones with all their draws."""
    neutral = next(iter(found.values())).baseline

    def series(name: str, at: Mapping[float, tuple[float, float, float]]) -> Series:
        rows = sorted({NEUTRAL: (neutral, neutral, neutral), **at}.items())
        scaled = [(factor, *(scale.factor * value for value in values)) for factor, values in rows]
        return Series(
            name,
            tuple((factor, value) for factor, value, _, _ in scaled),
            tuple(max(0.0, low) for *_, low, _ in scaled),
            tuple(min(100.0, high) for *_, high in scaled),
        )

    lines = [series("selected", {at: (one.value, *one.span) for at, one in found.items()})]
    for control, name in zip(CONTROLS, RANDOM, strict=True):
        drawn = {at: part.draws(f"x{at:g}", control, measure) for at in found}
        ranges = {
            at: (one.controls[control].draws.mean, min(drawn[at]), max(drawn[at]))
            for at, one in found.items()
            if control in one.controls and drawn[at]
        }
        if ranges:
            lines.append(series(name, ranges))
    band = "95\u00a0% intervals of the change, and lowest to highest draw for random heads"
    return Lines(title, tuple(lines), "factor of the heads", scale.title, band=band)
