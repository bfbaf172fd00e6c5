"""Cells, and figures in words, from the results of runs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import fmean
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


def percent(share: float | None) -> float | None:
    """A share in per cent."""
    return None if share is None else 100 * share


def hundred(
    share: float | None,
    low: float | None = None,
    high: float | None = None,
    *,
    published: float | None = None,
    why: str = NOT_RUN,
) -> Cell:
    """A share, its interval and the published share as per cent, with one decimal."""
    shares = (percent(one) for one in (share, low, high))
    return cell(*shares, published=percent(published), digits=1, why=why)


def change(
    found: Mapping[str, Any], digits: int = 1, *, published: float | str | None = None
) -> Cell:
    """A difference with its interval, of `value`, `low` and `high`."""
    ours = (found.get(name) for name in ("value", "low", "high"))
    return cell(*ours, published=published, digits=digits)


def range_of(found: Mapping[str, Any], digits: int = 1) -> str:
    """A difference with its interval in words, of `value`, `low` and `high`."""
    value, low, high = (found.get(name) for name in ("value", "low", "high"))
    if value is None:
        return "not measured"
    if low is None or high is None:
        return f"{value:+.{digits}f}"
    return f"{value:+.{digits}f} ({low:+.{digits}f} to {high:+.{digits}f})"


def sentence(*parts: str) -> str:
    """Sentences that are not empty, one after the other."""
    return " ".join(part for part in parts if part)


def less(one: float | None, other: float | None) -> float | None:
    """The difference of two numbers; None where one is not known."""
    return None if one is None or other is None else one - other


def tops(found: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The conditions without the chosen heads, one a number of heads."""
    return [one for one in found["conditions"] if one["kind"] == "top" and one["gate"] == 0]


def sets_of(found: Mapping[str, Any]) -> str:
    """How many random sets there are of each kind, in words, at the largest number of heads."""
    most = max((one["k"] for one in found["conditions"] if one["kind"] == "top"), default=0)
    free, matched = (
        sum(one["kind"] == kind and one["k"] == most for one in found["conditions"])
        for kind in ("random", "random-layer-matched")
    )
    if free == matched or not matched:
        return f"{free} random sets"
    return f"{free} random sets, of the same layers {matched}"


def random_mean(found: Mapping[str, Any], kind: str, k: int, key: str) -> float | None:
    """The mean of a measure over the random draws of a kind; None where one lacks it."""
    values = [
        one[key]
        for one in found["conditions"]
        if one["kind"] == kind and one["k"] == k and one["gate"] == 0
    ]
    return fmean(values) if values and None not in values else None


def lines_of(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of a JSON Lines file; none if it is not there."""
    if path.is_file():
        with path.open(encoding="utf-8") as handle:
            for line in handle:
                yield json.loads(line)
