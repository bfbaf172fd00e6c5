"""Results as JSON, and runs of older versions."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest

from headscope.runs.codec import Record, decode, encode, entry
from headscope.runs.plain import dump_json
from headscope.studies.report import write_report


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
    older: dict[str, Any] = {"state": "open", "shapes": [], "title": None, "unknown": 1}
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


@dataclass(frozen=True)
class Against:
    p_examples: float
    least_p: float | None = None


@dataclass(frozen=True, kw_only=True)
class Row(Record):
    size: int
    form: str = entry("", name="as")
    note: str | None = entry(absent=True)
    free: Against | None = entry(flat="", names={"p_examples": "p_sentences"})
    matched: Against | None = entry(flat="_matched", names={"p_examples": "p_sentences"})


ROWS = {
    '{"as": "x", "least_p": null, "p_sentences": 0.5, "size": 1}': Row(
        size=1, form="x", free=Against(0.5)
    ),
    '{"as": "", "least_p_matched": 0.1, "note": "n", "p_sentences_matched": 1.0, "size": 2}': Row(
        size=2, note="n", matched=Against(1.0, 0.1)
    ),
    '{"as": "", "later": [1], "size": 3}': Row(size=3, unknown={"later": [1]}),
}


@pytest.mark.parametrize("text", ROWS)
def test_entries_stand_as_they_say_and_what_is_unknown_is_carried_through(text: str) -> None:
    assert json.dumps(encode(ROWS[text]), sort_keys=True) == text
    assert decode(Row, json.loads(text)) == ROWS[text]


def test_a_part_of_a_flat_entry_is_told_by_its_place() -> None:
    with pytest.raises(KeyError, match=r"result\.p_examples"):
        decode(Row, {"size": 1, "least_p": 0.1})


OLD = Path(__file__).parent / "data" / "old_runs"
RUNS = sorted(path.parent for path in OLD.glob("*/*/DONE.json"))


def test_there_are_runs_of_both_versions() -> None:
    assert {path.parent.name for path in RUNS} == {"0.1.0", "0.2.0"}


@pytest.mark.parametrize("run", RUNS, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_a_run_of_an_older_version_has_a_report(run: Path, tmp_path: Path) -> None:
    page = write_report(run, tmp_path / "report.html").read_text("utf-8")
    assert json.loads((run / "result.json").read_text("utf-8"))["signature"] in page


@pytest.mark.parametrize("version", ["0.1.0", "0.2.0"])
def test_a_removal_of_an_older_version_is_measured_again(
    version: str, tmp_path: Path, command: Callable[..., Any]
) -> None:
    shutil.copytree(OLD / version / "verify-removal", tmp_path / "run")
    before = json.loads((tmp_path / "run" / "result.json").read_text("utf-8"))
    assert command("verify", "measure", tmp_path / "run").code == 0
    after = json.loads((tmp_path / "run" / "result.json").read_text("utf-8"))
    assert after.keys() >= before.keys()
    for old, new in zip(before["conditions"], after["conditions"], strict=True):
        assert new["heads"] == old["heads"]
        shown = [name for name in ("chrf", "nll") if name in old]
        assert shown and [new[name] for name in shown] == pytest.approx(
            [old[name] for name in shown]
        )
