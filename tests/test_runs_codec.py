"""Dataclasses come back from their JSON as they were, and what does not fit names its place."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

from headscope.runs.codec import decode
from headscope.runs.plain import dump_json


@dataclass(frozen=True)
class Circle:
    radius: float
    kind: str = field(default="circle", init=False)


@dataclass(frozen=True)
class Square:
    side: float
    kind: str = field(default="square", init=False)

    def __post_init__(self) -> None:
        if self.side < 0:
            raise ValueError("a side is negative")


@dataclass(frozen=True)
class Drawing:
    state: Literal["done", "open"]
    shapes: tuple[Circle | Square, ...]
    corner: tuple[float, int] = (0.0, 0)
    title: str = ""
    scale: float | None = 2.0
    label: float | str | None = None
    exact: bool = False
    by_name: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    more: Any = None


WHOLE = Drawing("done", (Circle(0.5), Square(2)), (1.5, 3), "t", None, "a", True, {"b": (1, 2)})


@pytest.mark.parametrize("value", [WHOLE, Drawing("open", ()), Drawing("open", (), label=3)])
def test_what_is_written_is_read_as_it_was(value: Drawing) -> None:
    read = decode(Drawing, json.loads(dump_json(value)))
    assert read == value
    assert type(read.label) is type(value.label), "whole numbers stay whole"


def test_older_and_newer_values_are_read() -> None:
    older = {"state": "open", "shapes": [], "title": None, "unknown": 1}
    assert decode(Drawing, older) == Drawing("open", ())


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"state": "maybe"}, "result.state: 'maybe' is not one of done, open"),
        ({"shapes": {}}, "result.shapes: '{}' is not a list"),
        ({"shapes": [{"kind": "line"}]}, "result.shapes[0].kind: 'line' is not one of circle, sq"),
        ({"shapes": [{"kind": "circle", "radius": "a"}]}, "result.shapes[0].radius: 'a' is not a"),
        ({"shapes": [{"kind": "square", "side": -1}]}, "result.shapes[0]: a side is negative"),
        ({"corner": [1.0]}, "result.corner: '[1.0]' is not a list of 2"),
        ({"corner": [1.0, 1.5]}, "result.corner[1]: '1.5' is not a whole number"),
        ({"scale": float("inf")}, "result.scale: 'inf' is not a number"),
        ({"scale": True}, "result.scale: 'True' is not a number"),
        ({"exact": 1}, "result.exact: '1' is not true or false"),
        ({"by_name": {"b": [None]}}, "result.by_name.b[0]: 'None' is not a whole number"),
    ],
)
def test_what_does_not_fit_names_its_place(change: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(said)}"):
        decode(Drawing, {"state": "open", "shapes": [], **change})


def test_what_is_absent_without_a_default_names_its_place() -> None:
    with pytest.raises(KeyError, match=r"result\.shapes\[0\]\.radius"):
        decode(Drawing, {"state": "open", "shapes": [{"kind": "circle"}]})
