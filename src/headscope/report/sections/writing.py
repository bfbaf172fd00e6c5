"""Bars, numbers and outputs of runs in which a model writes under several gates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headscope.report.charts import BarRow, bar_rows
from headscope.report.html import Child, Html, join, tag
from headscope.report.parts import figure, scroll, section, table
from headscope.report.records.writing import MEAN, Effect, Part, WritingRecord
from headscope.report.words import between, count, fixed, p_value

__all__ = ["Scale", "bars_section", "examples_section", "numbers_section", "sure", "told"]

RANDOM = {"random": "random heads", "random-layer-matched": "random heads, same layers"}
MARKS = ("key-top", "key-low")
MANY = 8
"""Blocks of bars that stand open; of more only the mean does."""


@dataclass(frozen=True)
class Scale:
    """How a measure is told: its words, what it is multiplied by, decimals, the end of its axis."""

    words: str
    times: float = 1.0
    digits: int = 1
    end: float = 100.0


def bars_section(
    identifier: str,
    title: str,
    record: WritingRecord,
    measure: str,
    scale: Scale,
    kinds: Mapping[str, str],
    caption: Child,
    label: str = "",
) -> Html | None:
    """A block of bars for each group: as is, each chosen kind, and its random heads.

    `kinds` are the words of chosen kinds; `label` is what a group is called before its name.
    """
    parts = []
    for name, part in _ordered(record):
        rows = _bars(part, measure, scale, kinds, record.sizes.get(name, {}))
        if rows:
            words = f"mean of {len(record.parts) - 1}" if name == MEAN else f"{label}{name}"
            note = tag("p", count(part.prompts, "prompt"), class_="note")
            heading = tag("h3", tag("bdi", words))
            bars = bar_rows(rows, scale.end, scale.digits)
            parts.append(tag("div", heading, note, bars, class_="task"))
    if not parts:
        return None
    more = None
    if len(parts) > MANY and MEAN in record.parts:
        folded = tag("summary", f"Each of the {len(parts) - 1}")
        parts, more = parts[:1], tag("details", folded, parts[1:])
    return section(identifier, title, figure(f"{identifier}-figure", caption, parts, more))


def numbers_section(
    record: WritingRecord, scales: Mapping[str, Scale], kinds: Mapping[str, str], group: str
) -> Html:
    """Every effect in a table, with intervals and tests against both kinds of random heads."""
    header = [group, "Heads", "Measure", "As is", "With", "Change", "95\u00a0% interval"]
    header += ["Random, mean", "p over prompts", "p over draws", "Same layers, mean"]
    header += ["p over prompts", "p over draws"]
    rows = [
        _numbers(name, kinds[kind], scales[measure], effect, len(record.parts) - 1)
        for name, part in _ordered(record)
        for kind, measures in part.effects.items()
        for measure, effect in measures.items()
        if measure in scales
    ]
    shown = table("All effects", header, rows, said=(1, 2), class_="numbers")
    note = (
        "p over prompts: how often swapping outputs between the chosen and the random heads gives "
        "so large a difference by chance (9,999 tries). p over draws: the rank of the chosen heads "
        "among the random draws. No correction is made for the number of rows."
    )
    return section(
        "numbers", "All numbers", tag("p", note, class_="note"), scroll("Numbers", shown)
    )


def examples_section(record: WritingRecord, kinds: Mapping[str, str], group: str) -> Html | None:
    """Outputs beside each other, of prompts where chosen heads change them."""
    if not record.examples:
        return None
    names = ["baseline", *kinds]
    there = [one for one in names if any(one in each.outputs for each in record.examples)]
    header: list[Child] = [group, "Prompt"]
    header += ["As is" if one == "baseline" else kinds[one].capitalize() for one in there]
    referenced = any(one.reference for one in record.examples)
    header += ["Reference"] if referenced else []
    rows = []
    for one in record.examples:
        cells: list[Child] = [tag("bdi", one.group), tag("bdi", one.id)]
        cells += [tag("bdi", one.outputs.get(name, "\u2013")) for name in there]
        cells += [tag("bdi", one.reference or "\u2013")] if referenced else []
        rows.append(cells)
    note = (
        "The first prompts of each group whose output chosen heads change; they are examples, no "
        "sample to count in. All outputs are in outputs.jsonl of the run folder."
    )
    shown = table("Outputs that change", header, rows)
    return section("examples", "Outputs", tag("p", note, class_="note"), scroll("Outputs", shown))


def told(effect: Effect, scale: Scale, what: str) -> str:
    """An effect in a sentence: from, to, its interval, and random heads."""
    value, low, high = (part * scale.times for part in effect.change)
    text = (
        f"{what} {scale.words} goes from {fixed(effect.baseline * scale.times, scale.digits)} to "
        f"{fixed(effect.value * scale.times, scale.digits)} (change {fixed(value, scale.digits)}, "
        f"95\u00a0% interval {between(low, high, scale.digits)})"
    )
    if "random" in effect.random:
        p_prompts, p_drawn, _ = effect.tests["random"]
        text += (
            f"; with as many random heads it is "
            f"{fixed(effect.random['random'] * scale.times, scale.digits)} "
            f"(p\u00a0=\u00a0{p_value(p_prompts)} over prompts, {p_value(p_drawn)} over draws)"
        )
    return f"{text}."


def sure(effect: Effect | None, part: Part) -> Html:
    """How sure an effect is, in a note."""
    text = f"How sure: {count(part.prompts, 'prompt')}"
    if effect is not None and "random" in effect.tests:
        draws = effect.tests["random"][2]
        text += (
            f"; {count(draws, 'different random draw')} can give a p over draws of "
            f"{p_value(1 / (1 + draws))} at best"
        )
    return tag("p", tag("span", f"{text}.", class_="sure"))


def _ordered(record: WritingRecord) -> Sequence[tuple[str, Part]]:
    """The mean first, then the groups."""
    return sorted(record.parts.items(), key=lambda item: item[0] != MEAN)


def _bars(
    part: Part, measure: str, scale: Scale, kinds: Mapping[str, str], sizes: Mapping[str, int]
) -> list[BarRow]:
    rows: list[BarRow] = []
    for place, (kind, words) in enumerate(kinds.items()):
        effect = part.effects.get(kind, {}).get(measure)
        if effect is None:
            continue
        if not rows:
            rows.append(BarRow("as is", effect.baseline * scale.times, "key-base"))
        named = f"{words} ({sizes[kind]})" if kind in sizes else words
        mark = MARKS[place % len(MARKS)]
        rows.append(BarRow(named, effect.value * scale.times, mark, (), _level(effect, scale)))
        for control, said in RANDOM.items():
            if control in effect.random:
                points = [scale.times * value for value in effect.draws[control]]
                rows.append(
                    BarRow(said, effect.random[control] * scale.times, "key-random", points)
                )
    return _once(rows)


def _once(rows: Sequence[BarRow]) -> list[BarRow]:
    """Rows without those that were there before: two chosen kinds may share their random heads."""
    found: list[BarRow] = []
    for row in rows:
        if row not in found:
            found.append(row)
    return found


def _level(effect: Effect, scale: Scale) -> tuple[float, float]:
    """The interval of the change, around the value that it leads to."""
    _, low, high = effect.change
    ends = (effect.baseline + low) * scale.times, (effect.baseline + high) * scale.times
    return max(0.0, ends[0]), min(scale.end, ends[1])


def _numbers(
    name: str, kind: str, scale: Scale, effect: Effect, groups: int
) -> tuple[Html | str, ...]:
    def shown(value: float | None) -> str:
        return fixed(None if value is None else value * scale.times, scale.digits)

    value, low, high = effect.change
    tests: list[str] = []
    for control in RANDOM:
        tests.append(shown(effect.random.get(control)))
        p = effect.tests.get(control)
        tests += ["\u2013", "\u2013"] if p is None else [p_value(p[0]), p_value(p[1])]
    return (
        tag("bdi", f"mean of {groups}" if name == MEAN else name),
        kind,
        join(scale.words),
        shown(effect.baseline),
        shown(effect.value),
        shown(value),
        between(low * scale.times, high * scale.times, scale.digits),
        *tests,
    )
