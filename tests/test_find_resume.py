"""A run that was killed goes on where it stopped and ends with the same numbers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import find_helpers
import process_helpers
from headscope.data.pairs import format_links
from headscope.find.translation_config import TranslationScore
from headscope.heads import read_scores
from headscope.studies.find.translation import FindTranslation, find_translation
from headscope.studies.models import ModelChoice
from headscope.studies.pairs import PairsChoice


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A model folder and a file of six sentence pairs."""
    folder = tmp_path_factory.mktemp("inputs")
    model = folder / "model"
    find_helpers.model("qwen3").save_pretrained(model)
    find_helpers.tokenizer("metaspace").save_pretrained(model)
    lines = ["source\ttarget\tlinks"]
    for pair in find_helpers.pairs("en-de", 6).pairs:
        lines.append(f"{pair.source}\t{pair.target}\t{format_links(pair.links or ())}")
    (folder / "pairs.tsv").write_text("\n".join(lines) + "\n", "utf-8")
    return str(model), str(folder / "pairs.tsv")


def shards(out: Path) -> dict[str, tuple[int, bytes]]:
    """Every kept batch: when it was written, and what it holds."""
    found = sorted((out / "parts").rglob("*.safetensors"))
    return {one.name: (one.stat().st_mtime_ns, one.read_bytes()) for one in found}


@pytest.mark.parametrize("decode", ["reference", "greedy"])
def test_a_killed_run_ends_with_the_same_numbers(
    inputs: tuple[str, str], decode: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    model, data = inputs
    settings = TranslationScore(
        decode=decode, batch_tokens=1, max_new_tokens=8, bootstrap_draws=50, keep_peaks=True
    )  # batches of one sentence
    config = FindTranslation(ModelChoice(model), PairsChoice(("en-de",), (data,)), settings)
    asked = (find_translation, config, killed)
    changes = {**find_helpers.ALIGNER, "headscope.find.capture.AT_ONCE": 1}
    process_helpers.killed_at(3, *asked, titles=("en-de",), changes=changes)
    kept = shards(killed)
    assert len(kept) == 3 and not (killed / "DONE.json").exists()

    for name, stand_in in changes.items():
        monkeypatch.setattr(name, stand_in)
    calls: dict[Path, list[int]] = {killed: [], whole: []}

    def scored(out: Path) -> Any:
        def note(title: str, done: int, total: int) -> None:
            if title == "en-de":
                calls[out].append(done)

        return note

    results = {out: find_translation(config, out, scored(out)) for out in calls}
    assert calls[killed] == [4, 5, 6] and calls[whole] == [1, 2, 3, 4, 5, 6]
    now = shards(killed)
    assert {name: now[name] for name in kept} == kept
    assert {n: data for n, (_, data) in now.items()} == {
        n: data for n, (_, data) in shards(whole).items()
    }
    first, second = (replace(result, run=None, seconds=0) for result in results.values())
    assert first == second
    one, two = (read_scores(out)["mean"] for out in calls)
    np.testing.assert_array_equal(one.values, two.values)
    for name, array in one.statistics.items():
        np.testing.assert_array_equal(array, two.statistics[name])
    # A finished run comes back as it is: nothing is computed again.
    again = find_translation(config, killed, lambda *a: calls[killed].append(-1))
    assert again.heads == results[killed].heads and calls[killed] == [4, 5, 6]
