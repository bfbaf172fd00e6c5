"""Comparing methods on one model: who selects which head, and what is no comparison."""

from __future__ import annotations

import csv
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import numpy as np
import pytest

from headscope.compare.methods_agreement import agreement, read_methods
from headscope.errors import InputError
from headscope.heads import Geometry, Head, HeadScores, HeadSet, save_scores
from headscope.results.methods import MethodsResult, Verdict
from headscope.runs import encode, open_run
from headscope.shown.blocks import Table
from headscope.studies.compare.methods import CompareMethods, compare_methods
from headscope.studies.compare.methods import command as methods
from headscope.studies.study import shown_of

GEOMETRY = Geometry((3, 4))
HEADS = list(GEOMETRY.heads())
Kind = TypeVar("Kind")


def scores_of(order: str, method: str = "x") -> HeadScores:
    """Scores that rank the heads in this order, such as `1.3,0.0`; all others 0."""
    values = np.zeros(GEOMETRY.shape)
    for rank, name in enumerate(order.split(",")):
        head = Head.parse(name)
        values[head.layer, head.head] = 10 - rank
    return HeadScores(GEOMETRY, values, method)


def blocks_of(result: MethodsResult, kind: type[Kind], title: str) -> Kind:
    return next(
        block
        for block in shown_of(methods, result, Path()).blocks
        if isinstance(block, kind) and getattr(block, "title", "") == title
    )


def write_run(
    folder: Path,
    command: str,
    scores: HeadScores | dict[str, HeadScores] | None,
    heads: str | None = None,
    specific: dict[str, str] | None = None,
    weights: str = "aa" * 32,
    finish: bool = True,
    model: str = "pocket",
) -> str:
    provenance = {"model": model, "weights": weights}
    with open_run(folder, command, {"name": folder.name}, {}, provenance=provenance) as run:
        if scores is not None:
            save_scores(folder, scores)
        if heads is not None:
            HeadSet.parse(heads, GEOMETRY).save_pretrained(folder / "heads")
        for code, names in (specific or {}).items():
            chosen = tuple(Head.parse(one) for one in names.split(",") if one)
            HeadSet(GEOMETRY, chosen).save_pretrained(folder / "specific" / code)
        if finish:
            run.finish({"signature": run.signature, "run": str(folder), "seconds": 0.1})
    return str(folder)


@pytest.fixture
def runs(tmp_path: Path) -> list[str]:
    """Translation scores of two directions, a mask, languages, and patching of two effects."""
    parts = {"en-de": scores_of("0.0,1.1"), "de-en": scores_of("0.0,1.2")}
    languages = {"de": scores_of("1.0,1.1"), "en": scores_of("0.2,0.1")}
    effects = {"language": scores_of("1.3,0.0"), "concept": scores_of("0.2,0.0")}
    return [
        write_run(tmp_path / "ts", "find translation-score", parts),
        write_run(tmp_path / "m", "find mask", scores_of("0.0,1.1,1.0"), "0.0,1.1,1.0"),
        write_run(
            tmp_path / "la", "find lahis", languages, specific={"de": "1.0", "en": ""}
        ),
        write_run(tmp_path / "pa", "find patching", effects),
    ]  # fmt: skip


def test_columns_sets_and_who_selects_a_head(runs: list[str], tmp_path: Path) -> None:
    result = compare_methods(CompareMethods(tuple(runs), "2"), tmp_path / "out")
    compared = result.comparison
    columns = {one.name: one for one in compared.columns}
    assert list(columns) == [
        "translation-score", "mask", "lahis", "lahis de", "lahis en",
        "patching concept", "patching language",
    ]  # fmt: skip
    chosen = {name: set(one.heads) for name, one in columns.items()}
    assert chosen["translation-score"] == {"0.0", "1.1"}  # the mean; 1.2 ties and comes later
    assert chosen["mask"] == {"0.0", "1.1", "1.0"} and columns["mask"].own_size
    assert chosen["lahis"] == {"0.2", "1.0"}
    assert chosen["lahis de"] == {"1.0"} and chosen["lahis en"] == set()
    assert chosen["patching concept"] == {"0.2", "0.0"}
    assert chosen["patching language"] == {"1.3", "0.0"}
    heads = {one.place.key: one for one in compared.heads}
    assert len(heads) == len(HEADS)
    assert heads["0.0"].selected_by == ("translation-score", "mask", "patching")
    assert heads["1.0"].selected_by == ("mask", "lahis")
    assert heads["1.2"].selected_by == ()
    assert compared.heads[0].layer == 0
    assert heads["0.0"].columns["patching language"] == Verdict(9.0, 2, True)
    # Equal scores share the lowest rank: five heads have 0.
    assert heads["1.2"].columns["patching language"].rank == 3
    methods = {one.name: one for one in compared.methods}
    assert methods["patching"].specific == ("1.3",) and methods["patching"].size == 3
    assert methods["mask"].specific == () and compared.shared == ()
    table = blocks_of(result, Table, "Rankings and sets")
    told = {row.name: tuple(cell.value for cell in row.cells[:2]) for row in table.rows}
    assert told["lahis"] == (2, 0) and told["patching language"] == (2, 1)
    assert len(compared.pairs) == 21
    assert result.model.digest == "aa" * 32


def test_agreement_beside_chance_is_that_of_all_outcomes(runs: list[str]) -> None:
    """Twin: the chance that a head is in so many sets, over all 2^n outcomes."""
    columns, _ = read_methods(runs)
    sets = [column.selected(2) for column in columns]
    found = agreement(columns, sets)
    sizes = {"translation-score": 2, "mask": 3, "lahis": 2, "patching": 3}
    expected = [0.0] * 5
    for outcome in itertools.product((0, 1), repeat=4):
        share = 1.0
        for picked, size in zip(outcome, sizes.values(), strict=True):
            share *= size / 7 if picked else 1 - size / 7
        expected[sum(outcome)] += share * 7
    np.testing.assert_allclose([one.expected for one in found], expected, rtol=1e-12)
    assert [one.heads for one in found] == [2, 1, 3, 1, 0]
    assert sum(one.heads for one in found) == GEOMETRY.total


def test_the_files_hold_the_same_in_full(runs: list[str], tmp_path: Path) -> None:
    result = compare_methods(CompareMethods(tuple(runs), "2"), tmp_path / "out")
    table = json.loads((tmp_path / "out" / "methods.json").read_text())
    assert table == encode(result.comparison.heads)
    with (tmp_path / "out" / "methods.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(HEADS)
    for row, one in zip(rows, table, strict=True):
        assert (int(row["layer"]), int(row["head"])) == (one["layer"], one["head"])
        assert int(row["methods"]) == len(one["selected_by"])
        for name, verdict in one["columns"].items():
            assert float(row[f"{name} score"]) == verdict["score"]
            assert row[f"{name} selected"] == str(int(verdict["selected"]))
    again = compare_methods(CompareMethods(tuple(runs), "2"), tmp_path / "out")
    assert again == result


def test_two_runs_of_one_method_are_told_apart(runs: list[str], tmp_path: Path) -> None:
    other = write_run(tmp_path / "m2", "find mask", scores_of("1.3"), "1.3")
    columns, _ = read_methods([*runs, other])
    assert [one.name for one in columns if "mask" in one.name] == ["mask (m)", "mask (m2)"]
    assert len({one.method for one in columns}) == 5
    every, _ = read_methods(runs[:2], every_part=True)
    names = [one.name for one in every]
    assert names[:3] == ["translation-score", "translation-score de-en", "translation-score en-de"]


def test_saved_scores_are_of_the_method_they_say(runs: list[str], tmp_path: Path) -> None:
    place = tmp_path / "translation-score"  # the folder's name is no method
    scores_of("0.0,1.1", "a_measure_of_others").save_pretrained(place)
    columns, _ = read_methods([runs[1], str(place)])
    assert [column.method for column in columns] == ["mask", "a_measure_of_others"]


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda to: write_run(to, "find mask", scores_of("0.0"), weights="bb" * 32), "one model"),
        (lambda to: write_run(to, "find mask", scores_of("0.0"), finish=False), "not finished"),
        (lambda to: write_run(to, "find mask", None), "holds no scores"),
        (lambda to: write_run(to, "find soft-gate", scores_of("0.0")), "were given to it"),
        (lambda to: str(to / "nowhere"), "is no folder"),
    ],
)
def test_what_cannot_be_compared_is_told(
    make: Callable[[Path], str], said: str, runs: list[str], tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=said):
        read_methods([*runs, make(tmp_path / "bad")])


def test_another_geometry_and_a_single_run_are_told(runs: list[str], tmp_path: Path) -> None:
    wide = HeadScores(Geometry.uniform(2, 8), np.ones((2, 8)), "x")
    other = write_run(tmp_path / "wide", "find induction", wide)
    with pytest.raises(InputError, match=r"2 layers with 3/4 heads.*2 layers × 8 heads"):
        read_methods([*runs, other])
    with pytest.raises(InputError, match="at least two runs"):
        read_methods(runs[:1])
