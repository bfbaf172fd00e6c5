"""The benchmark of mask training runs and tells all it promises; no figure is judged."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any


def test_a_quick_run_prints_and_writes_one_json_object(
    tmp_path: Path, bench: Callable[..., dict[str, Any]]
) -> None:
    out = tmp_path / "results" / "mask.json"
    result = bench("mask", "--quick", "--out", out)
    assert json.loads(out.read_text(encoding="utf-8")) == result
    assert result["quick"] is True and result["shape"] == "tiny" and result["device"] == "cpu"
    assert set(result["seconds"]) == set(result["bytes"]) == {"frozen", "all_parameters"}
    assert set(result["time_ratio"]) == {"median", "min", "max", "n"}
    # Both sides learn from the same gates, and gradients of parameters take room.
    assert result["equal_losses"] is True
    assert 0 < result["bytes"]["frozen"] < result["bytes"]["all_parameters"]
    assert result["bytes_of_weights"] > 0 and result["aims"] == {"time": 0.75, "bytes": 0.6}
