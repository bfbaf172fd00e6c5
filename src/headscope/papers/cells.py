"""Cells with published figures, and figures in words."""

from __future__ import annotations

from collections.abc import Mapping

from headscope.shown.blocks import NOT_RUN, Cell


def cell(
    value: float | str | None,
    low: float | None = None,
    high: float | None = None,
    *,
    published: float | str | None = None,
    digits: int = 3,
    why: str = NOT_RUN,
) -> Cell:
    """A number with its interval, or a text; `why` there is none, where there is none."""
    return Cell(value, low, high, published, why, digits)


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
        None if number is None else 100 * number for number in (share, low, high, published)
    )
    return cell(ours, low, high, published=theirs, digits=1, why=why)


def range_of(difference: Mapping[str, float | None], digits: int = 1) -> str:
    """A difference with its interval in words, as far as they are known."""
    value, *ends = (difference.get(name) for name in ("value", "low", "high"))
    if value is None:
        return "not measured"
    interval = " to ".join(f"{end:+.{digits}f}" for end in ends if end is not None)
    return f"{value:+.{digits}f}{f' ({interval})' if interval else ''}"


def less(value: float | None, other: float | None) -> float | None:
    """The difference of two numbers; None where either is unknown."""
    return None if value is None or other is None else value - other
