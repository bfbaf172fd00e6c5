"""Every study as a Python function, and results as frames, figures and pages."""

from __future__ import annotations

import contextlib
import importlib
import json
import pkgutil
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from typer.main import get_command

import headscope
from command_runs import CommandRun
from headscope.cli.app import app
from headscope.cli.commands import SHOWN_IN_FULL
from headscope.data.documents import DocumentSource, read_documents
from headscope.data.pairs import PairFile, PairSource, read_pairs
from headscope.errors import InputError
from headscope.heads import Gate, HeadScores, HeadSet
from headscope.runs import Result, encode
from headscope.studies.functions import _named, function_of
from headscope.studies.registry import COMMANDS
from verify_helpers import write_data

VERBS = ("find", "verify", "compare", "use")


@pytest.fixture(scope="module", autouse=True)
def every_module_is_imported() -> None:
    """A module of the name of a function would hide it."""
    for module in pkgutil.walk_packages(headscope.__path__, "headscope."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)


def options(made: CommandRun) -> dict[str, Any]:
    """The options of a command line as a function takes them."""
    command: Any = get_command(app)
    for word in made.command.split():
        command = command.get_command(None, word)
    given = command.make_context(made.command, list(made.arguments)).params
    return {
        name: value
        for name, value in given.items()
        if name not in ("json", "out", SHOWN_IN_FULL) and value not in (None, ())
    }


def test_every_study_of_a_verb_is_served_by_its_name() -> None:
    for command in COMMANDS:
        verb, _, name = command.partition(" ")
        if verb in VERBS:
            served = getattr(getattr(headscope, verb), name.replace("-", "_"))
            assert callable(served), command
            assert served.__name__ in dir(getattr(headscope, verb))


def test_a_function_finds_the_run_that_the_command_made(command_runs: list[CommandRun]) -> None:
    called = set()
    for made in command_runs:
        verb, _, name = made.command.partition(" ")
        if verb not in VERBS:
            continue
        function = getattr(getattr(headscope, verb), name.replace("-", "_"))
        base = made.folder.parent.parent  # where the command was given
        with contextlib.chdir(base):
            result = function(**options(made), out=made.folder.relative_to(base))
        stored = json.loads((made.folder / "result.json").read_text("utf-8"))
        assert encode(result) == stored
        called.add(made.command)
    left = {command for command in COMMANDS if command.partition(" ")[0] in VERBS} - called
    assert left == {"verify measure"}  # it measures a finished run anew


def test_results_are_frames_figures_and_pages(command_runs: list[CommandRun]) -> None:
    for made in command_runs:
        result = headscope.read_run(made.folder)
        assert isinstance(result, Result)
        frames = result.to_frame()
        for frame in frames.values() if isinstance(frames, dict) else [frames]:
            assert len(frame.columns), made.command
        page = result._repr_html_()
        assert page.startswith("<iframe srcdoc=") and "<script" not in page
        with contextlib.suppress(InputError):  # some runs show tables alone
            figure = result.figure()
            figure.savefig(made.folder / "figure.svg")
            assert figure.axes


def test_tests_of_every_command_are_one_frame(command_runs: list[CommandRun]) -> None:
    """As their JSON has them, nothing else; numbers are numbers."""
    results = {made.folder: json.loads((made.folder / "result.json").read_text("utf-8"))
               for made in command_runs}  # fmt: skip
    compared = {
        made.folder: made.command for made in command_runs if "tests" in results[made.folder]
    }
    assert {"verify removal", "verify tasks", "verify perplexity", "verify mask", "use adapt",
            "compare states", "atlas"} <= {*compared.values()}  # fmt: skip
    frame = headscope.read_tests(*compared)
    numbers = ("p_examples", "p_draws", "draws", "least_p", "shared")
    words = ("part", "condition", "statistic", "control")
    expected = [
        (str(folder), command, *(row[name] for name in words),
         *(row["difference"][name] for name in ("value", "low", "high")),
         *(row[name] for name in numbers))
        for folder, command in compared.items() for row in results[folder]["tests"]
    ]  # fmt: skip
    columns = ["run", "command", *words, "difference", "low", "high", *numbers]
    ours = frame[columns].astype(object).where(frame[columns].notna(), None)
    assert [*ours.itertuples(index=False, name=None)] == expected and len(expected) > 100
    assert all(frame[name].dtype.kind in "fi" for name in columns[6:])
    result = headscope.read_run(next(iter(compared)))
    assert headscope.read_tests(result).equals(frame[frame.run == result.run])
    other = next(made for made in command_runs if made.command == "find induction")
    with pytest.raises(InputError, match="find induction` has no tests"):
        headscope.read_tests(other.folder)


def test_the_frames_of_a_comparison_are_its_rows(command_runs: list[CommandRun]) -> None:
    for made in command_runs:
        stored = json.loads((made.folder / "result.json").read_text("utf-8"))
        if "levels" not in stored:
            continue
        frames = headscope.read_run(made.folder).to_frame()
        scores = {"scores"} if "scores" in stored else set()
        assert frames.keys() == {"levels", "tests"} | scores, made.command
        assert [len(frames[name]) for name in ("levels", "tests")] == [
            len(stored[name]) for name in ("levels", "tests")
        ]
        changes = [(row["change"] or {}).get("low") for row in stored["levels"]]
        known = frames["levels"].change_low
        assert [*known.astype(object).where(known.notna(), None)] == changes
        assert frames["levels"].value.dtype == frames["levels"].change.dtype == float


def test_the_frames_of_a_run_hold_its_scores(command_runs: list[CommandRun]) -> None:
    scored = [
        (made, stored["scores"])
        for made in command_runs
        if "scores" in (stored := json.loads((made.folder / "result.json").read_text()))
    ]
    assert len(scored) > 5
    for made, stored in scored:
        table = headscope.read_run(made.folder).to_frame()["scores"]
        ours = {(row.layer, row.head): row.score for row in table.itertuples()}
        expected = {(row["layer"], row["head"]): row["score"] for row in stored}
        assert ours == pytest.approx(expected, nan_ok=True), made.command


def test_data_and_heads_in_memory_stand_for_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    lm = headscope.load("pocket")
    file = write_data(tmp_path / "pairs.tsv")
    pairs = read_pairs(PairSource(str(file), pair="en-de"))
    found = headscope.find.translation_score(lm, str(file), pair="en-de")
    from_memory = headscope.find.translation_score(lm, pairs)
    assert [(h.layer, h.head, h.score) for h in from_memory.scored] == [
        (h.layer, h.head, h.score) for h in found.scored
    ]
    spans = [tuple(tuple((w.start, w.end) for w in side) for side in p.words) for p in pairs.pairs]
    units = [
        replace(p, units=u, aligner="eflomal") for p, u in zip(pairs.pairs, spans, strict=True)
    ]
    by_units = headscope.find.translation_score(lm, units, pair="en-de")
    assert by_units.aligner == "eflomal"
    assert [head.score for head in by_units.scored] == [head.score for head in found.scored]
    rows = [{"source": pair.source, "target": pair.target} for pair in pairs.pairs]
    by_set, by_result = (
        headscope.verify.removal(lm, rows, heads, pair="en-de", k=3, draws=2, measure=["loss"],
                                 allow_overlap=True)
        for heads in (found.scores, found)
    )  # fmt: skip
    assert by_set.evidence.main.heads == by_result.evidence.main.heads
    listed: list[Any] = ["5.1,4.3", ["5.1", (4, 3)], ((5, 1), "4.3")]
    named = [
        headscope.use.adapt(lm, heads=heads, prompt=["a"], compare=False, progress=False)
        for heads in listed
    ]
    assert len({result.run for result in named}) == 1
    texts = {"en": ["The dog sees a cat.", "A man goes."] * 3, "de": ["Der Hund."] * 6}
    scores = headscope.find.first_order(lm, texts)
    assert scores.scores.geometry == lm.geometry


NAN = float("nan")
MISSING = [
    None,
    NAN,
    np.float32("nan"),
    pd.NA,
    pd.NaT,
    np.datetime64("NaT"),
    Decimal("NaN"),
]


def tables(column: list[Any], other: list[Any]) -> list[Any]:
    """Two columns as everything that holds rows in memory."""
    columns = {"source": column, "target": other}
    rows = [dict(zip(columns, row, strict=True)) for row in zip(column, other, strict=True)]
    frame = pd.DataFrame(columns)
    return [
        frame,
        frame.astype("object"),
        columns,
        {"source": pd.Series(column, dtype="object"), "target": np.array(other, dtype="object")},
        rows,
        list(zip(column, other, strict=True)),
        iter(rows),
        (row for row in rows),
        {"source": iter(column), "target": (cell for cell in other)},
    ]


def read_in_memory(data: Any) -> PairFile:
    """Data in memory as the commands read them."""
    return read_pairs(PairSource(_named(data), pair="en-de"))


@pytest.mark.parametrize("missing", MISSING, ids=repr)
def test_a_missing_value_is_no_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    texts = ["a", "nan", "c", "d"]
    for data in tables(texts, ["x", "y", missing, "z"]):
        with pytest.raises(InputError, match=r"line 3: column 'target' holds nothing"):
            read_in_memory(data)
    for data in tables(["a", missing], ["x", "y"]):
        with pytest.raises(InputError, match=r"line 2: column 'source' holds nothing"):
            read_in_memory(data)
    with pytest.raises(InputError, match=r"line 2: column 'text' holds nothing"):
        (place,) = _named({"de": ["a", missing]})
        read_documents(DocumentSource(place.partition("=")[2]))
    # A cell of links may be empty, as in files.
    frame = pd.DataFrame({"source": ["a"], "target": ["b"], "links": [missing]})
    assert [pair.links for pair in read_in_memory(frame).pairs] == [frozenset()]


def test_tables_in_memory_are_read_as_files_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    columns = {"source": ["a b", "c\r"], "target": ["x", "y\r\n"]}
    arrow = pa.table(columns)
    hub = datasets.Dataset(arrow)
    odd = pd.DataFrame({**columns, "at": pd.Timestamp("2020-01-01"), "n": [np.int64(1), NAN]})
    arrays = {"source": arrow["source"], "target": pa.array(columns["target"])}
    kinds = [hub.with_format(kind) for kind in ("arrow", "pandas", "numpy")]
    held = [arrow, arrays, hub, hub.to_iterable_dataset(), *kinds, dict(hub[:]), odd]
    for data in [*tables(*columns.values()), *held]:
        pairs = read_in_memory(data).pairs
        assert [(pair.source, pair.target) for pair in pairs] == [("a b", "x"), ("c", "y")]
    nulls = pa.table({**columns, "target": ["x", None]})
    for data in (nulls, datasets.Dataset(nulls)):
        with pytest.raises(InputError, match=r"line 2: column 'target' holds nothing"):
            read_in_memory(data)
    odd["source"] = odd["at"]
    with pytest.raises(InputError, match=r"line 1: column 'source' holds an object"):
        read_in_memory(odd)
    links = pd.DataFrame({"source": ["a"], "target": ["b"], "links": [np.array([[0, 0]])]})
    assert read_in_memory(links).pairs[0].links == {(0, 0)}
    with pytest.raises(InputError, match="several columns 'source'"):
        read_in_memory(pd.DataFrame([["a", "b"]], columns=["source", "source"]))
    with pytest.raises(InputError, match="several columns 'source'"):
        read_in_memory(pa.table([["a"], ["b"], ["c"]], names=["source", "target", "source"]))
    with pytest.raises(InputError, match="differ in length"):
        read_in_memory({"source": ["a"], "target": []})
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(InputError, match="without end"):
        read_in_memory([{"source": "a", "target": "b", "more": endless}])
    with pytest.raises(InputError, match="half of a surrogate pair"):
        read_in_memory([("a\ud800", "b")])


@pytest.mark.parametrize(
    "data",
    [
        [], (), {}, iter(()), pd.DataFrame(), pd.DataFrame({"source": [], "target": []}),
        {"source": [], "target": []}, pa.table({"source": []}),
        datasets.Dataset.from_dict({"source": []}), {"en-de": []}, {"en-de": 5.5j},
        [("a", "b", "", "c")], [["a", "b"]], np.array([["a", "b"]]), b"a", [None, ("a", "b")],
        pa.table({"source": ["a"], "target": ["b"]}).to_reader(),
    ],
    ids=lambda data: type(data).__name__,
)  # fmt: skip
def test_nothing_and_what_is_no_data_are_not_the_data_of_pocket(data: Any) -> None:
    with pytest.raises(InputError, match=r"empty|of type"):
        headscope.find.translation_score("pocket", data, pair="en-de")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"drawz": 3}, "there is no drawz"),
        ({"batch_tokens": "3"}, "batch_tokens is '3'; it is a whole number"),
        ({"draws": 0}, "give a number from 1, or auto"),
        ({}, "heads is missing"),
    ],
)
def test_what_cannot_be_meant_is_refused(given: dict[str, Any], words: str) -> None:
    heads = {} if not given else {"heads": "0.1"}
    with pytest.raises(InputError, match=words):
        function_of("verify removal")("pocket", **heads, **given)


def test_heads_show_themselves() -> None:
    geometry = headscope.Geometry.uniform(2, 3)
    values = np.arange(6, dtype=float).reshape(2, 3) / 10
    scores = HeadScores(geometry, values, "induction")
    chosen = scores.top(2)
    for shown in (scores, chosen, chosen.removed()):
        assert shown._repr_html_().startswith("<iframe srcdoc=")
        assert shown.figure().axes
    frame = scores.to_frame()
    assert frame.pivot(index="layer", columns="head", values="score").to_numpy().tolist() == (
        values.tolist()
    )
    gates = Gate.of(geometry, {headscope.Head(1, 2): 0.5}).to_frame()
    assert gates[gates.gate != 1][["layer", "head", "gate"]].to_numpy().tolist() == [[1, 2, 0.5]]
    assert HeadSet.parse("1.2", geometry).to_frame().selected.sum() == 1
