"""The benchmark of language identifiers runs and tells all it promises; no figure is judged."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

OURS = "headscope.measure.identify"

# Memory over time stands in /proc alone; other systems have nothing like it to read.
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads memory from Linux's /proc")


def test_own_sentences_and_a_folder(tmp_path: Path, bench: Callable[..., dict[str, Any]]) -> None:
    data = tmp_path / "data"
    (data / "xl-wa").mkdir(parents=True)
    (data / "xl-wa" / "en-nl.dev.tsv").write_text(
        "The dog sleeps under the table .\tDe hond slaapt onder de tafel .\t0-0\n"
        "We bought bread and cheese .\tWij kochten brood en kaas .\t0-0\n",
        encoding="utf-8",
    )
    (data / "xquad").mkdir()
    context = {"context": "今天下雨了。我们在家里看书！你呢？"}
    (data / "xquad" / "xquad.zh.json").write_text(
        json.dumps({"data": [{"paragraphs": [context]}]}), encoding="utf-8"
    )
    out = tmp_path / "results" / "here.json"
    only = ("--only", OURS, "gcld3")
    result = bench("identify", data, "--sentences", 4, "--out", out, *only)
    assert json.loads(out.read_text(encoding="utf-8")) == result
    assert str(tmp_path) not in out.read_text(encoding="utf-8")
    assert result["texts"]["pocket tr"] == 4 and result["texts"]["xl-wa nl"] == 2
    assert result["texts"]["xquad zh"] == 3 and result["texts"]["first 3 words en"] == 2
    assert {"cpu", "cores", "python", "commit"} <= set(result["machine"])

    found = result["candidates"][OURS]
    assert found["again"] is True and found["texts_per_second"] > 0 and found["peak_mib"] > 0
    right = found["right"]
    assert right["xl-wa"]["all"]["texts"] == 4
    assert right["data folder"]["all"]["texts"] == 7
    assert right["pocket"]["all"]["languages"].keys() == {"de", "en", "es", "ru", "tr"}
    # Parts by length hold every text once.
    for parts in right.values():
        assert (
            sum(part["texts"] for name, part in parts.items() if name != "all")
            == (parts["all"]["texts"])
        )
    if "absent" in (gcld3 := result["candidates"]["gcld3"]):
        assert gcld3["absent"] == "gcld3 is not installed"
