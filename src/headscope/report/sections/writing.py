"""Bars, numbers and outputs of runs in which a model writes under several gates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from headscope.report.charts import BarRow, bar_rows
from headscope.report.html import Child, Html, join, tag
from headscope.report.parts import figure, scroll, section, table
from headscope.results.writing import MEAN, Comparison, Effect, WritingResult
from headscope.runs.reading import damaged_line, read_rows
from headscope.shown.words import between, count, fixed, p_value

__all__ = [
    "Scale",
    "bars_section",
    "examples_section",
    "named",
    "not_measured",
    "numbers_section",
    "sure",
    "told",
]

RANDOM = {"random": "random heads", "random-layer-matched": "random heads, same layers"}
MARKS = ("key-top", "key-low")
#: Prompts whose outputs are shown beside each other.
EXAMPLES = 12
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
    result: WritingResult,
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
    for name, part in result.parts.items():
        rows = _bars(part, measure, scale, kinds)
        if rows:
            words = named(name, result, label)
            note = tag("p", count(part.prompts, "prompt"), class_="note")
            heading = tag("h3", tag("bdi", words))
            bars = bar_rows(rows, scale.end, scale.digits)
            parts.append(tag("div", heading, note, bars, class_="task"))
    if not parts:
        return None
    more = None
    if len(parts) > MANY and MEAN in result.parts:
        folded = tag("summary", f"Each of the {len(parts) - 1}")
        parts, more = parts[:1], tag("details", folded, parts[1:])
    return section(identifier, title, figure(f"{identifier}-figure", caption, parts, more))


def named(part: str, result: WritingResult, label: str = "") -> str:
    """What a part of a result is called; `label` stands before the name of a group."""
    return f"mean of {len(result.groups)}" if part == MEAN else f"{label}{part}"


def numbers_section(
    result: WritingResult, scales: Mapping[str, Scale], kinds: Mapping[str, str], group: str
) -> Html:
    """Every effect in a table, with intervals and tests against both kinds of random heads."""
    header = [group, "Heads", "Measure", "As is", "With", "Change", "95\u00a0% interval"]
    header += ["Random, mean", "p over prompts", "p over draws", "Same layers, mean"]
    header += ["p over prompts", "p over draws"]
    rows = [
        _numbers(named(name, result), kinds[kind], scales[measure], effect)
        for name, part in result.parts.items()
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


def examples_section(path: Path, kinds: Mapping[str, str], group: str) -> Html | None:
    """Outputs of the run beside each other, of prompts where chosen heads change them.

    `group` is what a group is called in the file of outputs. InputError if that is damaged.
    """
    examples = _examples(path / "outputs.jsonl", group)
    if not examples:
        return None
    there = [
        kind for kind in ("baseline", *kinds) if any(kind in each.outputs for each in examples)
    ]
    header: list[Child] = [group.capitalize(), "Prompt"]
    header += ["As is" if kind == "baseline" else kinds[kind].capitalize() for kind in there]
    referenced = any(example.reference for example in examples)
    header += ["Reference"] if referenced else []
    rows = []
    for example in examples:
        cells: list[Child] = [tag("bdi", example.group), tag("bdi", example.id)]
        cells += [tag("bdi", example.outputs.get(kind, "\u2013")) for kind in there]
        cells += [tag("bdi", example.reference or "\u2013")] if referenced else []
        rows.append(cells)
    note = (
        "The first prompts of each group whose output chosen heads change; they are examples, no "
        "sample to count in. All outputs are in outputs.jsonl of the run folder."
    )
    shown = table("Outputs that change", header, rows)
    return section("examples", "Outputs", tag("p", note, class_="note"), scroll("Outputs", shown))


@dataclass(frozen=True)
class _Example:
    """What was written of one prompt as it is and with each chosen kind changed."""

    group: str
    id: str
    reference: str | None
    outputs: Mapping[str, str]


def _examples(path: Path, group: str) -> list[_Example]:
    """The first prompts of each group whose output a chosen kind changes; at most `EXAMPLES`."""
    found: dict[tuple[str, str], dict[str, str]] = {}
    references: dict[tuple[str, str], str | None] = {}
    for number, row in read_rows(path):
        try:
            if row["draw"] is not None:
                continue
            key = str(row[group]), str(row["id"])
            found.setdefault(key, {})[str(row["condition"])] = str(row["output"])
            references[key] = row.get("reference")
        except (KeyError, TypeError) as error:
            raise damaged_line(path, number) from error
    by_group: dict[str, list[_Example]] = {}
    for key, texts in found.items():
        if len(set(texts.values())) > 1:
            by_group.setdefault(key[0], []).append(_Example(*key, references[key], texts))
    each = max(1, EXAMPLES // max(1, len(by_group)))
    return [example for several in by_group.values() for example in several[:each]][:EXAMPLES]


def told(effect: Effect, scale: Scale, what: str) -> str:
    """An effect in a sentence: from, to, its interval, and random heads."""

    def shown(value: float) -> str:
        return fixed(value * scale.times, scale.digits)

    text = (
        f"{what} {scale.words} goes from {shown(effect.baseline)} to {shown(effect.value)} "
        f"(change {shown(effect.change.value)}, 95\u00a0% interval {_interval(effect, scale)})"
    )
    if effect.free is not None:
        tests = effect.free.against
        text += (
            f"; with as many random heads it is {shown(effect.free.draws.mean)} "
            f"(p\u00a0=\u00a0{p_value(tests.p_examples)} over prompts, "
            f"{p_value(tests.p_draws)} over draws)"
        )
    return f"{text}."


def sure(effect: Effect | None, part: Comparison) -> Html:
    """How sure an effect is, in a note."""
    text = f"How sure: {count(part.prompts, 'prompt')}"
    if effect is not None and effect.free is not None:
        draws = effect.free.against.distinct
        text += (
            f"; {count(draws, 'different random draw')} can give a p over draws of "
            f"{p_value(1 / (1 + draws))} at best"
        )
    return tag("p", tag("span", f"{text}.", class_="sure"))


def not_measured(missing: Mapping[str, str], scales: Mapping[str, Scale]) -> list[str]:
    """A sentence for each measure that is missing."""
    return [f"{scales[name].words} was not measured: {why}." for name, why in missing.items()]


def _interval(effect: Effect, scale: Scale) -> str:
    change = effect.change
    return between(change.low * scale.times, change.high * scale.times, scale.digits)


def _bars(part: Comparison, measure: str, scale: Scale, kinds: Mapping[str, str]) -> list[BarRow]:
    rows: list[BarRow] = []
    sizes = part.sizes
    for place, (kind, words) in enumerate(kinds.items()):
        effect = part.effect(kind, measure)
        if effect is None:
            continue
        if not rows:
            rows.append(BarRow("as is", effect.baseline * scale.times, "key-base"))
        named = f"{words} ({sizes[kind]})" if kind in sizes else words
        mark = MARKS[place % len(MARKS)]
        low, high = (end * scale.times for end in effect.span)
        whisker = max(0.0, low), min(scale.end, high)
        rows.append(BarRow(named, effect.value * scale.times, mark, (), whisker))
        for control, beside in effect.controls.items():
            points = [scale.times * value for value in part.draws(kind, control, measure)]
            mean = beside.draws.mean * scale.times
            rows.append(BarRow(RANDOM[control], mean, "key-random", points))
    return _once(rows)


def _once(rows: Sequence[BarRow]) -> list[BarRow]:
    """Rows without those that were there before: two chosen kinds may share their random heads."""
    found: list[BarRow] = []
    for row in rows:
        if row not in found:
            found.append(row)
    return found


def _numbers(name: str, kind: str, scale: Scale, effect: Effect) -> tuple[Html | str, ...]:
    def shown(value: float) -> str:
        return fixed(value * scale.times, scale.digits)

    tests: list[str] = []
    for control in (effect.free, effect.matched):
        if control is None:
            tests += ["\u2013"] * 3
        else:
            beside = control.against
            tests += [
                shown(control.draws.mean),
                p_value(beside.p_examples),
                p_value(beside.p_draws),
            ]
    return (
        tag("bdi", name),
        kind,
        join(scale.words),
        shown(effect.baseline),
        shown(effect.value),
        shown(effect.change.value),
        _interval(effect, scale),
        *tests,
    )
