"""The notebook runs from top to bottom, and what it shows is what its prose says."""

from __future__ import annotations

import html
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from headscope.evidence.headline import OPEN

FILE = Path(__file__).resolve().parents[1] / "docs" / "notebooks" / "first-look.ipynb"
NUMBER = re.compile(r"-?\d+\.\d+(?:e[-+]\d+)?")


@pytest.fixture(scope="module")
def notebook(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    pytest.importorskip("nbclient", reason="nbclient is not installed (extra docs)")
    sys.path.insert(0, str(FILE.parents[1] / "tools"))
    try:
        import notebooks
    finally:
        sys.path.pop(0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_OFFLINE", "1")
        patch.setenv("OMP_NUM_THREADS", "1")
        made: dict[str, Any] = notebooks.executed(FILE, tmp_path_factory.mktemp("notebook"))
    return made


def outputs(notebook: dict[str, Any]) -> list[str]:
    """What each code cell printed or drew, as one text."""
    return [
        "".join(
            "".join(one["text"] if "text" in one else one["data"]["text/html"])
            for one in cell["outputs"]
        )
        for cell in notebook["cells"]
        if cell["cell_type"] == "code"
    ]


def prose(notebook: dict[str, Any]) -> str:
    return " ".join(
        "".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "markdown"
    )


def numbers(text: str) -> list[float]:
    return [float(one) for one in NUMBER.findall(text)]


def test_the_best_heads_hit_more_than_twice_as_often_as_chance(notebook: dict[str, Any]) -> None:
    assert "more than twice as often as chance" in prose(notebook)
    rows = [line.split() for line in outputs(notebook)[1].splitlines()[1:-1]]
    assert len(rows) == 8
    for _, score, low, _, high, chance in rows:
        assert float(low) < float(score) < float(high)
        assert float(chance) < float(low)
    assert all(float(row[1]) > 2 * float(row[5]) for row in rows[:5])
    counts = [int(one) for one in re.findall(r": (\d+)", outputs(notebook)[1])]
    assert sum(counts) == 96


def test_the_best_heads_of_the_map_lie_in_the_last_two_layers(notebook: dict[str, Any]) -> None:
    assert "lie in the last two layers" in prose(notebook)
    page = html.unescape(outputs(notebook)[2])
    (text,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    drawn = json.loads(text)["heads"]
    numbers_of = drawn["parts"]["all"]
    above = [s - c for s, c in zip(numbers_of["score"], numbers_of["chance"], strict=True)]
    ranked = sorted(zip(above, drawn["heads"], strict=True), reverse=True)
    assert len(ranked) == 6 * 16
    assert all(layer >= 4 for _, (layer, _) in ranked[:14])


def test_removal_ends_translation_and_random_heads_do_not(notebook: dict[str, Any]) -> None:
    *lines, verdict = outputs(notebook)[3].splitlines()
    as_is, chosen, random, layers, change = map(numbers, lines)
    assert as_is[0] > 90 and chosen[0] < 30
    assert random[1] <= random[0] <= random[2] and random[1] > chosen[0] + 30
    assert chosen[0] + 30 < layers[0] < random[0]  # half of a draw are selected heads
    value, low, high = change
    assert low < value < high < -50
    assert value == pytest.approx(chosen[0] - as_is[0], abs=0.11)
    assert OPEN in verdict and "--" not in verdict


def test_the_stored_outputs_are_those_of_now(notebook: dict[str, Any]) -> None:
    stored = json.loads(FILE.read_text(encoding="utf-8"))
    assert len(outputs(stored)) == 6 and all(outputs(stored))
    for kept, now in zip(outputs(stored), outputs(notebook), strict=True):
        assert NUMBER.sub("#", kept) == NUMBER.sub("#", now)
        # Random draws of few sentences may move by a point on another machine.
        assert numbers(kept) == pytest.approx(numbers(now), rel=0.03, abs=0.03)
    assert [cell["source"] for cell in stored["cells"]] == [
        cell["source"] for cell in notebook["cells"]
    ]
