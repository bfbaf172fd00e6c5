"""The benchmark of TRater runs on a little and tells every ranker and variant."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from headscope.heads import HeadScores
from headscope.lm import LanguageModel


def test_trater_bench(
    pocket: LanguageModel, bench: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    values = np.arange(pocket.geometry.total, dtype=float).reshape(pocket.geometry.shape)
    HeadScores(pocket.geometry, values, "counted").save_pretrained(tmp_path / "scores")
    size = ("--documents", 8, "--share", 0.25, "--languages", "de", "--draws", 1)
    few = ("--k", 5, "--bootstrap", 9, "--runs", tmp_path, "--heads", tmp_path / "scores")
    result = bench("trater", *size, *few)
    german = result["languages"]["de"]
    assert (german["bilingual"], german["monolingual"]) == (2, 6)
    assert set(german["variants"]["line break"]) == {
        "bilingual", "monolingual", "first", "repeated", "unrelated", "lines"
    }  # fmt: skip  # one list
    # A line break tells translations from the corpus, and nothing from the variants.
    assert german["rankers"]["line break"]["auc"] == 1
    for kind in ("first", "repeated", "unrelated", "lines"):
        assert german["variants"]["line break"][kind]["auc of bilingual over it"] == 0.5
    # What was computed is not computed again.
    times = {file: file.stat().st_mtime_ns for file in (tmp_path / "losses").iterdir()}
    assert bench("trater", *size, *few)["languages"] == result["languages"]
    assert {file: file.stat().st_mtime_ns for file in (tmp_path / "losses").iterdir()} == times
