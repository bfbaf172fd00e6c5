"""What a series of checkpoints shows: where it settles, and what is missing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

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
    told = shown(series(tmp_path / "run", rows))
    assert told.finding[1].startswith("From step-100 on, half of the last checkpoint’s top 3")
    assert "Half of the last chrF++ is reached from step-100 on" in told.finding[1]
    table, lines = told.sections[0].blocks[0], told.sections[1].blocks[1]
    assert isinstance(table, Table) and isinstance(lines, Lines)
    chrf = [(r.name, r.cells[-1].value, r.cells[-1].low, r.cells[-1].high) for r in table.rows]
    assert chrf == [(r["name"], r["chrf"], r["chrf_low"], r["chrf_high"]) for r in rows]
    # A last checkpoint without a step stands beyond the one before.
    assert lines.x == "training step" and [x for x, _ in lines.labels] == [10, 100, 180]
