"""The table of the commands that let a model write."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from headscope.cli.output import cell
from headscope.results.common import Leakage
from headscope.results.writing import Comparison, Control, WritingResult

__all__ = ["effects_table", "leak_line", "not_measured_lines"]


def effects_table(result: WritingResult, words: Mapping[str, tuple[str, int, float]]) -> list[str]:
    """One line a group, chosen kind and measure; the mean over groups last.

    `words` holds for each measure its name, its decimals and what it is multiplied by.
    """
    lines = [
        f"{'':<8}{'heads':<10}{'':<16}{'as is':>8}{'with':>8}{'change':>9}  {'95 % interval':<20}"
        f"{'random':>8}{'same layers':>13}{'p prompts':>11}{'p draws':>9}"
    ]
    for name, part in result.groups.items():
        lines += _rows(name, part, words)
    if len(result.groups) > 1:
        lines += _rows("mean", result.whole, words)
    return lines


def leak_line(leakage: Leakage | None, what: str) -> list[str]:
    """What is not well about the texts that heads were found on, if anything is."""
    if leakage is None or not leakage.known:
        return [f"whether the heads were found on these {what} is not known"]
    if leakage.overlap:
        return [f"{leakage.overlap} of {leakage.of} {what} are among what the heads were found on"]
    return []


def not_measured_lines(missing: Mapping[str, str]) -> list[str]:
    """Why measures are missing."""
    return [f"not measured, {name}: {why}" for name, why in missing.items()]


def _rows(
    name: str, part: Comparison, words: Mapping[str, tuple[str, int, float]]
) -> Iterator[str]:
    for kind in part.effects:
        for measure, (title, digits, times) in words.items():
            effect = part.effect(kind, measure)
            if effect is None:
                continue

            def said(value: float, plus: str = "", digits: int = digits, by: float = times) -> str:
                return f"{value * by:{plus}.{digits}f}"

            def mean(control: Control | None) -> str:
                return said(control.draws.mean) if control else "-"

            change, free = effect.change, effect.free
            span = f"{said(change.low, '+')} to {said(change.high, '+')}"
            p_prompts = free.against.p_examples if free else None
            p_draws = free.against.p_draws if free else None
            yield (
                f"{name:<8}{kind:<10}{title:<16}{said(effect.baseline):>8}{said(effect.value):>8}"
                f"{said(change.value, '+'):>9}  {span:<20}{mean(free):>8}"
                f"{mean(effect.matched):>13}{cell(p_prompts, '.3g'):>11}{cell(p_draws, '.3g'):>9}"
            )
