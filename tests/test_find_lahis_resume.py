"""A run of language heads that was killed goes on where it stopped, with the same numbers."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import process_helpers
from headscope.find import gate_gradients
from headscope.find.importance import Lahis
from headscope.heads import read_scores
from headscope.progress import Progress
from headscope.studies.documents import DocumentsChoice
from headscope.studies.find.lahis import FindLahis, find_lahis
from headscope.studies.models import ModelChoice
from lm_helpers import saved

LINES = ["The red dog", "A cat sleeps here.", "x y z x y", "Nobody saw it", "one two three"]


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A model folder and a file of five documents in each of two languages."""
    folder = tmp_path_factory.mktemp("inputs")
    rows = [{"text": text, "language": "en"} for text in LINES]
    rows += [{"text": text[::-1], "language": "de"} for text in LINES]
    data = folder / "documents.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return str(saved(folder / "model", "llama")), str(data)


@pytest.mark.parametrize("moving", [False, True])
def test_a_killed_run_ends_with_the_same_numbers(
    inputs: tuple[str, str], moving: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gate_gradients, "KEPT_EVERY", 2)  # of a moving gate
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    model, data = inputs
    measure = Lahis(update_gate=moving, batch_tokens=1, bootstrap_draws=20)
    config = FindLahis(ModelChoice(model), DocumentsChoice((data,)), measure, quantile=0.5)
    # In the second language, after two of its documents and one more.
    changes = {"headscope.find.gate_gradients.KEPT_EVERY": 2}
    process_helpers.killed_at(8, find_lahis, config, killed, titles=("",), changes=changes)
    assert not (killed / "DONE.json").exists()
    kept = {path: path.read_bytes() for path in sorted((killed / "parts").rglob("*.safetensors"))}
    assert len(kept) == (4 if moving else 8)

    calls: dict[Path, list[tuple[str, int]]] = {killed: [], whole: []}

    def told(out: Path) -> Progress:
        return lambda title, done, total: calls[out].append((title, done))

    results = {out: find_lahis(config, out, told(out)) for out in calls}
    assert calls[killed] == ([("de", 3)] if moving else []) + [("de", 4), ("de", 5)]
    assert len(calls[whole]) == 10
    assert {path: path.read_bytes() for path in kept} == kept
    one_run, other_run = (replace(result, run=None, seconds=0) for result in results.values())
    assert one_run == other_run
    one, two = (read_scores(out) for out in calls)
    for name in ("en", "de", "mean"):
        np.testing.assert_array_equal(one[name].values, two[name].values)
    again = find_lahis(config, killed, lambda *_: calls[killed].append(("", -1)))
    assert again.heads == results[killed].heads and ("", -1) not in calls[killed]
