"""The benchmark of LAHIS against itself tells what its run holds."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

#: The importance, and its first factor, which is first-order importance.
FACTORS = ("score", "magnitude")


def test_it_tells_agreement_and_the_rank_correlation_of_its_run(
    tmp_path: Path, bench: Callable[..., dict[str, Any]]
) -> None:
    result = bench("lahis_sets", "--documents", 4, "--runs", tmp_path / "run")
    found = json.loads((tmp_path / "run" / "result.json").read_text(encoding="utf-8"))
    assert result["signature"] == found["signature"]
    assert set(result["languages"]) == {"en", "de", "es", "ru", "tr"}
    for name, told in result["languages"].items():
        heads = found["languages"][name]["heads"]
        assert len(heads) == 96 and told["documents"] == 4
        assert told["median_raising"] == median(one["raising"] for one in heads)
        score, magnitude = (mean_ranks([one[name] for one in heads]) for name in FACTORS)
        assert told["rank_correlation_with_first_order"] == pytest.approx(
            float(np.corrcoef(score, magnitude)[0, 1]), abs=1e-12
        )


def mean_ranks(values: list[float]) -> NDArray[np.float64]:
    """Of each value: how many are smaller, and half of those that equal it."""
    of = np.array(values)
    return (of < of[:, None]).sum(axis=1) + (of == of[:, None]).sum(axis=1) / 2
