"""Results as JSON, and runs of older versions, which are refused."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

import headscope
from headscope.errors import InputError
from headscope.heads import save_scores
from headscope.heads.adaptation import read_adaptation
from headscope.results.head_scores import ScoresResult
from headscope.runs import open_run
from headscope.runs.codec import Record, decode, encode, entry
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


READERS: dict[str, tuple[str, ...]] = {
    "report": ("report", "RUN"),
    "heads": ("heads", "RUN", "--out", "RUN.csv"),
    "measure": ("verify", "measure", "RUN"),
    "failures": ("verify", "failures", "RUN"),
    "overlap": ("compare", "overlap", "RUN", "RUN"),
    "methods": ("compare", "methods", "RUN", "RUN"),
    "masks": ("compare", "masks", "RUN", "RUN"),
    "removal": ("verify", "removal", "--heads", "RUN"),
    "layers": ("verify", "layers", "--heads", "RUN"),
    "perplexity": ("verify", "perplexity", "--heads", "RUN"),
    "adapt": ("use", "adapt", "--heads", "RUN", "--prompt", "x"),
    "export": ("use", "export", "--heads", "RUN", "--as", "checkpoint"),
}


@pytest.fixture(scope="module")
def old_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of scores that says no format, as versions before 1.0 wrote them."""
    folder = tmp_path_factory.mktemp("old") / "run"
    geometry = headscope.Geometry.uniform(8, 12)
    values = np.arange(96, dtype=float).reshape(8, 12)
    with open_run(folder, "find induction", {}, {}) as run:
        save_scores(folder, headscope.HeadScores(geometry, values, "induction"))
        run.finish(encode(ScoresResult(scored=())))
    assert headscope.read_run(folder).format == 2
    done = json.loads((folder / "DONE.json").read_text("utf-8"))
    assert done.pop("format") == 2
    (folder / "DONE.json").write_text(json.dumps(done), "utf-8")
    return folder


@pytest.mark.parametrize("reader", READERS)
def test_every_reader_refuses_the_run_of_an_older_version_in_one_sentence(
    reader: str, old_run: Path, command: Callable[..., Any]
) -> None:
    said = command(*(word.replace("RUN", str(old_run)) for word in READERS[reader]))
    assert (said.code, said.out) == (2, "")
    assert said.err.count("\n") == 1, said.err
    assert f"{old_run}: was written by an older version of headscope" in said.err


def test_the_run_of_an_older_version_is_not_read_in_python(old_run: Path) -> None:
    for read in (headscope.read_run, headscope.HeadScores.from_pretrained, read_adaptation):
        with pytest.raises(InputError, match="was written by an older version"):
            read(old_run)
