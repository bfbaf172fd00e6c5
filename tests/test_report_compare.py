"""What a series of checkpoints shows: where it settles, and what is missing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headscope.runs import open_run
from headscope.runs.reading import result_of
from headscope.shown.blocks import Lines, Shown, Table
from headscope.studies.registry import study_of
from headscope.studies.study import shown_of


def row(name: str, step: int | None, **more: Any) -> dict[str, Any]:
    shares = {"token_alignment": 0.1, "low_activity": 0.6, "inactive": 0.3}
    return {
        "name": name, "step": step, **shares, "above_chance": shares,
        "counts": {"token_alignment": 1, "low_activity": 6, "inactive": 3},
        "mean_score": 0.123, "highest": {"layer": 1, "head": 2, "score": 0.5},
        "overlap_with_last": 0.4, "top_overlap_with_last": 0.55,
        "top_overlap_with_last_expected": 0.15,
        "chrf": 34.5, "chrf_low": 30.0, "chrf_high": 40.0, **more,
    }  # fmt: skip


def series(path: Path, rows: list[dict[str, Any]], **more: Any) -> Path:
    result = {
        "geometry": {"layers": 1, "heads": 10, "counts": [10]}, "threshold": 0.1, "k": 3,
        "checkpoints": rows, "skipped": [], "same_tokenizer": True, "signature": "s",
        "data": {"en-de": {"found_on": 7, "verified_on": 5}}, "seconds": 1.0, "run": "r", **more,
    }  # fmt: skip
    with open_run(path, "compare formation", {"n": len(rows)}, {}) as run:
        run.finish(result)
    return path


def shown(path: Path) -> Shown:
    study = study_of("compare formation")
    return shown_of(study, result_of(path, study.result, "a series"), path)


def test_the_formation_says_from_when_on_the_heads_are_there(tmp_path: Path) -> None:
    rows = [
        row("step-10", 10, top_overlap_with_last=0.2, chrf=3.0, chrf_low=1.0, chrf_high=4.0),
        row("step-100", 100, chrf=50.0, chrf_low=45.0, chrf_high=55.0),
        row("final", None, top_overlap_with_last=1.0, chrf=80.0, overlap_with_last=1.0),
    ]
    run = series(
        tmp_path / "run", rows, k=14, geometry={"layers": 6, "heads": 96, "counts": [16] * 6}
    )
    told = shown(run)
    assert "step-100" in told.finding[1] and "50.0" in told.finding[1]
    table = next(block for block in told.blocks if isinstance(block, Table))
    overlap, chrf = (block for block in told.blocks[1:] if isinstance(block, Lines))
    (selected, random), (line,) = overlap.series, chrf.series
    assert [y for _, y in selected.points] == pytest.approx([20.0, 55.0, 100.0])
    # 14 of 96 heads, 14 of them the last: P(X <= 0) = 0.09, P(X <= 4) = 0.97, P(X <= 5) = 0.99.
    assert random.low == pytest.approx([0.0] * 3) and random.high == pytest.approx([500 / 14] * 3)
    assert [y for _, y in line.points] == [row["chrf"] for row in rows]
    at = table.columns.index("chrF++")
    cells = [(each.name, each.cells[at]) for each in table.rows]
    assert [(name, cell.value, cell.low, cell.high) for name, cell in cells] == [
        (row["name"], row["chrf"], row["chrf_low"], row["chrf_high"]) for row in rows
    ]
    lines = told.figure
    assert isinstance(lines, Lines) and not lines.series[0].low  # no scores, no intervals
    # A last checkpoint without a step stands beyond the one before.
    assert lines.x == "training step" and [x for x, _ in lines.labels] == [10, 100, 180]


def test_half_of_a_set_that_random_heads_share_as_well_is_not_told(tmp_path: Path) -> None:
    told = shown(series(tmp_path / "run", [row("step-1", 1), row("step-2", 2)]))
    assert len(told.finding) == 1  # 2 of 3 heads of 10 lie within the range of random sets
