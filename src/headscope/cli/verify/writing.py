"""The table of the commands that let a model write."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from headscope.cli.output import cell

__all__ = ["effects_table", "leak_line"]


def effects_table(
    result: Mapping[str, Any], groups: str, words: Mapping[str, tuple[str, int, float]]
) -> list[str]:
    """One line a group, chosen kind and measure; the mean over groups last.

    `words` holds for each measure its name, its decimals and what it is multiplied by.
    """
    lines = [
        f"{'':<8}{'heads':<10}{'':<16}{'as is':>8}{'with':>8}{'change':>9}  {'95 % interval':<20}"
        f"{'random':>8}{'same layers':>13}{'p prompts':>11}{'p draws':>9}"
    ]
    parts = dict(result[groups])
    for name, one in parts.items():
        lines += _rows(name, one, words)
    if len(parts) > 1:
        lines += _rows("mean", result, words)
    return lines


def leak_line(leakage: Mapping[str, Any], what: str) -> list[str]:
    """What is not well about the texts that heads were found on, if anything is."""
    if not leakage["known"]:
        return [f"whether the heads were found on these {what} is not known"]
    if leakage["overlap"]:
        return [
            f"{leakage['overlap']} of {leakage['of']} {what} are among what the heads were found on"
        ]
    return []


def _rows(
    name: str, of: Mapping[str, Any], words: Mapping[str, tuple[str, int, float]]
) -> Iterator[str]:
    for kind, measures in of["effects"].items():
        for measure, (title, digits, times) in words.items():
            if measure not in measures:
                continue
            one = measures[measure]
            change = one["change"]

            def said(value: float, plus: str = "", digits: int = digits, by: float = times) -> str:
                return f"{value * by:{plus}.{digits}f}"

            span = f"{said(change['low'], '+')} to {said(change['high'], '+')}"
            random, matched = one.get("random"), one.get("random_layer_matched")
            yield (
                f"{name:<8}{kind:<10}{title:<16}{said(one['baseline']):>8}{said(one['value']):>8}"
                f"{said(change['value'], '+'):>9}  {span:<20}"
                f"{said(random['mean']) if random else '-':>8}"
                f"{said(matched['mean']) if matched else '-':>13}"
                f"{cell(one.get('p_sentences'), '.3g'):>11}{cell(one.get('p_draws'), '.3g'):>9}"
            )
