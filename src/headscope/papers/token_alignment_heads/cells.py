"""Cells, and figures in words, from the results of runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headscope.shown.blocks import NOT_RUN, Cell


def cell(
    value: float | None,
    low: float | None = None,
    high: float | None = None,
    *,
    published: float | str | None = None,
    digits: int = 3,
    why: str = NOT_RUN,
) -> Cell:
    """A number with its interval; `why` there is none, where there is none."""
    return Cell(value, low, high, published, None if value is not None else why, digits)


def text(value: str | None, why: str = NOT_RUN) -> Cell:
    """A word or a text."""
    return Cell(value, why=None if value is not None else why)


def hundred(
    share: float | None,
    low: float | None = None,
    high: float | None = None,
    *,
    published: float | None = None,
    why: str = NOT_RUN,
) -> Cell:
    """A share, its interval and the published share as per cent, with one decimal."""
    ours, low, high, theirs = (
        None if one is None else 100 * one for one in (share, low, high, published)
    )
    return cell(ours, low, high, published=theirs, digits=1, why=why)


def range_of(found: Mapping[str, Any], digits: int = 1) -> str:
    """A difference with its interval in words, of `value`, `low` and `high`."""
    value, low, high = (found.get(name) for name in ("value", "low", "high"))
    if value is None:
        return "not measured"
    if low is None or high is None:
        return f"{value:+.{digits}f}"
    return f"{value:+.{digits}f} ({low:+.{digits}f} to {high:+.{digits}f})"


def less(one: float | None, other: float | None) -> float | None:
    """The difference of two numbers; None where one is not known."""
    return None if one is None or other is None else one - other


def tops(found: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The conditions without the chosen heads, one a number of heads."""
    return [one for one in found["conditions"] if one["kind"] == "top" and one["gate"] == 0]
