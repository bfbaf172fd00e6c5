"""The benchmark of mask training runs and tells all it promises; no figure is judged."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[1] / "bench"


def test_a_quick_run_prints_and_writes_one_json_object(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(BENCH))
    bench = importlib.import_module("mask")
    out = tmp_path / "results" / "mask.json"
    monkeypatch.setattr(sys, "argv", ["mask.py", "--quick", "--out", str(out)])
    bench.main()
    printed = capsys.readouterr().out
    result = json.loads(printed[printed.index("{") :])
    assert json.loads(out.read_text(encoding="utf-8")) == result
    assert result["quick"] is True and result["shape"] == "tiny" and result["device"] == "cpu"
    assert set(result["seconds"]) == set(result["bytes"]) == {"frozen", "all_parameters"}
    assert set(result["time_ratio"]) == {"median", "min", "max", "n"}
    # Both sides learn from the same gates, and gradients of parameters take room.
    assert result["equal_losses"] is True
    assert 0 < result["bytes"]["frozen"] < result["bytes"]["all_parameters"]
    assert result["bytes_of_weights"] > 0 and result["aims"] == {"time": 0.75, "bytes": 0.6}
