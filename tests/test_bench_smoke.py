"""The benchmark of attention peaks runs and tells all it promises; no figure is judged."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

FORWARD = {"plain", "plain_last_logits", "peaks", "eager_attentions", "token_by_token"}
DECODE = {"generate", "generate_own", "capture"}
SPREAD = {"median", "min", "max", "n"}

# Memory over time stands in /proc alone; other systems have nothing like it to read.
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads memory from Linux's /proc")


def test_quick_run_prints_and_writes_one_json_object(
    tmp_path: Path, bench: Callable[..., dict[str, Any]]
) -> None:
    out = tmp_path / "results" / "here.json"
    result = bench("peaks", "--quick", "--threads", 1, "--out", out)
    assert json.loads(out.read_text(encoding="utf-8")) == result
    assert result["quick"] is True and result["device"] == "cpu" and result["dtype"] == "float32"
    assert {"cpu", "cores", "threads", "gpu", "torch", "transformers", "commit"} <= set(
        result["machine"]
    )
    assert result["machine"]["threads"] == 1

    (forward,) = result["reference"]
    assert (forward["shape"], forward["tokens"], forward["captured_tokens"]) == ("tiny", 32, 16)
    assert set(forward["seconds"]) == FORWARD
    for base in ("plain", "plain_last_logits"):
        ratios = forward[f"ratio_to_{base}"]
        assert set(ratios) == FORWARD - {base}
        assert all(set(one) == SPREAD and one["min"] > 0 for one in ratios.values())
    # All three ways look at the same thing.
    assert forward["equal_peaks"] == {"eager_attentions": 1.0, "token_by_token": 1.0}

    (decode,) = result["greedy"]
    assert set(decode["seconds"]) == DECODE
    assert set(decode["ratio_to_generate"]) == DECODE - {"generate"}
    assert decode["equal_tokens"] == 1.0

    ways = result["memory"]["ways"]
    assert set(ways) == {"peaks", "eager_attentions"}
    assert all(one["bytes"]["256"] > 0 for one in ways.values())
